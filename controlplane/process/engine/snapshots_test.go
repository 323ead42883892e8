package engine

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
)

func limitedTo(count int, size int64) engineclient.Options {
	return engineclient.Options{SnapshotMaxCount: &count, SnapshotMaxSizeBytes: &size}
}

// paced is limitedTo(9, 10) with a concurrency of rebuilds.
func paced(n int) engineclient.Options {
	o := limitedTo(9, 10)
	o.RebuildConcurrency, o.RebuildBandwidth = &n, new(int64)
	return o
}

// TestSnapshotsReachTheObject: snapshots, limits and purges are in the status as the engine tells
// them; without a running engine the list is marked as none of its own.
func TestSnapshotsReachTheObject(t *testing.T) {
	e, s := running()
	s.State.Snapshots = map[string]engineclient.Snapshot{
		"s": {Name: "s", Parent: "p", Children: []string{v1beta2.VolumeHeadName}, Removed: true, UserCreated: true,
			Created: "then", SizeBytes: 7, Labels: map[string]string{"a": "b"}},
		v1beta2.VolumeHeadName: {Name: v1beta2.VolumeHeadName, Parent: "s"},
	}
	s.State.Options = limitedTo(9, 10)
	s.State.Replicas[0].Purge = &engineclient.Purge{Running: true, Percent: 12, State: "in_progress"}
	s.State.Replicas[1].Purge = &engineclient.Purge{State: "error", Error: "bad disk"}
	settle(e, s)
	st := &e.Status
	got := st.Snapshots["s"]
	if got.Name != "s" || got.Parent != "p" || !got.Children[v1beta2.VolumeHeadName] || !got.Removed || !got.UserCreated ||
		got.Created != "then" || got.Size != "7" || got.Labels["a"] != "b" || st.SnapshotsError != "" {
		t.Errorf("%+v, error %q", got, st.SnapshotsError)
	}
	if st.SnapshotMaxCount != 9 || st.SnapshotMaxSize != 10 {
		t.Errorf("limits %d, %d", st.SnapshotMaxCount, st.SnapshotMaxSize)
	}
	first, second := st.PurgeStatus["tcp://10.0.0.1:10000"], st.PurgeStatus["tcp://10.0.0.2:10000"]
	if len(st.PurgeStatus) != 2 || !first.IsPurging || first.Progress != 12 || first.State != "in_progress" ||
		second.IsPurging || second.Error != "bad disk" || second.State != "error" || !e.Purging() {
		t.Errorf("%+v", st.PurgeStatus)
	}
	s.State.Snapshots, s.State.Replicas[0].Purge, s.State.Replicas[1].Purge = nil, nil, nil
	settle(e, s)
	if len(st.Snapshots) != 2 || st.SnapshotsError == "" || len(st.PurgeStatus) != 0 {
		t.Errorf("nothing listed: %+v, error %q, purges %v", st.Snapshots, st.SnapshotsError, st.PurgeStatus)
	}
	s.State.Snapshots = map[string]engineclient.Snapshot{v1beta2.VolumeHeadName: {}}
	settle(e, s)
	if len(st.Snapshots) != 1 || st.SnapshotsError != "" {
		t.Errorf("listed: %+v, error %q", st.Snapshots, st.SnapshotsError)
	}
	st.CurrentState = v1beta2.InstanceStateStopped
	follow(now, e, seen{})
	if len(st.Snapshots) != 1 || st.SnapshotsError == "" {
		t.Errorf("stopped: %+v, error %q", st.Snapshots, st.SnapshotsError)
	}
}

