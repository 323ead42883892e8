package volume_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

func TestExpand(t *testing.T) {
	const url = "/v1/volumes/demo?action=expand"
	f := newFixture(t, resttest.Cluster(resttest.Attached()...)...)
	for _, tt := range []struct{ body, size string }{
		{`{"size":"1Gi"}`, "1073741824"},        // as it is
		{`{"size":"1"}`, "1073741824"},          // smaller
		{`{"size":"1073741825"}`, "1075838976"}, // rounded up
		{`{"size":"20Gi"}`, "21474836480"},
		{`{"size":"20Gi"}`, "21474836480"}, // again
	} {
		if a := f.Do("POST", url, tt.body); a.Status != 200 || a.JSON["size"] != tt.size {
			t.Errorf("%s: %d, size %v, want %s", tt.body, a.Status, a.JSON["size"], tt.size)
		}
	}
	for body, why := range map[string]string{`{}`: "no size", `{"size":"0"}`: "no size", `{"size":"-1"}`: "negative",
		`{"size":"big"}`: "failed to parse", `{"size":"8Ei"}`: "larger than a volume can be"} {
		f.Refused(f.Do("POST", url, body), 500, why)
	}
	f.Refused(f.Do("POST", "/v1/volumes/nope?action=expand", `{"size":"2Gi"}`), 404, "not found")
	for why, edit := range map[string]func(*lh.Volume){
		"failed to manually expand standby volume demo": func(v *lh.Volume) { v.Status.IsStandby = true },
		"invalid volume state to expand":                func(v *lh.Volume) { v.Status.State = lh.VolumeStateDetaching },
		"the volume is faulted": func(v *lh.Volume) {
			v.Status.Robustness = lh.VolumeRobustnessFaulted
		},
		"the volume is being cloned; wait": func(v *lh.Volume) {
			v.Status.CloneStatus.State = lh.VolumeCloneStateInitiated
		},
	} {
		objects := resttest.Attached()
		edit(objects[0].(*lh.Volume))
		g := newFixture(t, resttest.Cluster(objects...)...)
		g.Refused(g.Do("POST", url, `{"size":"2Gi"}`), 500, why)
	}
}

// TestExpandGrowsTheClaim: the size of a volume that a claim is bound to is asked for in the claim;
// what the driver asks for then is asked of the volume.
func TestExpandGrowsTheClaim(t *testing.T) {
	const url = "/v1/volumes/demo?action=expand"
	yes, name := true, "c"
	objects := resttest.Attached()
	v := objects[0].(*lh.Volume)
	v.Status.KubernetesStatus = lh.KubernetesStatus{PVName: "pv", Namespace: "app", PVCName: "data"}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &name, VolumeName: "pv",
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, AllowVolumeExpansion: &yes}
	f := newFixture(t, resttest.Cluster(append(objects, claim, class)...)...)
	asks := func() int64 {
		var c corev1.PersistentVolumeClaim
		if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(claim), &c); err != nil {
			t.Fatal(err)
		}
		size := c.Spec.Resources.Requests[corev1.ResourceStorage]
		return size.Value()
	}
	for _, tt := range []struct {
		size   string
		claim  int64
		volume string
	}{
		{"512Mi", 1 << 30, "1073741824"},         // smaller
		{"2147483000", 2147483000, "1073741824"}, // of the claim
		{"2147483000", 2147483000, "2147483648"}, // as the driver then asks, rounded up
	} {
		a := f.Do("POST", url, `{"size":"`+tt.size+`"}`)
		if a.Status != 200 || a.JSON["size"] != tt.volume || asks() != tt.claim {
			t.Errorf("%s: %d, size %v, the claim asks for %d", tt.size, a.Status, a.JSON["size"], asks())
		}
	}
}

