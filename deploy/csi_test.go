package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/csi"
	"ankole.storage/rest/access"
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
// folder for a socket would hold it.
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
		"ServiceAccount/longhorn-csi", "ServiceAccount/longhorn-csi-attacher", "ServiceAccount/longhorn-csi-provisioner",
		"ServiceAccount/longhorn-csi-resizer", "ServiceAccount/longhorn-csi-snapshotter",
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

// TestSidecarsHaveTheirRights: each account may do what the sidecar of this version does, by its
// own manifest, and nothing of another one.
func TestSidecarsHaveTheirRights(t *testing.T) {
	v := DefaultValues()
	v.StorageCapacity = true
	found := csiObjects(t, v)
	const snapshots, storage = "snapshot.storage.k8s.io", "storage.k8s.io"
	var needed []string
	for _, tc := range []struct{ sidecar, group, resources, verbs string }{
		{"attacher", "", "persistentvolumes", "get list watch patch"},
		{"attacher", storage, "csinodes", "get list watch"},
		{"attacher", storage, "volumeattachments", "get list watch patch"},
		{"attacher", storage, "volumeattachments/status", "patch"},
		{"provisioner", "", "persistentvolumes", "get list watch create patch delete"},
		{"provisioner", "", "persistentvolumeclaims", "get list watch update"},
		{"provisioner", "", "events", "get list watch create update patch"},
		{"provisioner", "", "nodes", "get list watch"},
		{"provisioner", storage, "storageclasses csinodes volumeattachments volumeattributesclasses", "get list watch"},
		{"provisioner", storage, "csistoragecapacities", "get list watch create update patch delete"},
		// Without update a snapshot can be deleted while it is being restored.
		{"provisioner", snapshots, "volumesnapshots", "get list watch update"},
		{"provisioner", snapshots, "volumesnapshotcontents", "get list watch"},
		{"resizer", "", "persistentvolumes", "get list watch update patch"},
		{"resizer", "", "persistentvolumeclaims pods", "get list watch"},
		{"resizer", "", "persistentvolumeclaims/status", "update patch"},
		{"resizer", "", "events", "get list watch create update patch"},
		{"resizer", storage, "storageclasses volumeattributesclasses", "get list watch"},
		{"snapshotter", "", "events", "get list watch create update patch"},
		{"snapshotter", snapshots, "volumesnapshotclasses", "get list watch"},
		{"snapshotter", snapshots, "volumesnapshotcontents", "get list watch update patch"},
		{"snapshotter", snapshots, "volumesnapshotcontents/status", "update patch"},
	} {
		for resource := range strings.FieldsSeq(tc.resources) {
			for verb := range strings.FieldsSeq(tc.verbs) {
				needed = append(needed, strings.Join([]string{tc.sidecar, verb, resource, tc.group}, " "))
			}
		}
	}
	var given []string
	for _, sidecar := range []string{"attacher", "provisioner", "resizer", "snapshotter"} {
		for _, rule := range part(t, found["ClusterRole/longhorn-csi-"+sidecar], "rules").([]any) {
			for _, group := range part(t, rule, "apiGroups").([]any) {
				for _, resource := range part(t, rule, "resources").([]any) {
					for _, verb := range part(t, rule, "verbs").([]any) {
						given = append(given, fmt.Sprintf("%s %s %s %s", sidecar, verb, resource, group))
					}
				}
			}
		}
		account := part(t, found["Deployment/csi-"+sidecar], "spec", "template", "spec", "serviceAccountName")
		if account != "longhorn-csi-"+sidecar {
			t.Errorf("csi-%s runs as %s", sidecar, account)
		}
	}
	slices.Sort(needed)
	slices.Sort(given)
	if !slices.Equal(needed, given) {
		t.Errorf("given are\n%s\nneeded are\n%s", strings.Join(given, "\n"), strings.Join(needed, "\n"))
	}
}

// TestDriverAsksKubernetesNothing: the driver of a node has a token for the managers alone, and the
// sidecars speak to a driver of their own Pod.
func TestDriverAsksKubernetesNothing(t *testing.T) {
	found := csiObjects(t, DefaultValues())
	const plugin = "DaemonSet/longhorn-csi-plugin"
	if part(t, found[plugin], "spec", "template", "spec", "automountServiceAccountToken") != false {
		t.Error("the driver of a node has a token for the API server")
	}
	for name, service := range map[string]string{plugin: "node", "Deployment/csi-attacher": "controller",
		"Deployment/csi-provisioner": "controller", "Deployment/csi-resizer": "controller",
		"Deployment/csi-snapshotter": "controller"} {
		spec := part(t, found[name], "spec", "template", "spec")
		containers := part(t, spec, "containers").([]any)
		var flags []string
		for _, arg := range part(t, containers[len(containers)-1], "command").([]any)[1:] {
			flags = append(flags, arg.(string))
		}
		command := csi.Command()
		if err := command.ParseFlags(flags); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		serves, _ := command.Flags().GetStringSlice("service")
		token, _ := command.Flags().GetString("token-file")
		if !slices.Equal(serves, []string{service}) || token != "/var/run/secrets/longhorn/token" {
			t.Errorf("%s serves %v, with the token in %s", name, serves, token)
		}
		audience := ""
		for _, volume := range part(t, spec, "volumes").([]any) {
			switch part(t, volume, "name") {
			case "token":
				audience, _ = part(t, volume, "projected", "sources", 0, "serviceAccountToken", "audience").(string)
			case "socket":
				if own := part(t, volume, "emptyDir") != nil; own != (service == "controller") {
					t.Errorf("%s: the socket is in %v", name, volume)
				}
			}
		}
		if audience != access.Audience {
			t.Errorf("%s: the token is for %q", name, audience)
		}
	}
}
