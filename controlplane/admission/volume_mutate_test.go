package admission

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

func TestVolumeMutation(t *testing.T) {
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "Demo"}}
	v.Spec.Size = 3 << 20
	v.Spec.Image = "mine"
	MutateVolume(nil, v, setting.Values{
		setting.DefaultEngineImage: "e", setting.DefaultReplicaCount: `{"v1":"2"}`, setting.SnapshotMaxCount: "7",
		setting.BackupCompressionMethod: "gzip",
	})
	s := v.Spec
	if v.Name != "demo" || s.Size != 4<<20 || s.NumberOfReplicas != 2 || s.DataLocality != "disabled" ||
		s.AccessMode != "rwo" ||
		s.Image != "e" || s.EngineImage != "e" || s.BackupTargetName != "default" || s.BackupCompressionMethod != "gzip" ||
		s.SnapshotMaxCount != 7 || s.ReplicaAutoBalance != "ignored" || s.OfflineRebuilding != "ignored" ||
		s.DataEngine != "v1" ||
		s.BackupBlockSize != 2<<20 || s.NodeSelector == nil || s.DiskSelector == nil {
		t.Errorf("spec %+v", s)
	}
	for label, want := range map[string]string{
		"longhornvolume": "demo", "backup-target": "default",
		"setting.longhorn.io/replica-auto-balance":                    "ignored",
		"setting.longhorn.io/snapshot-data-integrity":                 "ignored",
		"setting.longhorn.io/remove-snapshots-during-filesystem-trim": "ignored",
	} {
		if v.Labels[label] != want {
			t.Errorf("label %s = %q, want %q", label, v.Labels[label], want)
		}
	}
	if len(v.Finalizers) != 1 || v.Finalizers[0] != "longhorn.io" {
		t.Errorf("finalizers %v", v.Finalizers)
	}
	again := v.DeepCopy()
	MutateVolume(v, again, defaults)
	if again.Spec.Size != v.Spec.Size || again.Spec.Image != "e" || len(again.Finalizers) != 1 ||
		again.Spec.NumberOfReplicas != 2 {
		t.Errorf("an update changed %+v", again.Spec)
	}
	again.Spec.ReplicaAutoBalance = "best-effort"
	again.Spec.EngineImage = "new"
	MutateVolume(v, again, defaults)
	if _, ok := again.Labels["setting.longhorn.io/replica-auto-balance"]; ok || again.Spec.Image != "new" {
		t.Errorf("labels %v, image %q", again.Labels, again.Spec.Image)
	}
	grown := v.DeepCopy()
	v.Spec.SnapshotMaxSize, grown.Spec.SnapshotMaxSize, grown.Spec.Size = 8<<20, 8<<20, 100<<20
	MutateVolume(v, grown, defaults)
	if grown.Spec.SnapshotMaxSize != 200<<20 {
		t.Errorf("snapshot max size %d after growth", grown.Spec.SnapshotMaxSize)
	}
	pinned := &v1beta2.Volume{}
	pinned.Spec.TopologyRequirement = []v1beta2.TopologyTerm{{Zone: "z"}, {Zone: "z", Region: "r"}}
	MutateVolume(nil, pinned, defaults)
	if pinned.Spec.ReplicaZoneSoftAntiAffinity != "enabled" {
		t.Error("a volume pinned to one zone cannot be spread over zones")
	}
}

