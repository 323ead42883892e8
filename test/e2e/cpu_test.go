package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	restresource "ankole.storage/rest/resource"
)

// nodeCPUs are the CPUs of node-1, node-2 and node-3.
const (
	nodeCPUs   = "2,4,8"
	cpuSetting = "guaranteed-instance-manager-cpu"
)

// cpuTest has the CPU requests of the instance managers of a cluster.
type cpuTest struct {
	*cluster
	ks kubernetes.Interface
}

// onCPU makes a scenario of what is about CPU requests. Each ends with settings and nodes as it
// found them.
func onCPU(run func(*cpuTest, *testing.T)) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		ks := kubernetesOf(t, c)
		run(&cpuTest{c, ks}, t)
	}
}

// scenarioB1: each node's Pod requests the share of its own CPUs.
func (k *cpuTest) scenarioB1(*testing.T) { k.await("12 %", 240, 480, 960) }

// share sets the setting.
func (k *cpuTest) share(percent string) {
	k.t.Helper()
	if _, err := k.rest.SetSetting(k.t.Context(), cpuSetting, percent); err != nil {
		k.t.Fatal(err)
	}
}

// put changes the CPU requests of a node as a client does that sends everything else as it is.
func (k *cpuTest) put(node string, edit func(*restresource.NodeInput)) (*restresource.Node, error) {
	k.t.Helper()
	n, err := k.rest.Node(k.t.Context(), node)
	if err != nil {
		k.t.Fatal(err)
	}
	in := restresource.NodeInput{AllowScheduling: n.AllowScheduling, EvictionRequested: n.EvictionRequested, Tags: n.Tags,
		InstanceManagerCPURequest: n.InstanceManagerCPURequest}
	edit(&in)
	return k.rest.UpdateNode(k.t.Context(), node, in)
}

// field sets the node's own request.
func (k *cpuTest) field(node string, millis int) {
	k.t.Helper()
	n, err := k.put(node, func(in *restresource.NodeInput) { in.InstanceManagerCPURequest = millis })
	if err != nil || n.InstanceManagerCPURequest != millis {
		k.t.Fatalf("node %s: %+v, %v", node, n, err)
	}
}

// request is what the Pod of the running aio instance manager of a node requests; 0 for nothing.
func (k *cpuTest) request(ctx context.Context, node string) (millis int64, pod types.UID, err error) {
	for _, m := range k.instanceManagers() {
		if m.Spec.NodeID == node && m.Spec.Type == longhorn.InstanceManagerTypeAllInOne {
			return k.requestOf(ctx, &m)
		}
	}
	return 0, "", fmt.Errorf("no instance manager on %s", node)
}

// requestOf is what the Pod of a running instance manager requests; 0 for nothing.
func (k *cpuTest) requestOf(ctx context.Context, m *longhorn.InstanceManager) (millis int64, pod types.UID, err error) {
	p, err := k.ks.CoreV1().Pods(namespace).Get(ctx, m.Name, metav1.GetOptions{})
	if err != nil {
		return 0, "", err
	}
	if m.Status.CurrentState != "running" || p.Status.PodIP != m.Status.IP || p.DeletionTimestamp != nil {
		return 0, "", fmt.Errorf("%s is %s", m.Name, m.Status.CurrentState)
	}
	q, asked := p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
	if asked && q.IsZero() {
		return 0, "", fmt.Errorf("Pod %s requests 0 in place of nothing", p.Name)
	}
	return q.MilliValue(), p.UID, nil
}

// await waits until the Pods of node-1, node-2 and node-3 request so much, and the setting says
// that it is applied.
func (k *cpuTest) await(what string, want ...int64) (pods map[string]types.UID) {
	k.t.Helper()
	k.eventually("CPU requests "+what, func(ctx context.Context) error {
		pods = map[string]types.UID{}
		for i, n := range k.Nodes {
			got, pod, err := k.request(ctx, n.Name)
			if err != nil {
				return err
			}
			if got != want[i] {
				return fmt.Errorf("%s requests %dm, want %dm", n.Name, got, want[i])
			}
			pods[n.Name] = pod
		}
		s, err := k.rest.Setting(ctx, cpuSetting)
		if err == nil && !s.Applied {
			err = fmt.Errorf("%s is not applied", s.Name)
		}
		return err
	})
	return pods
}

