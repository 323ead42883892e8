package admission

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// change is a row about a change of a volume: its state, and what is done to it.
type change struct {
	name  string
	state func(*v1beta2.Volume)
	edit  func(*v1beta2.Volume)
	facts VolumeFacts
	want  string
}

func (c change) check(t *testing.T) {
	t.Helper()
	old := newVolume(c.state)
	v := old.DeepCopy()
	c.edit(v)
	c.facts.Settings = defaults
	expect(t, c.name, CheckVolume(old, v, c.facts), c.want)
}

func none(*v1beta2.Volume) {}

func attachedVolume(v *v1beta2.Volume) {
	v.Status.State, v.Spec.NodeID = v1beta2.VolumeStateAttached, "n1"
}
func detachedVolume(v *v1beta2.Volume) { v.Status.State = v1beta2.VolumeStateDetached }

// then does one thing after another to a volume.
func then(edits ...func(*v1beta2.Volume)) func(*v1beta2.Volume) {
	return func(v *v1beta2.Volume) {
		for _, e := range edits {
			e(v)
		}
	}
}

func TestVolumeGrowth(t *testing.T) {
	grown := func(v *v1beta2.Volume) { v.Spec.Size *= 2 }
	faulted := func(v *v1beta2.Volume) { v.Status.Robustness = v1beta2.VolumeRobustnessFaulted }
	restoring := func(v *v1beta2.Volume) { v.Status.RestoreRequired = true }
	standby := func(v *v1beta2.Volume) { v.Status.IsStandby = true }
	clone := func(s v1beta2.VolumeCloneState) func(*v1beta2.Volume) {
		return func(v *v1beta2.Volume) { v.Status.CloneStatus.State = s }
	}
	scheduled := func(v *v1beta2.Volume) {
		v.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.VolumeConditionScheduled, Status: v1beta2.ConditionTrue}}
	}
	waiting := VolumeFacts{Replicas: []v1beta2.Replica{replicaOn("n1"), replicaOn("")}}
	placed := VolumeFacts{Replicas: []v1beta2.Replica{replicaOn("n1")}}
	for _, tt := range []change{
		{"to nothing", detachedVolume, func(v *v1beta2.Volume) { v.Spec.Size = 0 }, VolumeFacts{}, "should be positive"},
		{"to no multiple", detachedVolume, func(v *v1beta2.Volume) { v.Spec.Size++ }, VolumeFacts{}, "is too large"},
		{"cancelled while faulted", then(attachedVolume, faulted, func(v *v1beta2.Volume) {
			v.Status.ExpansionRequired = true
		}), func(v *v1beta2.Volume) { v.Spec.Size /= 2 }, VolumeFacts{}, ""},
		{"attaching", func(v *v1beta2.Volume) { v.Status.State, v.Spec.NodeID = "attaching", "n1" }, grown,
			VolumeFacts{}, ""},
		{"attaching to no node", func(v *v1beta2.Volume) { v.Status.State = "attaching" }, grown, VolumeFacts{},
			"invalid volume state to expand"},
		{"restoring", then(attachedVolume, restoring), grown, VolumeFacts{}, "is restoring data"},
		{"restoring standby", then(attachedVolume, restoring, standby), grown, VolumeFacts{}, ""},
		{"standby", then(attachedVolume, standby), grown, VolumeFacts{}, ""},
		{"clone being copied", then(attachedVolume, clone("initiated")), grown, VolumeFacts{}, "is being cloned"},
		{"clone that is copied", then(attachedVolume, clone("completed")), grown, VolumeFacts{}, ""},
		{"not scheduled, a replica waits", detachedVolume, grown, waiting, "replicas that are not scheduled"},
		{"not scheduled, all replicas are placed", detachedVolume, grown, placed, ""},
		{"scheduled, a replica waits", then(detachedVolume, scheduled), grown, waiting, ""},
		{"attached, a replica waits", attachedVolume, grown, waiting, ""},
		{"faulted, unchanged", then(attachedVolume, faulted), none, VolumeFacts{}, ""},
	} {
		tt.check(t)
	}
}

