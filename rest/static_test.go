package rest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest"
	"ankole.storage/rest/resttest"
)

// staticFixture is a server with volume demo, edited.
func staticFixture(t *testing.T, edit func(*lh.Volume)) *fixture {
	t.Helper()
	objects := resttest.Volume("demo")
	edit(objects[0].(*lh.Volume))
	return newFixture(t, resttest.Cluster(objects...)...)
}

// pv reads a PersistentVolume, nil if there is none.
func (f *fixture) pv(name string) *corev1.PersistentVolume {
	f.T.Helper()
	var pv corev1.PersistentVolume
	err := f.Client.Get(f.T.Context(), client.ObjectKey{Name: name}, &pv)
	if client.IgnoreNotFound(err) != nil {
		f.T.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return &pv
}

// phase is what Kubernetes says of the PersistentVolume demo, and of which claim.
func (f *fixture) phase(phase corev1.PersistentVolumePhase, claim string) {
	f.T.Helper()
	pv := f.pv("demo")
	pv.Status.Phase, pv.Spec.ClaimRef = phase, nil
	if claim != "" {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: claim}
	}
	if err := f.Client.Update(f.T.Context(), pv); err != nil {
		f.T.Fatal(err)
	}
	pv.Status.Phase = phase
	if err := f.Client.Status().Update(f.T.Context(), pv); client.IgnoreNotFound(err) != nil {
		f.T.Fatal(err)
	}
}

const pvCreate, pvcCreate = "/v1/volumes/demo?action=pvCreate", "/v1/volumes/demo?action=pvcCreate"

