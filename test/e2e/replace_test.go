package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
)

// nextImage is what instance managers are replaced by: the same program under another name.
const nextImage = "ankole/instance-manager:next"

// TestReplaceInstanceManagers replaces all instance managers of a cluster, one node after the
// other, under a writer that verifies, by ones of another image (A18, F16); before that some are
// told to stop, on the node of the engine and on another one, and the Pod of one is deleted. The
// writer sees no error, the device stays the same, and no process is left.
//
// node-1 has no CPU left for both instance managers: the one of the other image is refused and says
// so, while the volume goes on, and runs when the former one has gone (B9).
func TestReplaceInstanceManagers(t *testing.T) {
	t.Parallel()
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace,
		Args: []string{"--node-cpu", "2"}})
	c.managersRun()
	ks := kubernetesOf(t, c)
	k := crowded(c, ks)
	const volume = "replace"
	endpoint, d, w := c.loadThatOutlivesEngines(volume)
	deletePod := func(node string) {
		name := c.instanceManagerOf(node)
		if err := ks.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, way := range []struct {
		name    string
		nodes   []testcluster.Node
		prepare func()
		do      func(node string)
	}{
		{"told to stop", c.Nodes[:2], func() {}, c.terminate},
		{"Pod deleted", c.Nodes[:1], func() {}, deletePod},
		{"another image", c.Nodes, func() {
			c.offerImage(ks, nextImage)
			c.refusedOn("node-1", 800, 1300, 2000)
		}, deletePod},
	} {
		way.prepare()
		for _, n := range way.nodes {
			w.AwaitMore(t, 200)
			c.awaitSecondHolder("node-1")
			was := c.awaitMembership(volume, "all members", func(m *longhorn.Membership) bool { return len(m.Members) == 3 })
			w.TakePause(time.Now())
			before := c.instances(n.Address)
			way.do(n.Name)
			c.eventually("the processes of before have ended on "+n.Name, func(context.Context) error {
				if left := living(before); len(left) > 0 {
					return fmt.Errorf("%v live", left)
				}
				return nil
			})
			c.awaitMembership(volume, "all members after "+n.Name, func(m *longhorn.Membership) bool {
				return len(m.Members) == 3 && (m.Epoch > was.Epoch || m.Generation > was.Generation)
			})
			w.Check()
			if again := c.awaitUsable(volume, "node-1", 3); again != endpoint {
				t.Errorf("%s on %s: the endpoint was %s and is %s", way.name, n.Name, endpoint, again)
			}
			w.AwaitMore(t, 200)
			t.Logf("%s on %s: longest pause %v", way.name, n.Name, w.TakePause(time.Now()))
		}
	}
	c.awaitImage(nextImage)
	k.await("with the other image", 800, 240, 240)
	w.Finish()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.detach(volume)
	c.identical(volume, 3)
}

// loadThatOutlivesEngines attaches a new volume to node-1 as a block device, and writes to it.
func (c *cluster) loadThatOutlivesEngines(volume string) (endpoint string, d userDevice, w *rig.Load) {
	c.t.Helper()
	c.create(volume, 64*mib, 3)
	endpoint = c.attach(volume, "node-1", 3)
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		lack.Skip(c.t, "only a block device outlives its engine, and this host offers none: the endpoint is ", endpoint)
	}
	d = c.device(endpoint)
	return endpoint, d, rig.StartLoad(c.t, d, 64*mib, 16)
}

// terminate tells the instance manager of a node to stop.
func (c *cluster) terminate(node string) {
	c.t.Helper()
	pids := holding(c.Info.Dir, "daemon\x00--listen\x00"+c.address(node)+":")
	if len(pids) != 1 {
		c.t.Fatalf("instance managers on %s: %v", node, pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) address(node string) string {
	c.t.Helper()
	for _, n := range c.Nodes {
		if n.Name == node {
			return n.Address
		}
	}
	c.t.Fatalf("there is no %s", node)
	return ""
}

// instances are the engines and replicas on a node.
func (c *cluster) instances(address string) []int {
	return slices.DeleteFunc(holding(c.Info.Dir, "--volume-name\x00"), func(pid int) bool { return !runsAt(pid, address) })
}

// living are those of the processes that have not ended.
func living(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return syscall.Kill(pid, 0) != nil })
}