func TestVolumeImages(t *testing.T) {
	wanted := func(name string) func(*v1beta2.Volume) { return func(v *v1beta2.Volume) { v.Spec.Image = name } }
	used := func(v *v1beta2.Volume) { v.Status.CurrentImage = "used" }
	ready, incompatible, pending := deployed(), deployed(), deployed()
	incompatible.Status.Incompatible = true
	pending.Status.State = v1beta2.EngineImageStateDeploying
	for _, tt := range []change{
		{"kept, though there is none", attachedVolume, none, VolumeFacts{}, ""},
		{"ready", then(attachedVolume, used), wanted("new"), VolumeFacts{Image: ready}, ""},
		{"missing", then(attachedVolume, used), wanted("new"), VolumeFacts{}, "wanted for volume demo does not exist"},
		{"incompatible", then(attachedVolume, used), wanted("new"), VolumeFacts{Image: incompatible},
			"is incompatible with this manager"},
		{"pending", then(attachedVolume, used), wanted("new"), VolumeFacts{Image: pending}, "is not deployed yet"},
		{"back, though there is none", then(attachedVolume, used), wanted("used"), VolumeFacts{}, ""},
		{"taken away", then(attachedVolume, used), wanted(""), VolumeFacts{}, "has no engine image"},
		{"taken away before the first start", detachedVolume, wanted(""), VolumeFacts{}, "has no engine image"},
	} {
		tt.check(t)
	}
}

func TestVolumePlaces(t *testing.T) {
	on := func(node string) func(*v1beta2.Volume) { return func(v *v1beta2.Volume) { v.Spec.NodeID = node } }
	to := func(node string) func(*v1beta2.Volume) {
		return func(v *v1beta2.Volume) { v.Spec.MigrationNodeID = node }
	}
	migrating := func(v *v1beta2.Volume) { v.Status.CurrentMigrationNodeID = "n2" }
	local := func(v *v1beta2.Volume) { v.Spec.DataLocality, v.Spec.NumberOfReplicas = "strict-local", 1 }
	plain := func(v *v1beta2.Volume) { v.Spec.DataLocality = "disabled" }
	at := func(nodes ...string) (f VolumeFacts) {
		for _, n := range nodes {
			f.Replicas = append(f.Replicas, replicaOn(n))
		}
		return f
	}
	for _, tt := range []change{
		{"migration", attachedVolume, to("n2"), VolumeFacts{}, ""},
		{"migration to the node it goes to", then(attachedVolume, migrating), to("n2"), VolumeFacts{}, ""},
		{"migration to another node", then(attachedVolume, migrating), to("n3"), VolumeFacts{},
			"is migrating to node n2"},
		{"migration ended", then(attachedVolume, migrating, to("n3")), to(""), VolumeFacts{}, ""},
		{"migration unchanged", then(attachedVolume, migrating, to("n3")), none, VolumeFacts{}, ""},
		{"any node", detachedVolume, on("n9"), at("n1", "n2"), ""},
		{"local, at its replica", then(detachedVolume, local), on("n1"), at("n1"), ""},
		{"local, elsewhere", then(detachedVolume, local), on("n2"), at("n1"), "cannot be attached to node n2"},
		{"local, its replica waits", then(detachedVolume, local), on("n2"), at(""), ""},
		{"local, no replica", then(detachedVolume, local), on("n1"), at(), "should have exactly one replica, not 0"},
		{"local, two replicas", then(detachedVolume, local), on("n1"), at("n1", "n1"), "exactly one replica, not 2"},
		{"local, detached", then(attachedVolume, local), on(""), at(), ""},
		{"local, elsewhere since before", then(attachedVolume, local), none, at("n2"), ""},
		{"to local while detached", detachedVolume, local, VolumeFacts{}, ""},
		{"to local while attached", attachedVolume, local, VolumeFacts{}, "only while it is detached"},
		{"from local while detached", then(detachedVolume, local), plain, VolumeFacts{}, ""},
		{"from local while attached", then(attachedVolume, local), plain, VolumeFacts{}, "only while it is detached"},
		{"local kept while attached", then(attachedVolume, local), none, VolumeFacts{}, ""},
	} {
		tt.check(t)
	}
}

