package engine

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/volume/clone"
)

// TestFill is the decision table of an engine that is to hold snapshot s of volume src.
func TestFill(t *testing.T) {
	const begin = "clone snap://src/s into engine v-e-0"
	state := func(c engineclient.Clone) func(e *v1beta2.Engine, s *seen) {
		return func(_ *v1beta2.Engine, s *seen) { s.State.Clone = c }
	}
	for _, tt := range []struct {
		name  string
		edit  func(e *v1beta2.Engine, s *seen)
		want  string
		again bool
	}{
		{"asked for", state(engineclient.Clone{}), begin, false},
		{"under way", state(engineclient.Clone{Running: true, State: "in_progress", Snapshot: "s"}), "", false},
		{"complete", state(engineclient.Clone{State: "complete", Snapshot: "s"}), "", false},
		{"failed in this run", state(engineclient.Clone{State: "error", Snapshot: "s"}), "", false},
		{"found a part", state(engineclient.Clone{State: "error", Snapshot: "s", Interrupted: true}), begin, false},
		{"of another snapshot", state(engineclient.Clone{State: "complete", Snapshot: "o"}), begin, false},
		{"refused", func(_ *v1beta2.Engine, s *seen) { s.Clone.Refused = "no" }, "", false},
		{"no engine of the source", func(_ *v1beta2.Engine, s *seen) { s.Clone.Source = engineclient.Target{} }, "", true},
		{"not asked for", func(_ *v1beta2.Engine, s *seen) { s.Clone.Snapshot = "" }, "", false},
		{"a replica is to be added first", func(_ *v1beta2.Engine, s *seen) { s.State.Replicas = s.State.Replicas[:1] },
			"add replica b to engine v-e-0", false},
		{"before it grows", func(e *v1beta2.Engine, _ *seen) { e.Spec.VolumeSize = 2 << 30 }, begin, false},
		{"afterwards it grows", func(e *v1beta2.Engine, s *seen) { e.Spec.VolumeSize, s.Clone.Snapshot = 2<<30, "" },
			"expand engine v-e-0 from 1073741824 to 2147483648 bytes", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, s := running()
			e.Spec.RequestedDataSource = "snap://src/s"
			s.Clone = cloneSeen{Snapshot: "s", Source: engineclient.Target{Engine: "src-e-0"}}
			tt.edit(e, &s)
			_, d := settle(e, s)
			got := ""
			if d.Do != nil {
				got = d.Do.String()
			}
			if got != tt.want || (d.After > 0) != tt.again {
				t.Errorf("%q, again in %v; want %q, %v", got, d.After, tt.want, tt.again)
			}
		})
	}
}

// TestCloneStatus: what the engine says of the copy that is wanted is in the object, for each
// replica that has part in it.
func TestCloneStatus(t *testing.T) {
	for _, tt := range []struct {
		name, source, refused string
		clone                 engineclient.Clone
		want                  *v1beta2.SnapshotCloneStatus
	}{
		{"none is wanted", "", "", engineclient.Clone{State: "complete", Snapshot: "s"}, nil},
		{"not begun", "snap://src/s", "", engineclient.Clone{}, nil},
		{"found a part", "snap://src/s", "", engineclient.Clone{State: "error", Snapshot: "s", Interrupted: true}, nil},
		{"another one", "snap://src/s", "", engineclient.Clone{State: "complete", Snapshot: "o"}, nil},
		{"under way", "snap://src/s", "", engineclient.Clone{Running: true, Percent: 42, State: "in_progress", Snapshot: "s",
			From: "10.0.0.9:10000"}, &v1beta2.SnapshotCloneStatus{IsCloning: true, Progress: 42, State: "in_progress",
			SnapshotName: "s", FromReplicaAddress: "tcp://10.0.0.9:10000"}},
		{"failed", "snap://src/s", "", engineclient.Clone{State: "error", Error: "lost", Snapshot: "s"},
			&v1beta2.SnapshotCloneStatus{State: "error", Error: "lost", SnapshotName: "s"}},
		{"refused", "snap://src/s", "not empty", engineclient.Clone{},
			&v1beta2.SnapshotCloneStatus{State: "error", Error: "not empty", SnapshotName: "s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, s := running()
			e.Spec.RequestedDataSource, s.State.Clone, s.Clone.Refused = tt.source, tt.clone, tt.refused
			s.State.Replicas[1].Mode = engineclient.ModeERR
			settle(e, s)
			got, there := e.Status.CloneStatus["tcp://10.0.0.1:10000"]
			if there != (tt.want != nil) || there && got != *tt.want || there && len(e.Status.CloneStatus) != 1 {
				t.Errorf("%+v, want %+v", e.Status.CloneStatus, tt.want)
			}
		})
	}
}

