package simulated_test

import (
	"slices"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// standIn is the object of the process that stands in on the target, nil if there is none.
func (w *world) standIn() *v1beta2.Engine { return get[*v1beta2.Engine](w, "v-e-1") }

// migratable makes a volume that its CSI ticket has attached to n1.
func (w *world) migratable() {
	w.makeVolume(3, func(s *v1beta2.VolumeSpec) { s.AccessMode, s.Migratable = v1beta2.AccessModeReadWriteMany, true })
	w.settle()
	w.tickets("a", "n1", v1beta2.AttacherTypeCSI)
	w.settle()
	w.expect(`attached healthy at "n1"`)
}

// expectTarget compares where the volume is offered besides its own node.
func (w *world) expectTarget(want string) {
	w.t.Helper()
	w.settle()
	v, s := w.volume("v"), w.standIn()
	got := v.Status.CurrentMigrationNodeID
	if (s != nil) != (want != "") || got != want ||
		s != nil && (s.Status.Endpoint == "" || s.Spec.Active || s.Spec.NodeID != want || len(s.Spec.ReplicaAddressMap) > 0) {
		w.failf("the volume is offered at %q by %+v, want %q", got, s, want)
	}
}

// satisfied says whether a ticket is.
func (w *world) satisfied(id string) bool {
	return get[*v1beta2.VolumeAttachment](w, "v").Status.AttachmentTicketStatuses[id].Satisfied
}

func TestMigrationIsConfirmed(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.migratable()
		before := len(w.replicas())
		w.tickets("b", "n2", v1beta2.AttacherTypeCSI)
		w.settle()
		w.expect(`attached healthy at "n1"`)
		w.expectTarget("n2")
		if !w.satisfied("a") || !w.satisfied("b") {
			w.failf("tickets of both nodes are to be satisfied")
		}
		w.tickets("a", "", "")
		w.settle()
		w.expect(`attached healthy at "n2"`)
		w.expectTarget("")
		if v := w.volume("v"); v.Spec.MigrationNodeID != "" || !w.satisfied("b") {
			w.failf("the migration has not ended")
		}
		for _, r := range w.replicas() {
			if r.Spec.LastFailedAt != "" || before != len(w.replicas()) {
				t.Errorf("a replica was lost, or made, by the migration\n%s", w.dump())
			}
		}
		w.tickets("c", "n3", v1beta2.AttacherTypeCSI) // and on
		w.expectTarget("n3")
		w.tickets("b", "", "")
		w.settle()
		w.expect(`attached healthy at "n3"`)
		w.tickets("c", "", "")
		w.settle()
		w.expect(`detached unknown at ""`)
	})
}

func TestMigrationIsRolledBack(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.migratable()
		engine := w.engine().Status.UUID
		w.tickets("b", "n2", v1beta2.AttacherTypeCSI)
		w.expectTarget("n2")
		w.tickets("b", "", "")
		w.expectTarget("")
		w.expect(`attached healthy at "n1"`)
		if now := w.engine().Status.UUID; now != engine {
			t.Errorf("engine %s runs in the place of %s\n%s", now, engine, w.dump())
		}
	})
}

// TestNoReplicaIsMadeDuringAMigration, and none is deleted: that begins when the migration is over.
func TestNoReplicaIsMadeDuringAMigration(t *testing.T) {
	scene(t, 5, func(t *testing.T, w *world) {
		w.migratable()
		before := w.replicaNames()
		w.tickets("b", "n2", v1beta2.AttacherTypeCSI)
		w.expectTarget("n2")
		for _, r := range w.replicas() {
			if node := r.Spec.NodeID; node != "n1" && node != "n2" {
				w.cut(node)
				break
			}
		}
		w.run(2 * time.Hour)
		if after := w.replicaNames(); !slices.Equal(before, after) {
			w.failf("replicas %v became %v during the migration", before, after)
		}
		w.tickets("b", "", "")
		w.expectTarget("")
		w.heals(2 * time.Hour)
	})
}

// TestMigrationFails: the volume is detached while it migrates, and stays so as long as two nodes
// claim it.
func TestMigrationFails(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.migratable()
		w.tickets("b", "n2", v1beta2.AttacherTypeCSI)
		w.expectTarget("n2")
		w.keepAway("n1")
		w.run(ioBound + 2*time.Minute)
		w.expect(`detached unknown at ""`)
		w.expectTarget("")
		w.tickets("a", "", "")
		w.run(time.Minute) // what is left of it starts without the node that is lost
		w.expect(`attached degraded at "n2"`)
		if w.told("MigrationFailed") == 0 {
			t.Error("nobody was told that the migration has failed")
		}
	})
}

// TestMigrationWithFaults draws what tickets and faults do to a volume that migrates. In the end
// one ticket is left, and the volume is where it says, whole, and nowhere else.
func TestMigrationWithFaults(t *testing.T) {
	drawn(t, 12, 3, func(w *world) {
		w.migratable()
		at := map[string]string{"a": "n1"}
		for range 1 + w.rng.IntN(12) {
			w.migrationStep(at)
			w.pause()
		}
		w.endFaults()
		w.settle()
		if len(at) == 0 {
			at["a"] = "n1"
			w.tickets("a", "n1", v1beta2.AttacherTypeCSI)
		}
		last := "a"
		if at["a"] == "" || len(at) == 2 && w.rng.IntN(2) == 0 {
			last = "b"
			w.tickets("a", "", "")
		} else {
			w.tickets("b", "", "")
		}
		w.settle()
		w.heals(30 * time.Minute)
		w.expect(`attached healthy at "` + at[last] + `"`)
		w.expectTarget("")
	})
}

// migrationStep does one thing; at are the tickets.
func (w *world) migrationStep(at map[string]string) {
	h := pick(w, w.nodes)
	switch w.rng.IntN(8) {
	case 0, 1, 2:
		id, other := "a", "b"
		if w.rng.IntN(3) > 0 {
			id, other = other, id
		}
		switch {
		case at[id] != "":
			delete(at, id)
			w.tickets(id, "", "")
		case at[other] != h.name && (at[other] == "" || w.volume("v").Status.State == v1beta2.VolumeStateAttached):
			at[id] = h.name
			w.tickets(id, h.name, v1beta2.AttacherTypeCSI)
		}
	case 3:
		w.killFirst(isEngine)
	case 4:
		w.killFirst(isStandIn)
	case 5:
		w.killFirst(isReplica)
	case 6:
		if !slices.ContainsFunc(w.nodes, func(o *host) bool { return !o.reachable() }) {
			w.away(h, false)
		}
	case 7:
		w.comeBack(h)
	}
}