// scenarioB4: a change of the setting makes each Pod anew, with the new request.
func (k *cpuTest) scenarioB4(t *testing.T) {
	before := k.await("before", 240, 480, 960)
	k.share("7")
	after := k.await("7 %", 140, 280, 560)
	for _, n := range k.Nodes {
		if after[n.Name] == before[n.Name] {
			t.Errorf("the Pod on %s has changed its request and is the same one", n.Name)
		}
	}
	k.share("12")
	k.await("12 %", 240, 480, 960)
}

// scenarioB5: where an instance runs nothing is killed, and the change is seen to wait; it arrives
// when the last instance has gone. Nodes without instances take it at once.
func (k *cpuTest) scenarioB5(t *testing.T) {
	const volume = "cpu"
	before := k.await("before", 240, 480, 960)
	k.create(volume, 32*mib, 1)
	endpoint := k.attach(volume, "node-2", 1)
	busy := []string{"node-2"}
	if at := k.placeOf(volume); at != "node-2" {
		busy = append(busy, at)
	}
	sum := fillWith(t, k.cluster, endpoint, 7)
	was := k.processes()
	k.share("20")
	for i, n := range k.Nodes {
		want := []int64{400, 800, 1600}[i]
		k.eventually("20 % on "+n.Name, func(ctx context.Context) error {
			got, pod, err := k.request(ctx, n.Name)
			switch {
			case err != nil:
				return err
			case !slices.Contains(busy, n.Name) && got == want:
				return nil
			case !slices.Contains(busy, n.Name):
				return fmt.Errorf("requests %dm, want %dm", got, want)
			case pod != before[n.Name]:
				t.Fatalf("the Pod on %s was replaced while an instance ran in it", n.Name)
			}
			return k.waits(n.Name, fmt.Sprintf("%s (CPU request %dm, will be %dm)", cpuSetting, got, want))
		})
	}
	k.eventually("the setting says that it is not applied", func(ctx context.Context) error {
		s, err := k.rest.Setting(ctx, cpuSetting)
		if err == nil && s.Applied {
			err = fmt.Errorf("%s is applied", s.Name)
		}
		return err
	})
	if now := k.processes(); !slices.Equal(now, was) {
		t.Errorf("the processes were %v and are %v", was, now)
	}
	k.detach(volume)
	k.await("20 %", 400, 800, 1600)
	endpoint = k.attach(volume, "node-2", 1)
	holds(t, k.cluster, endpoint, sum, "the volume has other content")
	k.detach(volume)
	k.remove(volume)
	k.share("12")
	k.await("12 %", 240, 480, 960)
}

// processes are the engines and replicas of the cluster.
func (k *cpuTest) processes() []int {
	pids := holding(k.Info.Dir, "--volume-name\x00")
	slices.Sort(pids)
	return pids
}

// waits returns nil if the instance manager of a node says that this waits.
func (k *cpuTest) waits(node, what string) error {
	for _, m := range k.instanceManagers() {
		if m.Spec.NodeID != node {
			continue
		}
		c := longhorn.FindCondition(m.Status.Conditions, longhorn.InstanceManagerConditionSettingSynced)
		if c.Status != longhorn.ConditionFalse || !strings.Contains(c.Message, what) {
			return fmt.Errorf("%s: condition %+v, want one with %q", m.Name, c, what)
		}
	}
	return nil
}