// cloning is a reconciler with the engines of volumes v and src, which run.
func cloning(t *testing.T, engines engineclient.Client, objects ...*v1beta2.Volume) (*Reconciler, *v1beta2.Engine) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for _, i := range index.All() {
		b = b.WithIndex(i.Object, i.Field, i.Of)
	}
	var target *v1beta2.Engine
	for n, volume := range []string{"v", "src"} {
		e := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: volume + "-e-0",
			OwnerReferences: []metav1.OwnerReference{{Kind: "Volume", Name: volume, UID: types.UID("uid-" + "vs"[n:n+1])}}}}
		e.Spec.VolumeName, e.Spec.Active = volume, true
		e.Status.CurrentState, e.Status.IP, e.Status.Port = v1beta2.InstanceStateRunning, "10.0.0.1", 10000+10*n
		if volume == "v" {
			target = e
		}
		b = b.WithObjects(e)
	}
	for _, o := range objects {
		b = b.WithObjects(o)
	}
	return New(Config{Namespace: "ns", Heard: heard.New("ns")}, nil, engines).WithClient(b.Build()), target
}

// TestBeginClone: the copy's own snapshot is taken, and labelled; one that is named is not.
func TestBeginClone(t *testing.T) {
	own := clone.SnapshotName("uid-s", "uid-v")
	for snapshot, refusal := range map[string]error{own: nil, "named": engineclient.ErrNotFound} {
		var f engineclient.Fake
		f.Set("10.0.0.1:10000", engineclient.State{Volume: "v", Engine: "v-e-0"})
		f.Set("10.0.0.1:10010", engineclient.State{Volume: "src", Engine: "src-e-0"})
		r, e := cloning(t, &f)
		e.Spec.RequestedDataSource = "snap://src/" + snapshot
		r.monitor.Watch(target(e), "run", nil)
		c, err := r.gatherClone(t.Context(), e)
		if err != nil || c.Source.Engine == "" || c.Snapshot != snapshot {
			t.Fatalf("%+v, %v", c, err)
		}
		err = r.carry(t.Context(), e, seen{Clone: c}, orderClone)
		if !errors.Is(err, refusal) || (err == nil) != (refusal == nil) {
			t.Fatalf("%s: %v", snapshot, err)
		}
		source, err := f.Get(t.Context(), engineclient.Target{Address: "10.0.0.1:10010"})
		if err != nil {
			t.Fatal(err)
		}
		s := source.Snapshots[snapshot]
		if refusal == nil && (!s.UserCreated || s.Labels[naming.LabelForCloningVolume] != "v") ||
			refusal != nil && len(source.Snapshots) > 0 {
			t.Errorf("snapshots %+v", source.Snapshots)
		}
		if c, err = r.gatherClone(t.Context(), e); err != nil || (c.Refused != "") != (refusal != nil) {
			t.Errorf("%s: refused %q, %v", snapshot, c.Refused, err)
		}
		r.monitor.Drop(e.Name)
	}
}

// TestRefusalForAState counts once it has lasted, and until another answer comes.
func TestRefusalForAState(t *testing.T) {
	var f engineclient.Fake
	r, e := cloning(t, &f)
	r.monitor.Watch(target(e), "run", nil)
	defer r.monitor.Drop(e.Name)
	const source = "snap://src/s"
	r.monitor.noteClone(e.Name, source, engineclient.ErrPrecondition)
	if why := r.monitor.notFilled(e.Name, source); why != "" {
		t.Errorf("refused at once: %s", why)
	}
	r.monitor.mu.Lock()
	r.monitor.watches[e.Name].notFilled.since = time.Now().Add(-2 * refusedFor)
	r.monitor.mu.Unlock()
	r.monitor.noteClone(e.Name, source, engineclient.ErrPrecondition)
	if why := r.monitor.notFilled(e.Name, source); why == "" || r.monitor.notFilled(e.Name, "snap://src/other") != "" {
		t.Errorf("not refused for that source only: %q", why)
	}
	r.monitor.noteClone(e.Name, source, engineclient.ErrUnavailable)
	if why := r.monitor.notFilled(e.Name, source); why != "" {
		t.Errorf("refused still: %s", why)
	}
}