// TestVolumeFrontend: the schema takes a frontend that this version does not have.
func TestVolumeFrontend(t *testing.T) {
	frontend := func(f v1beta2.VolumeFrontend) func(*v1beta2.Volume) {
		return func(v *v1beta2.Volume) { v.Spec.Frontend = f }
	}
	standby := then(detachedVolume, func(v *v1beta2.Volume) { v.Spec.Standby, v.Spec.Frontend = true, "" })
	for _, tt := range []change{
		{"not built", detachedVolume, frontend("iscsi"), VolumeFacts{}, "this version has no iSCSI target"},
		{"stored before, then changed otherwise", then(detachedVolume, frontend("iscsi")), func(v *v1beta2.Volume) {
			v.Finalizers = nil
		}, VolumeFacts{}, ""},
		{"activated", standby, func(v *v1beta2.Volume) { v.Spec.Standby, v.Spec.Frontend = false, "blockdev" },
			VolumeFacts{}, ""},
		{"activated without a frontend", standby, func(v *v1beta2.Volume) { v.Spec.Standby = false }, VolumeFacts{},
			"invalid volume frontend specified"},
		{"not activated", standby, frontend("blockdev"), VolumeFacts{}, "failed to set frontend for standby volume"},
		{"becomes standby", detachedVolume, func(v *v1beta2.Volume) { v.Spec.Standby = true }, VolumeFacts{},
			"cannot become a standby volume"},
		{"standby", standby, func(*v1beta2.Volume) {}, VolumeFacts{}, ""},
	} {
		tt.check(t)
	}
}

func TestVolumeAccess(t *testing.T) {
	mode := func(m v1beta2.AccessMode) func(*v1beta2.Volume) {
		return func(v *v1beta2.Volume) { v.Spec.AccessMode = m }
	}
	const refusal = "can only update volume access mode while volume is detached: volume demo is "
	for _, tt := range []change{
		{"detached", detachedVolume, mode("rwx"), VolumeFacts{}, ""},
		{"attached", attachedVolume, mode("rwx"), VolumeFacts{}, refusal + "attached"},
		{"attached, the same", attachedVolume, mode("rwo"), VolumeFacts{}, ""},
		{"attached, of an older version", then(attachedVolume, mode("")), mode("rwo"), VolumeFacts{}, ""},
		{"about to be attached", then(detachedVolume, func(v *v1beta2.Volume) { v.Spec.NodeID = "n1" }), mode("rwop"),
			VolumeFacts{}, refusal + "about to be attached to node n1"},
		{"new", none, mode("rwx"), VolumeFacts{}, refusal + "creating"},
	} {
		tt.check(t)
	}
}

