package volume_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume"
)

// checkSafe holds what must never be broken: unless the volume is deleted, the newest acknowledged
// content is on some disk, and the engine that was granted the newest epoch has it on every member
// that it can read from.
func (w *world) checkSafe() {
	w.t.Helper()
	v := w.volume("v")
	if v == nil || v.DeletionTimestamp != nil {
		return
	}
	w.mu.Lock() // a hand-over that runs beside writes too
	defer w.mu.Unlock()
	if w.acknowledged.Sign() == 0 {
		return
	}
	if w.copies() == 0 {
		w.t.Fatalf("P2: no directory that is left has the newest acknowledged content\n%s", w.dump())
	}
	for _, m := range w.engines {
		if volumeOf(m.proc.name) != "v" {
			continue
		}
		if granted, _ := w.witness(m.proc.name); granted.Epoch != m.epoch || granted.VolumeUUID != m.uid {
			continue // replaced: it acknowledges nothing, and learns of it
		}
		for _, dir := range m.record.members {
			if m.memberAt(dir) != nil && !w.complete(w.disks[dir]) {
				w.t.Fatalf("P2: engine %s reads from %s, which lacks acknowledged writes\n%s", m.proc.uuid, dir, w.dump())
			}
		}
	}
}

// copies counts the directories that have the newest acknowledged content.
func (w *world) copies() (n int) {
	for dir, c := range w.disks {
		if w.complete(c) && !w.removed(dir, c) {
			n++
		}
	}
	return n
}

// expect describes the volume shortly and compares.
func (w *world) expect(want string) {
	w.t.Helper()
	v := w.volume("v")
	got := "gone"
	if v != nil {
		got = fmt.Sprintf("%s %s at %q", v.Status.State, v.Status.Robustness, v.Status.CurrentNodeID)
	}
	if got != want {
		w.t.Fatalf("volume is %s, want %s\n%s", got, want, w.dump())
	}
}

// modes counts the replicas of the running engine by mode.
func (w *world) modes() map[v1beta2.ReplicaMode]int {
	out := map[v1beta2.ReplicaMode]int{}
	for _, m := range w.engine().Status.ReplicaModeMap {
		out[m]++
	}
	return out
}

// heal ends rebuilds until the volume has what it wants, letting time pass.
func (w *world) heal(limit time.Duration) {
	w.t.Helper()
	for end := w.now.Add(limit); w.now.Before(end); {
		w.settle()
		w.rebuilt()
		w.settle()
		v := w.volume("v")
		if v.Status.State == v1beta2.VolumeStateAttached && v.Status.Robustness == v1beta2.VolumeRobustnessHealthy {
			return
		}
		w.now = w.now.Add(15 * time.Second)
	}
	w.t.Fatalf("the volume does not heal\n%s", w.dump())
}

func (w *world) killProcess(match func(*proc) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(w.procs)) {
		if p := w.procs[key]; p.state == v1beta2.InstanceStateRunning && match(p) {
			w.end(key, "signal: killed")
			return true
		}
	}
	return false
}

// killReplicas ends all of them at once: no engine has a moment to go on without some.
func (w *world) killReplicas() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.procs {
		if isReplica(p) && p.state == v1beta2.InstanceStateRunning {
			p.state, p.err = v1beta2.InstanceStateError, "signal: killed"
		}
	}
	w.detect()
}

func isEngine(p *proc) bool  { return slices.Contains(p.args, "controller") && !isStandIn(p) }
func isReplica(p *proc) bool { return !isEngine(p) && !isStandIn(p) }
func isStandIn(p *proc) bool { return arg(p.args, "--stand-in-for") != "" }

// killManager ends an instance manager with all its processes.
func (w *world) killManager(node string) {
	w.mu.Lock()
	for _, key := range slices.Sorted(maps.Keys(w.procs)) {
		if w.procs[key].node == node {
			w.end(key, "")
		}
	}
	w.mu.Unlock()
	w.setManager(node, v1beta2.InstanceManagerStateError)
}

