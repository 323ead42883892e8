package admission

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

type spec = *v1beta2.VolumeSpec

// overrides are the fields of a volume that override a setting with ignored, enabled or disabled,
// as messages name them.
var overrides = map[string]func(spec) *v1beta2.Override{
	"unmap mark snapshot chain removed option": func(s spec) *v1beta2.Override { return &s.UnmapMarkSnapChainRemoved },
	"replica soft anti-affinity option":        func(s spec) *v1beta2.Override { return &s.ReplicaSoftAntiAffinity },
	"replica zone soft anti-affinity option":   func(s spec) *v1beta2.Override { return &s.ReplicaZoneSoftAntiAffinity },
	"replica disk soft anti-affinity option":   func(s spec) *v1beta2.Override { return &s.ReplicaDiskSoftAntiAffinity },
	"offline rebuilding option":                func(s spec) *v1beta2.Override { return &s.OfflineRebuilding },
	"restore volume recurring job option":      func(s spec) *v1beta2.Override { return &s.RestoreVolumeRecurringJob },
	"freeze filesystem for snapshot option":    func(s spec) *v1beta2.Override { return &s.FreezeFilesystemForSnapshot },
}

// always is a rule that holds whenever a volume is stored: of two volumes that are alike but for
// what the rule is about, one is refused and the other is not, at creation and as a change of a
// third.
type always struct {
	name string
	// before is done to all three: it makes sure that no other rule refuses them.
	before func(*v1beta2.VolumeSpec)
	// good and bad are the two.
	good, bad func(*v1beta2.VolumeSpec)
	// want is part of what the refusal says.
	want string
}

// alwaysRules has two rows for each rule of checkFields: on both sides of its limit.
func alwaysRules() []always {
	replicas := func(n int) func(*v1beta2.VolumeSpec) { return func(s *v1beta2.VolumeSpec) { s.NumberOfReplicas = n } }
	count := func(n int) func(*v1beta2.VolumeSpec) { return func(s *v1beta2.VolumeSpec) { s.SnapshotMaxCount = n } }
	room := func(n int64) func(*v1beta2.VolumeSpec) { return func(s *v1beta2.VolumeSpec) { s.SnapshotMaxSize = n } }
	access := func(m v1beta2.AccessMode) func(*v1beta2.VolumeSpec) {
		return func(s *v1beta2.VolumeSpec) { s.AccessMode = m }
	}
	block := func(n int64) func(*v1beta2.VolumeSpec) { return func(s *v1beta2.VolumeSpec) { s.BackupBlockSize = n } }
	zone := func(o v1beta2.Override) func(*v1beta2.VolumeSpec) {
		return func(s *v1beta2.VolumeSpec) { s.ReplicaZoneSoftAntiAffinity = o }
	}
	migratable := func(yes bool) func(*v1beta2.VolumeSpec) { return func(s *v1beta2.VolumeSpec) { s.Migratable = yes } }
	local := func(s *v1beta2.VolumeSpec) { s.DataLocality, s.NumberOfReplicas = v1beta2.DataLocalityStrictLocal, 1 }
	localRWX := func(s *v1beta2.VolumeSpec) { local(s); s.AccessMode = v1beta2.AccessModeReadWriteMany }
	pinned := func(s *v1beta2.VolumeSpec) { s.TopologyRequirement = []v1beta2.TopologyTerm{{Zone: "z"}, {Zone: "z"}} }
	none := func(*v1beta2.VolumeSpec) {}
	return []always{
		{"fewest replicas", none, replicas(1), replicas(0), "must between 1 to 20"},
		{"most replicas", none, replicas(20), replicas(21), "must between 1 to 20"},
		{"one local replica", local, replicas(1), replicas(2),
			"replica count should be 1 when data locality is strict-local"},
		{"local and shared", local, access("rwo"), access("rwx"), "incompatible with data locality strict-local"},
		{"local, shared and migratable", localRWX, migratable(true), migratable(false),
			"incompatible with data locality strict-local"},
		{"migratable", none, migratable(false), migratable(true), "migratable volumes are only supported in ReadWriteMany"},
		{"fewest snapshots", none, count(2), count(1), "snapshot max count should be between 2 to 250"},
		{"most snapshots", none, count(250), count(251), "snapshot max count should be between 2 to 250"},
		{"room for snapshots", none, room(2 * gib), room(2*gib - 2), "snapshot max size"},
		{"any room for snapshots", none, room(0), room(1), "snapshot max size"},
		{"backup target", none, none, func(s *v1beta2.VolumeSpec) { s.BackupTargetName = "" }, "has no backup target name"},
		{"block size", block(0), block(v1beta2.BackupBlockSize2Mi), block(4 << 20), "unsupported BackupBlockSize"},
		{"large blocks", func(s *v1beta2.VolumeSpec) { s.BackupBlockSize, s.Size = 0, gib+2<<20 },
			block(v1beta2.BackupBlockSize2Mi), block(v1beta2.BackupBlockSize16Mi), "is not a multiple of it"},
		{"pinned to a zone", pinned, zone("enabled"), zone("disabled"), "replicaZoneSoftAntiAffinity must be enabled"},
		{"pinned to a zone, by the setting", pinned, zone("enabled"), zone("ignored"),
			"replicaZoneSoftAntiAffinity must be enabled"},
		{"pinned, one replica", func(s *v1beta2.VolumeSpec) { pinned(s); s.ReplicaZoneSoftAntiAffinity = "disabled" },
			replicas(1), replicas(2), "replicaZoneSoftAntiAffinity must be enabled"},
	}
}

