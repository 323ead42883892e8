package replica

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/directory"
	"ankole.storage/controlplane/process/instance"
	"ankole.storage/dataplane/disk/osdisk"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func rep() *v1beta2.Replica {
	r := &v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Name: "v-r-11111111", UID: "u1",
		Finalizers:      []string{v1beta2.Finalizer},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Volume", Name: "v", UID: "uid-v"}}}}
	r.Spec.VolumeName, r.Spec.VolumeSize, r.Spec.NodeID, r.Spec.Image = "v", 1<<30, "n1", "img:1"
	r.Spec.DiskID, r.Spec.DiskPath, r.Spec.DataDirectoryName = "disk-1", "/data", "v-22222222"
	r.Spec.SnapshotMaxCount, r.Spec.DesireState = 250, v1beta2.InstanceStateRunning
	return r
}

func managers(p *v1beta2.InstanceProcess) []v1beta2.InstanceManager {
	im := v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Name: "im-1"}}
	im.Spec.NodeID, im.Spec.Type = "n1", v1beta2.InstanceManagerTypeAllInOne
	im.Status.CurrentState, im.Status.IP = v1beta2.InstanceManagerStateRunning, "10.0.0.1"
	if p != nil {
		im.Status.InstanceReplicas = map[string]v1beta2.InstanceProcess{"v-r-11111111": *p}
	}
	return []v1beta2.InstanceManager{im}
}

func runningProcess() *v1beta2.InstanceProcess {
	return &v1beta2.InstanceProcess{Status: v1beta2.InstanceProcessStatus{State: v1beta2.InstanceStateRunning,
		PortStart: 10000, UUID: "run"}}
}

// notReady is the node, not ready since.
func notReady(reason string, since time.Duration) *v1beta2.Node {
	n := node()
	n.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionFalse,
		Reason: reason, LastTransitionTime: now.Add(-since).Format(time.RFC3339)}}
	return n
}

// TestDecide: the data of a deleted replica is the business of the manager on its node. On a ready
// node without a manager Pod the leader takes the finalizer off after a while, or the replica would
// be terminating for ever.
func TestDecide(t *testing.T) {
	deleted := func(r *v1beta2.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now} }
	stopped := func(r *v1beta2.Replica) { r.Spec.DesireState = v1beta2.InstanceStateStopped }
	tests := []struct {
		name string
		edit func(*v1beta2.Replica)
		seen seen
		want string
	}{
		{"start", nil, seen{Managers: managers(nil)}, "start replica v-r-11111111"},
		{"runs", nil, seen{Managers: managers(runningProcess())}, ""},
		{"no manager yet", nil, seen{}, ""},
		{"stop", stopped, seen{Managers: managers(runningProcess())}, "stop replica v-r-11111111 in im-1"},
		{"nothing on a lost node", nil, seen{Managers: managers(nil), NodeDown: true}, ""},
		{"deleted, but its engine still uses it", deleted, seen{Managers: managers(runningProcess()), InUse: true}, ""},
		{"deleted and dropped by its engine", deleted, seen{Managers: managers(runningProcess())},
			"stop replica v-r-11111111 in im-1"},
		{"deleted and stopped: the agent removes the data", deleted, seen{Managers: managers(nil)}, ""},
		{"deleted and stopped on a lost node, but the last copy", deleted, seen{NodeDown: true, Holds: "the last copy"}, ""},
		{"deleted on a lost node", deleted, seen{NodeDown: true}, "update *v1beta2.Replica v-r-11111111"},
		{"deleted on a node whose manager Pod is missing", deleted, seen{Managers: managers(nil),
			Node: notReady(v1beta2.NodeReasonManagerPodMissing, time.Hour)}, "update *v1beta2.Replica v-r-11111111"},
		{"deleted on a node whose manager Pod never works", deleted, seen{Managers: managers(nil),
			Node: notReady(v1beta2.NodeReasonManagerPodDown, time.Hour)}, "update *v1beta2.Replica v-r-11111111"},
		{"deleted while the manager Pod is replaced", deleted, seen{Managers: managers(nil),
			Node: notReady(v1beta2.NodeReasonManagerPodMissing, time.Minute)}, ""},
		{"deleted without a manager Pod, but it runs", deleted, seen{Managers: managers(runningProcess()),
			Node: notReady(v1beta2.NodeReasonManagerPodMissing, time.Hour)}, "stop replica v-r-11111111 in im-1"},
		{"deleted without a manager Pod, but the last copy", deleted, seen{Managers: managers(nil), Holds: "the last copy",
			Node: notReady(v1beta2.NodeReasonManagerPodMissing, time.Hour)}, ""},
		{"no manager Pod, and not deleted", stopped, seen{Managers: managers(nil),
			Node: notReady(v1beta2.NodeReasonManagerPodMissing, time.Hour)}, ""},
		{"deleted without a place", func(r *v1beta2.Replica) {
			deleted(r)
			r.Spec.NodeID = ""
		}, seen{}, "update *v1beta2.Replica v-r-11111111"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := rep()
			if tt.edit != nil {
				tt.edit(r)
			}
			got := ""
			if n := tt.seen.Node; n != nil {
				since, err := time.Parse(time.RFC3339, n.Status.Conditions[0].LastTransitionTime)
				if err != nil {
					t.Fatal(err)
				}
				tt.seen.ManagerLostSince = since
			}
			if d := decide(now, r, tt.seen); d.Do != nil {
				got = d.Do.String()
			}
			if got != tt.want {
				t.Errorf("wants %q, want %q", got, tt.want)
			}
		})
	}
}