func (w *world) setManager(node string, state v1beta2.InstanceManagerState) {
	var im v1beta2.InstanceManager
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "im-" + node}, &im))
	im.Status.CurrentState = state
	if state != v1beta2.InstanceManagerStateRunning && state != v1beta2.InstanceManagerStateUnknown {
		im.Status.InstanceEngines, im.Status.InstanceReplicas = nil, nil
	}
	must(w.t, w.c.Status().Update(context.Background(), &im))
}

// cut takes a node off the network; its processes go on for themselves.
func (w *world) cut(node string) {
	w.mu.Lock()
	w.down[node] = true
	w.detect()
	w.mu.Unlock()
	w.setNode(node, v1beta2.ConditionFalse, v1beta2.NodeReasonKubernetesNodeNotReady)
	w.setManager(node, v1beta2.InstanceManagerStateUnknown)
}

func (w *world) mend(node string) {
	w.mu.Lock()
	delete(w.down, node)
	for _, m := range w.engines {
		if m.proc.node == node {
			m.publish()
		}
	}
	w.detect()
	w.mu.Unlock()
	w.setNode(node, v1beta2.ConditionTrue, "")
	w.setManager(node, v1beta2.InstanceManagerStateRunning)
}

func (w *world) setNode(node string, ready v1beta2.ConditionStatus, reason string) {
	var n v1beta2.Node
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: node}, &n))
	n.Status.Conditions, _ = v1beta2.SetCondition(n.Status.Conditions,
		v1beta2.Condition{Type: v1beta2.NodeConditionReady, Status: ready, Reason: reason}, w.now)
	must(w.t, w.c.Status().Update(context.Background(), &n))
}

// attached brings a world with an attached healthy volume of three replicas.
func attached(t fataler, dir string, nodes, replicas int) *world {
	w := newWorld(t, dir, nodes)
	w.newVolume(replicas, nil)
	w.settle()
	w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	return w
}

func TestCreateAttachDetachAttachElsewhereDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), 3)
	w.newVolume(3, nil)
	w.settle()
	w.expect(`detached unknown at ""`)
	used := map[string]bool{}
	for _, r := range w.replicas() {
		used[r.Spec.NodeID] = true
	}
	if len(used) != 3 {
		t.Fatalf("replicas are not on three nodes\n%s", w.dump())
	}
	w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.expect(`attached healthy at "n1"`)
	w.ticket("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.expect(`attached healthy at "n2"`)
	w.ticket("ui", "", "")
	w.settle()
	w.expect(`detached unknown at ""`)
	if len(w.procs) != 0 {
		t.Fatalf("processes left after detaching\n%s", w.dump())
	}
	must(t, w.c.Delete(context.Background(), w.volume("v")))
	w.settle()
	w.expect("gone")
	for dir, c := range w.disks {
		if !w.removed(dir, c) {
			t.Errorf("directory %s is left on %s", dir, c.node)
		}
	}
	if n := len(w.replicas()); n != 0 {
		t.Errorf("%d replica objects left", n)
	}
}

func TestLostReplicaProcessIsRebuiltWhereItIs(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	before := names(w)
	w.killProcess(func(p *proc) bool { return isReplica(p) && p.node == "n3" })
	w.settle()
	w.expect(`attached degraded at "n1"`)
	if m := w.modes(); m[v1beta2.ReplicaModeRW] != 2 || m[v1beta2.ReplicaModeWO] != 1 {
		t.Fatalf("modes %v\n%s", m, w.dump())
	}
	w.rebuilt()
	w.settle()
	w.expect(`attached healthy at "n1"`)
	if after := names(w); !slices.Equal(before, after) {
		t.Errorf("replicas changed from %v to %v although the failed one could be reused", before, after)
	}
}

func names(w *world) []string {
	var out []string
	for _, r := range w.replicas() {
		out = append(out, r.Name)
	}
	slices.Sort(out)
	return out
}

