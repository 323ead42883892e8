package admission

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

const gib = int64(1 << 30)

var defaults = setting.Values{setting.DefaultEngineImage: "ankole/engine:dev"}

func deployed() *v1beta2.EngineImage {
	ei := &v1beta2.EngineImage{}
	ei.Status.State, ei.Status.Version, ei.Status.CLIAPIVersion = v1beta2.EngineImageStateDeployed, "v", 12
	return ei
}

// newVolume is a volume as the mutation leaves it.
func newVolume(edit ...func(*v1beta2.Volume)) *v1beta2.Volume {
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
	v.Spec.Size, v.Spec.Frontend = gib, v1beta2.VolumeFrontendBlockDev
	MutateVolume(nil, v, defaults)
	for _, e := range edit {
		e(v)
	}
	return v
}

// expect compares a refusal with the part of its text that is wanted; "" means accepted.
func expect(t *testing.T, name string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

func TestNewVolumes(t *testing.T) {
	set := func(edit func(*v1beta2.VolumeSpec)) func(*v1beta2.Volume) {
		return func(v *v1beta2.Volume) { edit(&v.Spec) }
	}
	clone := func(mode v1beta2.CloneMode) func(*v1beta2.Volume) {
		return set(func(s *v1beta2.VolumeSpec) { s.DataSource, s.CloneMode = "snap://other/s", mode })
	}
	source := func(f *VolumeFacts) { f.Source = newVolume() }
	for _, tt := range []struct {
		name  string
		edit  func(*v1beta2.Volume)
		facts func(*VolumeFacts)
		want  string
	}{
		{"as mutated", set(func(*v1beta2.VolumeSpec) {}), nil, ""},
		{"name with capitals", func(v *v1beta2.Volume) { v.Name = "Demo" }, nil, "invalid name"},
		{"name of one letter", func(v *v1beta2.Volume) { v.Name = "d" }, nil, "invalid name"},
		{"name too long", func(v *v1beta2.Volume) { v.Name = strings.Repeat("d", 41) }, nil, "invalid name"},
		{"name with a dot", func(v *v1beta2.Volume) { v.Name = "de.mo" }, nil, "invalid name"},
		{"no name", func(v *v1beta2.Volume) { v.Name = "" }, nil, "invalid name"},
		{"selectors", set(func(s *v1beta2.VolumeSpec) {
			s.NodeSelector, s.DiskSelector = []string{"fast"}, []string{"example.com/ssd"}
		}), nil, ""},
		{"node selector with a space", set(func(s *v1beta2.VolumeSpec) {
			s.NodeSelector = []string{"a b"}
		}), nil, `node selector: at least one error encountered while validating tags: tag "a b"`},
		{"disk selector with an umlaut", set(func(s *v1beta2.VolumeSpec) {
			s.DiskSelector = []string{"ssd", "\u00fc"}
		}), nil, "disk selector: "},
		{"selector too long", set(func(s *v1beta2.VolumeSpec) {
			s.DiskSelector = []string{strings.Repeat("x", 64)}
		}), nil, "disk selector: "},
		{"size 0", set(func(s *v1beta2.VolumeSpec) { s.Size = 0 }), nil, "should be positive"},
		{"negative size", set(func(s *v1beta2.VolumeSpec) { s.Size = -1 }), nil, "should be positive"},
		{"size that cannot be rounded", set(func(s *v1beta2.VolumeSpec) { s.Size = RoundSize(1<<63 - 1) }), nil, "too large"},
		{"0 replicas", set(func(s *v1beta2.VolumeSpec) { s.NumberOfReplicas = 0 }), nil, "must between 1 to 20"},
		{"21 replicas", set(func(s *v1beta2.VolumeSpec) { s.NumberOfReplicas = 21 }), nil, "must between 1 to 20"},
		{"20 replicas", set(func(s *v1beta2.VolumeSpec) { s.NumberOfReplicas = 20 }), nil, ""},
		{"strict-local, 2 replicas", set(func(s *v1beta2.VolumeSpec) {
			s.DataLocality, s.NumberOfReplicas = "strict-local", 2
		}), nil,
			"number of replica count should be 1 when data locality is strict-local"},
		{"strict-local rwx", set(func(s *v1beta2.VolumeSpec) {
			s.DataLocality, s.NumberOfReplicas, s.AccessMode = "strict-local", 1, "rwx"
		}), nil, "incompatible with data locality"},
		{"migratable rwo", set(func(s *v1beta2.VolumeSpec) {
			s.Migratable = true
		}), nil, "migratable volumes are only supported in ReadWriteMany"},
		{"migratable rwx", set(func(s *v1beta2.VolumeSpec) { s.Migratable, s.AccessMode = true, "rwx" }), nil, ""},
		{"frontend", set(func(s *v1beta2.VolumeSpec) { s.Frontend = "nvmf" }), nil, "invalid volume frontend specified"},
		{"no frontend", set(func(s *v1beta2.VolumeSpec) { s.Frontend = "" }), nil, "invalid volume frontend specified"},
		{"standby of nothing", set(func(s *v1beta2.VolumeSpec) { s.Frontend, s.Standby = "", true }), nil,
			"without field FromBackup"},
		{"standby", set(func(s *v1beta2.VolumeSpec) {
			s.Frontend, s.Standby, s.FromBackup = "", true, "vfs:///x?backup=b1&volume=w"
		}), nil, ""},
		{"standby with a frontend", set(func(s *v1beta2.VolumeSpec) {
			s.Standby, s.FromBackup = true, "vfs:///x?backup=b1&volume=w"
		}), nil, "failed to set frontend for standby volume"},
		{"most files of a rebuild", set(func(s *v1beta2.VolumeSpec) {
			s.RebuildConcurrentSyncLimit, s.ReplicaRebuildingBandwidthLimit = 5, 1<<20
		}), nil, ""},
		{"snapshot count 1", set(func(s *v1beta2.VolumeSpec) {
			s.SnapshotMaxCount = 1
		}), nil, "snapshot max count should be between 2 to 250"},
		{"snapshot count 251", set(func(s *v1beta2.VolumeSpec) {
			s.SnapshotMaxCount = 251
		}), nil, "snapshot max count should be between 2 to 250"},
		{"snapshot size below twice", set(func(s *v1beta2.VolumeSpec) {
			s.SnapshotMaxSize = 2*gib - 2
		}), nil, "snapshot max size"},
		{"snapshot size of twice", set(func(s *v1beta2.VolumeSpec) { s.SnapshotMaxSize = 2 * gib }), nil, ""},
		{"block size", set(func(s *v1beta2.VolumeSpec) { s.BackupBlockSize = 4 << 20 }), nil, "unsupported BackupBlockSize"},
		{"size no multiple of the block size", set(func(s *v1beta2.VolumeSpec) {
			s.BackupBlockSize, s.Size = 16<<20, gib+2<<20
		}), nil,
			"unsupported BackupBlockSize"},
		{"iscsi", set(func(s *v1beta2.VolumeSpec) { s.Frontend = "iscsi" }), nil, `volume demo: invalid volume ` +
			`frontend specified: "iscsi": this version has no iSCSI target; use one of blockdev`},
		{"tiny", set(func(s *v1beta2.VolumeSpec) { s.Size = 16 << 20 }), nil, ""},
		{"encrypted and not tiny", set(func(s *v1beta2.VolumeSpec) { s.Encrypted, s.Size = true, 18<<20 }), nil, ""},
		{"encrypted and tiny", set(func(s *v1beta2.VolumeSpec) {
			s.Encrypted, s.Size = true, 16<<20
		}), nil, "LUKS2 header size"},
		{"clone mode without source", set(func(s *v1beta2.VolumeSpec) {
			s.CloneMode = "full-copy"
		}), nil, "without a data source"},
		{"clone", clone("full-copy"), source, ""},
		{"linked clone", clone("linked-clone"), source, `clone mode "linked-clone", only full-copy is supported`},
		{"source malformed", set(func(s *v1beta2.VolumeSpec) {
			s.DataSource = "demo2"
		}), nil, `failed to verify data source: "demo2" of volume demo should be vol://`},
		{"source missing", set(func(s *v1beta2.VolumeSpec) {
			s.DataSource = "vol://other"
		}), nil, "failed to verify data source"},
		{"source of another size", set(func(s *v1beta2.VolumeSpec) { s.DataSource = "vol://other" }),
			func(f *VolumeFacts) { f.Source = &v1beta2.Volume{} }, "failed to verify data source"},
		{"plain clone of an encrypted volume", func(v *v1beta2.Volume) { v.Spec.DataSource = "vol://one" },
			func(f *VolumeFacts) { f.Source = newVolume(); f.Source.Spec.Encrypted = true }, "a clone is as its source"},
		{"clone on another image", func(v *v1beta2.Volume) {
			v.Spec.DataSource, v.Spec.BackingImage, v.Spec.CloneMode = "vol://one", "iso", "full-copy"
		}, func(f *VolumeFacts) { f.Source = newVolume() }, `its source one stands on ""`},
		{"pinned to a zone, hard", set(func(s *v1beta2.VolumeSpec) {
			s.TopologyRequirement, s.ReplicaZoneSoftAntiAffinity = []v1beta2.TopologyTerm{{Zone: "z"}}, "disabled"
		}), nil, "replicaZoneSoftAntiAffinity must be enabled"},
		{"no image", set(func(s *v1beta2.VolumeSpec) { s.Image = "" }), nil, "no engine image"},
		{"image unknown", nil, func(f *VolumeFacts) { f.Image = nil }, "does not exist"},
		{"image incompatible", nil, func(f *VolumeFacts) { f.Image.Status.Incompatible = true }, "incompatible"},
		{"image too old for no counter", set(func(s *v1beta2.VolumeSpec) { s.RevisionCounterDisabled = true }),
			func(f *VolumeFacts) { f.Image.Status.CLIAPIVersion = 3 }, "too old"},
		{"image just new enough for no counter", set(func(s *v1beta2.VolumeSpec) { s.RevisionCounterDisabled = true }),
			func(f *VolumeFacts) { f.Image.Status.CLIAPIVersion = 4 }, ""},
		{"image that did not report yet", set(func(s *v1beta2.VolumeSpec) { s.RevisionCounterDisabled = true }),
			func(f *VolumeFacts) { f.Image.Status = v1beta2.EngineImageStatus{} }, ""},
		{"image too old for no counter, with one", nil, func(f *VolumeFacts) { f.Image.Status.CLIAPIVersion = 3 }, ""},
		{"backing image unknown", set(func(s *v1beta2.VolumeSpec) { s.BackingImage = "iso" }),
			func(f *VolumeFacts) { f.BackingImageMissing = true }, "does not exist"},
		{"backing image larger", set(func(s *v1beta2.VolumeSpec) { s.BackingImage = "iso" }),
			func(f *VolumeFacts) {
				f.BackingImageVirtualSize = 2 * gib
			}, "volume size should be larger than the backing image size"},
		{"backing image as large", set(func(s *v1beta2.VolumeSpec) { s.BackingImage = "iso" }),
			func(f *VolumeFacts) { f.BackingImageVirtualSize = gib }, ""},
		{"encrypted, on a plain image", set(func(s *v1beta2.VolumeSpec) { s.BackingImage, s.Encrypted = "bi", true }), nil,
			"to be encrypted"},
		{"encrypted, on an encrypted image", set(func(s *v1beta2.VolumeSpec) { s.BackingImage, s.Encrypted = "bi", true }),
			func(f *VolumeFacts) { f.BackingImageEncrypted = true }, ""},
		{"encrypted, as large as what the image has behind its header", set(func(s *v1beta2.VolumeSpec) {
			s.BackingImage, s.Encrypted = "bi", true
		}), func(f *VolumeFacts) {
			f.BackingImageEncrypted, f.BackingImageVirtualSize = true, gib+v1beta2.LUKSHeaderBytes
		}, ""},
		{"encrypted, and smaller", set(func(s *v1beta2.VolumeSpec) { s.BackingImage, s.Encrypted = "bi", true }),
			func(f *VolumeFacts) {
				f.BackingImageEncrypted, f.BackingImageVirtualSize = true, gib+v1beta2.LUKSHeaderBytes+512
			}, "backing image bi has 1073742336"},
		{"backup target unknown", nil, func(f *VolumeFacts) { f.BackupTargetMissing = true }, "does not exist"},
		{"engine disabled", nil, func(f *VolumeFacts) {
			f.Settings = setting.Values{setting.V1DataEngine: "false"}
		}, "v1-data-engine"},
	} {
		v, f := newVolume(), VolumeFacts{Settings: defaults, Image: deployed()}
		if tt.edit != nil {
			tt.edit(v)
		}
		if tt.facts != nil {
			tt.facts(&f)
		}
		expect(t, tt.name, CheckVolume(nil, v, f), tt.want)
	}
}

func TestVolumeUpdates(t *testing.T) {
	attached := func(v *v1beta2.Volume) { v.Status.State, v.Spec.NodeID = v1beta2.VolumeStateAttached, "n1" }
	detached := func(v *v1beta2.Volume) { v.Status.State = v1beta2.VolumeStateDetached }
	engine := func(snapshots ...string) func(*VolumeFacts) {
		return func(f *VolumeFacts) {
			e := v1beta2.Engine{}
			e.Status.Snapshots = map[string]v1beta2.SnapshotInfo{"volume-head": {Size: "999"}, "gone": {Removed: true}}
			for _, s := range snapshots {
				e.Status.Snapshots[s] = v1beta2.SnapshotInfo{Size: "1073741824"}
			}
			f.Engines = append(f.Engines, e)
		}
	}
	for _, tt := range []struct {
		name  string
		state func(*v1beta2.Volume)
		edit  func(*v1beta2.Volume)
		facts func(*VolumeFacts)
		want  string
	}{
		{"nothing", attached, func(*v1beta2.Volume) {}, nil, ""},
		{"a selector with a space", detached, func(v *v1beta2.Volume) { v.Spec.NodeSelector = []string{"a b"} }, nil,
			"node selector: "},
		{"one that was there", func(v *v1beta2.Volume) { v.Spec.NodeSelector = []string{"a b"} },
			func(v *v1beta2.Volume) { v.Spec.DiskSelector = []string{"ssd"} }, nil, ""},
		{"grow attached", attached, func(v *v1beta2.Volume) { v.Spec.Size *= 2 }, nil, ""},
		{"grow detached", detached, func(v *v1beta2.Volume) { v.Spec.Size *= 2 }, nil, ""},
		{"grow while detaching", func(v *v1beta2.Volume) { v.Status.State = "detaching" },
			func(v *v1beta2.Volume) { v.Spec.Size *= 2 }, nil, "invalid volume state to expand"},
		{"grow faulted", func(v *v1beta2.Volume) { attached(v); v.Status.Robustness = "faulted" },
			func(v *v1beta2.Volume) { v.Spec.Size *= 2 }, nil, "faulted"},
		{"shrink", detached, func(v *v1beta2.Volume) { v.Spec.Size /= 2 }, nil, "shrinking"},
		{"cancel an expansion", func(v *v1beta2.Volume) { attached(v); v.Status.ExpansionRequired = true },
			func(v *v1beta2.Volume) { v.Spec.Size /= 2 }, nil, ""},
		{"cancel an expansion below what the volume has", func(v *v1beta2.Volume) {
			attached(v)
			v.Status.ExpansionRequired = true
		}, func(v *v1beta2.Volume) { v.Spec.Size /= 2 }, func(f *VolumeFacts) {
			e := v1beta2.Engine{}
			e.Status.CurrentSize = gib
			f.Engines = []v1beta2.Engine{e}
		}, "has 1073741824 bytes and cannot shrink"},
		{"grow to what a disk has room for", attached, func(v *v1beta2.Volume) { v.Spec.Size = 7*gib + gib/2 },
			diskOf(10 * gib), ""},
		{"grow beyond", attached, func(v *v1beta2.Volume) { v.Spec.Size = 7*gib + gib/2 + 2<<20 },
			diskOf(10 * gib), "disk /data of node n1 has no room for 6981419008 bytes more"},
		{"grow two replicas on one disk", attached, func(v *v1beta2.Volume) { v.Spec.Size = 4*gib + gib/4 + 2<<20 },
			func(f *VolumeFacts) {
				diskOf(10 * gib)(f)
				f.Replicas = append(f.Replicas, f.Replicas[0])
			}, "has no room"},
		{"what has been reserved is not asked for again", attached, func(v *v1beta2.Volume) { v.Spec.Size = 8 * gib },
			func(f *VolumeFacts) {
				diskOf(10 * gib)(f)
				f.Replicas[0].Spec.VolumeSize = 8 * gib
			}, ""},
		{"a replica without a place needs no room", attached, func(v *v1beta2.Volume) { v.Spec.Size = 8 * gib },
			func(f *VolumeFacts) {
				diskOf(10 * gib)(f)
				f.Replicas[0].Spec.DiskID = ""
			}, ""},
		{"grow with unscheduled replicas", detached, func(v *v1beta2.Volume) { v.Spec.Size *= 2 },
			func(f *VolumeFacts) { f.Replicas = []v1beta2.Replica{{}} }, "not scheduled"},
		{"replica count", attached, func(v *v1beta2.Volume) { v.Spec.NumberOfReplicas = 21 }, nil, "must between 1 to 20"},
		{"data source", detached, func(v *v1beta2.Volume) { v.Spec.DataSource = "vol://x" }, nil, "cannot be changed"},
		{"topology", detached, func(v *v1beta2.Volume) {
			v.Spec.TopologyRequirement = []v1beta2.TopologyTerm{{Zone: "a"}}
		}, nil, "cannot be changed"},
		{"compression", detached, func(v *v1beta2.Volume) { v.Spec.BackupCompressionMethod = "gzip" }, nil,
			"changing backup compression method"},
		{"block size", detached, func(v *v1beta2.Volume) { v.Spec.BackupBlockSize = 16 << 20 }, nil, "not supported"},
		{"data engine", detached, func(v *v1beta2.Volume) { v.Spec.DataEngine = "v2" }, nil, "cannot be changed"},
		{"to strict-local while attached", attached, func(v *v1beta2.Volume) {
			v.Spec.DataLocality, v.Spec.NumberOfReplicas = "strict-local", 1
		}, nil,
			"only while it is detached"},
		{"to best-effort while attached", attached, func(v *v1beta2.Volume) { v.Spec.DataLocality = "best-effort" }, nil, ""},
		{"image not deployed", attached, func(v *v1beta2.Volume) { v.Spec.Image = "new" },
			func(f *VolumeFacts) { f.Image.Status.State = v1beta2.EngineImageStateDeploying }, "not deployed"},
		{"image missing", attached, func(v *v1beta2.Volume) {
			v.Spec.Image = "new"
		}, func(f *VolumeFacts) { f.Image = nil }, "does not exist"},
		{"image back to the one in use", func(v *v1beta2.Volume) { attached(v); v.Status.CurrentImage = "old" },
			func(v *v1beta2.Volume) { v.Spec.Image = "old" }, func(f *VolumeFacts) { f.Image = nil }, ""},
		{"attach strict-local elsewhere", func(v *v1beta2.Volume) {
			detached(v)
			v.Spec.DataLocality, v.Spec.NumberOfReplicas = "strict-local", 1
		},
			func(v *v1beta2.Volume) { v.Spec.NodeID = "n2" },
			func(f *VolumeFacts) { f.Replicas = []v1beta2.Replica{replicaOn("n1")} }, "cannot be attached"},
		{"second migration", func(v *v1beta2.Volume) { attached(v); v.Status.CurrentMigrationNodeID = "n2" },
			func(v *v1beta2.Volume) { v.Spec.MigrationNodeID = "n3" }, nil, "is migrating"},
		{"snapshot count below use", attached, func(v *v1beta2.Volume) {
			v.Spec.SnapshotMaxCount = 2
		}, engine("a", "b", "c"), "smaller than current usage 3"},
		{"snapshot count at use", attached, func(v *v1beta2.Volume) {
			v.Spec.SnapshotMaxCount = 3
		}, engine("a", "b", "c"), ""},
		{"snapshot size below use", attached, func(v *v1beta2.Volume) {
			v.Spec.SnapshotMaxSize = 2 * gib
		}, engine("a", "b", "c"), "smaller than current usage"},
		{"snapshot count with two engines", attached, func(v *v1beta2.Volume) { v.Spec.SnapshotMaxCount = 100 },
			func(f *VolumeFacts) { engine()(f); engine()(f) }, "migrating"},
		{"backup target vanished, unchanged", attached, func(v *v1beta2.Volume) { v.Spec.NodeID = "" },
			func(f *VolumeFacts) { f.BackupTargetMissing = true }, ""},
		{"being deleted", func(v *v1beta2.Volume) { attached(v); v.DeletionTimestamp = &metav1.Time{} },
			func(v *v1beta2.Volume) { v.Spec.Size = 0; v.Finalizers = nil }, func(f *VolumeFacts) { f.Image = nil }, ""},
	} {
		old := newVolume(tt.state)
		v, f := old.DeepCopy(), VolumeFacts{Settings: defaults, Image: deployed()}
		tt.edit(v)
		if tt.facts != nil {
			tt.facts(&f)
		}
		expect(t, tt.name, CheckVolume(old, v, f), tt.want)
	}
}

// diskOf is a disk of that size, a tenth of it used, with one replica of 1 GiB.
func diskOf(size int64) func(*VolumeFacts) {
	return func(f *VolumeFacts) {
		n := v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		n.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: "/data"}}
		n.Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "True"}}
		n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {DiskUUID: "disk", StorageMaximum: size,
			StorageAvailable: size - gib, StorageScheduled: gib}}
		r := replicaOn("n1")
		r.Spec.DiskID, r.Spec.VolumeSize = "disk", gib
		f.Nodes, f.Replicas = []v1beta2.Node{n}, []v1beta2.Replica{r}
		f.Settings = setting.Values{setting.StorageMinimalAvailablePercentage: "25",
			setting.StorageOverProvisioningPercentage: "100"}
	}
}

func replicaOn(node string) v1beta2.Replica {
	r := v1beta2.Replica{}
	r.Spec.NodeID = node
	return r
}

func TestRoundSize(t *testing.T) {
	for in, want := range map[int64]int64{1: 2 << 20, 2 << 20: 2 << 20, 2<<20 + 1: 4 << 20, 0: 0, -5: -5,
		1<<63 - 1: 1<<63 - 1} {
		if got := RoundSize(in); got != want {
			t.Errorf("RoundSize(%d) = %d, want %d", in, got, want)
		}
	}
}
