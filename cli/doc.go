// Package cli is the command "ankole": what a person types to use a cluster.
//
// It talks to the /v1 API and to nothing else, so whatever it can do a program can do as well.
// Every command that shows objects prints an aligned table, or with --output the objects as the API
// gives them. Commands that change something return when the order is given; with --wait they stay
// until it is carried out and show the progress: bars on a terminal, one line per change elsewhere.
// A refusal names the next step. The exit status is 1 when something failed and 2 when the command
// was not understood.
package cli