func TestLostNodeIsReplacedAfterTheWaitInterval(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 4, 3)
	var victim string
	for _, r := range w.replicas() {
		if r.Spec.NodeID != "n1" {
			victim = r.Spec.NodeID
		}
	}
	w.cut(victim)
	w.settle()
	w.expect(`attached degraded at "n1"`)
	w.advance(9*time.Minute, time.Minute)
	if len(w.replicas()) != 3 {
		t.Fatalf("replaced before the wait interval\n%s", w.dump())
	}
	w.advance(2*time.Minute, 30*time.Second)
	if len(w.replicas()) != 4 {
		t.Fatalf("not replaced after the wait interval\n%s", w.dump())
	}
	w.rebuilt()
	w.settle()
	w.expect(`attached healthy at "n1"`)
	w.mend(victim)
	w.settle()
	w.advance(40*time.Minute, 5*time.Minute)
	if len(w.replicas()) != 3 {
		t.Fatalf("the stale replica is still there\n%s", w.dump())
	}
	for dir, c := range w.disks {
		if c.node == victim && !w.removed(dir, c) {
			t.Errorf("the stale replica's directory %s is left on %s", dir, victim)
		}
	}
}

func TestCrashedEngineIsRestartedInPlace(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	w.killProcess(isEngine)
	w.settle()
	w.expect(`attached healthy at "n1"`)
	for _, r := range w.replicas() {
		if r.Spec.LastFailedAt != "" {
			t.Errorf("replica %s was marked as failed for the engine's crash", r.Name)
		}
	}
}

func TestEverythingKilledAtOnceComesBackWithoutRebuild(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	for round := range 3 {
		for _, n := range []string{"n1", "n2", "n3"} {
			w.killManager(n)
		}
		w.settle()
		for _, n := range []string{"n3", "n1", "n2"} {
			w.setManager(n, v1beta2.InstanceManagerStateRunning)
			w.settle()
		}
		w.expect(`attached healthy at "n1"`)
		if m := w.modes(); m[v1beta2.ReplicaModeRW] != 3 {
			t.Fatalf("round %d: modes %v\n%s", round, m, w.dump())
		}
	}
}

func TestLostInstanceManagerOfTheEngine(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	w.killManager("n1")
	w.settle()
	w.setManager("n1", v1beta2.InstanceManagerStateRunning)
	w.settle()
	w.heal(5 * time.Minute)
	w.expect(`attached healthy at "n1"`)
}

// TestInstanceManagerOfTheEngineStaysAway: nothing on the engine's node can run the next engine, so
// I/O waits for its bound and fails then, and the volume is faulted, so that somebody is told; it
// is there again with the instance manager.
func TestInstanceManagerOfTheEngineStaysAway(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	w.killManager("n1")
	w.advance(4*time.Minute, 10*time.Second)
	w.expect(`attached unknown at "n1"`)
	w.advance(2*time.Minute, 10*time.Second)
	w.expect(`attaching unknown at ""`)
	w.setManager("n1", v1beta2.InstanceManagerStateRunning)
	w.settle()
	w.heal(5 * time.Minute)
	w.expect(`attached healthy at "n1"`)
}

func TestEngineNodeLostMovesOnlyByTicket(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 4, 3)
	w.cut("n1")
	w.advance(2*time.Minute, 30*time.Second)
	if v := w.volume("v"); v.Status.CurrentNodeID != "n1" {
		t.Fatalf("the volume left its node without a ticket\n%s", w.dump())
	}
	w.ticket("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
	w.advance(2*time.Minute, 10*time.Second)
	w.expect(`attached degraded at "n2"`)
	w.mend("n1")
	w.settle()
	for key, p := range w.procs {
		if isEngine(p) && p.node == "n1" {
			t.Errorf("the old engine %s still runs", key)
		}
	}
	w.heal(20 * time.Minute)
	w.expect(`attached healthy at "n2"`)
}

