package volume_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// startStandIn starts a process that offers what an engine serves. Without that engine it ends.
func (w *world) startStandIn(p *proc) {
	source := arg(p.args, "--stand-in-for")[len("tcp://"):]
	m := w.engines[source]
	if m == nil || w.down[m.proc.node] {
		p.state, p.err = v1beta2.InstanceStateError, "the engine does not answer"
		return
	}
	w.standIns[w.address(p)] = &engineModel{w: w, proc: p, size: m.size}
}

// endStandIns ends those that stand in for an engine that has ended.
func (w *world) endStandIns(engine string) {
	for address, m := range w.standIns {
		if arg(m.proc.args, "--stand-in-for") == "tcp://"+engine {
			m.proc.state, m.proc.err = v1beta2.InstanceStateError, "the connection to the volume's engine has ended"
			delete(w.standIns, address)
		}
	}
}

// standIn is the object of the process that stands in on the target, nil if there is none.
func (w *world) standIn() *v1beta2.Engine {
	var e v1beta2.Engine
	if err := w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "v-e-1"}, &e); err != nil {
		return nil
	}
	return &e
}

// migratable brings a world with a volume that its CSI ticket has attached to n1.
func migratable(t fataler, dir string, nodes int) *world {
	w := newWorld(t, dir, nodes)
	w.newVolume(3, func(s *v1beta2.VolumeSpec) {
		s.AccessMode, s.Migratable = v1beta2.AccessModeReadWriteMany, true
	})
	w.settle()
	w.ticket("a", "n1", v1beta2.AttacherTypeCSI)
	w.settle()
	w.expect(`attached healthy at "n1"`)
	return w
}

// expectTarget compares where the volume is offered besides its own node.
func (w *world) expectTarget(want string) {
	w.t.Helper()
	w.settle()
	v, s := w.volume("v"), w.standIn()
	got := v.Status.CurrentMigrationNodeID
	if (s != nil) != (want != "") || got != want ||
		s != nil && (s.Status.Endpoint == "" || s.Spec.Active || s.Spec.NodeID != want || len(s.Spec.ReplicaAddressMap) > 0) {
		w.t.Fatalf("the volume is offered at %q by %+v, want %q\n%s", got, s, want, w.dump())
	}
}

// satisfied says whether a ticket is.
func (w *world) satisfied(id string) bool {
	var a v1beta2.VolumeAttachment
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "v"}, &a))
	return a.Status.AttachmentTicketStatuses[id].Satisfied
}

func TestMigrationIsConfirmed(t *testing.T) {
	t.Parallel()
	w := migratable(t, t.TempDir(), 3)
	before := len(w.replicas())
	w.ticket("b", "n2", v1beta2.AttacherTypeCSI)
	w.settle()
	w.expect(`attached healthy at "n1"`)
	w.expectTarget("n2")
	if !w.satisfied("a") || !w.satisfied("b") {
		t.Fatalf("tickets of both nodes are to be satisfied\n%s", w.dump())
	}
	w.ticket("a", "", "")
	w.settle()
	w.expect(`attached healthy at "n2"`)
	w.expectTarget("")
	if v := w.volume("v"); v.Spec.MigrationNodeID != "" || !w.satisfied("b") {
		t.Fatalf("the migration has not ended\n%s", w.dump())
	}
	for _, r := range w.replicas() {
		if r.Spec.LastFailedAt != "" || before != len(w.replicas()) {
			t.Errorf("a replica was lost, or made, by the migration\n%s", w.dump())
		}
	}
	w.ticket("c", "n3", v1beta2.AttacherTypeCSI) // and on
	w.expectTarget("n3")
	w.ticket("b", "", "")
	w.settle()
	w.expect(`attached healthy at "n3"`)
	w.ticket("c", "", "")
	w.settle()
	w.expect(`detached unknown at ""`)
}

func TestMigrationIsRolledBack(t *testing.T) {
	t.Parallel()
	w := migratable(t, t.TempDir(), 3)
	engine := w.engine().Status.UUID
	w.ticket("b", "n2", v1beta2.AttacherTypeCSI)
	w.expectTarget("n2")
	w.ticket("b", "", "")
	w.expectTarget("")
	w.expect(`attached healthy at "n1"`)
	if now := w.engine().Status.UUID; now != engine {
		t.Errorf("engine %s runs in the place of %s\n%s", now, engine, w.dump())
	}
}