// TestRulesHoldAtCreationAndLater asks about every rule that may not be broken ever, on both ways
// in: a rule that is asked for at creation only lets a change through, and the other way round.
func TestRulesHoldAtCreationAndLater(t *testing.T) {
	facts := VolumeFacts{Settings: defaults, Image: deployed()}
	for _, rule := range alwaysRules() {
		made := func(edit func(*v1beta2.VolumeSpec)) *v1beta2.Volume {
			return newVolume(func(v *v1beta2.Volume) {
				v.Status.State = v1beta2.VolumeStateDetached
				rule.before(&v.Spec)
				edit(&v.Spec)
			})
		}
		plain, good, bad := made(func(*v1beta2.VolumeSpec) {}), made(rule.good), made(rule.bad)
		expect(t, rule.name+": created", CheckVolume(nil, good, facts), "")
		expect(t, rule.name+": created against the rule", CheckVolume(nil, bad, facts), rule.want)
		expect(t, rule.name+": changed", CheckVolume(plain, good, facts), "")
		expect(t, rule.name+": changed against the rule", CheckVolume(plain, bad, facts), rule.want)
		expect(t, rule.name+": stored against the rule, then changed otherwise", CheckVolume(bad, bad, facts), rule.want)
	}
}

// TestBackupTargetIsThere asks about the one rule of this kind that needs the cluster.
func TestBackupTargetIsThere(t *testing.T) {
	gone := VolumeFacts{Settings: defaults, Image: deployed(), BackupTargetMissing: true}
	old := newVolume()
	changed := newVolume(func(v *v1beta2.Volume) { v.Spec.BackupTargetName = "other" })
	expect(t, "created", CheckVolume(nil, changed, gone), "backup target other of volume demo does not exist")
	expect(t, "changed", CheckVolume(old, changed, gone), "backup target other of volume demo does not exist")
	expect(t, "kept", CheckVolume(old, old, gone), "")
	older := newVolume(func(v *v1beta2.Volume) { v.Spec.BackupTargetName = "" })
	expect(t, "filled in", CheckVolume(older, newVolume(), gone), "")
	expect(t, "asked for", CheckVolume(older, changed, gone), "backup target other of volume demo does not exist")
}

// TestOlderVolumesCanBeChanged (D7): a volume that lacks what its version did not know can be
// changed in any way that another can; it is treated as it was, whatever new volumes get.
func TestOlderVolumesCanBeChanged(t *testing.T) {
	s := setting.Values{setting.DefaultDataLocality: "best-effort", setting.DefaultBackupBlockSize: "16",
		setting.DefaultEngineImage: "e"}
	older := newVolume(func(v *v1beta2.Volume) {
		p := &v.Spec
		p.Size = 6 << 20 // no multiple of 16 MiB
		p.DataLocality, p.BackupTargetName, p.BackupBlockSize, p.BackupCompressionMethod = "", "", 0, ""
		p.AccessMode, p.ReplicaAutoBalance, p.SnapshotDataIntegrity, p.SnapshotMaxCount = "", "", "", 0
		for _, of := range overrides {
			*of(p) = ""
		}
		v.Status.State = v1beta2.VolumeStateAttached
	})
	for name, edit := range map[string]func(*v1beta2.Volume){
		"finalizer":          func(v *v1beta2.Volume) { v.Finalizers = nil },
		"node":               func(v *v1beta2.Volume) { v.Spec.NodeID = "n2" },
		"number of replicas": func(v *v1beta2.Volume) { v.Spec.NumberOfReplicas = 2 },
	} {
		v := older.DeepCopy()
		edit(v)
		MutateVolume(older, v, s)
		expect(t, name, CheckVolume(older, v, VolumeFacts{Settings: s, BackupTargetMissing: true}), "")
		if v.Spec.DataLocality != v1beta2.DataLocalityDisabled || v.Spec.BackupTargetName != "default" ||
			v.Spec.BackupBlockSize != v1beta2.BackupBlockSize2Mi {
			t.Errorf("%s: completed to %+v", name, v.Spec)
		}
	}
}