// TestUnlistedProcessesGoOn: a leader that has no list from the instance managers of nodes that are
// up, as right after it has become leader, ends nothing.
func TestUnlistedProcessesGoOn(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	before := maps.Clone(w.procs)
	for _, n := range []string{"n1", "n2", "n3"} {
		w.setManager(n, v1beta2.InstanceManagerStateUnknown)
		w.settle()
	}
	w.advance(time.Minute, 20*time.Second)
	for _, n := range []string{"n3", "n1", "n2"} {
		w.setManager(n, v1beta2.InstanceManagerStateRunning)
		w.settle()
	}
	w.expect(`attached healthy at "n1"`)
	if !maps.Equal(before, w.procs) {
		t.Fatalf("processes were ended\n%s", w.dump())
	}
	for _, r := range w.replicas() {
		if r.Spec.LastFailedAt != "" {
			t.Errorf("replica %s was marked as failed", r.Name)
		}
	}
}

func TestStaleReplicaIsGivenToTheEngineAndRebuilt(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	w.cut("n3")
	w.settle()
	w.ticket("ui", "", "")
	w.settle()
	w.expect(`detached unknown at ""`)
	w.mend("n3")
	w.settle()
	w.ticket("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	// Nobody but the engine knows that the third copy is stale.
	if m := w.modes(); m[v1beta2.ReplicaModeRW] != 2 || m[v1beta2.ReplicaModeWO] != 1 {
		t.Fatalf("modes %v\n%s", m, w.dump())
	}
	w.heal(time.Minute)
}

// TestAllReplicasLostAtOnce: the device stays, no copy is marked as failed, and the next engine
// begins with all of them.
func TestAllReplicasLostAtOnce(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	for round := range 3 {
		w.killReplicas()
		w.settle()
		w.expect(`attached healthy at "n1"`)
		if m := w.modes(); m[v1beta2.ReplicaModeRW] != 3 {
			t.Fatalf("round %d: modes %v\n%s", round, m, w.dump())
		}
		w.now = w.now.Add(time.Minute)
	}
	for _, r := range w.replicas() {
		if r.Spec.LastFailedAt != "" {
			t.Errorf("replica %s was marked as failed", r.Name)
		}
	}
}

// TestAllReplicasAwayForAWhile: their nodes are cut off. I/O waits, and goes on when they are back;
// when they stay away for longer than the bound the volume is faulted, and salvaged afterwards.
func TestAllReplicasAwayForAWhile(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		away  time.Duration
		fault bool
	}{{time.Minute, false}, {ioBound - 30*time.Second, false}, {ioBound + 30*time.Second, true}} {
		t.Run(row.away.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, t.TempDir(), 3)
			w.newVolume(2, nil)
			w.settle()
			used := map[string]bool{}
			for _, r := range w.replicas() {
				used[r.Spec.NodeID] = true
			}
			free := "n1"
			for used[free] {
				free = "n" + string(free[1]+1)
			}
			w.ticket("ui", free, v1beta2.AttacherTypeLonghornAPI)
			w.settle()
			for _, node := range slices.Sorted(maps.Keys(used)) {
				w.cut(node)
			}
			w.advance(row.away, 10*time.Second)
			v := w.volume("v")
			c := v1beta2.FindCondition(v.Status.Conditions, volume.ConditionWaitForReplicas)
			if !row.fault {
				w.expect(fmt.Sprintf("attached unknown at %q", free))
				if c.Status != v1beta2.ConditionTrue || c.Reason != volume.ReasonIOWaits {
					t.Errorf("condition %+v", c)
				}
			} else if v.Status.Robustness != v1beta2.VolumeRobustnessFaulted {
				t.Errorf("robustness %s after %s\n%s", v.Status.Robustness, row.away, w.dump())
			}
			for _, node := range slices.Sorted(maps.Keys(used)) {
				w.mend(node)
			}
			w.heal(10 * time.Minute)
			w.expect(fmt.Sprintf("attached healthy at %q", free))
			after := w.volume("v").Status
			if (after.LastAutoSalvagedAt != "") != row.fault || (after.RemountRequestedAt != "") != row.fault {
				t.Errorf("salvaged at %q, remount at %q\n%s", after.LastAutoSalvagedAt, after.RemountRequestedAt, w.dump())
			}
		})
	}
}