// TestNoReplicaIsMadeDuringAMigration, and none is deleted: that begins when the migration is over.
func TestNoReplicaIsMadeDuringAMigration(t *testing.T) {
	t.Parallel()
	w := migratable(t, t.TempDir(), 5)
	w.ticket("b", "n2", v1beta2.AttacherTypeCSI)
	w.expectTarget("n2")
	for _, r := range w.replicas() {
		if node := r.Spec.NodeID; node != "n1" && node != "n2" {
			w.cut(node)
			break
		}
	}
	w.advance(2*time.Hour, 5*time.Minute)
	if n := len(w.replicas()); n != 3 {
		t.Fatalf("%d replicas during the migration\n%s", n, w.dump())
	}
	w.ticket("b", "", "")
	w.expectTarget("")
	w.heal(2 * time.Hour)
}

// TestMigrationFails: the volume is detached while it migrates, and stays so as long as two nodes
// claim it.
func TestMigrationFails(t *testing.T) {
	t.Parallel()
	w := migratable(t, t.TempDir(), 3)
	w.ticket("b", "n2", v1beta2.AttacherTypeCSI)
	w.expectTarget("n2")
	w.killManager("n1")
	w.advance(ioBound+2*time.Minute, 20*time.Second)
	w.expect(`detached unknown at ""`)
	w.expectTarget("")
	w.ticket("a", "", "")
	w.advance(time.Minute, 10*time.Second) // what is left of it starts without the node that is lost
	w.expect(`attached degraded at "n2"`)
	if w.told("MigrationFailed") == 0 {
		t.Error("nobody was told that the migration has failed")
	}
}

// TestMigrationWithFaults draws what tickets and faults do to a volume that migrates. In the end
// one ticket is left, and the volume is where it says, whole, and nowhere else.
func TestMigrationWithFaults(t *testing.T) {
	t.Parallel()
	dir, run := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		w := migratable(t, fmt.Sprintf("%s/%d", dir, run), 3)
		w.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1))
		at := map[string]string{"a": "n1"}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			w.migrationStep(t, at)
			if rapid.Bool().Draw(t, "settle") {
				w.settle()
			} else {
				w.round(false)
			}
		}
		for _, node := range []string{"n1", "n2", "n3"} {
			w.mend(node)
		}
		w.settle()
		if len(at) == 0 {
			at["a"] = "n1"
			w.ticket("a", "n1", v1beta2.AttacherTypeCSI)
		}
		last := "a"
		if at["a"] == "" || len(at) == 2 && rapid.Bool().Draw(t, "the second stays") {
			last = "b"
			w.ticket("a", "", "")
		} else {
			w.ticket("b", "", "")
		}
		w.rng = nil
		w.settle()
		w.heal(30 * time.Minute)
		w.expect(`attached healthy at "` + at[last] + `"`)
		w.expectTarget("")
	})
}

// migrationStep does one thing; at are the tickets.
func (w *world) migrationStep(t *rapid.T, at map[string]string) {
	kind := rapid.SampledFrom([]string{"ticket a", "ticket b", "ticket b", "engine", "stand-in", "replica", "cut", "mend",
		"time"}).Draw(t, "what")
	node := rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "node")
	switch kind {
	case "ticket a", "ticket b":
		id := kind[len(kind)-1:]
		other := map[string]string{"a": "b", "b": "a"}[id]
		switch {
		case at[id] != "":
			delete(at, id)
			w.ticket(id, "", "")
		case at[other] != node && (at[other] == "" || w.volume("v").Status.State == v1beta2.VolumeStateAttached):
			at[id] = node
			w.ticket(id, node, v1beta2.AttacherTypeCSI)
		}
	case "engine":
		w.killProcess(isEngine)
	case "stand-in":
		w.killProcess(isStandIn)
	case "replica":
		w.killProcess(isReplica)
	case "cut":
		if len(w.down) == 0 {
			w.cut(node)
		}
	case "mend":
		w.mend(node)
	case "time":
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
	}
}
