//go:build nolegacy

package admission

// readForNodes is what is read live for a new or changed node.
var readForNodes = []string{"node of Kubernetes"}
