package engine

import (
	"errors"
	"testing"

	"ankole.storage/dataplane/block"
)

// TestRefusalSaysItsCodeOnce: a replica's text may begin with that of its code.
func TestRefusalSaysItsCodeOnce(t *testing.T) {
	for text, want := range map[string]string{
		"limit reached: 250 snapshots": "limit reached: 250 snapshots",
		"250 snapshots":                "limit reached: 250 snapshots",
		"limit reached":                "limit reached: no reason given",
		"":                             "limit reached: no reason given",
	} {
		err := refusal(block.LimitReached, text)
		if err.Error() != want || !errors.Is(err, block.LimitReached) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
