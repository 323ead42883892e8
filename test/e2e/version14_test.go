//go:build !nolegacy

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	restclient "ankole.storage/rest/client"
	restresource "ankole.storage/rest/resource"
	"ankole.storage/test/archive"
	"ankole.storage/test/rig"
)

// Volumes of TestObjectsOfVersion14: attached by a user, attached by Kubernetes, and one that is
// detached, whose directories the reference engine has left.
const (
	volumeByUser, volumeByCSI, volumeOfReference = "by-user", "by-csi", "of-reference"
	referenceSize                                = 24 * mib
)

// shares14 add up to what version 1.4 took, and this one refuses to be set to.
var shares14 = map[string]string{"guaranteed-engine-manager-cpu": "15", "guaranteed-replica-manager-cpu": "25"}

// version14 is a cluster whose objects are those of version 1.4.
type version14 struct {
	*older
	loads map[string]*rig.Load
	pids  map[string]string
}

// TestObjectsOfVersion14 has a cluster taken over whose objects have no field, no kind and no
// setting that came after version 1.4: an object of every kind, volumes that are attached by a user
// and by Kubernetes with a writer on each, and a volume in directories of the reference engine. CPU
// settings add up to the most that they may, and one node has requests of its own.
func TestObjectsOfVersion14(t *testing.T) {
	t.Parallel()
	v := &version14{older: startOlder(t, false), loads: map[string]*rig.Load{}}
	v.addEngineImages(engineOlder)
	v.setting("allow-live-engine-upgrade-on-same-image-commit", "true")
	for _, name := range []string{volumeByUser, volumeByCSI} {
		v.createOlder(restclient.VolumeSpec{Name: name, NumberOfReplicas: 2})
	}
	want := v.reference(t)
	v.image["node-2"] = managerOldest
	endpoints := map[string]string{volumeByUser: v.attach(volumeByUser, "node-1", 2)}
	v.ticket(volumeByCSI, naming.CSIAttachment(volumeByCSI, "node-3"), "node-3")
	endpoints[volumeByCSI] = v.awaitUsable(volumeByCSI, "node-3", 2)
	v.publish(volumeByCSI, "node-3")
	v.age(volumeByUser, volumeByCSI)
	before := v.asVersion14(t)
	for name, endpoint := range endpoints {
		d := v.device(endpoint)
		t.Cleanup(func() { d.Close() })
		v.loads[name] = rig.StartLoad(t, d, 64*mib, 5)
		v.loads[name].AwaitMore(t, 100)
	}
	v.pids = v.pidsOf(volumeByUser, volumeByCSI)
	v.upgradeSystem()

	v.scenario("ObjectsStay", func(t *testing.T) { v.objectsStay(t, before) })
	v.scenario("AttachedStayAttached", v.attachedStay)
	v.scenario("Updates", v.takeUpdates)
	v.scenario("Released", v.released)
	v.scenario("ReferenceDirectories", func(t *testing.T) { v.referenceDirectories(t, want) })
}

// reference makes a detached volume whose directories are those that the reference engine has left,
// and returns the checksum of its content.
func (v *version14) reference(t *testing.T) (content string) {
	v.createOlder(restclient.VolumeSpec{Name: volumeOfReference, NumberOfReplicas: 2, Size: strconv.Itoa(referenceSize)})
	unpacked := t.TempDir()
	archive.Unpack(t, "../../dataplane/chain/testdata/longhorn-v1.tgz", unpacked)
	n := 0
	for _, dir := range v.replicaDirs(volumeOfReference) {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		from := filepath.Join(unpacked, "chain-clean", "replica-"+strconv.Itoa(n))
		if out, err := exec.Command("cp", "-a", "--sparse=always", from, dir).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
		n++
	}
	p, err := os.ReadFile(filepath.Join(unpacked, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest map[string]struct{ Head struct{ SHA256 string } }
	if err := json.Unmarshal(p, &manifest); err != nil {
		t.Fatal(err)
	}
	if n != 2 || manifest["chain-clean"].Head.SHA256 == "" {
		t.Fatalf("%d directories, %+v", n, manifest["chain-clean"])
	}
	return manifest["chain-clean"].Head.SHA256
}

// publish has Kubernetes know that a volume is attached to a node. The finalizer is that of the
// attacher: without it the object would be gone as soon as Kubernetes finds no Pod.
func (v *version14) publish(volume, node string) {
	v.t.Helper()
	ctx, pv := context.Background(), volume
	_, err := v.ks.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pv},
		Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: naming.CSIDriver, VolumeHandle: volume}}},
	}, metav1.CreateOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	_, err = v.ks.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: naming.CSIAttachment(volume, node),
			Finalizers: []string{"external-attacher/driver-longhorn-io"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: naming.CSIDriver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}, metav1.CreateOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
}

