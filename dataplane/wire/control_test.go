package wire

import (
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
)

// The longest description there can be fits into a frame: 250 snapshots with the longest names and
// labels, listed twice.
func TestLongestDescriptionFitsAFrame(t *testing.T) {
	const most = 1 << 46
	name := strings.Repeat("n", 255)
	labels := map[string]string{"": ""}
	for LabelsFit(labels) {
		labels[""] += "x"
	}
	labels[""] = labels[""][1:]
	l := Layer{Name: name, Parent: name, Size: most, Allocated: most, Removed: true, UserCreated: true,
		Created: "2026-11-21T09:00:00.000000000Z", Labels: labels}
	r := ControlReply{Chain: &ChainDescription{Size: most, Structure: make([]byte, 16), Branches: []Layer{}},
		Absent: &AbsentReply{Structure: make([]byte, 16), Changed: []string{strings.Repeat("c", 3<<10)}}}
	for range 250 {
		r.Snapshots = append(r.Snapshots, l)
		r.Chain.Layers = append(r.Chain.Layers, l)
	}
	if n := len(Marshal(r)); n > MaxPayload || n < MaxPayload*3/4 {
		t.Errorf("%d bytes; a frame has room for %d", n, MaxPayload)
	}
}

// Labels are bounded as they are sent: a character that takes six bytes there counts as six.
func TestLabelsAreBounded(t *testing.T) {
	for labels, fit := range map[string]bool{"": true, strings.Repeat("x", MaxLabels-16): true,
		strings.Repeat("x", MaxLabels):   false,
		strings.Repeat("<", MaxLabels/4): false} {
		err := (&SnapshotRequest{Name: "s", Labels: map[string]string{"a": labels}}).Check()
		if (err == nil) != fit || err != nil && !strings.Contains(err.Error(), block.Invalid.Error()) {
			t.Errorf("labels of %d characters: %v", len(labels), err)
		}
	}
	if err := (&SnapshotRequest{Name: "s"}).Check(); err != nil {
		t.Error(err)
	}
}
