package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// TestGrowthByFacts: which fact alone decides about a change of size.
func TestGrowthByFacts(t *testing.T) {
	disk := func(edit func(d *v1beta2.DiskSpec, s *v1beta2.DiskStatus, f *VolumeFacts)) VolumeFacts {
		var f VolumeFacts
		diskOf(10 * gib)(&f)
		n := &f.Nodes[0]
		spec, status := n.Spec.Disks["d"], n.Status.DiskStatus["d"]
		edit(&spec, &status, &f)
		n.Spec.Disks["d"], n.Status.DiskStatus["d"] = spec, status
		return f
	}
	reserved := disk(func(d *v1beta2.DiskSpec, _ *v1beta2.DiskStatus, _ *VolumeFacts) { d.StorageReserved = 3 * gib })
	scheduled := disk(func(_ *v1beta2.DiskSpec, s *v1beta2.DiskStatus, _ *VolumeFacts) {
		s.StorageScheduled, s.StorageAvailable = 5*gib, 10*gib
	})
	// What a replica has beyond the wanted size, since its expansion is being cancelled, is no room
	// for another one.
	larger := disk(func(_ *v1beta2.DiskSpec, _ *v1beta2.DiskStatus, f *VolumeFacts) {
		more := f.Replicas[0]
		more.Spec.VolumeSize = 20 * gib
		f.Replicas = append(f.Replicas, more)
	})
	has := VolumeFacts{Engines: []v1beta2.Engine{{}}}
	has.Engines[0].Status.CurrentSize = gib
	hasHeader := VolumeFacts{Engines: []v1beta2.Engine{{}}}
	hasHeader.Engines[0].Status.CurrentSize = gib + v1beta2.LUKSHeaderBytes
	for _, tt := range []struct {
		name     string
		from, to int64
		facts    VolumeFacts
		want     string
	}{
		{"encrypted, to what is not reserved", gib, 7*gib - 16<<20, reserved, ""},
		{"encrypted, beyond it", gib, 7*gib - 14<<20, reserved, "has no room"},
		{"encrypted, back to what the volume has", 3 * gib, gib, hasHeader, ""},
		{"encrypted, back to less than it has", 3 * gib, gib - 2<<20, hasHeader, "cannot shrink"},
		{"to what is not reserved", gib, 7 * gib, reserved, ""},
		{"beyond it", gib, 7*gib + 2<<20, reserved, "has no room"},
		{"to what is not scheduled", gib, 6 * gib, scheduled, ""},
		{"beyond it, of what is free", gib, 6*gib + 2<<20, scheduled, "has no room"},
		{"beside a larger replica", gib, 9 * gib, larger, "has no room"},
		{"back to what the volume has", 3 * gib, gib, has, ""},
		{"back to more than it has", 3 * gib, 2 * gib, has, ""},
		{"back to less than it has", 3 * gib, gib - 2<<20, has, "cannot shrink"},
	} {
		old := newVolume(func(v *v1beta2.Volume) {
			v.Spec.Size, v.Spec.NodeID = tt.from, "n1"
			v.Spec.Encrypted = strings.HasPrefix(tt.name, "encrypted")
			v.Status.State, v.Status.ExpansionRequired = v1beta2.VolumeStateAttached, tt.to < tt.from
		})
		v := old.DeepCopy()
		v.Spec.Size = tt.to
		expect(t, tt.name, checkResize(old, v, tt.facts), tt.want)
	}
}

