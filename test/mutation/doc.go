// Package mutation shows that the tests of the data path would notice if the data path stopped
// keeping its promises.
//
// Each file of testdata is a deliberate bug of the kind that costs somebody data: the exact text of
// the code and the text that replaces it, the test that must fail, and what that test must say. The
// bug is laid over the source by go test -overlay, so the tree itself is never touched. A bug whose
// old text is no longer found, that does not compile, or that no test notices, fails TestMutations:
// the first means that the code has moved on and the bug must follow, the last that a test is
// missing.
//
// docs/mutations.md lists them; it is generated: go test ./test/mutation -update.
//
// Only those marked quick run by default; MUTATIONS=all runs all of them, MUTATIONS=name,name… the
// named ones.
package mutation
