package objecttest

import (
	"testing"

	"ankole.storage/backup/object"
)

func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	Suite(t, func(*testing.T) object.Store { return &Memory{} })
}
