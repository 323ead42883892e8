package helm

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestValuesOfTheReference: values by which users of the reference's chart know the StorageClass,
// the sidecars and the metrics arrive where they are meant.
func TestValuesOfTheReference(t *testing.T) {
	const sidecar = "Deployment/longhorn-system/csi-"
	const class = "StorageClass//longhorn"
	for _, tt := range []struct{ set, object, path, want string }{
		{"persistence.defaultClass=false", class, "metadata annotations storageclass.kubernetes.io/is-default-class", "false"},
		{"persistence.defaultClassReplicaCount=2", class, "parameters numberOfReplicas", "2"},
		{"persistence.defaultFsType=xfs", class, "parameters fsType", "xfs"},
		{"persistence.defaultMkfsParams=-O ^64bit", class, "parameters mkfsParams", "-O ^64bit"},
		{"persistence.defaultDataLocality=best-effort", class, "parameters dataLocality", "best-effort"},
		{"persistence.reclaimPolicy=Retain", class, "reclaimPolicy", "Retain"},
		{"persistence.volumeBindingMode=WaitForFirstConsumer", class, "volumeBindingMode", "WaitForFirstConsumer"},
		{"persistence.migratable=true", class, "parameters migratable", "true"},
		{"persistence.defaultNodeSelector.enable=true,persistence.defaultNodeSelector.selector=a", class,
			"parameters nodeSelector", "a"},
		{"persistence.defaultDiskSelector.enable=true,persistence.defaultDiskSelector.selector=ssd", class,
			"parameters diskSelector", "ssd"},
		{"persistence.defaultDiskSelector.selector=ssd", class, "parameters diskSelector", ""},
		{`persistence.recurringJobSelector.enable=true,persistence.recurringJobSelector.jobList=[{"name":"n"}]`, class,
			"parameters recurringJobSelector", `[{"name":"n"}]`},
		{"service.ui.type=NodePort,service.ui.nodePort=30080", "Service/longhorn-system/longhorn-frontend", "spec type",
			"NodePort"},
		{"csi.attacherReplicaCount=1", sidecar + "attacher", "spec replicas", "1"},
		{"csi.provisionerReplicaCount=2", sidecar + "provisioner", "spec replicas", "2"},
		{"csi.resizerReplicaCount=4", sidecar + "resizer", "spec replicas", "4"},
		{"csi.snapshotterReplicaCount=5", sidecar + "snapshotter", "spec replicas", "5"},
		{"sidecarResources.requests.cpu=5m", sidecar + "resizer", "resources requests cpu", "5m"},
		{"controller.replicas=2", "Deployment/longhorn-system/longhorn-controller", "spec replicas", "2"},
		{"controller.resources.limits.memory=3Gi", "Deployment/longhorn-system/longhorn-controller",
			"resources limits memory", "3Gi"},
		{"managerResources.limits.memory=2Gi", "DaemonSet/longhorn-system/longhorn-manager", "resources limits memory",
			"2Gi"},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.additionalLabels.release=prometheus",
			"ServiceMonitor/longhorn-system/longhorn-prometheus-servicemonitor", "metadata labels release", "prometheus"},
		{"metrics.serviceMonitor.enabled=false", "ServiceMonitor/longhorn-system/longhorn-prometheus-servicemonitor", "", ""},
	} {
		eachVersion(t, func(t *testing.T, helm func(...string) (string, error)) {
			out, err := helm("template", "x", chart, kubeVersion, "--namespace", namespace, "--set", escaped(tt.set))
			if err != nil {
				t.Fatal(err)
			}
			if got := value(objects(t, out)[tt.object], tt.path); got != tt.want {
				t.Errorf("--set %s: %s of %s is %q, want %q", tt.set, tt.path, tt.object, got, tt.want)
			}
		})
	}
}

// escaped has braces and brackets of a value reach it: Helm reads lists and indices of them.
func escaped(set string) string {
	return strings.NewReplacer("{", `\{`, "}", `\}`, "[", `\[`, "]", `\]`).Replace(set)
}

// value is what an object has at a path, or its first container; empty if there is none.
func value(o *unstructured.Unstructured, path string) string {
	if o == nil {
		return ""
	}
	at := o.Object
	keys := strings.Fields(path)
	if len(keys) > 0 && keys[0] == "resources" {
		containers, _, _ := unstructured.NestedSlice(at, "spec", "template", "spec", "containers")
		at = containers[0].(map[string]any)
	}
	found, ok, err := unstructured.NestedFieldNoCopy(at, keys...)
	if !ok || err != nil {
		return ""
	}
	return fmt.Sprint(found)
}