// scenarioB2 (and B11, B13): the field of a node by command line and REST. A PUT that leaves the
// keys out clears the field of the present type and none of the older ones.
func (k *cpuTest) scenarioB2(t *testing.T) {
	if status, out, stderr := k.ankole(t, "node", "set-cpu", "node-1", "500m"); status != 0 {
		t.Fatalf("status %d\n%s%s", status, out, stderr)
	}
	k.await("500m on node-1", 500, 480, 960)
	engine, replica := 100, 150
	n, err := k.put("node-1", func(in *restresource.NodeInput) {
		in.EngineManagerCPURequest, in.ReplicaManagerCPURequest = &engine, &replica
	})
	if err != nil || n.InstanceManagerCPURequest != 500 || n.EngineManagerCPURequest != 100 ||
		n.ReplicaManagerCPURequest != 150 {
		t.Fatalf("node %+v, %v", n, err)
	}
	k.field("node-1", 0)
	k.await("12 % again", 240, 480, 960)
	if n, err = k.rest.Node(t.Context(), "node-1"); err != nil || n.InstanceManagerCPURequest != 0 ||
		n.EngineManagerCPURequest != 100 || n.ReplicaManagerCPURequest != 150 {
		t.Errorf("node %+v, %v", n, err)
	}
	none := 0
	if _, err := k.put("node-1", func(in *restresource.NodeInput) {
		in.EngineManagerCPURequest, in.ReplicaManagerCPURequest = &none, &none
	}); err != nil {
		t.Error(err)
	}
}

// scenarioB10: with fields the setting restarts nothing; with one field back at 0 only that node's
// Pod is made again.
func (k *cpuTest) scenarioB10(t *testing.T) {
	before := k.await("before", 240, 480, 960)
	for i, n := range k.Nodes {
		k.field(n.Name, []int{240, 480, 960}[i])
	}
	k.share("5")
	k.field("node-2", 0)
	after := k.await("5 % on node-2", 240, 200, 960)
	for _, n := range k.Nodes {
		if (after[n.Name] == before[n.Name]) == (n.Name == "node-2") {
			t.Errorf("%s: Pod %s before, %s after", n.Name, before[n.Name], after[n.Name])
		}
	}
	k.share("12")
	for _, n := range k.Nodes {
		k.field(n.Name, 0)
	}
	k.await("12 % again", 240, 480, 960)
}

// scenarioB7 (and B12): what REST refuses is refused by the webhook in the same words.
func (k *cpuTest) scenarioB7(t *testing.T) {
	const tooMuch = "should be less than or equal to 40"
	if _, err := k.put("node-1", func(in *restresource.NodeInput) { in.InstanceManagerCPURequest = 820 }); err == nil ||
		!strings.Contains(err.Error(), tooMuch) {
		t.Errorf("41 %% by REST: %v", err)
	}
	for name, values := range map[string][2]string{
		cpuSetting:                       {"41", tooMuch},
		"guaranteed-engine-manager-cpu":  {"28", "should be smaller than 40"},
		"guaranteed-replica-manager-cpu": {"41", tooMuch},
		"guaranteed-engine-cpu":          {"0.5", "read-only"},
	} {
		_, err := k.rest.SetSetting(t.Context(), name, values[0])
		if err == nil || !strings.Contains(err.Error(), values[1]) {
			t.Errorf("%s = %s by REST: %v", name, values[0], err)
		}
		s := &longhorn.Setting{}
		if err := k.kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
			t.Fatal(err)
		}
		s.Value = values[0]
		if err := k.kube.Update(t.Context(), s); err == nil || !strings.Contains(err.Error(), values[1]) {
			t.Errorf("%s = %s by the API server: %v", name, values[0], err)
		}
	}
	k.eventually("41 % is refused by the API server", func(context.Context) error {
		n := k.node("node-1")
		n.Spec.InstanceManagerCPURequest = 820
		if err := k.kube.Update(t.Context(), n); err == nil || !strings.Contains(err.Error(), tooMuch) {
			return fmt.Errorf("got: %w", err) // a conflict: the node's status has changed
		}
		return nil
	})
}

// scenarioB9: on a full node the Pod is refused, the instance manager says why and tries again, and
// runs when there is room. The others are left alone.
func (k *cpuTest) scenarioB9(t *testing.T) {
	k.field("node-1", 100)
	before := k.await("100m on node-1", 100, 480, 960)
	free := k.fill(k.ks, "node-1", "1850m")
	k.field("node-1", 300)
	k.refusedOn("node-1", 300, 1850, 2000)
	free()
	after := k.await("300m on node-1", 300, 480, 960)
	if after["node-2"] != before["node-2"] || after["node-3"] != before["node-3"] {
		t.Error("Pods of other nodes were replaced")
	}
	k.field("node-1", 0)
	k.await("12 % again", 240, 480, 960)
}