// TestVolumesAreCompleted sends volumes as the API server does. A new one takes from the settings
// what it lacks, each setting with a value of its own; what it has stays. A changed one lacks only
// what older versions did not know.
func TestVolumesAreCompleted(t *testing.T) {
	w := worldOf(t, valueOf("default-engine-image", "engine:1"), valueOf("default-replica-count", `{"v1":"2"}`),
		valueOf("default-data-locality", "best-effort"), valueOf("snapshot-max-count", "7"),
		valueOf("backup-compression-method", "none"), valueOf("default-backup-block-size", "16"),
		valueOf("default-snapshot-space-factor", "5"))
	space := map[string]string{"longhorn.io/snapshot-space-factor": "5"}
	var none *v1beta2.Volume
	volume := func(name string, edit func(*v1beta2.Volume)) *v1beta2.Volume {
		return named(&v1beta2.Volume{}, name, nil, edit)
	}
	labels := func(name, target string) map[string]string {
		return map[string]string{"longhornvolume": name, "backup-target": target,
			"longhorn.io/volume-access-mode":                              "rwo",
			"recurring-job-group.longhorn.io/default":                     "enabled",
			"setting.longhorn.io/replica-auto-balance":                    "ignored",
			"setting.longhorn.io/snapshot-data-integrity":                 "ignored",
			"setting.longhorn.io/remove-snapshots-during-filesystem-trim": "ignored"}
	}
	// filled is what is never empty.
	filled := func(v *v1beta2.Volume, override v1beta2.Override) {
		s := &v.Spec
		s.AccessMode, s.ReplicaAutoBalance, s.SnapshotDataIntegrity = "rwo", "ignored", "ignored"
		for _, of := range overrides {
			*of(s) = override
		}
		s.DiskSelector, s.NodeSelector, s.DataEngine, s.SnapshotMaxCount = []string{}, []string{}, "v1", 7
		s.BackupBlockSize = v1beta2.BackupBlockSize16Mi
		v.Finalizers = finalizer
	}
	empty := volume("Fresh", func(v *v1beta2.Volume) { v.Spec.Size = 3 << 20 })
	completes(t, "new and empty", w, "volumes", none, empty, func(v *v1beta2.Volume) {
		filled(v, "ignored")
		v.Name, v.Labels, v.Spec.Size = "fresh", labels("fresh", "default"), 4<<20
		v.Spec.NumberOfReplicas, v.Spec.DataLocality, v.Spec.BackupTargetName = 2, "best-effort", "default"
		v.Spec.Image, v.Spec.EngineImage, v.Spec.BackupCompressionMethod = "engine:1", "engine:1", "none"
		v.Annotations = space
	})
	completes(t, "changed and empty", w, "volumes", empty, empty, func(v *v1beta2.Volume) {
		filled(v, "ignored")
		v.Labels, v.Spec.Size, v.Spec.BackupCompressionMethod = labels("Fresh", "default"), 4<<20, "gzip"
		v.Spec.DataLocality, v.Spec.BackupTargetName = "disabled", "default" // whatever new ones get
		v.Spec.BackupBlockSize = v1beta2.BackupBlockSize2Mi                  // 4 MiB are no multiple of 16
	})
	full := volume("full", func(v *v1beta2.Volume) {
		filled(v, "enabled")
		v.Spec.AccessMode, v.Spec.ReplicaAutoBalance, v.Spec.SnapshotDataIntegrity = "rwx", "least-effort", "fast-check"
		v.Spec.DiskSelector, v.Spec.NodeSelector, v.Spec.DataEngine = []string{"d"}, []string{"n"}, "v2"
		v.Spec.SnapshotMaxCount, v.Spec.BackupBlockSize = 9, v1beta2.BackupBlockSize2Mi
		v.Spec.Size, v.Spec.NumberOfReplicas, v.Spec.DataLocality = 4<<20, 3, "disabled"
		v.Spec.BackupTargetName, v.Spec.BackupCompressionMethod = "second", "lz4"
		v.Spec.DataSource, v.Spec.CloneMode = "vol://one", "linked-clone"
		v.Spec.Image, v.Spec.EngineImage = "mine", "mine"
		v.Labels = map[string]string{"longhornvolume": "full", "backup-target": "second",
			"longhorn.io/volume-access-mode": "rwx", "recurring-job.longhorn.io/nightly": "enabled"}
	})
	completes(t, "new and full", w, "volumes", none, full, func(v *v1beta2.Volume) {
		v.Spec.Image, v.Spec.EngineImage = "engine:1", "engine:1" // whatever was wanted
		v.Annotations = space
		v.Labels["longhorn.io/clone-source-volume"] = "one"
	})
	completes(t, "changed and full", w, "volumes", full, full, func(*v1beta2.Volume) {})
	completes(t, "under deletion", w, "volumes", full, deleting(volume("full", func(v *v1beta2.Volume) {
		v.Spec, v.Labels = full.Spec, full.Labels
	})), func(*v1beta2.Volume) {})
}