func TestNoPlaceForAReplicaIsToldAndMended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), 2)
	w.newVolume(3, nil)
	w.settle()
	// One replica with a place is enough while detached; once attached, the missing one shows.
	w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	v := w.volume("v")
	c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
	if c.Status != v1beta2.ConditionFalse || c.Reason != v1beta2.VolumeReasonReplicaSchedulingFailure || c.Message == "" {
		t.Fatalf("condition %+v", c)
	}
	w.expect(`attached degraded at "n1"`)
}

func TestFewerCopiesThanWantedAreAddedAfterTheNumberWasRaised(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 1)
	v := w.volume("v")
	v.Spec.NumberOfReplicas = 3
	must(t, w.c.Update(context.Background(), v))
	w.heal(10 * time.Minute)
	if n := len(w.replicas()); n != 3 {
		t.Fatalf("%d replicas\n%s", n, w.dump())
	}
}

func TestEvictedReplicaIsReplacedAndRemoved(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 4, 3)
	r := w.replicas()[0]
	r.Spec.EvictionRequested = true
	must(t, w.c.Update(context.Background(), &r))
	for range 4 {
		w.settle()
		w.rebuilt()
	}
	w.settle()
	w.expect(`attached healthy at "n1"`)
	for _, have := range w.replicas() {
		if have.Name == r.Name {
			t.Fatalf("the evicted replica is still there\n%s", w.dump())
		}
	}
}

// drawnRuns is how many fault schedules are drawn unless -rapid.checks says otherwise: each is a
// cluster's life of some hundred steps.
const drawnRuns = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", drawnRuns); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// endFaults brings nodes back and ends the rebuilds of other volumes.
func (w *world) endFaults(nodes []string) {
	for _, n := range nodes {
		if w.down[n] {
			w.mend(n)
		}
	}
	for name := range w.strangers {
		w.strangerEnds(name)
	}
}

// unevenly has the world's reconcilers run in an order that is drawn.
func (w *world) unevenly(t *rapid.T) {
	w.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1))
}

// TestAnyFaultsHeal draws faults, moves and pauses. Whatever happens, checkSafe holds after each
// step of each reconciler, and once the faults are over the volume is attached, healthy and holds
// the newest data.
func TestAnyFaultsHeal(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		w := attached(t, fmt.Sprintf("%s/%d", dir, run), 4, rapid.IntRange(1, 3).Draw(t, "replicas"))
		w.unevenly(t)
		nodes := []string{"n1", "n2", "n3", "n4"}
		for range rapid.IntRange(1, 12).Draw(t, "faults") {
			node := rapid.SampledFrom(nodes).Draw(t, "node")
			switch rapid.SampledFrom([]string{"replica", "all replicas", "engine", "manager", "unlisted", "cut", "mend",
				"move", "wait", "rebuilt", "stranger", "stranger", "expand", "cancel", "granted"}).Draw(t, "what") {
			case "replica":
				w.killProcess(func(p *proc) bool { return isReplica(p) && p.node == node })
			case "all replicas":
				w.killReplicas()
			case "engine":
				w.killProcess(isEngine)
			case "manager":
				if !w.down[node] {
					w.killManager(node)
					w.settle()
					w.setManager(node, v1beta2.InstanceManagerStateRunning)
				}
			case "unlisted":
				if !w.down[node] {
					w.setManager(node, v1beta2.InstanceManagerStateUnknown)
					w.settle()
					w.setManager(node, v1beta2.InstanceManagerStateRunning)
				}
			case "cut":
				if !w.down[node] {
					w.cut(node)
				}
			case "mend":
				if w.down[node] {
					w.mend(node)
				}
			case "move":
				w.ticket("ui", node, v1beta2.AttacherTypeLonghornAPI)
			case "wait":
				w.advance(time.Duration(rapid.IntRange(1, 30).Draw(t, "minutes"))*time.Minute, 5*time.Minute)
			case "rebuilt":
				w.rebuilt()
			case "stranger":
				w.stranger(node)
			case "expand":
				w.resize(w.volume("v").Spec.Size + worldSize/4)
			case "cancel":
				w.cancelExpansion()
			case "granted":
				w.endGranted++
				w.killProcess(isEngine)
			}
			if rapid.Bool().Draw(t, "settle") {
				w.settle()
			}
		}
		w.endFaults(nodes)
		w.heal(3 * time.Hour)
		want := w.volume("v").Spec.NumberOfReplicas
		got := w.copies()
		if got < want {
			t.Fatalf("%d of %d copies hold the newest data\n%s", got, want, w.dump())
		}
		w.expectSize(w.volume("v").Spec.Size)
	})
}

