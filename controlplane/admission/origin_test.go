package admission

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// TestImagesComeFromKnownPlaces: names as container runtimes read them, and tricks with them.
func TestImagesComeFromKnownPlaces(t *testing.T) {
	of := Origins{Images: append(OriginsOf("ankole/engine:1", "ankole/instance-manager:1"),
		"registry.example:5000/storage", "mirror.example")}
	for image, allowed := range map[string]bool{
		"ankole/engine:2":                                true,
		"docker.io/ankole/engine@sha256:00":              true,
		"registry.example:5000/storage/engine":           true,
		"registry.example:5000/storage/old/engine:1@a:b": true,
		"mirror.example/anything/at/all":                 true,
		"engine:1":                                       false,
		"ankole-of-mine/engine:1":                        false,
		"other.example/ankole/engine:1":                  false,
		"registry.example:5000/storage-2/engine":         false,
		"registry.example:5000/storage/../x":             false,
		"registry.example/storage/engine":                false,
		"mirror.example.evil/ankole":                     false,
		"docker.io.evil/ankole/engine":                   false,
		"ankole:1":                                       false,
	} {
		err := of.checkImage(image)
		if (err == nil) != allowed {
			t.Errorf("%s: %v", image, err)
		}
	}
	if err := (Origins{}).checkImage("any/thing"); err != nil {
		t.Errorf("without a list: %v", err)
	}
}

// TestDisksAreInKnownDirectories: a disk that is there stays as it is.
func TestDisksAreInKnownDirectories(t *testing.T) {
	of := Origins{DiskPaths: []string{"/var/lib/longhorn/", "/mnt"}}
	at := func(path string) *v1beta2.Node {
		n := &v1beta2.Node{}
		n.Name = "n"
		n.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: path}}
		return n
	}
	for path, allowed := range map[string]bool{
		"/var/lib/longhorn": true, "/var/lib/longhorn/": true, "/mnt/disk-1": true,
		"/etc": false, "/": false, "/mnt/../etc": false, "/mnt2": false, "/var/lib/longhorn-2": false,
	} {
		if err := of.checkDisks(nil, at(path)); (err == nil) != allowed {
			t.Errorf("a new node with %s: %v", path, err)
		}
		if err := of.checkDisks(at("/elsewhere"), at(path)); (err == nil) != allowed {
			t.Errorf("moved to %s: %v", path, err)
		}
		if err := of.checkDisks(at(path), at(path)); err != nil {
			t.Errorf("at %s before: %v", path, err)
		}
	}
}

// TestOriginsAreKept: what the managers were given at their start holds for each kind that names an
// image or a path, whatever the settings say.
func TestOriginsAreKept(t *testing.T) {
	node := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "n"}}
	node.Spec.Name = "n"
	said := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: setting.AllowedImageRegistries},
		Value: "evil.example"}
	b := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(node, said).Build()
	c := Judged(b, b, b, namespace, Origins{Images: []string{"docker.io/ankole"}, DiskPaths: []string{"/mnt"}})
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	at := func(path string) *v1beta2.Node {
		n := node.DeepCopy()
		n.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: path}}
		return n
	}
	manager := func(name, image string) *v1beta2.InstanceManager {
		return &v1beta2.InstanceManager{ObjectMeta: meta(name),
			Spec: v1beta2.InstanceManagerSpec{NodeID: "n", Image: image, Type: v1beta2.InstanceManagerTypeAllInOne}}
	}
	for _, row := range []struct {
		name string
		do   func() error
		want string
	}{
		{"an engine image", func() error {
			return c.Create(t.Context(), &v1beta2.EngineImage{ObjectMeta: meta("a"),
				Spec: v1beta2.EngineImageSpec{Image: "evil.example/engine:1"}})
		}, "allowedImageRegistries"},
		{"one of ours", func() error {
			return c.Create(t.Context(), &v1beta2.EngineImage{ObjectMeta: meta("b"),
				Spec: v1beta2.EngineImageSpec{Image: "ankole/engine:1"}})
		}, ""},
		{"an instance manager", func() error { return c.Create(t.Context(), manager("a", "evil.example/im:1")) },
			"allowedImageRegistries"},
		{"one of ours", func() error { return c.Create(t.Context(), manager("b", "ankole/im:1")) }, ""},
		{"another image for it", func() error {
			im := &v1beta2.InstanceManager{}
			if err := b.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "b"}, im); err != nil {
				return err
			}
			im.Spec.Image = "evil.example/im:1"
			return c.Update(t.Context(), im)
		}, "allowedImageRegistries"},
		{"a disk", func() error { return c.Update(t.Context(), at("/etc")) }, "allowedDiskPaths"},
		{"one where it may be", func() error { return c.Update(t.Context(), at("/mnt/a")) }, ""},
	} {
		err := row.do()
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}
