// Package mutation shows that tests would notice if the system stopped keeping its promises.
//
// Each file of testdata is a deliberate bug that breaks a line of docs/guide/promise.md and that no
// tool for mutants would make, such as a sync that is missing or comes too late: the exact text of
// the code and the text that replaces it, the test that must fail, and what that test must say. The
// bug is laid over the source by go test -overlay, so the tree itself is never touched. A bug whose
// old text is no longer found, that does not compile, or that no test notices, fails TestMutations:
// the first means that the code has moved on and the bug must follow, the last that a test is
// missing.
//
// docs/design/mutations.md lists them; it is generated: go test ./test/mutation -run TestPage
// -update.
//
// Without MUTATIONS in the environment it is only looked at whether every bug still fits the code;
// MUTATIONS=all tries all of them, MUTATIONS=quick those marked so, MUTATIONS=name,name… some.
package mutation
