package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	longhorn "ankole.storage/api/longhorn/v1beta2"
)

// scenarioA3: the Pod of a running aio instance manager is that of the proposal, and the settings
// that are baked into Pods reach it.
func scenarioA3(t *testing.T, c *cluster) {
	ks := kubernetesOf(t, c)
	for _, m := range c.instanceManagers() {
		pod := c.podOf(ks, &m)
		if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP != m.Status.IP {
			t.Errorf("Pod %s is %s at %s, the instance manager at %s", pod.Name, pod.Status.Phase, pod.Status.PodIP, m.Status.IP)
		}
		if err := sameAsProposal(pod, &m, c.cpuShare(ks, m.Spec.NodeID, 12)); err != nil {
			t.Errorf("the Pod of %s is not that of the proposal: %v", m.Name, err)
		}
	}
	// All of them differ from what they were, so that each must have had an effect of its own.
	changes := map[string]string{
		"guaranteed-instance-manager-cpu": `{"v1":"7","v2":"12"}`,
		"taint-toleration":                "storage=only:NoSchedule",
		"priority-class":                  "system-cluster-critical",
	}
	before := map[string]string{}
	for name, value := range changes {
		s, err := c.rest.Setting(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		before[name] = s.Value
		if _, err := c.rest.SetSetting(context.Background(), name, value); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually("the settings have reached idle Pods", func(ctx context.Context) error {
		for _, m := range c.instanceManagers() {
			pod, err := ks.CoreV1().Pods(namespace).Get(ctx, m.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			tolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool {
				return o.Key == "storage" && o.Value == "only" && o.Effect == corev1.TaintEffectNoSchedule
			})
			cpu, want := pod.Spec.Containers[0].Resources.Requests.Cpu(), c.cpuShare(ks, m.Spec.NodeID, 7)
			if !tolerated || pod.Spec.PriorityClassName != "system-cluster-critical" || *pod.Spec.Priority == 0 ||
				cpu.Cmp(want) != 0 ||
				!strings.Contains(pod.Annotations["longhorn.io/last-applied-tolerations"], `"storage"`) ||
				pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("Pod %s: %s, class %q, cpu %s (want %s), tolerations %v", pod.Name, pod.Status.Phase,
					pod.Spec.PriorityClassName, cpu, &want, pod.Spec.Tolerations)
			}
		}
		return nil
	})
	for name, value := range before {
		if _, err := c.rest.SetSetting(context.Background(), name, value); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually("the Pods are as before", func(context.Context) error {
		for _, m := range c.instanceManagers() {
			pod, err := ks.CoreV1().Pods(namespace).Get(context.Background(), m.Name, metav1.GetOptions{})
			if err == nil {
				err = sameAsProposal(pod, &m, c.cpuShare(ks, m.Spec.NodeID, 12))
			}
			if err == nil && (m.Status.CurrentState != "running" || m.Status.IP != pod.Status.PodIP) {
				err = fmt.Errorf("%s is %s", m.Name, m.Status.CurrentState)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *cluster) instanceManagers() []longhorn.InstanceManager {
	c.t.Helper()
	var list longhorn.InstanceManagerList
	if err := c.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

func (c *cluster) podOf(ks kubernetes.Interface, m *longhorn.InstanceManager) *corev1.Pod {
	c.t.Helper()
	pod, err := ks.CoreV1().Pods(namespace).Get(context.Background(), m.Name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// cpuShare is a percentage of what a node can allocate.
func (c *cluster) cpuShare(ks kubernetes.Interface, node string, percent int64) resource.Quantity {
	c.t.Helper()
	n, err := ks.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	// Rounded to a thousandth.
	return *resource.NewMilliQuantity((n.Status.Allocatable.Cpu().MilliValue()*percent+50)/100, resource.DecimalSI)
}

// sameAsProposal compares a Pod with the one of the proposal. What Ankole adds is taken off first,
// and must be there.
func sameAsProposal(pod *corev1.Pod, m *longhorn.InstanceManager, cpu resource.Quantity) error {
	text, err := os.ReadFile("testdata/a3-pod.yaml")
	if err != nil {
		return err
	}
	hash := strings.TrimPrefix(pod.Labels["longhorn.io/instance-manager-image"], "imi-")
	if !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(hash) ||
		!regexp.MustCompile(`^instance-manager-[0-9a-f]{32}$`).MatchString(m.Name) {
		return fmt.Errorf("name %s or label of the image %q", m.Name, pod.Labels["longhorn.io/instance-manager-image"])
	}
	filled := strings.NewReplacer("NODE", m.Spec.NodeID, "IMAGE", m.Spec.Image, "HASH", hash, "MANAGER", m.Name, "UID",
		string(m.UID), "CPU", cpu.String()).
		Replace(string(text))
	var want corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(filled), &want); err != nil {
		return err
	}
	got := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels,
		Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences}, Spec: *pod.Spec.DeepCopy()}
	if err := takeOff(&got); err != nil {
		return err
	}
	if a, b := asYAML(got), asYAML(want); a != b {
		return errors.New("\n" + difference(a, b))
	}
	return nil
}

// takeOff removes what Ankole's Pod has beyond the proposal's, each of which is documented, and
// what the cluster adds under a name of its own choice.
func takeOff(pod *corev1.Pod) error {
	own := maps.Clone(pod.Annotations)
	for _, name := range []string{networksAsked, networksGot, "longhorn.io/grpc-tls-seen"} {
		delete(own, name) // of a cluster with a storage network or certificates; scenarios of these judge them
	}
	if _, ok := own["longhorn.io/last-applied-priority-class"]; !ok || len(own) != 2 {
		return fmt.Errorf("annotations %v", own)
	}
	pod.Annotations = map[string]string{
		"longhorn.io/last-applied-tolerations": pod.Annotations["longhorn.io/last-applied-tolerations"]}
	c := &pod.Spec.Containers[0]
	// The managers of this cluster look for no certificate.
	if n := len(c.Args); n > 2 && c.Args[n-2] == "--allow-plaintext" {
		c.Args = c.Args[:n-2]
	}
	// It listens on the Pod's address instead of on all.
	if last := len(c.Args) - 1; last < 0 || c.Args[last] != "$(POD_IP):8500" {
		return fmt.Errorf("arguments %q", c.Args)
	}
	c.Args[len(c.Args)-1] = "0.0.0.0:8500"
	fields := map[string]string{"POD_IP": "status.podIP", "POD_NAME": "metadata.name", "NODE_NAME": "spec.nodeName"}
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool {
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == fields[e.Name] {
			delete(fields, e.Name)
			return true
		}
		return false
	})
	extra := func(name string) bool { return name == "dev-longhorn" || strings.HasPrefix(name, "kube-api-access-") }
	mounts := len(c.VolumeMounts)
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return extra(m.Name) })
	pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return extra(v.Name) })
	if len(fields) > 0 || mounts == len(c.VolumeMounts) {
		return fmt.Errorf("not there: variables %v, or the mount of devices", fields)
	}
	return nil
}

func asYAML(o any) string {
	text, err := yaml.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// difference shows the lines that only one of two texts has.
func difference(got, want string) string {
	var out strings.Builder
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, line := range a {
		if !slices.Contains(b, line) {
			fmt.Fprintf(&out, "+%s\n", line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			fmt.Fprintf(&out, "-%s\n", line)
		}
	}
	return out.String()
}

// scenarioA13: the InstanceManager objects belong to their nodes, and carry the proposal's labels,
// spec and versions.
func scenarioA13(t *testing.T, c *cluster) {
	ks := kubernetesOf(t, c)
	for _, m := range c.instanceManagers() {
		var node longhorn.Node
		if err := c.kube.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: m.Spec.NodeID},
			&node); err != nil {
			t.Fatal(err)
		}
		yes := true
		owner := []metav1.OwnerReference{{APIVersion: "longhorn.io/v1beta2", Kind: "Node", Name: node.Name,
			UID: node.UID, BlockOwnerDeletion: &yes}}
		if !reflect.DeepEqual(m.OwnerReferences, owner) {
			t.Errorf("%s is owned by %+v, want %+v", m.Name, m.OwnerReferences, owner)
		}
		labels := map[string]string{"longhorn.io/component": "instance-manager", "longhorn.io/instance-manager-type": "aio",
			"longhorn.io/managed-by": "longhorn-manager", "longhorn.io/node": node.Name,
			"longhorn.io/instance-manager-image": m.Labels["longhorn.io/instance-manager-image"]}
		if !reflect.DeepEqual(m.Labels, labels) || !strings.HasPrefix(labels["longhorn.io/instance-manager-image"], "imi-") {
			t.Errorf("%s has labels %v, want %v", m.Name, m.Labels, labels)
		}
		if s := m.Status; s.APIVersion != 4 || s.APIMinVersion != 1 || s.ProxyAPIVersion != 5 ||
			s.ProxyAPIMinVersion != 1 || s.OwnerID != node.Name {
			t.Errorf("%s: api %d/%d, proxy %d/%d, owner %s", m.Name, s.APIVersion, s.APIMinVersion, s.ProxyAPIVersion,
				s.ProxyAPIMinVersion, s.OwnerID)
		}
		raw, err := ks.RESTClient().Get().AbsPath("/apis/longhorn.io/v1beta2/namespaces/" + namespace +
			"/instancemanagers/" + m.Name).DoRaw(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var object struct{ Spec map[string]any }
		if err := json.Unmarshal(raw, &object); err != nil {
			t.Fatal(err)
		}
		if image, ok := object.Spec["engineImage"]; !ok || image != "" || object.Spec["type"] != "aio" ||
			object.Spec["image"] == "" {
			t.Errorf("%s: spec %v", m.Name, object.Spec)
		}
	}
}
