package volume

import (
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/setting"
)

// TestStatesOfAVolume holds what is done in each state for each wish, where TestOneStep does not.
func TestStatesOfAVolume(t *testing.T) {
	at := func(state v1beta2.VolumeState, wanted, have string) func(*v1beta2.Volume, *seen) {
		return func(v *v1beta2.Volume, _ *seen) {
			v.Status.State, v.Spec.NodeID, v.Status.CurrentNodeID = state, wanted, have
		}
	}
	const closes = "engine stopped on  with "
	for _, tt := range []struct {
		name  string
		edit  func(v *v1beta2.Volume, s *seen)
		want  string
		state v1beta2.VolumeState
	}{
		{"attaching, not wanted any more", at("attaching", "", ""), closes, "detaching"},
		{"attached, wanted, and not at a node", at("attached", "n1", ""), closes, "detaching"},
		{"detaching, wanted, and not at a node", at("detaching", "n1", ""), closes, "detaching"},
		{"at its node, but attaching", at("attaching", "n1", "n1"), closes, "detaching"},
		{"at its node, but detached", at("detached", "n1", "n1"), closes, "detaching"},
		{"detached, and its image is to be exchanged", func(v *v1beta2.Volume, s *seen) {
			r, rs := resting()
			*s, v.Status.State, v.Status.CurrentNodeID = *rs, r.Status.State, ""
			v.Spec.Image = "img:2"
		}, "engine stopped on  with ", "detached"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, s := fixture()
			tt.edit(v, s)
			if got := describe(settle(v, s)); got != tt.want || v.Status.State != tt.state {
				t.Errorf("wants %q in state %s, want %q in %s", got, v.Status.State, tt.want, tt.state)
			}
		})
	}
}

// TestClosingMarksInterruptedRebuilds: what was not in sync when the volume closed must not be
// taken for a copy; without a place it is not tried again.
func TestClosingMarksInterruptedRebuilds(t *testing.T) {
	for _, placed := range []bool{true, false} {
		v, s := resting()
		r := &s.Replicas[1]
		r.Spec.HealthyAt, r.Spec.RebuildRetryCount = "", 1
		want := 1
		if !placed {
			r.Spec.NodeID, want = "", 5
		}
		change, ok := advancing{newPass(now, v, *s)}.close().(loop.Update)
		if !ok {
			t.Fatal("nothing is changed")
		}
		spec := change.Object.(*v1beta2.Replica).Spec
		if change.Object.GetName() != "b" || spec.FailedAt != ago(0) || spec.LastFailedAt != ago(0) ||
			spec.RebuildRetryCount != want || spec.LastHealthyAt == "" {
			t.Errorf("placed %v: %s %+v", placed, change.Object.GetName(), spec)
		}
	}
}

// A replica of another image than the engine's is not started beside it: it gets that image first.
func TestReplicasOfAnotherImageAreNotStarted(t *testing.T) {
	for image, want := range map[string]string{"img:1": "replica b running", "img:0": "replica b stopped"} {
		v, s := fixture()
		fail(s, 1, 0)
		s.Replicas[1].Spec.FailedAt, s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.Image = "", "", image
		degrade(v, 0)
		d := settle(v, s)
		if got := describe(d); got != want {
			t.Errorf("of %s: %q, want %q", image, got, want)
		}
		if u, ok := update(d); ok && u.Object.(*v1beta2.Replica).Spec.Image != "img:1" {
			t.Errorf("of %s: %+v", image, u.Object)
		}
	}
}

