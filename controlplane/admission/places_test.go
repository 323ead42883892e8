package admission

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestGrowthWhereReplicasAre: a volume grows only while the node of its first replica is ready, and
// no further than a file of the disks' file systems.
func TestGrowthWhereReplicasAre(t *testing.T) {
	const limit = int64(16) << 40
	none := func(*v1beta2.Node, *VolumeFacts) {}
	on := func(filesystem string) func(*v1beta2.Node, *VolumeFacts) {
		return func(n *v1beta2.Node, _ *VolumeFacts) {
			d := n.Status.DiskStatus["d"]
			d.FilesystemType = filesystem
			n.Status.DiskStatus["d"] = d
		}
	}
	down := func(n *v1beta2.Node, _ *VolumeFacts) { n.Status.Conditions[0].Status = "False" }
	beside := func(name string) func(*v1beta2.Node, *VolumeFacts) {
		return func(n *v1beta2.Node, f *VolumeFacts) {
			down(n, f)
			up := *n.DeepCopy()
			up.Name, up.Status.Conditions[0].Status, up.Status.DiskStatus = "n2", "True", nil
			other := replicaOn("n2")
			f.Replicas[0].Name, other.Name = "m", name
			f.Nodes, f.Replicas = append(f.Nodes, up), append(f.Replicas, other)
		}
	}
	for _, tt := range []struct {
		name string
		edit func(*v1beta2.Node, *VolumeFacts)
		to   int64
		want string
	}{
		{"below the limit of ext4", on("ext2/ext3"), limit - 2<<20, ""},
		{"at the limit of ext4", on("ext2/ext3"), limit,
			"no file on disk /data of node n1 can be so large: ext4 has files of less than 16384 GiB; 16777214 MiB work"},
		{"the same on XFS", on("xfs"), limit, ""},
		{"the same beside a disk with ext4", func(n *v1beta2.Node, f *VolumeFacts) {
			n.Status.DiskStatus["e"] = v1beta2.DiskStatus{DiskUUID: "other", FilesystemType: "ext2/ext3"}
			on("xfs")(n, f)
		}, limit, ""},
		{"a ready node", none, 2 << 40, ""},
		{"a node that is not ready", down, 2 << 40, "node n1 of replica"},
		{"another node that is not ready", func(n *v1beta2.Node, f *VolumeFacts) {
			down(n, f)
			f.Replicas[0].Spec.NodeID = "n9"
		}, 2 << 40, ""},
		{"a failed replica there", func(n *v1beta2.Node, f *VolumeFacts) {
			down(n, f)
			f.Replicas[0].Spec.FailedAt = "2026-01-02T03:04:05Z"
		}, 2 << 40, ""},
		{"a replica without a place", func(n *v1beta2.Node, f *VolumeFacts) {
			down(n, f)
			f.Replicas[0].Spec.NodeID = ""
		}, 2 << 40, ""},
		{"one that comes first has no place", func(n *v1beta2.Node, f *VolumeFacts) {
			down(n, f)
			f.Replicas[0].Name = "m"
			f.Replicas = append(f.Replicas, replicaOn(""))
		}, 2 << 40, "node n1 of replica m"},
		{"not the first one", beside("a"), 2 << 40, ""},
		{"the first one", beside("z"), 2 << 40, "node n1 of replica m"},
	} {
		var f VolumeFacts
		diskOf(1 << 50)(&f)
		tt.edit(&f.Nodes[0], &f)
		old := newVolume(func(v *v1beta2.Volume) {
			v.Spec.NodeID, v.Status.State = "n1", v1beta2.VolumeStateAttached
		})
		v := old.DeepCopy()
		v.Spec.Size = tt.to
		expect(t, tt.name, checkResize(old, v, f), tt.want)
	}
}
