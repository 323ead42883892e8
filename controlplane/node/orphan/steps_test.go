package orphan

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// settle makes steps for an orphan until there is nothing to do at once.
func (b *bench) settle(name string) {
	b.t.Helper()
	r, err := loop.NewReconciler(b.controller(), b.client, b.events)
	if err != nil {
		b.t.Fatal(err)
	}
	for range 20 {
		result, err := r.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{
			Namespace: naming.Namespace, Name: name}})
		if err != nil {
			b.t.Fatal(err)
		}
		err = b.client.Get(b.t.Context(), client.ObjectKey{Namespace: naming.Namespace, Name: name}, &v1beta2.Orphan{})
		if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > time.Second {
			return // it is gone, or waits
		}
	}
	b.t.Fatal("the orphan does not settle")
}

// TestSteps plays the agent's whole loop: reported, deleted, removed; and claimed meanwhile.
func TestSteps(t *testing.T) {
	for _, row := range []struct {
		name    string
		deleted bool
		claims  []client.Object // come after it was reported
		exists  bool            // the orphan, in the end
		event   string
	}{
		{"nobody does anything", false, nil, true, ""},
		{"deleted", true, nil, false, "Normal OrphanCleanupCompleted /data/replicas/v-22222222 is removed"},
		{"deleted, and a replica takes it", true, []client.Object{replicaOf(strayName)}, false,
			"Warning FailedDeleting Left /data/replicas/v-22222222 where it is: replica v-r-0 has it"},
		{"a replica takes it", false, []client.Object{replicaOf(strayName)}, false,
			"Warning FailedDeleting Left /data/replicas/v-22222222 where it is: replica v-r-0 has it"},
		{"deleted, and an engine counts on it", true, []client.Object{engineWith(strayName)}, false,
			"Warning FailedDeleting Left /data/replicas/v-22222222 where it is: engine v-e-0 has it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, dataNode())
			b.stray(strayName)
			if got := b.reported(); len(got) != 1 {
				t.Fatalf("reported: %v", got)
			}
			<-b.events.Events // Orphaned
			all, err := b.orphans(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			o := &all[0]
			b.settle(o.Name)
			for _, c := range row.claims {
				if err := b.client.Create(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			if row.deleted {
				if err := b.client.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			b.settle(o.Name)
			err = b.client.Get(t.Context(), client.ObjectKeyFromObject(o), o)
			if (err == nil) != row.exists || client.IgnoreNotFound(err) != nil {
				t.Errorf("the orphan: %v", err)
			}
			if wanted := !row.deleted || len(row.claims) > 0; b.is(strayName) != wanted {
				t.Errorf("the directory is there: %v, want %v", b.is(strayName), wanted)
			}
			event := ""
			if len(b.events.Events) > 0 {
				event = <-b.events.Events
			}
			if event != row.event || len(b.events.Events) > 0 {
				t.Errorf("event %q, want %q", event, row.event)
			}
		})
	}
}

// TestMissingDiskIsNoMissingDirectory: the orphans of a disk that cannot be read stay.
func TestMissingDiskIsNoMissingDirectory(t *testing.T) {
	for name, lose := range map[string]func(*bench) error{
		"no configuration": func(b *bench) error { return os.Remove(filepath.Join(b.root, "data", naming.DiskConfigFile)) },
		"no disk":          func(b *bench) error { return os.RemoveAll(filepath.Join(b.root, "data")) },
		"folder is a file": func(b *bench) error {
			if err := os.RemoveAll(b.replicaDir("")); err != nil {
				return err
			}
			return os.WriteFile(b.replicaDir(""), nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, dataNode())
			b.stray(strayName)
			if got := b.reported(); len(got) != 1 {
				t.Fatalf("reported: %v", got)
			}
			if err := lose(b); err != nil {
				t.Fatal(err)
			}
			if b.reported(); len(b.wakeups) > 0 {
				t.Error("the orphan is woken as if its directory was gone")
			}
			for _, deleted := range []bool{false, true} {
				o := dataOrphan(deleted)
				s, err := b.gather(t.Context(), o)
				if err != nil || !s.Unseen || s.Problem == "" {
					t.Fatalf("%+v, %v", s, err)
				}
				if d := decideData(now, o, s); d.Do != nil || d.After == 0 {
					t.Errorf("deleted %v: does %v", deleted, d.Do)
				}
			}
		})
	}
}

// TestNodeChanged has the changes of a node that concern the data there.
func TestNodeChanged(t *testing.T) {
	edit := func(edit func(*v1beta2.Node)) *v1beta2.Node {
		n := dataNode()
		edit(n)
		return n
	}
	status := func(edit func(*v1beta2.DiskStatus)) *v1beta2.Node {
		n := dataNode()
		d := n.Status.DiskStatus["d"]
		edit(&d)
		n.Status.DiskStatus["d"] = d
		return n
	}
	for _, row := range []struct {
		name  string
		after *v1beta2.Node
		want  bool
	}{
		{"nothing", dataNode(), false},
		{"free space", status(func(d *v1beta2.DiskStatus) { d.StorageAvailable++ }), false},
		{"not ready", notReadyNode(v1beta2.NodeReasonManagerPodDown), true},
		{"to be emptied", edit(func(n *v1beta2.Node) { n.Spec.EvictionRequested = true }), true},
		{"disks", edit(func(n *v1beta2.Node) { n.Spec.Disks["e"] = v1beta2.DiskSpec{Path: "/e"} }), true},
		{"disk not ready", status(func(d *v1beta2.DiskStatus) { d.Conditions = nil }), true},
		{"another disk", status(func(d *v1beta2.DiskStatus) { d.DiskUUID = "disk-2" }), true},
	} {
		if got := nodeChanged(dataNode(), row.after); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

// TestOthersAreLeftAlone: the agent neither lists nor touches what is another node's, or a process.
func TestOthersAreLeftAlone(t *testing.T) {
	elsewhere := OfData(naming.Namespace, "n2", diskPlace, strayName)
	ofProcess := Of(manager(v1beta2.InstanceManagerStateRunning), process(v1beta2.InstanceStateRunning))
	b := newBench(t, dataNode(), elsewhere, ofProcess)
	if all, err := b.orphans(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("lists %d, %v", len(all), err)
	}
	for _, o := range []*v1beta2.Orphan{elsewhere, ofProcess} {
		if s, err := b.gather(t.Context(), o); err != nil || s.Mine {
			t.Errorf("%s: %+v, %v", o.Name, s, err)
		}
	}
}
