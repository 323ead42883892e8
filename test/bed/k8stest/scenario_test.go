package k8stest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/standalone/control"
	"ankole.storage/test/bed/cluster"
	"ankole.storage/test/bed/plan"
	"ankole.storage/test/rig"
)

// scenarioA1: one instance manager of type aio per node, in a Pod that a kubelet runs.
func scenarioA1(b *bed) {
	nodes := map[string]bool{}
	for _, m := range b.instanceManagers() {
		pod, err := b.ks.CoreV1().Pods(namespace).Get(context.Background(), m.Name, metav1.GetOptions{})
		if err != nil {
			b.t.Fatal(err)
		}
		own := netip.MustParsePrefix(b.PodNetwork(b.number(m.Spec.NodeID)))
		if m.Spec.Type != "aio" || nodes[m.Spec.NodeID] || pod.Status.Phase != corev1.PodRunning ||
			m.Status.IP != pod.Status.PodIP || !own.Contains(netip.MustParseAddr(m.Status.IP)) {
			b.t.Errorf("%s: type %s, node %s, Pod %s with address %s", m.Name, m.Spec.Type, m.Spec.NodeID, pod.Status.Phase,
				pod.Status.PodIP)
		}
		nodes[m.Spec.NodeID] = true
	}
	if len(nodes) != b.Nodes {
		b.t.Errorf("instance managers on %v", nodes)
	}
	out, err := b.kubectl("-n", namespace, "get", "lhim")
	if err != nil || !strings.HasPrefix(out, "NAME") || strings.Count(out, "running") != b.Nodes {
		b.t.Errorf("kubectl get lhim: %v\n%s", err, out)
	}
}