// TestKeepsSnapshots: limits that differ are told to the engine, unless it refuses them; then
// snapshots get their objects, one at a time.
func TestKeepsSnapshots(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(e *v1beta2.Engine, s *seen)
		want string
	}{
		{"as wanted", func(*v1beta2.Engine, *seen) {}, ""},
		{"another count", func(e *v1beta2.Engine, _ *seen) { e.Spec.SnapshotMaxCount = 8 },
			"set the limits of snapshots of engine v-e-0"},
		{"another size", func(e *v1beta2.Engine, _ *seen) { e.Spec.SnapshotMaxSize = 8 },
			"set the limits of snapshots of engine v-e-0"},
		{"nothing wanted", func(e *v1beta2.Engine, _ *seen) { e.Spec.SnapshotMaxCount = 0 }, ""},
		{"not told", func(e *v1beta2.Engine, s *seen) {
			e.Spec.SnapshotMaxCount, s.State.Options = 8, engineclient.Options{}
		}, ""},
		{"refused", func(e *v1beta2.Engine, s *seen) {
			e.Spec.SnapshotMaxCount, s.Refused = 8, map[string]string{"limits 8, 10": "no"}
		}, ""},
		{"another concurrency", func(_ *v1beta2.Engine, s *seen) {
			s.Pace.Steps, s.State.Options = 4, paced(3)
		}, "set the pace of rebuilds of engine v-e-0 to concurrency 4, 0 bytes per second"},
		{"another bandwidth", func(_ *v1beta2.Engine, s *seen) {
			s.Pace, s.State.Options = pace{3, 5 << 20}, paced(3)
		}, "set the pace of rebuilds of engine v-e-0 to concurrency 3, 5242880 bytes per second"},
		{"the same concurrency", func(_ *v1beta2.Engine, s *seen) {
			s.Pace.Steps, s.State.Options = 3, paced(3)
		}, ""},
		{"a concurrency that is not told", func(_ *v1beta2.Engine, s *seen) { s.Pace.Steps = 4 }, ""},
		{"a concurrency that is refused", func(_ *v1beta2.Engine, s *seen) {
			s.Pace.Steps, s.State.Options = 4, paced(3)
			s.Refused = map[string]string{"concurrency 4, 0 bytes per second": "no"}
		}, ""},
		{"snapshots without objects", func(_ *v1beta2.Engine, s *seen) { s.Unmirrored = []string{"a", "b"} },
			"create *v1beta2.Snapshot ns/a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, s := running()
			e.Namespace, e.Spec.SnapshotMaxCount, e.Spec.SnapshotMaxSize = "ns", 9, 10
			s.State.Options = limitedTo(9, 10)
			tt.edit(e, &s)
			_, d := settle(e, s)
			got := ""
			if d.Do != nil {
				got = d.Do.String()
			}
			if got != tt.want {
				t.Fatalf("%q, want %q", got, tt.want)
			}
			if c, ok := d.Do.(loop.Create); ok {
				o := c.Object.(*v1beta2.Snapshot)
				if o.Spec.Volume != e.Spec.VolumeName || o.Spec.CreateSnapshot || len(o.Finalizers) != 1 ||
					o.Labels[naming.LabelVolume] != e.Spec.VolumeName {
					t.Errorf("%+v", o)
				}
			}
		})
	}
}

// TestUrgencyOfSnapshots: limits and the state of a purge are told at once, its progress soon, the
// growth of the head seldom.
func TestUrgencyOfSnapshots(t *testing.T) {
	state := func(edit func(*engineclient.State)) *engineclient.State {
		s := &engineclient.State{Options: limitedTo(9, 10), Replicas: []engineclient.Replica{
			{Address: "a", Purge: &engineclient.Purge{Running: true}}}}
		edit(s)
		return s
	}
	old := state(func(*engineclient.State) {})
	for _, tt := range []struct {
		name string
		edit func(*engineclient.State)
		wait string
	}{
		{"the same", func(*engineclient.State) {}, "never"},
		{"limits", func(s *engineclient.State) { s.Options = limitedTo(8, 10) }, "0s"},
		{"concurrency of rebuilds", func(s *engineclient.State) { s.Options = paced(2) }, "0s"},
		{"purge begun", func(s *engineclient.State) { s.Replicas[0].Purge = nil }, "0s"},
		{"purge ended", func(s *engineclient.State) { s.Replicas[0].Purge = &engineclient.Purge{} }, "0s"},
		{"purge failed", func(s *engineclient.State) {
			s.Replicas[0].Purge = &engineclient.Purge{Running: true, Error: "x"}
		}, "0s"},
		{"purge goes on", func(s *engineclient.State) {
			s.Replicas[0].Purge = &engineclient.Purge{Running: true, Percent: 3}
		}, progressEvery.String()},
	} {
		wait, changed := urgency(old, state(tt.edit))
		got := wait.String()
		if !changed {
			got = "never"
		}
		if got != tt.wait {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.wait)
		}
	}
}

// TestFailedPurgeIsTold: once on the Engine and once on its Volume for each replica and error.
func TestFailedPurgeIsTold(t *testing.T) {
	e, s := running()
	settle(e, s)
	e.OwnerReferences = []metav1.OwnerReference{{Kind: "Volume", Name: "v", UID: "volume-uid"}}
	told := func(why string) (out []string) {
		t.Helper()
		s.State.Replicas[1].Purge = &engineclient.Purge{State: "error", Error: why}
		for _, event := range followSnapshots(e, s.State) {
			if !event.Warning || event.Reason != "FailedSnapshotPurge" || !strings.Contains(event.Message, why) ||
				!strings.Contains(event.Message, "tcp://10.0.0.2:10000") {
				t.Errorf("%+v", event)
			}
			on := "engine"
			if event.On != nil {
				on = event.On.GetName() + " " + string(event.On.GetUID())
			}
			out = append(out, on)
		}
		return out
	}
	for _, step := range []struct{ why, want string }{
		{"bad disk", "engine, v volume-uid"}, {"bad disk", ""}, {"full disk", "engine, v volume-uid"}, {"", ""},
		{"full disk", "engine, v volume-uid"},
	} {
		if got := strings.Join(told(step.why), ", "); got != step.want {
			t.Errorf("%q: told on %q, want %q", step.why, got, step.want)
		}
	}
}