func TestEvictionOfADetachedVolume(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 4, 3)
	w.ticket("ui", "", "")
	w.settle()
	w.expect(`detached unknown at ""`)
	r := w.replicas()[0]
	r.Spec.EvictionRequested = true
	must(t, w.c.Update(context.Background(), &r))
	for range 4 {
		w.settle()
		w.rebuilt()
	}
	w.settle()
	w.expect(`detached unknown at ""`)
	if slices.Contains(names(w), r.Name) || len(w.replicas()) != 3 {
		t.Fatalf("the evicted replica was not moved\n%s", w.dump())
	}
}

func TestOfflineRebuilding(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	w.cut("n3")
	w.settle()
	w.ticket("ui", "", "")
	w.settle()
	w.mend("n3")
	w.settle()
	w.expect(`detached unknown at ""`)
	v := w.volume("v")
	v.Spec.OfflineRebuilding = v1beta2.OverrideEnabled
	must(t, w.c.Update(context.Background(), v))
	w.settle()
	if c := v1beta2.FindCondition(w.volume("v").Status.Conditions,
		v1beta2.VolumeConditionOfflineRebuilding); c.Status != v1beta2.ConditionTrue {
		t.Fatalf("condition %+v\n%s", c, w.dump())
	}
	w.rebuilt()
	w.settle()
	w.expect(`detached unknown at ""`)
	if c := v1beta2.FindCondition(w.volume("v").Status.Conditions,
		v1beta2.VolumeConditionOfflineRebuilding); c.Status != v1beta2.ConditionFalse {
		t.Errorf("afterwards, condition %+v", c)
	}
	for dir, c := range w.disks {
		if !w.complete(c) {
			t.Errorf("directory %s on %s lacks acknowledged writes\n%s", dir, c.node, w.dump())
		}
	}
}

func TestLocalReplicaWithoutAPlaceIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), 3)
	w.newVolume(2, func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityBestEffort })
	w.settle()
	free := ""
	for _, n := range []string{"n1", "n2", "n3"} {
		if !slices.ContainsFunc(w.replicas(), func(r v1beta2.Replica) bool { return r.Spec.NodeID == n }) {
			free = n
		}
	}
	var n v1beta2.Node
	must(t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: free}, &n))
	n.Spec.AllowScheduling = false
	must(t, w.c.Update(context.Background(), &n))
	w.ticket("ui", free, v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.expect(fmt.Sprintf("attached healthy at %q", free))
	c := v1beta2.FindCondition(w.volume("v").Status.Conditions, v1beta2.VolumeConditionScheduled)
	if c.Status != v1beta2.ConditionFalse || c.Reason != v1beta2.VolumeReasonLocalReplicaSchedulingFailure ||
		len(w.replicas()) != 2 {
		t.Fatalf("condition %+v\n%s", c, w.dump())
	}
	n.Spec.AllowScheduling = true
	must(t, w.c.Update(context.Background(), &n))
	for range 4 {
		w.settle()
		w.rebuilt()
	}
	w.settle()
	if !v1beta2.IsConditionTrue(w.volume("v").Status.Conditions, v1beta2.VolumeConditionScheduled) {
		t.Fatalf("mended, but still not scheduled\n%s", w.dump())
	}
}