// instanceManagerOf is the running instance manager of a node that is to be replaced.
func (c *cluster) instanceManagerOf(node string) (name string) {
	c.t.Helper()
	c.eventually("an instance manager runs on "+node, func(context.Context) error {
		var states []string
		for _, m := range c.instanceManagers() {
			if m.Spec.NodeID != node || m.Spec.Image == nextImage {
				continue
			}
			if m.Status.CurrentState == "running" {
				name = m.Name
				return nil
			}
			states = append(states, m.Name+" "+string(m.Status.CurrentState))
		}
		return fmt.Errorf("%q", states)
	})
	return name
}

// awaitSecondHolder waits until the manager of a node holds a block device.
func (c *cluster) awaitSecondHolder(node string) {
	c.t.Helper()
	c.eventually("the manager of "+node+" holds a block device", func(context.Context) error {
		for _, pid := range c.managerProcesses() {
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), "NODE_NAME="+node) {
				continue
			}
			fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is well-formed
			for _, fd := range fds {
				if at, err := os.Readlink(fd); err == nil && at == "/dev/fuse" {
					return nil
				}
			}
		}
		return errors.New("it has none open")
	})
}

// awaitImage waits until each node has the instance manager of an image alone.
func (c *cluster) awaitImage(image string) {
	c.t.Helper()
	c.eventually("each node has the instance manager of the new image alone", func(context.Context) error {
		list := c.instanceManagers()
		for _, m := range list {
			if m.Spec.Image != image || m.Status.CurrentState != "running" {
				return fmt.Errorf("%s has image %s and is %s", m.Name, m.Spec.Image, m.Status.CurrentState)
			}
		}
		if len(list) != len(c.Nodes) {
			return fmt.Errorf("%d instance managers", len(list))
		}
		return nil
	})
}

// offerImage makes an image of the instance manager that this cluster runs, and has managers make
// instance managers of it from now on, as an upgrade of the installation does.
func (c *cluster) offerImage(ks kubernetes.Interface, image string) {
	c.t.Helper()
	made := filepath.Join(c.Info.Dir, "images")
	name := strings.NewReplacer("/", "-", ":", "-").Replace
	if err := os.CopyFS(filepath.Join(made, name(image)), os.DirFS(filepath.Join(made,
		name("ankole/instance-manager:dev")))); err != nil {
		c.t.Fatal(err)
	}
	c.tellManagers(ks, "ankole/instance-manager:dev", image)
	c.eventually("each node has an instance manager of image "+image, func(context.Context) error {
		n := 0
		for _, m := range c.instanceManagers() {
			if m.Spec.Image == image {
				n++
			}
		}
		if n != len(c.Nodes) {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
}

// tellManagers changes an image in the managers' command, and waits until all are rolled.
func (c *cluster) tellManagers(ks kubernetes.Interface, old, image string) {
	c.t.Helper()
	ctx := c.t.Context()
	c.eventually("managers are told of image "+image, func(context.Context) error {
		set, err := ks.AppsV1().Deployments(namespace).Get(ctx, naming.DeploymentController, metav1.GetOptions{})
		if err != nil {
			return err
		}
		args := set.Spec.Template.Spec.Containers[0].Command
		at := slices.Index(args, old)
		if at < 0 {
			return fmt.Errorf("the managers' command does not name %s: %q", old, args)
		}
		args[at] = image
		_, err = ks.AppsV1().Deployments(namespace).Update(ctx, set, metav1.UpdateOptions{})
		return err
	})
	c.managersRolled(ks)
}

// managersRolled waits until agents and controllers are those of their DaemonSet and Deployment,
// and ready.
func (c *cluster) managersRolled(ks kubernetes.Interface) {
	c.t.Helper()
	ctx := c.t.Context()
	c.eventually("the managers are rolled", func(context.Context) error {
		set, err := ks.AppsV1().DaemonSets(namespace).Get(ctx, "longhorn-manager", metav1.GetOptions{})
		if err != nil {
			return err
		}
		st := set.Status
		if n := st.DesiredNumberScheduled; st.ObservedGeneration != set.Generation || st.UpdatedNumberScheduled != n ||
			st.CurrentNumberScheduled != n || st.NumberAvailable != n {
			return fmt.Errorf("agents: %+v", st)
		}
		d, err := ks.AppsV1().Deployments(namespace).Get(ctx, naming.DeploymentController, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := d.Status
		if n := *d.Spec.Replicas; now.ObservedGeneration != d.Generation || now.UpdatedReplicas != n || now.Replicas != n ||
			now.AvailableReplicas != n {
			return fmt.Errorf("controllers: %+v", now)
		}
		return nil
	})
}
