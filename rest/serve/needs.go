package serve

import (
	"slices"
	"strings"

	"ankole.storage/rest/access"
)

// streamOperation begins the operation of a stream, and its name follows.
const streamOperation = "stream "

// NamedObject stands, as the name in a right, for the object that the path names.
const NamedObject = "{name}"

// Needs returns the rights that an operation needs, on the object of a name where it is about
// one. There is at least one; it may be that of everybody who is let in.
func (t *Table) Needs(operation, name string) ([]access.Need, bool) {
	declared, ok := t.Rights[operation]
	if !ok && strings.HasPrefix(operation, streamOperation) && t.Streams[operation[len(streamOperation):]].List == nil {
		return []access.Need{{}}, true // there is no such stream, which the route says
	}
	needs := slices.Clone(declared)
	for i := range needs {
		if needs[i].Name == NamedObject {
			needs[i].Name = name
		}
	}
	return needs, ok
}