// TestCancelOfGrowth: a smaller size takes back a wish for a larger one that the engine has not
// begun to fulfil, also before the volume's status tells of the wish.
func TestCancelOfGrowth(t *testing.T) {
	engine := func(has int64, expanding bool) (e v1beta2.Engine) {
		e.Status.CurrentSize, e.Status.IsExpanding = has, expanding
		return e
	}
	for _, tt := range []struct {
		name    string
		told    bool
		engines []v1beta2.Engine
		to      int64
		want    string
	}{
		{"wanted and told", true, []v1beta2.Engine{engine(gib, false)}, gib, ""},
		{"wanted", false, []v1beta2.Engine{engine(gib, false)}, gib, ""},
		{"begun", true, []v1beta2.Engine{engine(gib, true)}, gib, "the engine expansion is in progress"},
		{"done", false, []v1beta2.Engine{engine(3*gib, false)}, gib, "shrinking volume demo"},
		{"done, and not told", true, []v1beta2.Engine{engine(3*gib, false)}, gib, "cannot shrink to"},
		{"nothing is known", false, []v1beta2.Engine{{}}, gib, "shrinking volume demo"},
		{"no engine", false, nil, gib, "shrinking volume demo"},
		{"to less than there was", true, []v1beta2.Engine{engine(gib, false)}, gib - 2<<20, "cannot shrink to"},
	} {
		old := newVolume(func(v *v1beta2.Volume) {
			v.Spec.Size, v.Spec.NodeID, v.Status.State = 3*gib, "n1", v1beta2.VolumeStateAttached
			v.Status.ExpansionRequired = tt.told
		})
		v := old.DeepCopy()
		v.Spec.Size = tt.to
		expect(t, tt.name, checkResize(old, v, VolumeFacts{Engines: tt.engines}), tt.want)
	}
}

// TestGrowthIsJudgedByTheNodes: a request for more than a disk has room for is refused by what the
// API says of that disk.
func TestGrowthIsJudgedByTheNodes(t *testing.T) {
	var f VolumeFacts
	diskOf(10 * gib)(&f)
	node := named(&f.Nodes[0], "n1", nil, nil)
	replica := named(&f.Replicas[0], "r", naming.VolumeLabels("demo"), nil)
	for size, want := range map[int64]string{7 * gib: "", 9 * gib: "has no room"} {
		old := newVolume(func(v *v1beta2.Volume) {
			v.Namespace, v.Spec.NodeID, v.Status.State = namespace, "n1", v1beta2.VolumeStateAttached
		})
		v := old.DeepCopy()
		v.Spec.Size = size
		expect(t, "growth by request", asked(t, worldOf(t, node, replica), "volumes", old, v), want)
	}
}

// TestGrowthWithAClaim: a volume that a claim is bound to grows with its claim, not before, and not
// where the claim's class forbids it. A claim that is history does not count.
func TestGrowthWithAClaim(t *testing.T) {
	class := func(grows bool) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, AllowVolumeExpansion: &grows}
	}
	claim := func(size string) *corev1.PersistentVolumeClaim {
		name := "c"
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &name, VolumeName: "pv",
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceStorage: resource.MustParse(size)}}}}
	}
	for _, tt := range []struct {
		name    string
		history string
		objects []client.Object
		want    string
	}{
		{"the claim has grown", "", []client.Object{claim("2Gi"), class(true)}, ""},
		{"the claim has grown, and the size is rounded up", "", []client.Object{claim("2147483000"), class(true)}, ""},
		{"the claim is smaller", "", []client.Object{claim("1Gi"), class(true)},
			"expand PVC first: volume demo cannot be expanded to"},
		{"the class forbids it", "", []client.Object{claim("1Gi"), class(false)}, "does not allow claims to grow"},
		{"there is no class", "", []client.Object{claim("1Gi")}, "does not allow claims to grow"},
		{"the claim is gone", "", nil, ""},
		{"the claim is history", "2026-01-01T00:00:00Z", []client.Object{claim("1Gi"), class(true)}, ""},
	} {
		var f VolumeFacts
		diskOf(10 * gib)(&f)
		objects := append(tt.objects, named(&f.Nodes[0], "n1", nil, nil),
			named(&f.Replicas[0], "r", naming.VolumeLabels("demo"), nil))
		old := newVolume(func(v *v1beta2.Volume) {
			v.Namespace, v.Spec.NodeID, v.Status.State = namespace, "n1", v1beta2.VolumeStateAttached
			v.Status.KubernetesStatus = v1beta2.KubernetesStatus{PVName: "pv", Namespace: "app", PVCName: "data",
				LastPVCRefAt: tt.history}
		})
		v := old.DeepCopy()
		v.Spec.Size = 2 * gib
		expect(t, tt.name, asked(t, worldOf(t, objects...), "volumes", old, v), tt.want)
	}
}