// TestFailedReplicasThatGo holds when a failed replica is given up.
func TestFailedReplicasThatGo(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(v *v1beta2.Volume, r *v1beta2.Replica)
		want string
	}{
		{"a moment ago", func(*v1beta2.Volume, *v1beta2.Replica) {}, ""},
		{"five rebuilds have failed", func(_ *v1beta2.Volume, r *v1beta2.Replica) {
			r.Spec.RebuildRetryCount = 5
		}, "delete *v1beta2.Replica c"},
		{"four have", func(_ *v1beta2.Volume, r *v1beta2.Replica) { r.Spec.RebuildRetryCount = 4 }, ""},
		{"of another image", func(_ *v1beta2.Volume, r *v1beta2.Replica) {
			r.Spec.Image = "img:0"
		}, "delete *v1beta2.Replica c"},
		{"years ago, and the timeout is off", func(v *v1beta2.Volume, r *v1beta2.Replica) {
			v.Spec.StaleReplicaTimeout, r.Spec.FailedAt = 0, ago(10000*time.Hour)
		}, ""},
	} {
		v, s := fixture()
		third(s)
		r := &s.Replicas[2]
		r.Spec.FailedAt, r.Spec.DesireState, r.Status.CurrentState = ago(time.Minute), stopped, stopped
		tt.edit(v, r)
		if got := describe(settle(v, s)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestMarksOfReplicas holds what is written into a replica when it comes into sync, fails, and is
// rebuilt, and what never goes.
func TestMarksOfReplicas(t *testing.T) {
	spec := func(v *v1beta2.Volume, s *seen) v1beta2.ReplicaSpec {
		t.Helper()
		change, ok := settle(v, s).Do.(loop.Update)
		if !ok {
			t.Fatal("nothing is changed")
		}
		r, ok := change.Object.(*v1beta2.Replica)
		if !ok || r.Name != "b" {
			t.Fatalf("changed is %s", change)
		}
		return r.Spec
	}
	v, s := fixture()
	s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.RebuildRetryCount = "", 3
	s.Replicas[1].Spec.LastHealthyAt, s.Replicas[1].Spec.LastFailedAt = ago(5*time.Hour), ago(4*time.Hour)
	degrade(v, time.Minute)
	got := spec(v, s)
	if got.HealthyAt != ago(0) || got.LastHealthyAt != ago(time.Hour) || got.RebuildRetryCount != 0 ||
		got.LastFailedAt != ago(4*time.Hour) {
		t.Errorf("in sync since an hour: %+v", got)
	}
	v, s = fixture()
	s.Engine.Status.ReplicaModeMap["b"] = v1beta2.ReplicaModeERR
	got = spec(v, s)
	if got.FailedAt != ago(0) || got.LastFailedAt != ago(0) || got.LastHealthyAt != ago(time.Hour) {
		t.Errorf("in error: %+v", got)
	}
	v, s = fixture()
	fail(s, 1, time.Minute)
	degrade(v, time.Minute)
	got = spec(v, s)
	if got.FailedAt != "" || got.HealthyAt != "" || got.LastFailedAt != ago(time.Minute) ||
		got.LastHealthyAt != ago(time.Hour) {
		t.Errorf("to be rebuilt: %+v", got)
	}
}

// A replica that replaces another one is not tried again after its first rebuild fails.
func TestReplacementIsTriedOnce(t *testing.T) {
	v, s := fixture()
	s.Replicas = s.Replicas[:1]
	delete(s.Engine.Spec.ReplicaAddressMap, "b")
	delete(s.Engine.Status.ReplicaModeMap, "b")
	degrade(v, 0)
	change, ok := settle(v, s).Do.(loop.Create)
	if !ok {
		t.Fatal("none is made")
	}
	if got := change.Object.(*v1beta2.Replica).Spec.RebuildRetryCount; got != 5 {
		t.Errorf("it begins with %d failed rebuilds", got)
	}
}

// The name of a replica's directory is drawn once.
func TestDirectoryKeepsItsName(t *testing.T) {
	v, s := fixture()
	s.Replicas[1].Spec.NodeID, s.Replicas[1].Spec.DiskID = "", ""
	change, ok := placing{newPass(now, v, *s)}.place().(loop.Reserving)
	if !ok {
		t.Fatal("it is not placed")
	}
	update, ok := change.Change.(loop.Update)
	if !ok {
		t.Fatalf("%s", change)
	}
	if r := update.Object.(*v1beta2.Replica).Spec; r.DataDirectoryName != "v-bbbbbbbb" || r.NodeID == "" {
		t.Errorf("%q on %q", r.DataDirectoryName, r.NodeID)
	}
}

// TestOfflineRebuildingIsTheVolumesWord: its own word wins over the setting.
func TestOfflineRebuildingIsTheVolumesWord(t *testing.T) {
	for _, tt := range []struct {
		volume  v1beta2.Override
		setting string
		want    bool
	}{{"disabled", "true", false}, {"enabled", "false", true}, {"ignored", "true", true}, {"ignored", "false", false}} {
		v, s := resting()
		v.Spec.OfflineRebuilding = tt.volume
		s.Settings[setting.OfflineReplicaRebuilding] = tt.setting
		fail(s, 1, time.Hour)
		if got := settle(v, s).Do != nil; got != tt.want {
			t.Errorf("volume %q, setting %s: attached for it %v", tt.volume, tt.setting, got)
		}
	}
}

// TestStatusFollows holds fields of a volume's status that follow others.
func TestStatusFollows(t *testing.T) {
	v, s := fixture()
	v.Spec.DisableFrontend, v.Status.FrontendDisabled = true, false
	s.Engine.Spec.DisableFrontend = true
	s.Engine.Status.Snapshots = map[string]v1beta2.SnapshotInfo{
		"volume-head": {Name: "volume-head", Size: "4096"}, "s": {Name: "s", Size: "8192"}}
	decides(v, *s)
	if !v.Status.FrontendDisabled || v.Status.ActualSize != 12288 {
		t.Errorf("frontend disabled %v, actual size %d", v.Status.FrontendDisabled, v.Status.ActualSize)
	}
	if v.Status.OwnerID != "n1" {
		t.Errorf("owner %q", v.Status.OwnerID)
	}
	v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "", "", v1beta2.VolumeStateDetached
	s.Nodes[0].Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "False", Reason: "KubernetesNodeNotReady"}}
	decides(v, *s)
	if v.Status.OwnerID != "n2" && v.Status.OwnerID != "n3" {
		t.Errorf("owner %q, whose node is down", v.Status.OwnerID)
	}
}

