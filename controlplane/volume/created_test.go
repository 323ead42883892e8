package volume

import (
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// TestObjectsOfANewVolume holds the metadata and the fields of what a new volume is given, one
// object after the other, as clients know them.
func TestObjectsOfANewVolume(t *testing.T) {
	v, s := fixture()
	v.Status = v1beta2.VolumeStatus{}
	v.Spec.UnmapMarkSnapChainRemoved, v.Spec.SnapshotMaxCount, v.Spec.BackingImage = "enabled", 77, "base"
	s.Settings["default-engine-image"] = "img:2"
	s.Attachment, s.HasKey, s.Engine, s.Engines, s.Replicas = nil, false, nil, nil, nil
	var made []client.Object
	for range 6 {
		p := newPass(now, v, *s)
		change, ok := creating{p}.ensureObjects().(loop.Create)
		if !ok {
			break
		}
		made = append(made, change.Object)
		switch o := change.Object.(type) {
		case *v1beta2.VolumeAttachment:
			s.Attachment = o
		case *v1beta2.Engine:
			s.Engine, s.Engines = o, []v1beta2.Engine{*o}
		case *v1beta2.Replica:
			s.Replicas = append(s.Replicas, *o)
			s.Suffixes[0] = "33333333"
		}
	}
	if v.Status.ProcessKey != "k2" {
		t.Errorf("its processes have key %q", v.Status.ProcessKey)
	}
	if v.Status.State != "creating" || v.Status.Robustness != "unknown" {
		t.Errorf("a new volume is %q, %q", v.Status.State, v.Status.Robustness)
	}
	names := make([]string, len(made))
	for i, o := range made {
		names[i] = o.GetName()
		if got := o.GetOwnerReferences(); len(got) != 1 || got[0].APIVersion != "longhorn.io/v1beta2" ||
			got[0].Kind != "Volume" || got[0].Name != "v" || got[0].UID != "uid-v" || got[0].Controller != nil {
			t.Errorf("%s has owners %+v", o.GetName(), got)
		}
		if o.GetLabels()["longhornvolume"] != "v" || o.GetNamespace() != "ns" {
			t.Errorf("%s/%s has labels %v", o.GetNamespace(), o.GetName(), o.GetLabels())
		}
		if !slices.Equal(o.GetFinalizers(), []string{"longhorn.io"}) {
			t.Errorf("%s has finalizers %v", o.GetName(), o.GetFinalizers())
		}
	}
	if want := []string{"v", "v-e-0", "v-r-11111111", "v-r-33333333"}; !slices.Equal(names, want) {
		t.Fatalf("made are %v, want %v", names, want)
	}
	e := made[1].(*v1beta2.Engine).Spec
	if !e.Active || !e.UnmapMarkSnapChainRemovedEnabled || e.SnapshotMaxCount != 77 || e.DesireState != "stopped" {
		t.Errorf("engine %+v", e)
	}
	r := made[2].(*v1beta2.Replica).Spec
	if !r.Active || r.EngineName != "v-e-0" || !r.UnmapMarkDiskChainRemovedEnabled || r.RebuildRetryCount != 0 ||
		r.DataDirectoryName != "" || r.NodeID != "" || r.BackingImage != "base" || r.DesireState != "stopped" {
		t.Errorf("replica %+v", r)
	}
}

// What of a trim is kept follows the setting where the volume says nothing.
func TestTrimFollowsItsSetting(t *testing.T) {
	for _, tt := range []struct {
		volume  v1beta2.Override
		setting string
		want    bool
	}{
		{"ignored", "true", true}, {"ignored", "false", false}, {"", "true", true}, {"disabled", "true", false},
		{"enabled", "false", true},
	} {
		v, s := fixture()
		v.Spec.UnmapMarkSnapChainRemoved = tt.volume
		s.Settings["remove-snapshots-during-filesystem-trim"] = tt.setting
		if got := (creating{newPass(now, v, *s)}).newEngine().Spec.UnmapMarkSnapChainRemovedEnabled; got != tt.want {
			t.Errorf("volume %q, setting %s: %v", tt.volume, tt.setting, got)
		}
	}
}

// A detached volume takes another engine image: the engine first, its replicas, then the status.
func TestDetachedVolumeTakesAnotherImage(t *testing.T) {
	v, s := resting()
	v.Spec.Image = "img:2"
	s.Engine.Spec.EngineImage = "img:1"
	var done []string
	for range 4 {
		p := newPass(now, v, *s)
		switch change := (upgrading{p}).upgradeDetached().(type) {
		case loop.Update:
			done = append(done, change.Object.GetName())
			switch o := change.Object.(type) {
			case *v1beta2.Engine:
				if o.Spec.Image != "img:2" || o.Spec.EngineImage != "" {
					t.Errorf("engine of %q, %q", o.Spec.Image, o.Spec.EngineImage)
				}
				s.Engine = o
			case *v1beta2.Replica:
				i := slices.IndexFunc(s.Replicas, func(r v1beta2.Replica) bool { return r.Name == o.Name })
				s.Replicas[i] = *o
			}
		case nil:
			if len(p.events) != 1 || p.events[0].Reason != "Upgrade" {
				t.Errorf("events %+v", p.events)
			}
		}
	}
	if want := []string{"v-e-0", "a", "b"}; !slices.Equal(done, want) {
		t.Errorf("changed are %v, want %v", done, want)
	}
	if v.Status.CurrentImage != "img:2" {
		t.Errorf("the volume's image is %q", v.Status.CurrentImage)
	}
}

// TestWhatCounts holds which replicas count towards the number of replicas, and which failed ones
// are worth rebuilding.
func TestWhatCounts(t *testing.T) {
	edits := map[string]func(*v1beta2.Replica){
		"in sync":            func(*v1beta2.Replica) {},
		"failed":             func(r *v1beta2.Replica) { r.Spec.FailedAt = ago(0) },
		"evicting":           func(r *v1beta2.Replica) { r.Spec.EvictionRequested = true },
		"inactive":           func(r *v1beta2.Replica) { r.Spec.Active = false },
		"deleted":            func(r *v1beta2.Replica) { at := metav1.NewTime(now); r.DeletionTimestamp = &at },
		"not placed":         func(r *v1beta2.Replica) { r.Spec.NodeID, r.Spec.DiskID = "", "" },
		"local, not placed":  func(r *v1beta2.Replica) { r.Spec.NodeID, r.Spec.HardNodeAffinity = "", "n1" },
		"failed 4 times":     func(r *v1beta2.Replica) { r.Spec.FailedAt, r.Spec.RebuildRetryCount = ago(0), 4 },
		"failed 5 times":     func(r *v1beta2.Replica) { r.Spec.FailedAt, r.Spec.RebuildRetryCount = ago(0), 5 },
		"failed, not placed": func(r *v1beta2.Replica) { r.Spec.FailedAt, r.Spec.NodeID = ago(0), "" },
		"failed, evicting":   func(r *v1beta2.Replica) { r.Spec.FailedAt, r.Spec.EvictionRequested = ago(0), true },
		"failed, inactive":   func(r *v1beta2.Replica) { r.Spec.FailedAt, r.Spec.Active = ago(0), false },
	}
	counts := []string{"in sync", "not placed"}
	rebuilt := []string{"failed", "failed 4 times"}
	for _, name := range slices.Sorted(maps.Keys(edits)) {
		r := good("a", "n1", "v-aaaaaaaa")
		edits[name](&r)
		if got := usable(&r); got != slices.Contains(counts, name) {
			t.Errorf("%s counts: %v", name, got)
		}
		if got := reusable(&r); got != slices.Contains(rebuilt, name) {
			t.Errorf("%s is rebuilt: %v", name, got)
		}
	}
}

// A volume that a version without attachment objects has left attached is given one with the
// tickets that keep it where it is: those of Kubernetes, or else a user's.
func TestAttachmentOfAnAttachedVolume(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(v *v1beta2.Volume, s *seen)
		want []string
	}{
		"detached": {func(v *v1beta2.Volume, _ *seen) { v.Spec.NodeID = "" }, nil},
		"by a user": {func(v *v1beta2.Volume, _ *seen) { v.Spec.DisableFrontend = true },
			[]string{"longhorn-api on n1, without frontend true"}},
		"by Kubernetes": {func(_ *v1beta2.Volume, s *seen) { s.Published = []string{"n1"} },
			[]string{"csi-attacher on n1, without frontend false"}},
		"migrating": {func(v *v1beta2.Volume, s *seen) {
			v.Spec.MigrationNodeID, v.Spec.Migratable, v.Spec.AccessMode = "n2", true, v1beta2.AccessModeReadWriteMany
			s.Published = []string{"n1", "n2"}
		}, []string{"csi-attacher on n1, without frontend false", "csi-attacher on n2, without frontend false"}},
		"shared": {func(v *v1beta2.Volume, s *seen) {
			v.Spec.AccessMode, s.Published = v1beta2.AccessModeReadWriteMany, []string{"n1"}
		}, []string{"csi-attacher on n1, without frontend false", "share-manager-controller on n1, without frontend false"}},
	} {
		t.Run(name, func(t *testing.T) {
			v, s := fixture()
			s.Attachment = nil
			c.edit(v, s)
			change, ok := creating{newPass(now, v, *s)}.ensureObjects().(loop.Create)
			if !ok {
				t.Fatal("nothing is made")
			}
			var got []string
			for id, ticket := range change.Object.(*v1beta2.VolumeAttachment).Spec.AttachmentTickets {
				if id != ticket.ID || (ticket.Type == v1beta2.AttacherTypeCSI) != strings.HasPrefix(id, "csi-") ||
					(ticket.Type == v1beta2.AttacherTypeLonghornAPI) != (id == "") {
					t.Errorf("ticket %q is %+v", id, ticket)
				}
				got = append(got, string(ticket.Type)+" on "+ticket.NodeID+", without frontend "+
					ticket.Parameters["disableFrontend"])
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("tickets %q, want %q", got, c.want)
			}
		})
	}
}
