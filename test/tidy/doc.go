// Package tidy holds the rules of this repository as tests: who may import whom, what step cores
// must not contain, how long files and functions may be, what has to be documented, and what must
// not lie around.
//
// A rule that is broken says which line breaks it and why the rule exists. Every rule has a table
// of exceptions, each with the reason why it is right there; an exception that is no longer needed
// fails too. Running the tests needs git and the go command; nothing here is part of a program.
package tidy
