//go:build !stoppoints

package request

// Step marks a boundary between two steps of a call. Programs for tests, built with the tag
// stoppoints, end there if they are told to.
func Step(string) {}