// TestOlderVolumesKeepWhatTheyHave: what a volume has, or is given, is not completed in another
// way, and a target that is asked for has to be there, the default one too.
func TestOlderVolumesKeepWhatTheyHave(t *testing.T) {
	const mi2, mi16 = v1beta2.BackupBlockSize2Mi, 16 << 20
	for _, row := range []struct {
		setting        string
		old, new, want int64
	}{
		{"16", 0, 0, mi2}, {"16", mi16, 0, mi16}, {"16", 0, mi16, mi16}, {"16", mi2, mi2, mi2}, {"0", 0, 0, mi2},
	} {
		old, v := newVolume(), newVolume()
		old.Spec.Size, v.Spec.Size = 6<<20, 6<<20 // no multiple of 16 MiB
		old.Spec.BackupBlockSize, v.Spec.BackupBlockSize = row.old, row.new
		MutateVolume(old, v, setting.Values{setting.DefaultBackupBlockSize: row.setting})
		if got := v.Spec.BackupBlockSize; got != row.want {
			t.Errorf("setting %s, it was %d, asked for is %d: %d, want %d", row.setting, row.old, row.new, got, row.want)
		}
	}
	old := newVolume(func(v *v1beta2.Volume) { v.Spec.BackupTargetName = "mine" })
	v := newVolume(func(v *v1beta2.Volume) { v.Spec.BackupTargetName = "default" })
	expect(t, "another target", CheckVolume(old, v, VolumeFacts{Settings: setting.Values{setting.DefaultEngineImage: "e"},
		BackupTargetMissing: true}), "backup target default of volume")
}