// TestOwnerOfAReplica is its node, whatever becomes of that; before it has one, the leader's.
func TestOwnerOfAReplica(t *testing.T) {
	for node, want := range map[string]string{"n1": "n1", "": "n9"} {
		for _, down := range []bool{false, true} {
			r := rep()
			r.Spec.NodeID, r.Status.OwnerID = node, "before"
			decide(now, r, seen{Managers: managers(nil), Owner: "n9", NodeDown: down})
			if r.Status.OwnerID != want {
				t.Errorf("on node %q, down %v: owner %q, want %q", node, down, r.Status.OwnerID, want)
			}
		}
	}
}

func TestProcessIsAsTheArchitectureSays(t *testing.T) {
	r := rep()
	r.Spec.RevisionCounterDisabled, r.Spec.Active = true, true
	p := process(r, "10.0.0.1", "secret", false, "")
	want := []string{
		"--volume-name", "v", "replica", "/host/data/replicas/v-22222222", "--size", "1073741824",
		"--replica-instance-name", "v-r-11111111", "--snapshot-max-count", "250", "--snapshot-max-size", "0",
		"--disableRevCounter",
	}
	if !slices.Equal(p.Args, want) || p.Binary != "/host/var/lib/longhorn/engine-binaries/img-1/longhorn" ||
		p.PortCount != 15 {
		t.Errorf("process %+v", p)
	}
	if p := process(r, "10.0.0.1", "secret", true, ""); !slices.Contains(p.Args, "--encrypted") {
		t.Errorf("process of an encrypted volume %+v", p)
	}
	r.Spec.Active = false
	if p := process(r, "10.0.0.1", "secret", false, ""); !slices.Contains(p.Args, "--standby") {
		t.Errorf("process of a duplicate %+v", p)
	}
	if got := p.Environment["ANKOLE_DATA_NETWORK"]; got != "management network" {
		t.Errorf("network %q", got)
	}
	if p.Environment["ANKOLE_VOLUME_UUID"] != "uid-v" || p.Environment["ANKOLE_VOLUME_SECRET"] != "secret" {
		t.Errorf("environment %v", p.Environment)
	}
}

func node() *v1beta2.Node {
	n := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: "/data/"}}
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {DiskUUID: "disk-1",
		Conditions: []v1beta2.Condition{{Type: v1beta2.DiskConditionReady, Status: v1beta2.ConditionTrue}}}}
	return n
}