// TestVolumeCompletion has the rows in which one field depends on others.
func TestVolumeCompletion(t *testing.T) {
	terms := func(zones ...string) (terms []v1beta2.TopologyTerm) {
		for _, z := range zones {
			terms = append(terms, v1beta2.TopologyTerm{Zone: z})
		}
		return terms
	}
	zone := func(s *v1beta2.VolumeSpec) any { return s.ReplicaZoneSoftAntiAffinity }
	image := func(s *v1beta2.VolumeSpec) any { return s.Image + " " + s.EngineImage }
	counter := func(s *v1beta2.VolumeSpec) any { return s.RevisionCounterDisabled }
	mode := func(s *v1beta2.VolumeSpec) any { return s.CloneMode }
	room := func(s *v1beta2.VolumeSpec) any { return s.SnapshotMaxSize }
	block := func(s *v1beta2.VolumeSpec) any { return s.BackupBlockSize }
	stored := v1beta2.VolumeSpec{Size: 4 << 20, SnapshotMaxSize: 8 << 20, Image: "a"}
	stored.EngineImage = "a"
	modern := stored
	modern.DataLocality, modern.BackupTargetName = "best-effort", "a"
	locality := func(s *v1beta2.VolumeSpec) any { return s.DataLocality }
	target := func(s *v1beta2.VolumeSpec) any { return s.BackupTargetName }
	for _, tt := range []struct {
		name string
		old  *v1beta2.VolumeSpec
		edit func(*v1beta2.VolumeSpec)
		of   func(*v1beta2.VolumeSpec) any
		want any
	}{
		{"zone, no topology", nil, func(*v1beta2.VolumeSpec) {}, zone, v1beta2.OverrideIgnored},
		{"zone, one", nil, func(s *v1beta2.VolumeSpec) { s.TopologyRequirement = terms("z", "z") }, zone,
			v1beta2.OverrideEnabled},
		{"zone, two", nil, func(s *v1beta2.VolumeSpec) { s.TopologyRequirement = terms("z", "y") }, zone,
			v1beta2.OverrideIgnored},
		{"zone, none", nil, func(s *v1beta2.VolumeSpec) { s.TopologyRequirement = terms("", "") }, zone,
			v1beta2.OverrideIgnored},
		{"zone, by the setting", nil, func(s *v1beta2.VolumeSpec) {
			s.TopologyRequirement, s.ReplicaZoneSoftAntiAffinity = terms("z"), "ignored"
		}, zone, v1beta2.OverrideEnabled},
		{"zone, not wanted", nil, func(s *v1beta2.VolumeSpec) {
			s.TopologyRequirement, s.ReplicaZoneSoftAntiAffinity = terms("z"), "disabled"
		}, zone, v1beta2.OverrideDisabled},
		{"image changed", &stored, func(s *v1beta2.VolumeSpec) { s.Image = "b" }, image, "b b"},
		{"engineImage changed", &stored, func(s *v1beta2.VolumeSpec) { s.EngineImage = "b" }, image, "b b"},
		{"both images changed", &stored, func(s *v1beta2.VolumeSpec) { s.Image, s.EngineImage = "b", "c" }, image, "b b"},
		{"counter", nil, func(s *v1beta2.VolumeSpec) { s.DataLocality = "best-effort" }, counter, false},
		{"counter of a local volume", nil, func(s *v1beta2.VolumeSpec) { s.DataLocality = "strict-local" }, counter, true},
		{"counter of a stored local volume", &stored, func(s *v1beta2.VolumeSpec) { s.DataLocality = "strict-local" },
			counter, false},
		{"no clone", nil, func(*v1beta2.VolumeSpec) {}, mode, v1beta2.CloneModeNone},
		{"clone", nil, func(s *v1beta2.VolumeSpec) { s.DataSource = "vol://a" }, mode, v1beta2.CloneModeFullCopy},
		{"stored clone", &stored, func(s *v1beta2.VolumeSpec) { s.DataSource = "vol://a" }, mode, v1beta2.CloneModeFullCopy},
		{"room, grown", &stored, func(s *v1beta2.VolumeSpec) { s.Size = 8 << 20 }, room, int64(16 << 20)},
		{"room, grown to no multiple", &stored, func(s *v1beta2.VolumeSpec) {
			s.Size, s.SnapshotMaxSize = 5<<20, 10<<20
		}, room, int64(12 << 20)},
		{"room, grown and enough", &stored, func(s *v1beta2.VolumeSpec) {
			s.Size, s.SnapshotMaxSize = 6<<20, 12<<20+1
		}, room, int64(12<<20 + 1)},
		{"room, grown and without limit", &stored, func(s *v1beta2.VolumeSpec) {
			s.Size, s.SnapshotMaxSize = 8<<20, 0
		}, room, int64(0)},
		{"room, taken away", &stored, func(s *v1beta2.VolumeSpec) { s.SnapshotMaxSize = 7 << 20 }, room, int64(7 << 20)},
		{"room, shrunk", &stored, func(s *v1beta2.VolumeSpec) { s.Size, s.SnapshotMaxSize = 2<<20, 1 }, room, int64(1)},
		{"room of a new volume", nil, func(s *v1beta2.VolumeSpec) { s.Size, s.SnapshotMaxSize = 2<<20, 1 }, room, int64(1)},
		{"blocks", nil, func(*v1beta2.VolumeSpec) {}, block, int64(v1beta2.BackupBlockSize16Mi)},
		{"blocks of an older volume", &stored, func(s *v1beta2.VolumeSpec) { s.Size = 32 << 20 }, block,
			int64(v1beta2.BackupBlockSize16Mi)},
		{"blocks of an older volume of odd size", &stored, func(*v1beta2.VolumeSpec) {}, block,
			int64(v1beta2.BackupBlockSize2Mi)},
		{"locality of an older volume", &stored, func(*v1beta2.VolumeSpec) {}, locality, v1beta2.DataLocalityDisabled},
		{"locality of an older volume, given", &stored, func(s *v1beta2.VolumeSpec) { s.DataLocality = "best-effort" },
			locality, v1beta2.DataLocalityBestEffort},
		{"locality left out", &modern, func(s *v1beta2.VolumeSpec) { s.DataLocality = "" }, locality,
			v1beta2.DataLocality("best-effort")},
		{"target of an older volume", &stored, func(*v1beta2.VolumeSpec) {}, target, "default"},
		{"target of an older volume, given", &stored, func(s *v1beta2.VolumeSpec) { s.BackupTargetName = "b" }, target, "b"},
		{"target left out", &modern, func(s *v1beta2.VolumeSpec) { s.BackupTargetName = "" }, target, "a"},
		{"blocks of a standby volume", nil, func(s *v1beta2.VolumeSpec) { s.Standby = true }, block,
			int64(v1beta2.BackupBlockSize2Mi)},
		{"blocks of a standby volume, given", nil, func(s *v1beta2.VolumeSpec) {
			s.Standby, s.BackupBlockSize = true, v1beta2.BackupBlockSize16Mi
		}, block, int64(v1beta2.BackupBlockSize16Mi)},
	} {
		var old *v1beta2.Volume
		v := &v1beta2.Volume{}
		if tt.old != nil {
			old = &v1beta2.Volume{Spec: *tt.old}
			v.Spec = *tt.old
		}
		tt.edit(&v.Spec)
		MutateVolume(old, v, setting.Values{setting.DefaultBackupBlockSize: "16",
			setting.DefaultDataLocality: "best-effort"})
		if got := tt.of(&v.Spec); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestLabelOfTheCloneSource: a data source that names no volume leaves no label.
func TestLabelOfTheCloneSource(t *testing.T) {
	for source, want := range map[string]string{"vol://a": "a", "snap://a/s": "a", "": "", "vol://a/b": "", "a": ""} {
		v := &v1beta2.Volume{}
		v.Spec.DataSource = source
		MutateVolume(nil, v, defaults)
		if got := v.Labels["longhorn.io/clone-source-volume"]; got != want {
			t.Errorf("%q: label %q, want %q", source, got, want)
		}
	}
}

// TestImageOfAClone: a clone stands on the image of its source, and says so if nobody has.
func TestImageOfAClone(t *testing.T) {
	w := worldOf(t, namedVolume("a", func(v *v1beta2.Volume) { v.Spec.BackingImage = "iso" }), namedVolume("b", nil))
	for _, c := range [][3]string{{"vol://a", "", "iso"}, {"snap://a/s", "", "iso"}, {"vol://a", "other", "other"},
		{"vol://b", "", ""}, {"vol://none", "", ""}, {"", "iso", "iso"}} {
		v := &v1beta2.Volume{}
		v.Spec.DataSource, v.Spec.BackingImage = c[0], c[1]
		if err := w.cloneFrom(t.Context(), v); err != nil || v.Spec.BackingImage != c[2] {
			t.Errorf("%v: %q, %v", c, v.Spec.BackingImage, err)
		}
	}
}

// TestDefaultGroup: a volume that follows no recurring job is put into group default, at its
// creation and whenever the last label goes; one that follows any is left as it is.
func TestDefaultGroup(t *testing.T) {
	const inDefault = "recurring-job-group.longhorn.io/default"
	going := deleting(&v1beta2.Volume{})
	if MutateVolume(going, going, setting.Values{}); going.Labels[inDefault] != "" {
		t.Error("a volume under deletion is put into it")
	}
	for label, want := range map[string]bool{
		"": true, "recurring-job.longhorn.io/source": true, inDefault: true,
		"recurring-job.longhorn.io/nightly": false, "recurring-job-group.longhorn.io/gold": false,
	} {
		for _, old := range []*v1beta2.Volume{nil, {}} {
			v := &v1beta2.Volume{}
			if label != "" {
				v.Labels = map[string]string{label: "enabled"}
			}
			MutateVolume(old, v, setting.Values{})
			if _, got := v.Labels[inDefault]; got != want {
				t.Errorf("label %q: in group default: %v", label, got)
			}
		}
	}
}

// TestSnapshotSpaceOfNewVolumes: the default is written down with a volume that is created, beside
// the field that clients read, and with no other one.
func TestSnapshotSpaceOfNewVolumes(t *testing.T) {
	const key = "longhorn.io/snapshot-space-factor"
	for factor, want := range map[string]string{"": "10", "4": "4", "0": ""} {
		values := setting.Values{}
		if factor != "" {
			values[setting.SnapshotSpaceFactor] = factor
		}
		v := &v1beta2.Volume{}
		MutateVolume(nil, v, values)
		if got := v.Annotations[key]; got != want || v.Spec.SnapshotMaxSize != 0 {
			t.Errorf("setting %q: %q, want %q; snapshotMaxSize %d", factor, got, want, v.Spec.SnapshotMaxSize)
		}
		v = &v1beta2.Volume{}
		if MutateVolume(v.DeepCopy(), v, values); v.Annotations != nil {
			t.Errorf("a volume that is there is given %v", v.Annotations)
		}
		restored := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: "3"}}}
		if MutateVolume(nil, restored, values); restored.Annotations[key] != "3" {
			t.Errorf("an object that was put away comes back with %v", restored.Annotations)
		}
	}
}
