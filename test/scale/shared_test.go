package scale

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/lack"
	"ankole.storage/test/testcluster"
)

// TestNobodyEditsTheCache: controllers look at the objects in the cache itself, without copies.
// With client-go's detector a manager that edits one ends with a panic, which the end of the test
// finds in its log.
func TestNobodyEditsTheCache(t *testing.T) {
	if testing.Short() {
		lack.Later(t, "starts a cluster; not with -short")
	}
	program, err := testcluster.Program()
	if err != nil {
		lack.Skip(t, "needs a cluster: "+err.Error())
	}
	images := makeImage(t)
	addImage(t, images, "ankole-manager-dev", "manager", filepath.Join(filepath.Dir(program), "manager"),
		`"`+detector+`"`)
	b := newBed(t, images)
	b.create(t, 6)
	b.attach(t, 0)
	for i := range b.made {
		a := &v1beta2.VolumeAttachment{}
		if err := b.Get(t.Context(), client.ObjectKey{Namespace: naming.Namespace, Name: nameOf(i)}, a); err != nil {
			t.Fatal(err)
		}
		before := a.DeepCopy()
		a.Spec.AttachmentTickets = nil
		if err := b.Patch(t.Context(), a, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	b.wait(t, &v1beta2.VolumeList{}, b.made, func(o client.Object) bool {
		return o.(*v1beta2.Volume).Status.State == v1beta2.VolumeStateDetached
	})
	b.detected(t)
	b.untracked(t)
}

// untracked checks that the API server keeps no notes of who set what in the objects that every
// process changes.
func (b *bed) untracked(t *testing.T) {
	t.Helper()
	for _, list := range []client.ObjectList{&v1beta2.InstanceManagerList{}, &v1beta2.ReplicaList{},
		&v1beta2.EngineList{}} {
		if err := b.List(t.Context(), list, client.InNamespace(naming.Namespace)); err != nil {
			t.Fatal(err)
		}
		for _, item := range must(meta.ExtractList(list)) {
			if o := item.(client.Object); len(o.GetManagedFields()) > 0 {
				t.Errorf("%T %s: %v", o, o.GetName(), o.GetManagedFields())
			}
		}
	}
}

// detector switches on client-go's comparison of cached objects with copies of them.
const detector = "KUBE_CACHE_MUTATION_DETECTOR=true"

// detected checks that the managers of this cluster run with the detector.
func (b *bed) detected(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(text), detector) && strings.Contains(string(text), b.c.Dir) {
			found++
		}
	}
	if found != len(b.c.Nodes) {
		t.Errorf("%d managers run with the detector, want %d", found, len(b.c.Nodes))
	}
}

// addImage makes an image of one program.
func addImage(t testing.TB, images, name, program, file, env string) {
	t.Helper()
	bin := filepath.Join(images, name, "bin")
	for _, err := range []error{
		os.MkdirAll(bin, 0o755), os.Symlink(file, filepath.Join(bin, program)),
		os.WriteFile(filepath.Join(images, name, "image.json"),
			[]byte(`{"entrypoint":[],"cmd":["`+program+`"],"env":[`+env+`]}`), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}
