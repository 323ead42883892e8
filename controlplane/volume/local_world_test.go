package volume_test

import (
	"fmt"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// A volume of best-effort locality is placed when it is attached, with a replica there; where it is
// attached next a replica is built, and one elsewhere goes.
func TestBestEffortLocalityMovesAReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), 4)
	w.newVolume(2, func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityBestEffort })
	w.settle()
	for _, r := range w.replicas() {
		if r.Spec.NodeID != "" {
			t.Fatalf("a replica is placed before the volume is attached\n%s", w.dump())
		}
	}
	w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.expect(`attached healthy at "n1"`)
	used := map[string]bool{}
	for _, r := range w.replicas() {
		used[r.Spec.NodeID] = true
	}
	if len(w.replicas()) != 2 || !used["n1"] {
		t.Fatalf("no replica was placed on the node of the volume\n%s", w.dump())
	}
	w.ticket("ui", "", "")
	w.settle()
	free := ""
	for _, n := range []string{"n4", "n3", "n2", "n1"} {
		if !used[n] {
			free = n
		}
	}
	w.ticket("ui", free, v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	for range 4 {
		w.rebuilt()
		w.settle()
	}
	w.expect(fmt.Sprintf("attached healthy at %q", free))
	local := 0
	for _, r := range w.replicas() {
		if r.Spec.NodeID == free {
			local++
		}
	}
	if local != 1 || len(w.replicas()) != 2 {
		t.Fatalf("%d local of %d replicas\n%s", local, len(w.replicas()), w.dump())
	}
}

// A volume of strict locality is placed when it is attached, and its one replica is bound to that
// node.
func TestStrictLocalityIsPlacedWhereItIsAttached(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), 4)
	w.newVolume(1, func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityStrictLocal })
	w.settle()
	if r := w.replicas(); len(r) != 1 || r[0].Spec.NodeID != "" {
		t.Fatalf("the replica is placed before the volume is attached\n%s", w.dump())
	}
	w.ticket("ui", "n3", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.expect(`attached healthy at "n3"`)
	if r := w.replicas(); len(r) != 1 || r[0].Spec.NodeID != "n3" || r[0].Spec.HardNodeAffinity != "n3" {
		t.Fatalf("the replica is not bound to the node of the volume\n%s", w.dump())
	}
	w.ticket("ui", "", "")
	w.settle()
	w.ticket("ui", "n3", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.expect(`attached healthy at "n3"`)
	if len(w.replicas()) != 1 {
		t.Fatalf("another replica was made\n%s", w.dump())
	}
}