// TestNodeRulesHoldAtCreationAndLater is the same for nodes.
func TestNodeRulesHoldAtCreationAndLater(t *testing.T) {
	disk := func(d v1beta2.DiskSpec) func(*v1beta2.Node) { return func(n *v1beta2.Node) { n.Spec.Disks["d"] = d } }
	for _, rule := range []struct {
		name      string
		good, bad func(*v1beta2.Node)
		want      string
	}{
		{"CPU of instance managers", func(n *v1beta2.Node) { n.Spec.InstanceManagerCPURequest = 0 },
			func(n *v1beta2.Node) { n.Spec.InstanceManagerCPURequest = -1 }, "greater than or equal to 0"},
		{"disk type", disk(v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem"}),
			disk(v1beta2.DiskSpec{Path: "/a", DiskType: "block"}), `only "filesystem" is supported`},
		{"disk driver", disk(v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem"}),
			disk(v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem", DiskDriver: "aio"}), "takes no disk driver"},
		{"path", disk(v1beta2.DiskSpec{Path: "/", DiskType: "filesystem"}),
			disk(v1beta2.DiskSpec{Path: "a", DiskType: "filesystem"}), "give an absolute path"},
		{"reserve", disk(v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem"}),
			disk(v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem", StorageReserved: -1}), "is not valid: -1 bytes on node n"},
		{"paths", func(n *v1beta2.Node) { n.Spec.Disks["e"] = v1beta2.DiskSpec{Path: "/b", DiskType: "filesystem"} },
			func(n *v1beta2.Node) { n.Spec.Disks["e"] = v1beta2.DiskSpec{Path: "/a//", DiskType: "filesystem"} },
			"duplicate disk paths on node n: disks d and e are both at /a"},
	} {
		facts := NodeFacts{AllocatableMillis: 8000}
		good, bad := nodeWith(rule.good), nodeWith(rule.bad)
		expect(t, rule.name+": created", CheckNode(nil, good, facts), "")
		expect(t, rule.name+": created against the rule", CheckNode(nil, bad, facts), rule.want)
		expect(t, rule.name+": changed", CheckNode(nodeWith(), good, facts), "")
		expect(t, rule.name+": changed against the rule", CheckNode(nodeWith(), bad, facts), rule.want)
	}
}

// TestSettingRulesHoldAtCreationAndLater is the same for values of settings.
func TestSettingRulesHoldAtCreationAndLater(t *testing.T) {
	for _, rule := range []struct{ name, good, bad, want string }{
		{"auto-salvage", "false", "yes", "auto-salvage with invalid value yes"},
		{"guaranteed-instance-manager-cpu", "40", "41", "should be less than or equal to 40"},
		{"default-replica-count", "1", "0", "should be greater than or equal to 1"},
		{"taint-toleration", "k=v:NoSchedule", "k=v:Sometimes", "invalid effect"},
		{"default-data-locality", "best-effort", "near", "default-data-locality with invalid value near"},
	} {
		old, facts := storedSetting(rule.name, ""), SettingFacts{Stored: setting.Values{}}
		good, bad := storedSetting(rule.name, rule.good), storedSetting(rule.name, rule.bad)
		expect(t, rule.name+": created", CheckSetting(nil, good, facts), "")
		expect(t, rule.name+": created against the rule", CheckSetting(nil, bad, facts), rule.want)
		expect(t, rule.name+": changed", CheckSetting(old, good, facts), "")
		expect(t, rule.name+": changed against the rule", CheckSetting(old, bad, facts), rule.want)
	}
}

// TestWhatIsDecidedAtCreationStays changes each field that may not change, from a value and to one.
func TestWhatIsDecidedAtCreationStays(t *testing.T) {
	source := newVolume()
	facts := VolumeFacts{Settings: defaults, Image: deployed(), Source: source}
	for _, rule := range []struct {
		name         string
		first, later func(*v1beta2.Volume)
		want         string
	}{
		{"data source", func(v *v1beta2.Volume) { v.Spec.DataSource, v.Spec.CloneMode = "vol://a", "full-copy" },
			func(v *v1beta2.Volume) { v.Spec.DataSource = "vol://b" }, "the data source of volume demo cannot be changed"},
		{"clone mode", func(v *v1beta2.Volume) { v.Spec.DataSource, v.Spec.CloneMode = "vol://a", "full-copy" },
			func(v *v1beta2.Volume) { v.Spec.CloneMode = "linked-clone" }, "the clone mode of volume demo cannot be changed"},
		{"topology, one term less", func(v *v1beta2.Volume) {
			v.Spec.TopologyRequirement = []v1beta2.TopologyTerm{{Zone: "a"}, {Zone: "b"}}
		}, func(v *v1beta2.Volume) { v.Spec.TopologyRequirement = v.Spec.TopologyRequirement[:1] },
			"the topology requirement of volume demo cannot be changed"},
		{"topology, another region", func(v *v1beta2.Volume) {
			v.Spec.TopologyRequirement = []v1beta2.TopologyTerm{{Zone: "a", Region: "x"}, {Zone: "b", Region: "x"}}
		}, func(v *v1beta2.Volume) { v.Spec.TopologyRequirement[1].Region = "y" },
			"the topology requirement of volume demo cannot be changed"},
		{"compression", func(v *v1beta2.Volume) { v.Spec.BackupCompressionMethod = "lz4" },
			func(v *v1beta2.Volume) { v.Spec.BackupCompressionMethod = "none" }, "changing backup compression method"},
		{"block size", func(v *v1beta2.Volume) { v.Spec.BackupBlockSize = v1beta2.BackupBlockSize16Mi },
			func(v *v1beta2.Volume) { v.Spec.BackupBlockSize = v1beta2.BackupBlockSize2Mi },
			"changing the backup block size of volume demo"},
		{"label of the source", func(v *v1beta2.Volume) { v.Labels["longhorn.io/clone-source-volume"] = "a" },
			func(v *v1beta2.Volume) { delete(v.Labels, "longhorn.io/clone-source-volume") },
			"label longhorn.io/clone-source-volume of volume demo cannot be changed"},
		{"data engine", func(v *v1beta2.Volume) { v.Spec.DataEngine = "v1" },
			func(v *v1beta2.Volume) { v.Spec.DataEngine = "v2" },
			"the data engine of volume demo cannot be changed from v1 to v2"},
	} {
		old := newVolume(rule.first, func(v *v1beta2.Volume) { v.Status.State = v1beta2.VolumeStateDetached })
		changed := old.DeepCopy()
		rule.later(changed)
		expect(t, rule.name+": kept", CheckVolume(old, old, facts), "")
		expect(t, rule.name+": changed", CheckVolume(old, changed, facts), rule.want)
	}
}
