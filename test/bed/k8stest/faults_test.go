package k8stest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/standalone/control"
	"ankole.storage/test/rig"
)

// underLoad runs a part of a scenario while a volume of so many replicas is written on node 1. No
// write may fail, and the replicas hold the same in the end.
func (b *bed) underLoad(volume string, replicas int, part func(w *rig.Load)) {
	b.t.Helper()
	const size = 64 * mib
	b.create(volume, size, replicas)
	b.attach(volume, "node-1", replicas)
	device := b.deviceID(volume)
	d := b.device(volume, "node-1")
	w := rig.StartLoad(b.t, d, size, 7)
	w.AwaitMore(b.t, 200)
	part(w)
	w.AwaitMore(b.t, 200)
	b.usable(volume, "node-1", replicas)
	w.Finish()
	b.t.Logf("longest pause %v", w.TakePause(time.Now()))
	if err := d.Close(); err != nil {
		b.t.Fatal(err)
	}
	if now := b.deviceID(volume); now != device || device == "" {
		b.t.Errorf("the device is another one, %q, before %q", now, device)
	}
	b.detach(volume)
	b.identical(volume, replicas)
	b.remove(volume)
}

// scenarioF2: the process of a replica is killed in its container; its instance manager and its
// node are lost in ReplicaLost and NodeLost.
func scenarioF2(b *bed) {
	defer b.set("replica-replenishment-wait-interval", "5")()
	b.underLoad("f2", 3, func(w *rig.Load) {
		began := time.Now()
		b.killProcess("--volume-name\x00f2\x00replica\x00")
		b.degraded("f2")
		w.AwaitMore(b.t, 200)
		b.usable("f2", "node-1", 3)
		b.took("from the kill to three replicas again", began)
	})
}

// scenarioF3: the process of an engine is killed in its container.
func scenarioF3(b *bed) {
	b.underLoad("f3", 3, func(w *rig.Load) {
		began := time.Now()
		b.killEngine("f3")
		w.AwaitMore(b.t, 200)
		b.took("from the kill to 200 requests more", began)
	})
}