// TestLogsAreAskedFor: of what has failed the log is read, and the request ends with the next run,
// or with the answer.
func TestLogsAreAskedFor(t *testing.T) {
	changed := func(v *v1beta2.Volume, s *seen) *v1beta2.InstanceSpec {
		t.Helper()
		u, ok := update(settle(v, s))
		if !ok {
			t.Fatal("nothing is changed")
		}
		switch o := u.Object.(type) {
		case *v1beta2.Engine:
			return &o.Spec.InstanceSpec
		case *v1beta2.Replica:
			return &o.Spec.InstanceSpec
		}
		t.Fatalf("changed is %s", u)
		return nil
	}
	v, s := fixture()
	s.Engine.Status.ReplicaModeMap["b"] = v1beta2.ReplicaModeERR
	if spec := changed(v, s); !spec.LogRequested || spec.DesireState != stopped {
		t.Errorf("of a replica in error: %+v", spec)
	}
	v, s = fixture()
	fail(s, 1, time.Minute)
	s.Replicas[1].Spec.FailedAt, s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.LogRequested = "", "", true
	degrade(v, time.Minute)
	if spec := changed(v, s); spec.LogRequested || spec.DesireState != v1beta2.InstanceStateRunning {
		t.Errorf("of a replica that is started again: %+v", spec)
	}
	v, s = fixture()
	s.Engine.Status.CurrentState, s.Engine.Status.ReplicaModeMap = v1beta2.InstanceStateError, nil
	if spec := changed(v, s); !spec.LogRequested {
		t.Errorf("of an engine that has ended: %+v", spec)
	}
	v, s = fixture()
	s.Engine.Spec.LogRequested, s.Engine.Status.LogFetched = true, true
	if spec := changed(v, s); spec.LogRequested {
		t.Errorf("of an engine that runs again: %+v", spec)
	}
	v, s = fixture()
	v.Spec.NodeID = ""
	if spec := changed(v, s); spec.LogRequested {
		t.Errorf("of an engine that is stopped by order: %+v", spec)
	}
}