// kubectlPlugin: with nothing but a kubeconfig, the command line reaches a manager through the API
// server and a kubelet, whose runtime connects to the loopback address of the manager's Pod.
func kubectlPlugin(b *bed) {
	dir := b.t.TempDir()
	plugin := filepath.Join(dir, "kubectl-ankole")
	if err := os.Symlink(filepath.Join(filepath.Dir(b.program), "ankole"), plugin); err != nil {
		b.t.Fatal(err)
	}
	ankole := func(args ...string) string {
		b.t.Helper()
		args = append(args, "--kubeconfig", b.Path("kubeconfig"), "--namespace", namespace, "--account", "administrator")
		out, err := exec.Command(plugin, args...).CombinedOutput()
		if err != nil {
			b.t.Fatalf("kubectl ankole %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	ankole("volume", "create", "by-plugin", "--size", "64Mi", "--replicas", "2")
	if out := ankole("volume", "list"); !strings.Contains(out, "by-plugin") {
		b.t.Errorf("volume list does not show the volume:\n%s", out)
	}
	ankole("volume", "delete", "by-plugin", "--yes")
	b.await("the volume is gone", func(ctx context.Context) error {
		if out := ankole("volume", "list"); strings.Contains(out, "by-plugin") {
			return errors.New(out)
		}
		return nil
	})
}

// blockDeviceInPod: a Pod makes a file system on a volume's block device and writes to it; after
// the volume has moved to another node, a Pod there reads the same.
func blockDeviceInPod(b *bed) {
	b.create("pod", 256*mib, 3)
	b.attach("pod", "node-1", 3)
	began := time.Now()
	written := b.pod("node-1", "writer", `mkfs.ext4 -q /dev/longhorn/pod
		mkdir -p /mnt && mount -t ext4 /dev/longhorn/pod /mnt
		dd if=/dev/urandom of=/mnt/data bs=1M count=64 2>/dev/null
		sync && sha256sum /mnt/data
		umount /mnt`)
	b.took("a Pod that writes 64 MiB", began)
	b.detach("pod")
	b.attach("pod", "node-2", 3)
	read := b.pod("node-2", "reader", `mkdir -p /mnt && mount -t ext4 /dev/longhorn/pod /mnt
		sha256sum /mnt/data
		umount /mnt && fsck.ext4 -fn /dev/longhorn/pod >/dev/null 2>&1`)
	if len(written) < 64 || written != read {
		b.t.Errorf("written %q, read %q", written, read)
	}
	b.detach("pod")
	b.identical("pod", 3)
	b.remove("pod")
}

// replicaLost: an instance manager with a replica is killed under I/O; nobody notices, and the
// replica is rebuilt.
func replicaLost(b *bed) {
	defer b.set("replica-replenishment-wait-interval", "5")()
	b.create("lost", 128*mib, 3)
	b.attach("lost", "node-1", 3)
	d := b.device("lost", "node-1")
	w := rig.StartLoad(b.t, d, 128*mib, 1)
	w.AwaitMore(b.t, 200)
	began := time.Now()
	b.killPod(b.managerOf("node-2").Name)
	w.AwaitMore(b.t, 200)
	b.degraded("lost")
	b.usable("lost", "node-1", 3)
	b.took("from the kill to three replicas again", began)
	w.AwaitMore(b.t, 200)
	w.Finish()
	if err := d.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.detach("lost")
	b.identical("lost", 3)
	b.remove("lost")
	b.managersRun()
}

// scenarioF16: the instance manager that runs a volume's engine is killed, and the next one
// deleted in order, under I/O. Whoever has the device open notices a pause, although its file
// system was mounted in the container that has ended.
func scenarioF16(b *bed) {
	defer b.set("replica-replenishment-wait-interval", "5")()
	b.create("engine", 128*mib, 3)
	b.attach("engine", "node-1", 3)
	device := b.deviceID("engine")
	d := b.device("engine", "node-1")
	w := rig.StartLoad(b.t, d, 128*mib, 2)
	w.AwaitMore(b.t, 200)
	for _, end := range []struct {
		what string
		do   func(pod string)
	}{
		{"killed", b.killPod},
		{"deleted", func(pod string) { b.kubectlOK("-n", namespace, "delete", "pod", pod) }},
	} {
		began := time.Now()
		end.do(b.managerOf("node-1").Name)
		w.AwaitMore(b.t, 200)
		b.took("from the instance manager "+end.what+" to 200 requests more", began)
		b.managersRun()
		b.usable("engine", "node-1", 3)
		b.took("from the instance manager "+end.what+" to three replicas", began)
		if now := b.deviceID("engine"); now != device || device == "" {
			b.t.Errorf("%s: the device is another one, %q, before %q", end.what, now, device)
		}
	}
	w.AwaitMore(b.t, 200)
	w.Finish()
	if err := d.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.detach("engine")
	b.identical("engine", 3)
	b.remove("engine")
}

// scenarioA9: kubectl drain waits on a node with the last copy of a volume, says why, and ends when
// there is another one.
func scenarioA9(b *bed) {
	b.create("a9", 16*mib, 1)
	var holder string
	b.await("the replica has a place", func(ctx context.Context) error {
		v, err := b.rest.Volume(ctx, "a9")
		if err != nil || len(v.Replicas) == 0 || v.Replicas[0].HostID == "" {
			return errors.Join(err, errors.New("none yet"))
		}
		holder = v.Replicas[0].HostID
		return nil
	})
	other := b.NodeName(b.number(holder)%b.Nodes + 1)
	b.attach("a9", other, 1)
	drain := func(timeout string) (string, error) {
		return b.kubectl("drain", holder, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout="+timeout)
	}
	// Its timeout is the end of the test of waiting: a drain that may go on takes about a second.
	if out, err := drain("15s"); err == nil || !strings.Contains(out, "disruption budget") {
		b.t.Fatalf("kubectl drain of the node with the last copy: %v\n%s", err, out)
	}
	held := longhorn.FindCondition(b.managerOf(holder).Status.Conditions, longhorn.InstanceManagerConditionDrainAllowed)
	if held.Status != longhorn.ConditionFalse || held.Reason != longhorn.InstanceManagerReasonLastReplica ||
		!strings.Contains(held.Message, "a9") {
		b.t.Errorf("condition %+v", held)
	}
	b.reach(holder)
	if _, err := b.rest.UpdateReplicaCount(context.Background(), "a9", 2); err != nil {
		b.t.Fatal(err)
	}
	b.usable("a9", other, 2)
	began := time.Now()
	if out, err := drain("120s"); err != nil {
		b.t.Fatalf("kubectl drain with another copy: %v\n%s", err, out)
	}
	b.took("drain", began)
	if out, err := b.kubectl("uncordon", holder); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	b.managersRun()
	b.usable("a9", other, 2)
	b.detach("a9")
	b.remove("a9")
}

// scenarioB9: a node without room refuses the Pod of an instance manager (OutOfcpu); the instance
// manager says so, and runs when there is room.
func scenarioB9(b *bed) {
	ctx := context.Background()
	node, err := b.ks.CoreV1().Nodes().Get(ctx, "node-3", metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	cpu := node.Status.Allocatable.Cpu().MilliValue()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "crowd", Namespace: "default"},
		Spec: corev1.PodSpec{NodeName: "node-3",
			Containers: []corev1.Container{{Name: "c", Image: tools, ImagePullPolicy: corev1.PullNever,
				Command: []string{"sleep", "100000"},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: *resource.NewMilliQuantity(cpu*7/10, resource.DecimalSI)}}}}}}
	if _, err := b.ks.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	b.await("the node is crowded", func(ctx context.Context) error {
		p, err := b.ks.CoreV1().Pods("default").Get(ctx, "crowd", metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("phase %s", p.Status.Phase)
		}
		return err
	})
	restore := b.set("guaranteed-instance-manager-cpu", "40")
	b.await("the node refuses the Pod", func(context.Context) error {
		m := b.managerOf("node-3")
		c := longhorn.FindCondition(m.Status.Conditions, longhorn.InstanceManagerConditionPodReady)
		if m.Status.CurrentState != longhorn.InstanceManagerStateError || !strings.Contains(c.Message, "OutOfcpu") &&
			!strings.Contains(c.Reason, "OutOfcpu") && !strings.Contains(c.Message, "requested: ") {
			return fmt.Errorf("state %s, condition %+v", m.Status.CurrentState, c)
		}
		return nil
	})
	now := int64(0)
	if err := b.ks.CoreV1().Pods("default").Delete(ctx, "crowd",
		metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		b.t.Fatal(err)
	}
	began := time.Now()
	b.managersRun()
	b.took("from room on the node to an instance manager that runs", began)
	restore()
	b.managersRun()
}

// nodeLost: a node loses its power under I/O of a volume with a replica there, and comes back.
func nodeLost(b *bed) {
	b.create("power", 64*mib, 3)
	b.attach("power", "node-1", 3)
	d := b.device("power", "node-1")
	w := rig.StartLoad(b.t, d, 64*mib, 2)
	w.AwaitMore(b.t, 200)
	ctx := context.Background()
	if err := control.Call(ctx, b.Dir, control.Request{Command: control.NodeKill, Node: "node-3"}); err != nil {
		b.t.Fatal(err)
	}
	b.reach("node-3")
	w.AwaitMore(b.t, 200)
	b.notReady("node-3")
	// The manager that watched the volume may have been on that node: until another one does, the
	// volume looks as before.
	b.degraded("power")
	b.webhooksAnswer()
	began := time.Now()
	if err := control.Call(ctx, b.Dir, control.Request{Command: control.NodeStart, Node: "node-3"}); err != nil {
		b.t.Fatal(err)
	}
	b.managersRun()
	b.usable("power", "node-1", 3)
	b.took("from power on to three replicas", began)
	w.AwaitMore(b.t, 200)
	w.Finish()
	if err := d.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.detach("power")
	b.identical("power", 3)
	b.remove("power")
}

// webhooksAnswer opens a hundred new connections to the Service of the webhooks, from a node as the
// API server does, and writes a hundred times: none leads to the node that is lost.
func (b *bed) webhooksAnswer() {
	b.t.Helper()
	ctx := context.Background()
	service, err := b.ks.CoreV1().Services(namespace).Get(ctx, "longhorn-admission-webhook", metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	// The port wants TLS and says so at once.
	const times = 100
	call, err := cluster.Inside(ctx, b.Plan, 1, "bash", "-c", fmt.Sprintf("for i in $(seq %d); do timeout 3 bash -c "+
		`'exec 3<>/dev/tcp/%s/9502; printf "GET / HTTP/1.0\r\n\r\n" >&3; cat <&3'; done; true`, times,
		service.Spec.ClusterIP))
	if err != nil {
		b.t.Fatal(err)
	}
	said, err := call.CombinedOutput()
	if answers := strings.Count(string(said), "400 Bad Request"); answers != times {
		b.t.Errorf("of %d connections to the webhooks %d were answered (%v):\n%s", times, answers, err, said)
	}
	for range times {
		o := &longhorn.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "auto-salvage"}}
		if err := b.kube.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"value":"false"}`)),
			client.DryRunAll); err != nil {
			b.t.Fatalf("a write is refused: %v", err)
		}
	}
}

// scenarioC5: with a storage network instance managers have an address on it, and data goes over
// it.
func scenarioC5(b *bed) {
	restore := b.set("storage-network", plan.StorageNetwork)
	b.await("instance managers are on the storage network", func(ctx context.Context) error {
		for _, m := range b.instanceManagers() {
			pod, err := b.ks.CoreV1().Pods(namespace).Get(ctx, m.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			var got []struct {
				Name, Interface string
				IPs             []string
			}
			if err := json.Unmarshal([]byte(pod.Annotations["k8s.v1.cni.cncf.io/network-status"]), &got); err != nil ||
				len(got) != 2 {
				return fmt.Errorf("Pod %s has %v: %w", pod.Name, pod.Annotations, err)
			}
			segment, first, _ := b.Storage(b.number(m.Spec.NodeID))
			ip, err := netip.ParseAddr(m.Status.StorageIP)
			if err != nil || m.Status.CurrentState != longhorn.InstanceManagerStateRunning || got[1].Interface != "lhnet1" ||
				got[1].IPs[0] != m.Status.StorageIP || !netip.MustParsePrefix(segment).Contains(ip) ||
				ip.Less(netip.MustParseAddr(first)) {
				return fmt.Errorf("%s is %s with storage IP %q, the Pod got %+v", m.Name, m.Status.CurrentState,
					m.Status.StorageIP, got)
			}
		}
		return nil
	})
	b.managersRun()
	b.create("net", 64*mib, 3)
	b.attach("net", "node-1", 3)
	before := b.storageBytes()
	b.pod("node-1", "sends", "dd if=/dev/urandom of=/dev/longhorn/net bs=1M count=48 conv=fsync 2>/dev/null")
	if sent := b.storageBytes() - before; sent < 2*48*mib {
		b.t.Errorf("%d bytes went over the storage network, want two copies of 48 MiB", sent)
	}
	b.overStorage("net", 3)
	b.detach("net")
	b.remove("net")
	restore()
	b.await("instance managers are back on the cluster's network", func(context.Context) error {
		for _, m := range b.instanceManagers() {
			if m.Status.CurrentState != longhorn.InstanceManagerStateRunning || m.Status.StorageIP != m.Status.IP {
				return fmt.Errorf("%s is %s with storage IP %q", m.Name, m.Status.CurrentState, m.Status.StorageIP)
			}
		}
		return nil
	})
}

// overStorage sees that the engine of an attached volume reaches so many replicas on the storage
// network.
func (b *bed) overStorage(volume string, replicas int) {
	b.t.Helper()
	segment, _, _ := b.Storage(1)
	e := b.engineOf(volume)
	if len(e.Status.CurrentReplicaAddressMap) != replicas {
		b.t.Errorf("engine %s has replicas %v", e.Name, e.Status.CurrentReplicaAddressMap)
	}
	for name, address := range e.Status.CurrentReplicaAddressMap {
		at, err := netip.ParseAddrPort(address)
		if err != nil || !netip.MustParsePrefix(segment).Contains(at.Addr()) {
			b.t.Errorf("replica %s is reached at %q", name, address)
		}
	}
}

// storageBytes is what node 1 has sent over the storage network.
func (b *bed) storageBytes() (n int64) {
	b.t.Helper()
	text, err := os.ReadFile("/sys/class/net/" + b.Veth(1, true) + "/statistics/rx_bytes")
	if err == nil {
		_, err = fmt.Sscan(string(text), &n)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}