// processes are those in a control group and the groups below it.
func processes(group string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cgroup") // the pattern is well-formed
	for _, f := range files {
		in, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(in, []byte(":"+group+"/")) && !bytes.Contains(in, []byte(":"+group+"\n")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killProcess kills one process whose arguments have that part.
func (b *bed) killProcess(part string) {
	b.t.Helper()
	for _, pid := range processes(b.Cgroup()) {
		argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !bytes.Contains(argv, []byte(part)) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.t.Fatal(err)
		}
		return
	}
	b.t.Fatalf("no process has %q", part)
}

// notReady waits until Kubernetes regards a node as lost.
func (b *bed) notReady(node string) {
	b.t.Helper()
	b.await(node+" is NotReady", func(ctx context.Context) error {
		n, err := b.ks.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			err = errors.New("it is Ready")
		}
		return err
	})
}

// places are the nodes of a volume's replicas that are in use, by name.
func (b *bed) places(volume string) (nodes []string) {
	b.t.Helper()
	v, err := b.rest.Volume(context.Background(), volume)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range v.Replicas {
		if r.Mode == "RW" {
			nodes = append(nodes, r.HostID)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// patchNode changes the spec of a storage node.
func (b *bed) patchNode(node, spec string) {
	b.t.Helper()
	o := &longhorn.Node{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: node}}
	patch := []byte(`{"spec":` + spec + `}`)
	if err := b.kube.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		b.t.Fatal(err)
	}
}

// scenarioF14: the replicas of a volume of two leave a node, and a disk, that are evicted, and
// leave none that is cordoned, under I/O.
func scenarioF14(b *bed) {
	disk := func(node string, takes bool) {
		n, err := b.rest.Node(context.Background(), node)
		if err != nil {
			b.t.Fatal(err)
		}
		for name := range n.Disks {
			b.patchNode(node, fmt.Sprintf(`{"disks":{"%s":{"allowScheduling":%t,"evictionRequested":%t}}}`, name, takes, !takes))
		}
	}
	b.underLoad("f14", 2, func(w *rig.Load) {
		for _, away := range []struct {
			what        string
			leave, back func(node string)
		}{
			{"the node is evicted",
				func(node string) { b.patchNode(node, `{"allowScheduling":false,"evictionRequested":true}`) },
				func(node string) { b.patchNode(node, `{"allowScheduling":true,"evictionRequested":false}`) }},
			{"the disk is evicted", func(node string) { disk(node, false) }, func(node string) { disk(node, true) }},
		} {
			began, leaves := time.Now(), b.places("f14")[1]
			away.leave(leaves)
			b.await("the replica moves away from "+leaves+", where "+away.what, func(context.Context) error {
				if now := b.places("f14"); len(now) != 2 || slices.Contains(now, leaves) {
					return fmt.Errorf("replicas on %v", now)
				}
				return nil
			})
			b.took(away.what+", to a copy elsewhere", began)
			away.back(leaves)
			w.AwaitMore(b.t, 200)
		}
		before := b.places("f14")
		b.kubectlOK("cordon", before[1])
		defer b.kubectlOK("uncordon", before[1])
		w.AwaitMore(b.t, 400)
		if now := b.places("f14"); !slices.Equal(now, before) {
			b.t.Errorf("%s is cordoned: replicas were on %v and are on %v", before[1], before, now)
		}
	})
}

// rebuiltElsewhere: a node with one of two copies loses its power under I/O; while it is down the
// second copy is rebuilt on the third node.
func rebuiltElsewhere(b *bed) {
	defer b.set("replica-replenishment-wait-interval", "5")()
	order := func(command string) {
		b.t.Helper()
		if err := control.Call(context.Background(), b.Dir, control.Request{Command: command, Node: "node-3"}); err != nil {
			b.t.Fatal(err)
		}
	}
	b.takesReplicas("node-2", false)
	b.underLoad("elsewhere", 2, func(w *rig.Load) {
		b.takesReplicas("node-2", true)
		if on := b.places("elsewhere"); !slices.Equal(on, []string{"node-1", "node-3"}) {
			b.t.Fatalf("copies on %v, where node-2 takes none", on)
		}
		began := time.Now()
		order(control.NodeKill)
		b.reach("node-3")
		b.await("the second copy is on node-2", func(ctx context.Context) error {
			v, err := b.rest.Volume(ctx, "elsewhere")
			if err != nil {
				return err
			}
			for _, r := range v.Replicas {
				if r.HostID == "node-2" && r.Mode == "RW" {
					return nil
				}
			}
			return fmt.Errorf("robustness %s, replicas %+v", v.Robustness, v.Replicas)
		})
		b.took("from the loss of the node to two copies", began)
		b.notReady("node-3") // nothing has started it
		w.AwaitMore(b.t, 200)
		order(control.NodeStart)
		b.managersRun()
		b.dropFailed("elsewhere")
	})
}

// rebootInOrder: a node is shut down and started again, under I/O of a volume with a replica there;
// a Pod of a StatefulSet that ran there runs again, with what it had written.
func rebootInOrder(b *bed) {
	b.apply(workloads())
	pod := b.podOf("set", "")
	if pod.Spec.NodeName != "node-3" {
		b.t.Fatalf("Pod %s is on %s", pod.Name, pod.Spec.NodeName)
	}
	sum := b.exec(pod.Name, `dd if=/dev/urandom of=/data/one bs=1M count=16 2>/dev/null; sync; sha256sum /data/one`)
	b.underLoad("reboot", 3, func(w *rig.Load) {
		ctx, began := context.Background(), time.Now()
		order := func(command string) {
			if err := control.Call(ctx, b.Dir, control.Request{Command: command, Node: "node-3"}); err != nil {
				b.t.Fatal(err)
			}
		}
		order(control.NodeStop)
		b.took("shut down", began)
		b.reach("node-3")
		w.AwaitMore(b.t, 200)
		b.notReady("node-3")
		began = time.Now()
		order(control.NodeStart)
		b.managersRun()
		b.await("the Pod has what it wrote", func(context.Context) error {
			out, err := b.kubectl("exec", "set-0", "-c", "work", "--", "sha256sum", "/data/one")
			if err == nil && strings.TrimSpace(out) != sum {
				err = fmt.Errorf("%q, want %q", out, sum)
			}
			return err
		})
		b.took("from the start to the Pod with its data", began)
		b.usable("reboot", "node-1", 3)
		b.took("from the start to three replicas", began)
	})
	b.kubectlOK("delete", "statefulset,deployment", "--all")
	b.unclaim("data-set-0", "of-deployment")
}
