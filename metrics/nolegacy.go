//go:build nolegacy

package metrics

// engineOnly: there is no such type any more.
func engineOnly(string) bool { return false }
