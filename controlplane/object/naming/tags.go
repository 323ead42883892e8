package naming

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Tags returns tags of a node or a disk in their normal form: sorted, each once, never nil.
func Tags(tags []string) []string {
	out := append([]string{}, tags...)
	slices.Sort(out)
	return slices.Compact(out)
}

// TagProblems says why a text cannot be a tag; nothing if it can be. Tags have the form of a key of
// a label.
func TagProblems(tag string) []string { return validation.IsQualifiedName(tag) }