// rawList lists objects of a kind with whatever fields they have.
func (v *version14) rawList(kind string) []unstructured.Unstructured {
	v.t.Helper()
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: longhorn.GroupVersion.Group,
		Version: longhorn.GroupVersion.Version, Kind: kind + "List"})
	if err := v.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		v.t.Fatal(err)
	}
	return list.Items
}

// asVersion14 takes from all objects what version 1.4 did not have, and adds objects of the other
// kinds, which it returns. Webhooks of that version are not ours: they are taken away.
func (v *version14) asVersion14(t *testing.T) []unstructured.Unstructured {
	ctx := context.Background()
	hooks := v.ks.AdmissionregistrationV1()
	if err := errors.Join(hooks.ValidatingWebhookConfigurations().Delete(ctx, naming.WebhookValidatorConfiguration,
		metav1.DeleteOptions{}), hooks.MutatingWebhookConfigurations().Delete(ctx, naming.WebhookMutatorConfiguration,
		metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	p, err := os.ReadFile("testdata/fields-1.4.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]map[string][]string
	if err := yaml.Unmarshal(p, &fields); err != nil {
		t.Fatal(err)
	}
	for _, kind := range slices.Sorted(maps.Keys(fields)) {
		for _, o := range v.rawList(kind) {
			v.older14(&o, fields[kind])
		}
	}
	for _, a := range v.rawList("VolumeAttachment") {
		a.SetFinalizers(nil)
		if err := errors.Join(v.kube.Update(ctx, &a), client.IgnoreNotFound(v.kube.Delete(ctx, &a))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"guaranteed-instance-manager-cpu", "v1-data-engine", "snapshot-max-count",
		"freeze-filesystem-for-snapshot", "default-backup-block-size"} {
		if err := client.IgnoreNotFound(v.kube.Delete(ctx, &longhorn.Setting{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name}})); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range shares14 {
		edit(v.older, name, &longhorn.Setting{}, func(s *longhorn.Setting) error {
			s.Value = value
			return v.kube.Update(ctx, s)
		})
	}
	return v.createRaw(t)
}

// older14 takes from an object the fields that are not listed. Nodes are given requests of CPU.
func (v *version14) older14(o *unstructured.Unstructured, fields map[string][]string) {
	v.t.Helper()
	kind, name, ctx := o.GetKind(), o.GetName(), context.Background()
	v.eventually(kind+" "+name+" is of version 1.4", func(context.Context) error {
		if err := v.kube.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		for part, keep := range fields {
			m, _, _ := unstructured.NestedMap(o.Object, part)
			if image, ok := m["image"]; ok && part == "spec" && slices.Contains(keep, "engineImage") &&
				!slices.Contains(keep, "image") {
				m["engineImage"] = image
			}
			for field := range m {
				if !slices.Contains(keep, field) {
					delete(m, field)
				}
			}
			o.Object[part] = m
		}
		if kind == "Node" && name == "node-2" {
			_ = unstructured.SetNestedField(o.Object, int64(310), "spec", "engineManagerCPURequest")
			_ = unstructured.SetNestedField(o.Object, int64(320), "spec", "replicaManagerCPURequest")
		}
		if volume, _, _ := unstructured.NestedString(o.Object, "spec", "volumeName"); kind == "Replica" &&
			volume == volumeOfReference {
			_ = unstructured.SetNestedField(o.Object, "2026-11-21T06:04:20Z", "spec", "healthyAt")
		}
		status := o.DeepCopy()
		if err := v.kube.Update(ctx, o); err != nil {
			return err
		}
		status.SetResourceVersion(o.GetResourceVersion())
		return v.kube.Status().Update(ctx, status)
	})
}

// createRaw makes the objects of testdata/objects-1.4.yaml.
func (v *version14) createRaw(t *testing.T) (made []unstructured.Unstructured) {
	p, err := os.ReadFile("testdata/objects-1.4.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(p)))
	for {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return made
		}
		var o unstructured.Unstructured
		if err == nil {
			err = yaml.Unmarshal(doc, &o.Object)
		}
		if err != nil {
			t.Fatal(err)
		}
		have := o.DeepCopy()
		switch err := v.kube.Create(context.Background(), have); {
		case apierrors.IsAlreadyExists(err):
			if err := v.kube.Get(context.Background(), client.ObjectKeyFromObject(&o), have); err != nil {
				t.Fatal(err)
			}
			have.Object["spec"] = o.Object["spec"]
			if err := v.kube.Update(context.Background(), have); err != nil {
				t.Fatal(err)
			}
		case err != nil:
			t.Fatal(err)
		}
		if status, ok := o.Object["status"]; ok {
			have.Object["status"] = status
			if err := v.kube.Status().Update(context.Background(), have); err != nil {
				t.Fatal(err)
			}
		}
		made = append(made, o)
	}
}

// byNeed are kinds whose objects controllers make and remove: a manager of an older image goes, and
// a data source whose file was taken over.
var byNeed = []string{"BackingImageManager", "BackingImageDataSource"}

// objectsStay: objects of kinds that nothing uses here are there, and say what they said; settings
// and requests of CPU have the values that a person gave them.
func (v *version14) objectsStay(t *testing.T, before []unstructured.Unstructured) {
	for _, was := range before {
		if slices.Contains(byNeed, was.GetKind()) {
			continue
		}
		is := &unstructured.Unstructured{}
		is.SetGroupVersionKind(was.GroupVersionKind())
		if err := v.kube.Get(context.Background(), client.ObjectKeyFromObject(&was), is); err != nil {
			t.Error(err)
			continue
		}
		spec, _, _ := unstructured.NestedMap(was.Object, "spec")
		for field, want := range spec {
			if got, _, _ := unstructured.NestedFieldNoCopy(is.Object, "spec", field); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s %s: %s was %v and is %v", was.GetKind(), was.GetName(), field, want, got)
			}
		}
		if is.GetDeletionTimestamp() != nil {
			t.Errorf("%s %s is being deleted", was.GetKind(), was.GetName())
		}
	}
	for name, want := range shares14 {
		if got := v.settingValue(name); got != want {
			t.Errorf("setting %s was %s and is %s", name, want, got)
		}
	}
	n := v.node("node-2")
	if n.Spec.EngineManagerCPURequest != 310 || n.Spec.ReplicaManagerCPURequest != 320 {
		t.Errorf("requests of node-2: %d and %d", n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest)
	}
}

// attachedStay: what is attached stays so, by the ticket of whoever wanted it; no process is
// another one, and writers see nothing.
func (v *version14) attachedStay(t *testing.T) {
	for name, want := range map[string]longhorn.AttachmentTicket{
		volumeByUser: {ID: "", Type: longhorn.AttacherTypeLonghornAPI, NodeID: "node-1"},
		volumeByCSI: {ID: naming.CSIAttachment(volumeByCSI, "node-3"), Type: longhorn.AttacherTypeCSI,
			NodeID: "node-3"},
	} {
		v.eventually(name+" has its ticket, which is satisfied", func(ctx context.Context) error {
			var a longhorn.VolumeAttachment
			if err := v.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &a); err != nil {
				return err
			}
			got, ok := a.Spec.AttachmentTickets[want.ID]
			if !ok || got.Type != want.Type || got.NodeID != want.NodeID || len(a.Spec.AttachmentTickets) != 1 {
				t.Fatalf("tickets of %s: %+v", name, a.Spec.AttachmentTickets)
			}
			if st := a.Status.AttachmentTicketStatuses[want.ID]; !st.Satisfied {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
		if is := v.volume(name); is.State != "attached" || is.Robustness != "healthy" {
			t.Errorf("%s is %s, %s", name, is.State, is.Robustness)
		}
		v.loads[name].Check()
		v.loads[name].AwaitMore(t, 100)
	}
	if left := v.pidsOf(volumeByUser, volumeByCSI); !maps.Equal(left, v.pids) {
		t.Errorf("processes were %v and are %v", v.pids, left)
	}
}

// takeUpdates: what clients change of such volumes is taken.
func (v *version14) takeUpdates(t *testing.T) {
	for _, name := range []string{volumeByUser, volumeByCSI, volumeOfReference} {
		var out restresource.Volume
		v.act(name, "updateDataLocality", `{"dataLocality":"disabled"}`, &out)
		v.act(name, "updateUnmapMarkSnapChainRemoved", `{"unmapMarkSnapChainRemoved":"enabled"}`, &out)
	}
}

// released: the volumes are detached by those who had them attached, and hold what was written.
func (v *version14) released(t *testing.T) {
	for _, name := range []string{volumeByUser, volumeByCSI} {
		v.loads[name].Finish()
	}
	v.detach(volumeByUser)
	v.withdraw(volumeByCSI, naming.CSIAttachment(volumeByCSI, "node-3"))
	v.awaitDetached(volumeByCSI)
	for _, name := range []string{volumeByUser, volumeByCSI} {
		d := v.device(v.attach(name, "node-2", 2))
		v.loads[name].Verify(t, d)
		d.Close()
		v.runsOn(name, longhorn.InstanceManagerTypeAllInOne, longhorn.InstanceManagerTypeAllInOne)
		v.detach(name)
		v.identical(name, 2)
	}
}

// referenceDirectories: the volume that the reference engine has left is attached with its content
// and its snapshots.
func (v *version14) referenceDirectories(t *testing.T, want string) {
	d := v.device(v.attach(volumeOfReference, "node-2", 2))
	defer d.Close()
	p := make([]byte, referenceSize)
	if _, err := d.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(p); hex.EncodeToString(sum[:]) != want {
		t.Errorf("the content has another checksum")
	}
	v.awaitSnapshot(volumeOfReference, "first")
	v.awaitSnapshot(volumeOfReference, "third")
}