// refused: a limit of the namespace refuses the next Pod. The one that runs stays, the instance
// manager has the API server's words, and the request is applied when the limit is gone.
func (k *cpuTest) refused(t *testing.T) {
	before := k.await("12 %", 240, 480, 960)
	limit := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "least"}}
	limit.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer,
		Min: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}}}
	limits := k.ks.CoreV1().LimitRanges(namespace)
	if _, err := limits.Create(t.Context(), limit, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	k.field("node-1", 100)
	k.eventually("the instance manager says why its Pod is not exchanged", func(context.Context) error {
		for _, m := range k.instanceManagers() {
			c := longhorn.FindCondition(m.Status.Conditions, longhorn.InstanceManagerConditionSettingSynced)
			if m.Spec.NodeID == "node-1" && strings.Contains(c.Message, "minimum cpu usage per Container is 200m") {
				return nil
			}
		}
		return errors.New("it does not")
	})
	if got, pod, err := k.request(t.Context(), "node-1"); err != nil || got != 240 || pod != before["node-1"] {
		t.Errorf("Pod %s requests %dm (%v), want Pod %s as it was", pod, got, err, before["node-1"])
	}
	if err := limits.Delete(t.Context(), limit.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	k.await("100m on node-1", 100, 480, 960)
	k.field("node-1", 0)
	k.await("12 % again", 240, 480, 960)
}

// scenarioB3: with setting and field 0 nothing is requested.
func (k *cpuTest) scenarioB3(*testing.T) {
	k.share("0")
	k.await("none", 0, 0, 0)
	k.share("12")
	k.await("12 % again", 240, 480, 960)
}

// crowded leaves room for one instance manager on node-1, and for no second one.
func crowded(c *cluster, ks kubernetes.Interface) *cpuTest {
	k := &cpuTest{c, ks}
	k.field("node-1", 800)
	k.await("800m on node-1", 800, 240, 240)
	k.fill(ks, "node-1", "500m")
	return k
}

// fill puts a Pod on a node that requests so much CPU, and waits until the node has taken it; free
// takes it away.
func (c *cluster) fill(ks kubernetes.Interface, node, cpu string) (free func()) {
	c.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fills-" + node}}
	pod.Spec.NodeName, pod.Spec.Containers = node, []corev1.Container{{Name: "c", Image: "none"}}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	pods := ks.CoreV1().Pods(namespace)
	if _, err := pods.Create(c.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.eventually(node+" has taken the Pod that fills it", func(ctx context.Context) error {
		p, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && len(p.Status.ContainerStatuses) == 0 {
			err = fmt.Errorf("phase %s %s", p.Status.Phase, p.Status.Reason)
		}
		return err
	})
	return func() {
		c.t.Helper()
		now := int64(0)
		if err := pods.Delete(c.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// refusedOn waits until an instance manager of a node says that the node has no room for its Pod.
func (c *cluster) refusedOn(node string, asked, used, capacity int64) {
	c.t.Helper()
	want := fmt.Sprintf("requested: %d, used: %d, capacity: %d", asked, used, capacity)
	c.eventually("an instance manager on "+node+" says that there is no room", func(context.Context) error {
		var seen []string
		for _, m := range c.instanceManagers() {
			ready := longhorn.FindCondition(m.Status.Conditions, longhorn.InstanceManagerConditionPodReady)
			if m.Spec.NodeID != node {
				continue
			}
			if m.Status.CurrentState == "error" && strings.Contains(ready.Message, want) {
				return nil
			}
			seen = append(seen, fmt.Sprintf("%s is %s: %s", m.Name, m.Status.CurrentState, ready.Message))
		}
		return fmt.Errorf("%q, want one with %q", seen, want)
	})
}
