package engine

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
)

// TestWhatARebuildLeaves is the table of when the snapshots of the system are purged: once after
// each rebuild, when every replica is in sync.
func TestWhatARebuildLeaves(t *testing.T) {
	rebuilt := &engineclient.Rebuild{State: "complete", Percent: 100}
	for _, tt := range []struct {
		name string
		edit func(*engineclient.State)
		want bool
	}{
		{"rebuilt", func(*engineclient.State) {}, true},
		{"nothing was rebuilt", func(s *engineclient.State) { s.Replicas[1].Rebuild = nil }, false},
		{"the rebuild failed", func(s *engineclient.State) {
			s.Replicas[1].Rebuild = &engineclient.Rebuild{State: "error"}
		}, false},
		{"purged since", func(s *engineclient.State) {
			s.Replicas[1].Purge = &engineclient.Purge{State: "complete"}
		}, false},
		{"a purge has failed since", func(s *engineclient.State) {
			s.Replicas[1].Purge = &engineclient.Purge{State: "error"}
		}, false},
		{"another one was purged before", func(s *engineclient.State) {
			s.Replicas[0].Purge = &engineclient.Purge{State: "complete"}
		}, true},
		{"a purge is under way", func(s *engineclient.State) {
			s.Replicas[0].Purge = &engineclient.Purge{Running: true}
		}, false},
		{"another rebuild is under way", func(s *engineclient.State) { s.Replicas[0].Mode = engineclient.ModeWO }, false},
		{"a replica is in error", func(s *engineclient.State) { s.Replicas[0].Mode = engineclient.ModeERR }, false},
		{"snapshots of users only", func(s *engineclient.State) {
			s.Snapshots["s"] = engineclient.Snapshot{Name: "s", UserCreated: true}
		}, false},
		{"marked as removed already", func(s *engineclient.State) {
			s.Snapshots["s"] = engineclient.Snapshot{Name: "s", Removed: true}
		}, false},
	} {
		_, s := running()
		s.State.Replicas[1].Rebuild = rebuilt
		tt.edit(s.State)
		if got := leftByARebuild(s.State); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if leftByARebuild(nil) {
		t.Error("of an engine that has told nothing")
	}
}

// TestPurgeAfterARebuild: it is ordered when the node may run one more, and before nothing else is
// to be done.
func TestPurgeAfterARebuild(t *testing.T) {
	wanted := cleanupSeen{Wanted: true}
	crowded := wanted
	crowded.Crowded = true
	for _, tt := range []struct {
		name  string
		seen  cleanupSeen
		purge bool
		after bool
	}{
		{"nothing to do", cleanupSeen{}, false, false}, {"to be done", wanted, true, false},
		{"crowded", crowded, false, true},
	} {
		e, s := running()
		s.Cleanup = tt.seen
		_, d := settle(e, s)
		call, _ := d.Do.(loop.Call)
		if (call.Order == orderPurge) != tt.purge || (d.After > 0) != tt.after {
			t.Errorf("%s: order %v, looked at again in %v", tt.name, call.Order, d.After)
		}
	}
	e, s := running()
	s.Cleanup = wanted
	e.Spec.ReplicaAddressMap["c"] = "10.0.0.3:10000"
	if _, d := settle(e, s); d.Do == nil || d.Do.String() != "add replica c to engine v-e-0" {
		t.Errorf("beside a replica to add: %v", d.Do)
	}
}

// TestCleanupFollowsItsSettings: whether a purge is wanted, whether the node may run one more, and
// what is asked of the engine then.
func TestCleanupFollowsItsSettings(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	other := &v1beta2.Engine{}
	other.Namespace, other.Name, other.Spec.NodeID = "ns", "w-e-0", "n1"
	other.Status.PurgeStatus = map[string]v1beta2.PurgeStatus{"r": {IsPurging: true}}
	for _, tt := range []struct {
		name            string
		settings        setting.Values
		wanted, crowded bool
	}{
		{"as they come", setting.Values{}, true, false},
		{"switched off", setting.Values{"auto-cleanup-system-generated-snapshot": "false"}, false, false},
		{"no purges at all", setting.Values{"disable-snapshot-purge": "true"}, false, false},
		{"one at a time", setting.Values{"snapshot-heavy-task-concurrent-limit": "1"}, true, true},
	} {
		var asked []string
		r := &Reconciler{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(other.DeepCopy()).Build(),
			cfg: Config{Purge: func(_ context.Context, t engineclient.Target, skip bool) error {
				if skip {
					asked = append(asked, t.Engine)
				}
				return nil
			}}}
		e, s := running()
		e.Namespace = "ns"
		s.State.Replicas[1].Rebuild = &engineclient.Rebuild{State: "complete"}
		c, err := r.gatherCleanup(t.Context(), e, s.State, tt.settings)
		if err != nil || c.Wanted != tt.wanted || c.Crowded != tt.crowded {
			t.Errorf("%s: wanted %v, crowded %v, %v", tt.name, c.Wanted, c.Crowded, err)
		}
		if !c.Wanted {
			continue
		}
		if err := r.carry(t.Context(), e, s, orderPurge); err != nil || len(asked) != 1 || asked[0] != "v-e-0" {
			t.Errorf("%s: asked %v, %v", tt.name, asked, err)
		}
	}
}