// TestCreatePV: the object names the volume, and has its size, access mode and class; a second one
// is refused.
func TestCreatePV(t *testing.T) {
	f := staticFixture(t, func(v *lh.Volume) {
		v.Spec.DiskSelector, v.Spec.StaleReplicaTimeout = []string{"ssd", "fast"}, 30
	})
	if a := f.Do("POST", pvCreate, "{}"); a.Status != 200 || a.JSON["id"] != "demo" {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	pv := f.pv("demo")
	if pv == nil || pv.Spec.CSI == nil {
		t.Fatalf("%+v", pv)
	}
	s, size := pv.Spec, pv.Spec.Capacity[corev1.ResourceStorage]
	if s.CSI.Driver != "driver.longhorn.io" || s.CSI.VolumeHandle != "demo" || s.CSI.FSType != "ext4" ||
		size.Value() != 1<<30 || s.StorageClassName != "longhorn-static" || s.AccessModes[0] != corev1.ReadWriteOnce ||
		s.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || *s.VolumeMode != "Filesystem" ||
		s.CSI.VolumeAttributes["diskSelector"] != "ssd,fast" || s.CSI.VolumeAttributes["numberOfReplicas"] != "1" ||
		s.CSI.VolumeAttributes["staleReplicaTimeout"] != "30" || s.CSI.NodeStageSecretRef != nil {
		t.Errorf("%+v, %+v", s, s.CSI)
	}
	var class storagev1.StorageClass
	if err := f.Client.Get(t.Context(), client.ObjectKey{Name: "longhorn-static"}, &class); err != nil ||
		class.Provisioner != "driver.longhorn.io" || !*class.AllowVolumeExpansion {
		t.Errorf("%+v, %v", class, err)
	}
	f.Refused(f.Do("POST", pvCreate, "{}"), 500, "volume already had PV")
	f.Refused(f.Do("POST", "/v1/volumes/none?action=pvCreate", "{}"), 404, "")
}

// TestStaticClassFollowsItsSetting: the class of the setting is written where the input has none.
func TestStaticClassFollowsItsSetting(t *testing.T) {
	f := staticFixture(t, func(*lh.Volume) {})
	const name = "/v1/settings/default-longhorn-static-storage-class"
	if a := f.Do("PUT", name, `{"value":"gold"}`); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	if a := f.Do("POST", pvCreate, "{}"); a.Status != 200 || f.pv("demo").Spec.StorageClassName != "gold" {
		t.Errorf("%d %s, %+v", a.Status, a.Text, f.pv("demo"))
	}
}

// TestClassOfABackup: a volume that is made of a backup has the class of the one that was backed
// up, if that is known.
func TestClassOfABackup(t *testing.T) {
	for recorded, want := range map[string]string{"gold": "gold", "": "longhorn-static"} {
		objects := resttest.Volume("demo")
		v := objects[0].(*lh.Volume)
		v.Spec.FromBackup, v.Spec.BackupTargetName = "s3://b@r/?backup=b-1&volume=other", "default"
		v.Labels = map[string]string{naming.LabelBackupVolume: "other"}
		of := &lh.BackupVolume{ObjectMeta: metav1.ObjectMeta{Namespace: lh.Namespace,
			Name: naming.BackupVolumeName("other", "default")}, Status: lh.BackupVolumeStatus{StorageClassName: recorded}}
		f := newFixture(t, resttest.Cluster(append(objects, of)...)...)
		if a := f.Do("POST", pvCreate, "{}"); a.Status != 200 || f.pv("demo").Spec.StorageClassName != want {
			t.Errorf("recorded %q: %d %s, class %s", recorded, a.Status, a.Text, f.pv("demo").Spec.StorageClassName)
		}
	}
}

// TestCreatePVAsAsked: what the input names goes before what follows from the volume.
func TestCreatePVAsAsked(t *testing.T) {
	f := staticFixture(t, func(v *lh.Volume) { v.Spec.AccessMode, v.Spec.Encrypted = lh.AccessModeReadWriteOncePod, true })
	a := f.Do("POST", pvCreate, `{"pvName":"mine","fsType":"xfs","storageClassName":"gold","secretName":"s"}`)
	if a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	s := f.pv("mine").Spec
	if s.CSI.FSType != "xfs" || s.StorageClassName != "gold" || s.AccessModes[0] != corev1.ReadWriteOncePod ||
		s.CSI.NodeStageSecretRef.Name != "s" || s.CSI.NodeStageSecretRef.Namespace != lh.Namespace ||
		s.CSI.VolumeAttributes["encrypted"] != "true" {
		t.Errorf("%+v, %+v", s, s.CSI)
	}
	var class storagev1.StorageClass
	err := f.Client.Get(t.Context(), client.ObjectKey{Name: "gold"}, &class)
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a class of the user's is made: %v", err)
	}
	for body, why := range map[string]string{`{"fsType":"ntfs"}`: "unknown file system type", `{"fsType":"xfs"}`: "300 MiB"} {
		f := staticFixture(t, func(v *lh.Volume) { v.Spec.Size = 299 << 20 })
		f.Refused(f.Do("POST", pvCreate, body), 500, why)
		if f.pv("demo") != nil {
			t.Errorf("%s: made all the same", body)
		}
	}
	standby := staticFixture(t, func(v *lh.Volume) { v.Status.IsStandby = true })
	standby.Refused(standby.Do("POST", pvCreate, "{}"), 500, "failed to create PV for standby volume demo")
	standby.Refused(standby.Do("POST", pvcCreate, "{}"), 500, "failed to create PVC for standby volume demo")
}

// TestPVOfSeveralNodes: a migratable volume is a block device on several nodes, with a claim of its
// kind; any other one would need a share.
func TestPVOfSeveralNodes(t *testing.T) {
	for _, migratable := range []bool{false, true} {
		f := staticFixture(t, func(v *lh.Volume) {
			v.Spec.AccessMode, v.Spec.Migratable = lh.AccessModeReadWriteMany, migratable
		})
		a := f.Do("POST", pvCreate, `{"fsType":"ext4"}`)
		if !migratable {
			f.Refused(a, 500, "needs a migratable volume")
			if f.pv("demo") != nil {
				t.Error("made all the same")
			}
			continue
		}
		if a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Text)
		}
		s := f.pv("demo").Spec
		if *s.VolumeMode != corev1.PersistentVolumeBlock || s.CSI.FSType != "" || s.AccessModes[0] != corev1.ReadWriteMany {
			t.Errorf("%+v, %+v", s, s.CSI)
		}
		f.phase(corev1.VolumeAvailable, "")
		if a := f.Do("POST", pvcCreate, `{"namespace":"default"}`); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Text)
		}
		var c corev1.PersistentVolumeClaim
		if err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "demo"}, &c); err != nil {
			t.Fatal(err)
		}
		if *c.Spec.VolumeMode != corev1.PersistentVolumeBlock || c.Spec.AccessModes[0] != corev1.ReadWriteMany {
			t.Errorf("%+v", c.Spec)
		}
	}
}