// TestWhatMayBeRemoved: only what is a replica directory of the volume beyond doubt.
func TestWhatMayBeRemoved(t *testing.T) {
	tests := []struct {
		name string
		edit func(*v1beta2.Replica, *v1beta2.Node, *[]v1beta2.Replica)
		keep string // part of the reason, empty: may go
	}{
		{"its own directory", func(*v1beta2.Replica, *v1beta2.Node, *[]v1beta2.Replica) {}, ""},
		{"path upwards", func(r *v1beta2.Replica, _ *v1beta2.Node, _ *[]v1beta2.Replica) {
			r.Spec.DataDirectoryName = "../v-22222222"
		}, "not the name"},
		{"absolute path", func(r *v1beta2.Replica, _ *v1beta2.Node, _ *[]v1beta2.Replica) {
			r.Spec.DataDirectoryName = "/etc"
		}, "not the name"},
		{"other name", func(r *v1beta2.Replica, _ *v1beta2.Node, _ *[]v1beta2.Replica) {
			r.Spec.DataDirectoryName = "backups"
		}, "not the name"},
		{"directory of another volume", func(r *v1beta2.Replica, _ *v1beta2.Node, _ *[]v1beta2.Replica) {
			r.Spec.DataDirectoryName = "w-22222222"
		}, "not the name"},
		{"directory of a volume with a longer name", func(r *v1beta2.Replica, _ *v1beta2.Node, _ *[]v1beta2.Replica) {
			r.Spec.DataDirectoryName = "v-w-22222222"
		}, "not the name"},
		{"disk exchanged", func(_ *v1beta2.Replica, n *v1beta2.Node, _ *[]v1beta2.Replica) {
			n.Status.DiskStatus["d"] = v1beta2.DiskStatus{DiskUUID: "disk-2", Conditions: n.Status.DiskStatus["d"].Conditions}
		}, "no ready disk"},
		{"disk elsewhere", func(r *v1beta2.Replica, _ *v1beta2.Node, _ *[]v1beta2.Replica) {
			r.Spec.DiskPath = "/other"
		}, "no ready disk"},
		{"disk not ready", func(_ *v1beta2.Replica, n *v1beta2.Node, _ *[]v1beta2.Replica) {
			n.Status.DiskStatus["d"] = v1beta2.DiskStatus{DiskUUID: "disk-1"}
		}, "no ready disk"},
		{"shared with a duplicate", func(r *v1beta2.Replica, _ *v1beta2.Node, all *[]v1beta2.Replica) {
			other := *r
			other.Name, other.UID = "v-r-33333333", "u2"
			*all = append(*all, other)
		}, "uses the same directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, n := rep(), node()
			all := []v1beta2.Replica{*r}
			tt.edit(r, n, &all)
			got, mayPass := keepReason(r, n, all)
			if want := tt.name == "disk not ready"; mayPass != want {
				t.Errorf("may pass: %v, want %v", mayPass, want)
			}
			if (got == "") != (tt.keep == "") || !strings.Contains(got, tt.keep) {
				t.Errorf("keepReason = %q, want %q", got, tt.keep)
			}
		})
	}
}