// TestExpansionRequired: an answer about one volume tells that its engine is to grow, also of an
// engine that has never run and tells no size. Lists do not have the field.
func TestExpansionRequired(t *testing.T) {
	const gib = int64(1) << 30
	for _, tt := range []struct {
		name             string
		size, spec, has  int64 // of the volume, and of its engine what it starts with and what it has
		encrypted, wants bool
	}{
		{"never run", gib, gib, 0, false, false},
		{"never run, and larger", 2 * gib, gib, 0, false, true},
		{"nothing is known", gib, 0, 0, false, false},
		{"it has the size", gib, gib, gib, false, false},
		{"it starts to grow", 2 * gib, gib, gib, false, true},
		{"it grows", 2 * gib, 2 * gib, gib, false, true},
		{"cancelled, and it may grow yet", gib, 2 * gib, gib, false, true},
		{"it has grown", 2 * gib, 2 * gib, 2 * gib, false, false},
		{"cancelled too late", gib, gib, 2 * gib, false, false},
		{"encrypted", gib, gib + lh.LUKSHeaderBytes, 0, true, false},
		{"encrypted, and larger", 2 * gib, gib + lh.LUKSHeaderBytes, 0, true, true},
	} {
		objects := resttest.Volume("demo")
		v, e := objects[0].(*lh.Volume), objects[1].(*lh.Engine)
		v.Spec.Size, v.Spec.Encrypted = tt.size, tt.encrypted
		e.Spec.VolumeSize, e.Status.CurrentSize = tt.spec, tt.has
		f := newFixture(t, resttest.Cluster(objects...)...)
		got, _ := f.Do("GET", "/v1/volumes/demo", "").JSON["expansionRequired"].(bool) // left out: false
		if got != tt.wants {
			t.Errorf("%s: %v", tt.name, got)
		}
		list := f.Do("GET", "/v1/volumes", "").JSON["data"].([]any)
		if _, told := list[0].(map[string]any)["expansionRequired"]; told {
			t.Errorf("%s: in a list", tt.name)
		}
	}
}

func TestCancelExpansion(t *testing.T) {
	const url = "/v1/volumes/demo?action=cancelExpansion"
	growing := func(edit func(*lh.Volume, *lh.Engine)) *fixture {
		objects := resttest.Attached()
		v, e := objects[0].(*lh.Volume), objects[1].(*lh.Engine)
		v.Spec.Size, v.Status.ExpansionRequired = 2<<30, true
		edit(v, e)
		return newFixture(t, resttest.Cluster(objects...)...)
	}
	f := growing(func(*lh.Volume, *lh.Engine) {})
	if a := f.Do("POST", url, ""); a.Status != 200 || a.JSON["size"] != "1073741824" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	f.Refused(f.Do("POST", url, ""), 500, "already complete") // as long as the controller has not seen it
	// The header of an encrypted volume is not the user's.
	f = growing(func(v *lh.Volume, e *lh.Engine) {
		v.Spec.Encrypted, e.Status.CurrentSize = true, 1<<30+lh.LUKSHeaderBytes
	})
	if a := f.Do("POST", url, ""); a.Status != 200 || a.JSON["size"] != "1073741824" {
		t.Errorf("encrypted: %d %s", a.Status, a.Text)
	}
	a := f.Do("GET", "/v1/volumes/demo", "")
	if a.JSON["controllers"].([]any)[0].(map[string]any)["size"] != "1073741824" {
		t.Errorf("encrypted: %s", a.Text)
	}
	for why, edit := range map[string]func(*lh.Volume, *lh.Engine){
		"volume expansion is not started": func(v *lh.Volume, _ *lh.Engine) {
			v.Spec.Size, v.Status.ExpansionRequired = 1<<30, false
		},
		"the engine expansion is in progress": func(_ *lh.Volume, e *lh.Engine) { e.Status.IsExpanding = true },
		"already complete":                    func(_ *lh.Volume, e *lh.Engine) { e.Status.CurrentSize = 2 << 30 },
		"standby":                             func(v *lh.Volume, _ *lh.Engine) { v.Status.IsStandby = true },
	} {
		g := growing(edit)
		g.Refused(g.Do("POST", url, ""), 500, why)
	}
}