// TestOnePVOfAVolume: of two that two managers make at the same time the later one goes, of those
// of one manager one is made; a volume that goes gets none.
func TestOnePVOfAVolume(t *testing.T) {
	for _, other := range []string{"a", "z"} {
		objects := resttest.Cluster(resttest.Volume("demo")...)
		var f *fixture
		made := false
		f = newFixtureWith(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
			opts ...client.CreateOption) error {
			if pv, ok := o.(*corev1.PersistentVolume); ok && !made {
				made = true
				second := pv.DeepCopy()
				second.Name = other
				if err := c.Create(ctx, second); err != nil {
					t.Error(err)
				}
			}
			return c.Create(ctx, o, opts...)
		}}, func(*rest.Config) {}, objects...)
		a := f.Do("POST", pvCreate, `{"pvName":"demo"}`)
		f.Refused(a, 500, "volume already had PV "+other)
		if f.pv(other) == nil || f.pv("demo") != nil {
			t.Errorf("beside %s: %v and %v", other, f.pv("demo") != nil, f.pv(other) != nil)
		}
	}
	both := staticFixture(t, func(*lh.Volume) {})
	var done atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if both.Do("POST", pvCreate, fmt.Sprintf(`{"pvName":"pv-%d"}`, i)).Status == 200 {
				done.Add(1)
			}
		})
	}
	wg.Wait()
	if done.Load() != 1 {
		t.Errorf("%d PersistentVolumes were made", done.Load())
	}
	going := staticFixture(t, func(v *lh.Volume) {
		now := metav1.Now()
		v.DeletionTimestamp, v.Finalizers = &now, []string{"test"}
	})
	going.Refused(going.Do("POST", pvCreate, "{}"), 500, "being deleted")
	going.Refused(going.Do("POST", pvcCreate, `{"namespace":"default"}`), 500, "being deleted")
}

// TestCreatePVC: a claim that names the PersistentVolume, which is taken from a former claim.
func TestCreatePVC(t *testing.T) {
	f := staticFixture(t, func(*lh.Volume) {})
	f.Refused(f.Do("POST", pvcCreate, `{"namespace":"default"}`), 500, "cannot found PV")
	if a := f.Do("POST", pvCreate, "{}"); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	f.Refused(f.Do("POST", pvcCreate, "{}"), 500, "no namespace")
	f.phase(corev1.VolumeBound, "other")
	f.Refused(f.Do("POST", pvcCreate, `{"namespace":"default"}`), 500, "volume already had PVC default/other")
	f.phase(corev1.VolumeAvailable, "other")
	f.Refused(f.Do("POST", pvcCreate, `{"namespace":"default"}`), 500, "reserved for PVC default/other")
	f.phase(corev1.VolumeReleased, "former")
	if a := f.Do("POST", pvcCreate, `{"namespace":"default","pvcName":"data"}`); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	var c corev1.PersistentVolumeClaim
	if err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "data"}, &c); err != nil {
		t.Fatal(err)
	}
	size := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if c.Spec.VolumeName != "demo" || *c.Spec.StorageClassName != "longhorn-static" || size.Value() != 1<<30 ||
		c.Spec.AccessModes[0] != corev1.ReadWriteOnce {
		t.Errorf("%+v", c.Spec)
	}
	if ref := f.pv("demo").Spec.ClaimRef; ref != nil {
		t.Errorf("the PersistentVolume still has claim %+v", ref)
	}
	if a := f.Do("POST", pvcCreate, `{"namespace":"default","pvcName":"data"}`); a.Status != 500 ||
		!strings.Contains(a.Message(), "already exists") {
		t.Errorf("again: %d %s", a.Status, a.Text)
	}
}
