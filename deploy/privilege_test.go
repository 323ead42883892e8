package deploy

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// privilege is what a container may do on its node.
type privilege string

const (
	privileged privilege = "privileged"         // whatever the node's root may
	asRoot     privilege = "root, nothing more" // open files of root
	asNobody   privilege = "not root"
)

// privilegeOf judges a container by its security context, which must say one of the three in full.
func privilegeOf(c *corev1.SecurityContext) privilege {
	is := func(b *bool, want bool) bool { return b != nil && *b == want }
	switch {
	case c == nil:
		return "not said"
	case is(c.Privileged, true):
		return privileged
	case !is(c.AllowPrivilegeEscalation, false) || !is(c.ReadOnlyRootFilesystem, true) || c.Capabilities == nil ||
		!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) > 0 || c.RunAsUser == nil:
		return "not restricted"
	case *c.RunAsUser == 0:
		return asRoot
	case is(c.RunAsNonRoot, true):
		return asNobody
	}
	return "not restricted"
}

// TestWhoIsRoot: each container has the least that it can work with; docs/guide/kubernetes.md says
// why.
func TestWhoIsRoot(t *testing.T) {
	docs, err := Render(DefaultValues())
	if err != nil {
		t.Fatal(err)
	}
	removal, err := RenderUninstallation(DefaultValues())
	if err != nil {
		t.Fatal(err)
	}
	check, err := RenderPreUpgrade(DefaultValues())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]privilege{"longhorn-manager": privileged, "longhorn-csi-plugin": privileged,
		"csi-attacher": asNobody, "csi-provisioner": asNobody, "csi-resizer": asNobody, "csi-snapshotter": asNobody,
		"longhorn-csi-controller": asNobody, "longhorn-controller": asNobody, "uninstall": asNobody, "pre-upgrade": asNobody}
	seen := map[string]bool{}
	for _, doc := range slices.Concat(docs, removal, check) {
		var kind metav1.TypeMeta
		var o batchv1.Job // whatever has a template of Pods has it at the same place
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains([]string{"DaemonSet", "Deployment", "Job"}, kind.Kind) {
			continue
		}
		if err := yaml.Unmarshal(doc, &o); err != nil {
			t.Fatal(err)
		}
		for _, c := range slices.Concat(o.Spec.Template.Spec.InitContainers, o.Spec.Template.Spec.Containers) {
			if got := privilegeOf(c.SecurityContext); got != want[c.Name] {
				t.Errorf("container %s of %s %s: %s, want %q", c.Name, kind.Kind, o.Name, got, want[c.Name])
			}
			seen[c.Name] = true
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("no container %s", name)
		}
	}
}