func TestVolumeSnapshotLimits(t *testing.T) {
	limits := func(count int, size int64) func(*v1beta2.Volume) {
		return func(v *v1beta2.Volume) { v.Spec.SnapshotMaxCount, v.Spec.SnapshotMaxSize = count, size }
	}
	three := v1beta2.Engine{}
	three.Status.Snapshots = map[string]v1beta2.SnapshotInfo{
		"a": {Size: "3221225472"}, "b": {Size: "3221225472"}, "c": {Size: "no number"},
		"gone": {Size: "1", Removed: true}, "volume-head": {Size: "1"},
	}
	huge := v1beta2.Engine{}
	huge.Status.Snapshots = map[string]v1beta2.SnapshotInfo{"a": {Size: "9223372036854775808"}}
	used, two := VolumeFacts{Engines: []v1beta2.Engine{three}}, VolumeFacts{Engines: make([]v1beta2.Engine, 2)}
	for _, tt := range []change{
		{"as many as there are", limits(10, 0), limits(3, 0), used, ""},
		{"fewer than there are", limits(10, 0), limits(2, 0), used, "is smaller than current usage 3"},
		{"fewer than there are, since before", limits(2, 0), limits(2, 8*gib), used, ""},
		{"as large as they are", limits(10, 0), limits(10, 6*gib), used, ""},
		{"smaller than they are", limits(10, 0), limits(10, 6*gib-1), used, "is smaller than current usage 6442450944"},
		{"smaller than they are, since before", limits(10, 2*gib), limits(9, 2*gib), used, ""},
		{"as large as they want", limits(10, 2*gib), limits(10, 0), used, ""},
		{"beside a size nobody can read", limits(10, 0), limits(10, 2*gib), VolumeFacts{Engines: []v1beta2.Engine{huge}}, ""},
		{"kept with two engines", limits(10, 0), none, two, ""},
		{"another count with two engines", limits(10, 0), limits(11, 0), two, "while it is migrating"},
		{"another size with two engines", limits(10, 0), limits(10, 2*gib), two, "while it is migrating"},
		{"no limit before, with two engines", limits(0, 0), limits(250, 0), two, ""},
		{"no limit before, to a lower one with two engines", limits(0, 0), limits(249, 0), two, "while it is migrating"},
		{"a limit before, to the highest with two engines", limits(2, 0), limits(250, 0), two, "while it is migrating"},
		{"no limit before, and a size with two engines", limits(0, 0), limits(250, 2*gib), two, "while it is migrating"},
	} {
		tt.check(t)
	}
}

// TestWishForChecksums: one after the other, each with a time.
func TestWishForChecksums(t *testing.T) {
	wish := func(at, done string) func(*v1beta2.Volume) {
		return func(v *v1beta2.Volume) {
			v.Spec.SnapshotHashingRequestedAt, v.Status.LastOnDemandSnapshotHashingCompleteAt = at, done
		}
	}
	const first, second = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"
	for _, tt := range []change{
		{"the first", none, wish(first, ""), VolumeFacts{}, ""},
		{"no time", none, wish("now", ""), VolumeFacts{}, `"now" of volume`},
		{"the next, too early", wish(first, ""), wish(second, ""), VolumeFacts{}, "asked for at " + first},
		{"the next", wish(first, first), wish(second, first), VolumeFacts{}, ""},
		{"another after one was cleared", wish("", first), wish(second, first), VolumeFacts{}, ""},
		{"taken back", wish(first, ""), wish("", ""), VolumeFacts{}, ""},
		{"kept", wish(first, ""), wish(first, ""), VolumeFacts{}, ""},
	} {
		tt.check(t)
	}
}

// TestVolumeFieldsOfOlderVersions fills in what older versions left empty, and changes what is not
// judged.
func TestVolumeFieldsOfOlderVersions(t *testing.T) {
	for _, tt := range []change{
		{"clone mode", func(v *v1beta2.Volume) { v.Spec.DataSource = "vol://a" },
			func(v *v1beta2.Volume) { v.Spec.CloneMode = "full-copy" }, VolumeFacts{}, ""},
		{"compression", func(v *v1beta2.Volume) { v.Spec.BackupCompressionMethod = "" },
			func(v *v1beta2.Volume) { v.Spec.BackupCompressionMethod = "gzip" }, VolumeFacts{}, ""},
		{"label of the source", none, func(v *v1beta2.Volume) { v.Labels["longhorn.io/clone-source-volume"] = "a" },
			VolumeFacts{}, ""},
		{"data engine", func(v *v1beta2.Volume) { v.Spec.DataEngine = "" },
			func(v *v1beta2.Volume) { v.Spec.DataEngine = "v1" }, VolumeFacts{}, ""},
		{"frontend", attachedVolume, func(v *v1beta2.Volume) { v.Spec.Frontend = "" }, VolumeFacts{}, ""},
		{"more replicas than there are disks", attachedVolume, func(v *v1beta2.Volume) { v.Spec.NumberOfReplicas = 20 },
			VolumeFacts{}, ""},
	} {
		tt.check(t)
	}
}
