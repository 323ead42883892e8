package deploy

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"ankole.storage/controlplane/naming"
	"ankole.storage/csi"
)

// csiObjects are the documents of the CSI driver, by kind and name.
func csiObjects(t *testing.T, v Values) map[string]map[string]any {
	t.Helper()
	v.DeployCSI = false
	without := len(render(t, v))
	v.DeployCSI = true
	docs, err := Render(v)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]any{}
	for _, d := range docs[without:] {
		var o map[string]any
		if err := yaml.Unmarshal(d, &o); err != nil {
			t.Fatalf("%v in\n%s", err, d)
		}
		found[o["kind"].(string)+"/"+o["metadata"].(map[string]any)["name"].(string)] = o
	}
	return found
}

// part follows keys and numbers into a document.
func part(t *testing.T, o any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			o = o.(map[string]any)[p]
		case int:
			o = o.([]any)[p]
		}
	}
	return o
}

// TestSidecarsLetNodesGo: the cluster autoscaler may take a node on which a sidecar runs, whose
// host path would hold it.
func TestSidecarsLetNodesGo(t *testing.T) {
	n := 0
	for name, o := range csiObjects(t, DefaultValues()) {
		if strings.HasPrefix(name, "Deployment/csi-") {
			n++
			if got := part(t, o, "spec", "template", "metadata", "annotations", naming.AnnotationSafeToEvict); got != "true" {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
	if n != 4 {
		t.Errorf("%d sidecars", n)
	}
}

// TestAttacherHasWorkers: calls of many volumes for a node that takes none leave workers for the
// others, and are tried again soon after it takes some.
func TestAttacherHasWorkers(t *testing.T) {
	args := part(t, csiObjects(t, DefaultValues())["Deployment/csi-attacher"], "spec", "template", "spec", "containers", 0,
		"args").([]any)
	for _, want := range []string{"--worker-threads=50", "--retry-interval-max=30s", "--timeout=2m"} {
		if !slices.Contains(args, any(want)) {
			t.Errorf("the attacher has %v, want %s", args, want)
		}
	}
}

// TestCSIObjects: the driver, its sidecars, the CSIDriver object and the StorageClasses, under the
// names that the reference gives them.
func TestCSIObjects(t *testing.T) {
	v := DefaultValues()
	v.Namespace = "elsewhere"
	found := csiObjects(t, v)
	for _, want := range []string{
		"CSIDriver/driver.longhorn.io", "StorageClass/longhorn", "StorageClass/longhorn-static",
		"ServiceAccount/longhorn-csi", "ServiceAccount/longhorn-csi-sidecars",
		"DaemonSet/longhorn-csi-plugin", "Deployment/csi-attacher", "Deployment/csi-provisioner", "Deployment/csi-resizer",
		"Deployment/csi-snapshotter",
	} {
		if found[want] == nil {
			t.Errorf("%s is missing", want)
		}
	}
	for _, class := range []string{"StorageClass/longhorn", "StorageClass/longhorn-static"} {
		if part(t, found[class], "provisioner") != csi.DriverName || part(t, found[class], "allowVolumeExpansion") != true {
			t.Errorf("%v", found[class])
		}
	}
	plugin := part(t, found["DaemonSet/longhorn-csi-plugin"], "spec", "template", "spec", "containers", 0)
	var flags []string
	for _, arg := range part(t, plugin, "command").([]any)[1:] {
		flags = append(flags, arg.(string))
	}
	command := csi.Command()
	if err := command.ParseFlags(flags); err != nil {
		t.Errorf("the program does not take its arguments: %v", err)
	}
	// The text of a manifest cannot join an address of IPv6 with a port.
	if slices.ContainsFunc(flags, func(f string) bool { return strings.Contains(f, "_IP):") }) {
		t.Errorf("an address is joined with a port: %v", flags)
	}
	if got, _ := command.Flags().GetString("kubelet-endpoint"); got != csi.DefaultKubeletEndpoint {
		t.Errorf("the kubelet is told %s, not %s", got, csi.DefaultKubeletEndpoint)
	}
	propagation := ""
	for _, m := range part(t, plugin, "volumeMounts").([]any) {
		if part(t, m, "mountPath") == v.KubeletDir {
			propagation, _ = part(t, m, "mountPropagation").(string)
		}
	}
	if propagation != "Bidirectional" {
		t.Errorf("mounts of the driver reach the host by propagation %q", propagation)
	}
}

// TestStorageCapacity: the CSIDriver object and the provisioner agree on it.
func TestStorageCapacity(t *testing.T) {
	for _, on := range []bool{false, true} {
		v := DefaultValues()
		v.StorageCapacity = on
		found := csiObjects(t, v)
		args := part(t, found["Deployment/csi-provisioner"], "spec", "template", "spec", "containers", 0, "args").([]any)
		if part(t, found["CSIDriver/driver.longhorn.io"], "spec", "storageCapacity") != on ||
			slices.Contains(args, any("--enable-capacity")) != on {
			t.Errorf("wanted %v: %v", on, args)
		}
	}
}

// TestSidecarImages: each Deployment has its own image.
func TestSidecarImages(t *testing.T) {
	found := csiObjects(t, DefaultValues())
	for _, name := range []string{"csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"} {
		image := part(t, found["Deployment/"+name], "spec", "template", "spec", "containers", 0, "image").(string)
		if !strings.Contains(image, "/"+name+":") {
			t.Errorf("%s runs image %s", name, image)
		}
	}
}

// TestSidecarsHaveTheirRights: what the sidecars of these versions do, by their own manifests.
func TestSidecarsHaveTheirRights(t *testing.T) {
	rules := part(t, csiObjects(t, DefaultValues())["ClusterRole/longhorn-csi-sidecars"], "rules").([]any)
	has := func(rule any, key, what string) bool { return slices.Contains(part(t, rule, key).([]any), any(what)) }
	const snapshots, storage = "snapshot.storage.k8s.io", "storage.k8s.io"
	for _, tc := range []struct{ sidecar, group, resource, verbs string }{
		// Those of controller-publish; provisioner; controller-expand and -modify; snapshotter.
		{"csi-attacher", "", "secrets", "get"},
		{"csi-provisioner", "", "secrets", "get"},
		{"csi-resizer", "", "secrets", "get"},
		{"csi-snapshotter", "", "secrets", "get"},
		{"csi-attacher", "", "persistentvolumes", "get list watch patch"},
		{"csi-attacher", storage, "csinodes", "get list watch"},
		{"csi-attacher", storage, "volumeattachments", "get list watch patch"},
		{"csi-attacher", storage, "volumeattachments/status", "patch"},
		{"csi-provisioner", "", "persistentvolumes", "get list watch create patch delete"},
		{"csi-provisioner", "", "persistentvolumeclaims", "get list watch update"},
		{"csi-provisioner", "", "events", "list watch create update patch"},
		{"csi-provisioner", "", "nodes", "get list watch"},
		{"csi-provisioner", storage, "storageclasses", "get list watch"},
		{"csi-provisioner", storage, "csinodes", "get list watch"},
		{"csi-provisioner", storage, "volumeattachments", "get list watch"},
		{"csi-provisioner", storage, "csistoragecapacities", "get list watch create update patch delete"},
		// Without update a snapshot can be deleted while it is being restored.
		{"csi-provisioner", snapshots, "volumesnapshots", "get list watch update"},
		{"csi-provisioner", snapshots, "volumesnapshotcontents", "get list"},
		{"csi-resizer", "", "persistentvolumes", "get list watch patch"},
		{"csi-resizer", "", "persistentvolumeclaims", "get list watch"},
		{"csi-resizer", "", "persistentvolumeclaims/status", "patch"},
		{"csi-resizer", "", "pods", "get list watch"},
		{"csi-resizer", storage, "volumeattributesclasses", "get list watch"},
		{"csi-snapshotter", snapshots, "volumesnapshotclasses", "get list watch"},
		{"csi-snapshotter", snapshots, "volumesnapshotcontents", "get list watch update patch"},
		{"csi-snapshotter", snapshots, "volumesnapshotcontents/status", "update patch"},
	} {
		for verb := range strings.FieldsSeq(tc.verbs) {
			if !slices.ContainsFunc(rules, func(r any) bool {
				return has(r, "apiGroups", tc.group) && has(r, "resources", tc.resource) && has(r, "verbs", verb)
			}) {
				t.Errorf("%s may not %s %s of group %q", tc.sidecar, verb, tc.resource, tc.group)
			}
		}
	}
	for _, r := range rules {
		if has(r, "resources", "secrets") && len(part(t, r, "verbs").([]any)) != 1 {
			t.Errorf("the sidecars read Secrets that are named to them, and do nothing else with Secrets: %v", r)
		}
	}
}