func TestRemovalDoesNotFollowLinks(t *testing.T) {
	parent, outside := t.TempDir(), t.TempDir()
	keep := filepath.Join(outside, "keep")
	for _, err := range []error{
		os.WriteFile(keep, nil, 0o600), os.MkdirAll(filepath.Join(parent, "v-22222222", "sub"), 0o700),
		os.Symlink(outside, filepath.Join(parent, "v-22222222", "out")),
		os.Symlink(outside, filepath.Join(parent, "v-33333333")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := directoryExists(parent, "v-33333333"); err == nil {
		t.Errorf("a symbolic link counts as a replica directory: %v", ok)
	}
	if ok, err := directoryExists(parent, "v-22222222"); !ok || err != nil {
		t.Errorf("directory not found: %v, %v", ok, err)
	}
	if err := removeDirectory(parent, "v-22222222"); err != nil {
		t.Fatal(err)
	}
	if ok, err := directoryExists(parent, "v-22222222"); ok || err != nil {
		t.Errorf("directory is still there: %v, %v", ok, err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("a file outside was removed: %v", err)
	}
	if ok, err := directoryExists(filepath.Join(parent, "none"), "v-22222222"); ok || err != nil {
		t.Errorf("missing parent: %v, %v", ok, err)
	}
}

// TestNothingIsRemovedUnderAProcess: a process that has the directory in use keeps it: one whose
// start was ordered late would serve without its files.
func TestNothingIsRemovedUnderAProcess(t *testing.T) {
	parent, name := t.TempDir(), "v-22222222"
	path := filepath.Join(parent, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	process, err := osdisk.New(nil).Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := removeDirectory(parent, name); !errors.Is(err, directory.ErrInUse) {
		t.Errorf("removed under a process: %v", err)
	}
	if ok, err := directoryExists(parent, name); !ok || err != nil {
		t.Fatalf("the directory is gone: %v", err)
	}
	if err := process.Close(); err != nil {
		t.Fatal(err)
	}
	if err := removeDirectory(parent, name); err != nil {
		t.Error(err)
	}
	if ok, _ := directoryExists(parent, name); ok {
		t.Error("the directory is still there")
	}
}

func TestRemovalThenFinalizer(t *testing.T) {
	r := rep()
	s := onDisk{Mine: true, Exists: true, Path: "/data/replicas/v-22222222"}
	if d := decideRemoval(now, r, s); d.Do != (loop.Call{What: "remove /data/replicas/v-22222222", Order: removeData{}}) {
		t.Fatalf("wants %v", d.Do)
	}
	s.Exists = false
	if d := decideRemoval(now, r, s); d.Do == nil || !strings.HasPrefix(d.Do.String(), "update") || len(d.Events) != 0 {
		t.Errorf("after the removal: %+v", d)
	}
	s.Exists, s.Holds = true, "the last copy"
	if d := decideRemoval(now, r, s); d.Do != nil || d.After == 0 {
		t.Errorf("the last copy: %+v, want a wait", d)
	}
	s.Holds, s.Keep = "", "because"
	if d := decideRemoval(now, r, s); d.Do == nil || !strings.HasPrefix(d.Do.String(), "update") || len(d.Events) != 1 {
		t.Errorf("with a reason to keep: %+v", d)
	}
	s.MayPass, s.Since = true, now.Add(-time.Second)
	for _, stamped := range []time.Duration{-time.Hour, 0, time.Hour} { // by the API server's clock
		r.DeletionTimestamp = &metav1.Time{Time: now.Add(stamped)}
		if d := decideRemoval(now, r, s); d.Do != nil || d.After == 0 {
			t.Errorf("with a disk that is not ready yet, deleted at %s: %+v", stamped, d)
		}
		if d := decideRemoval(now.Add(diskWait), r, s); d.Do == nil {
			t.Errorf("a disk that stays away holds the deletion up for ever, deleted at %s", stamped)
		}
	}
	if d := decideRemoval(now, r, onDisk{}); d.Do != nil {
		t.Errorf("a replica that is not ours: %v", d.Do)
	}
}

// TestOrdersToEndNameTheProcess: an order that is late, as a former leader's, ends no process that
// has followed the one that was seen.
func TestOrdersToEndNameTheProcess(t *testing.T) {
	stray := *managers(runningProcess())[0].DeepCopy()
	stray.Name, stray.Spec.NodeID = "im-2", "n2"
	for _, c := range []struct {
		state    v1beta2.InstanceState
		managers []v1beta2.InstanceManager
		want     int
	}{
		{v1beta2.InstanceStateStopped, managers(runningProcess()), 0},
		{v1beta2.InstanceStateRunning, append(managers(nil), stray), 1},
	} {
		r := rep()
		r.Spec.DesireState = c.state
		d := decide(now, r, seen{Managers: c.managers})
		if got := d.Do.(loop.Call).Order; got != (stopOrder{&c.managers[c.want], "run"}) {
			t.Errorf("order %+v", got)
		}
	}
}

// TestUsedByAnEngine: a deleted replica serves on while an engine may use it. Of an engine that
// cannot be observed what it said last counts: one whose node is cut off serves on, and cannot drop
// a member of two without the witness.
func TestUsedByAnEngine(t *testing.T) {
	const rw, wo, bad = v1beta2.ReplicaModeRW, v1beta2.ReplicaModeWO, v1beta2.ReplicaModeERR
	for _, c := range []struct {
		state v1beta2.InstanceState
		mode  v1beta2.ReplicaMode // "": the engine does not have it
		used  bool
	}{
		{v1beta2.InstanceStateRunning, rw, true}, {v1beta2.InstanceStateRunning, wo, true},
		{v1beta2.InstanceStateRunning, bad, false}, {v1beta2.InstanceStateRunning, "", false},
		{v1beta2.InstanceStateUnknown, rw, true}, {v1beta2.InstanceStateUnknown, wo, true},
		{v1beta2.InstanceStateUnknown, bad, false}, {v1beta2.InstanceStateUnknown, "", false},
		{v1beta2.InstanceStateStarting, rw, true}, {v1beta2.InstanceStateStopping, rw, true},
		{v1beta2.InstanceStateStopped, rw, false}, {v1beta2.InstanceStateError, rw, false}, {"", rw, false},
	} {
		e := &v1beta2.Engine{}
		e.Status.CurrentState = c.state
		if c.mode != "" {
			e.Status.ReplicaModeMap = map[string]v1beta2.ReplicaMode{rep().Name: c.mode}
		}
		if got := usedBy(e, rep().Name); got != c.used {
			t.Errorf("engine %q, replica %q: used %v, want %v", c.state, c.mode, got, c.used)
		}
	}
}

var _ instance.Processes = (*instance.Fake)(nil)

// TestTheLastObjectTakesTheDirectoryAlong: of several objects of one directory only the last one
// that is left removes it.
func TestTheLastObjectTakesTheDirectoryAlong(t *testing.T) {
	other := func(name string, deleted bool, edit func(*v1beta2.Replica)) v1beta2.Replica {
		o := rep()
		o.Name, o.UID = name, types.UID(name)
		if deleted {
			o.DeletionTimestamp = &metav1.Time{}
		}
		if edit != nil {
			edit(o)
		}
		return *o
	}
	const before, after = "v-r-00000000", "v-r-22222222"
	for _, row := range []struct {
		name          string
		all           []v1beta2.Replica
		keeps, before string
	}{
		{"alone", []v1beta2.Replica{*rep()}, "", ""},
		{"another stays", []v1beta2.Replica{other(before, false, nil)}, before, ""},
		{"another goes later", []v1beta2.Replica{other(after, true, nil)}, after, ""},
		{"another goes first", []v1beta2.Replica{other(before, true, nil)}, "", before},
		{"of another disk", []v1beta2.Replica{other(before, false, func(r *v1beta2.Replica) { r.Spec.DiskID = "x" })},
			"", ""},
		{"of another volume", []v1beta2.Replica{other(before, false, func(r *v1beta2.Replica) { r.Spec.VolumeName = "x" })},
			"", ""},
	} {
		keeps, first := shared(rep(), row.all)
		if keeps != row.keeps || first != row.before {
			t.Errorf("%s: kept by %q, after %q", row.name, keeps, first)
		}
	}
	r := rep()
	r.DeletionTimestamp = &metav1.Time{Time: now}
	if d := decideRemoval(now, r, onDisk{Mine: true, Before: before, Exists: true}); d.Do != nil || d.After == 0 {
		t.Errorf("does %v before the other is gone", d.Do)
	}
	d := decideRemoval(now, r, onDisk{Mine: true, Shared: after, Exists: true})
	if _, ok := d.Do.(loop.Update); !ok || len(d.Events) > 0 {
		t.Errorf("does %v, tells %v", d.Do, d.Events)
	}
}
