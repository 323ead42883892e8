package chain_test

import (
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
)

// TestLongestSnapshotName: the control plane refuses what is longer (naming.MaxSnapshotName).
func TestLongestSnapshotName(t *testing.T) {
	if err := chain.ValidateSnapshotName(strings.Repeat("x", 225)); err != nil {
		t.Error(err)
	}
	if err := chain.ValidateSnapshotName(strings.Repeat("x", 226)); err == nil {
		t.Error("a name of 226 characters is valid")
	}
}
