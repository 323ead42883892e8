package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
)

// scenarioAllReplicas: all replicas of an attached volume are killed at once under the load of F3.
// The device stays, nobody sees an error, and nothing acknowledged is lost.
func scenarioAllReplicas(t *testing.T, c *cluster) {
	pauses := c.killUnderLoad(t, "all", "node-2", f3Rounds, func(volume string) {
		c.awaitUsable(volume, "node-2", len(c.Nodes))
		c.killReplicas(volume)
	})
	t.Logf("all replicas killed %d times: %s", f3Rounds, distribution(pauses))
}

// killReplicas ends the processes of all replicas of a volume.
func (c *cluster) killReplicas(volume string) {
	c.t.Helper()
	var pids []int
	for _, dir := range c.replicaDirs(volume) {
		pids = append(pids, holding(c.Info.Dir, filepath.Base(dir))...)
	}
	if len(pids) != len(c.Nodes) {
		c.t.Fatalf("%d replicas run, want %d", len(pids), len(c.Nodes))
	}
	// Stopped first: between two kills the engine does not go on without the first.
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range pids {
			if err := syscall.Kill(pid, signal); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

// TestDetachedWhileIOWaits: an attached volume has lost all its replicas, its engine has ended and
// cannot be started again, and the instance manager was killed: the next one lists no engine, and
// the node's manager has its block device. When the volume is detached no engine follows: what
// waits fails, and the host's loop devices can be listed, long before block-device-wait is over.
func TestDetachedWhileIOWaits(t *testing.T) {
	const volume = "given-up"
	c := start(t)
	c.create(volume, 64*mib, 2)
	c.eventually("replicas have their places", func(context.Context) error {
		if n := len(c.replicaDirs(volume)); n != 2 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	node, away := c.withoutReplica(volume)
	endpoint := c.attach(volume, node, 2)
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		lack.Skip(t, "only a block device outlives its engine, and this host offers none: the endpoint is ", endpoint)
	}
	d := c.device(endpoint)
	w := rig.NewWriter(d, 64*mib, 12)
	for _, k := range away {
		c.KillNode(t, k)
	}
	failed := untilError(w, 0)
	c.eventually("the engine has ended", func(context.Context) error {
		if e := c.engine(volume); e.Status.CurrentState != longhorn.InstanceStateError {
			return fmt.Errorf("it is %s", e.Status.CurrentState)
		}
		return nil
	})
	i := slices.IndexFunc(c.Nodes, func(n testcluster.Node) bool { return n.Name == node })
	c.kill("daemon\x00--listen\x00" + c.Nodes[i].Address)
	c.eventually("the next instance manager runs without the engine", func(ctx context.Context) error {
		var all longhorn.InstanceManagerList
		if err := c.kube.List(ctx, &all); err != nil {
			return err
		}
		for _, im := range all.Items {
			if im.Spec.NodeID == node && (im.Status.CurrentState != longhorn.InstanceManagerStateRunning ||
				len(im.Status.InstanceEngines) > 0) {
				return fmt.Errorf("%s is %s and lists %d", im.Name, im.Status.CurrentState, len(im.Status.InstanceEngines))
			}
		}
		return nil
	})
	select {
	case err := <-failed:
		t.Fatalf("I/O fails before the volume is detached: %v", err)
	default:
	}
	began := time.Now()
	c.detach(volume)
	select {
	case err := <-failed:
		if !errors.Is(err, unix.EIO) {
			t.Errorf("what waited ends with %v, want EIO", err)
		}
	case <-time.After(longest):
		wait.RanOut(t, "the end of I/O of a detached volume")
		t.Fatalf("I/O of a detached volume still waits after %s", longest)
	}
	t.Logf("I/O failed %s after the volume was detached", time.Since(began).Round(time.Millisecond))
	_ = d.Close() // its device is gone
	if out, err := exec.Command("losetup", "-a").CombinedOutput(); err != nil {
		t.Errorf("losetup -a: %v: %s", err, out)
	}
	for _, k := range away {
		c.StartNode(t, k)
	}
	c.attach(volume, node, 2)
	c.detach(volume)
	c.remove(volume)
}

// boundWait is how long I/O waits in scenarioBound: the least that the setting allows.
const boundWait = 10 * time.Second

// scenarioBound: the nodes of all replicas of an attached volume stay away for longer than I/O may
// wait. Then I/O fails, not before, and the volume is faulted. When they are back it is salvaged
// and attached again by itself, with everything that was flushed.
func scenarioBound(t *testing.T, c *cluster) {
	const volume, size = "bound", 64 * mib
	if _, err := c.rest.SetSetting(t.Context(), "block-device-wait",
		strconv.Itoa(int(boundWait/time.Second))); err != nil {
		t.Fatal(err)
	}
	c.create(volume, size, 2)
	defer c.remove(volume)
	c.eventually("replicas have their places", func(context.Context) error {
		if n := len(c.replicaDirs(volume)); n != 2 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	node, away := c.withoutReplica(volume)
	endpoint := c.attach(volume, node, 2)
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		lack.Skip(t, "only a block device outlives its engine, and this host offers none: the endpoint is ", endpoint)
	}
	d := c.device(endpoint)
	w := rig.NewWriter(d, size, 11)
	version := uint64(0)
	for version < 50 {
		version++
		if err := w.Step(version); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for _, k := range away {
		c.KillNode(t, k)
	}
	select {
	case err := <-untilError(w, version):
		if waited := time.Since(began); !errors.Is(err, unix.EIO) || waited < boundWait {
			t.Errorf("after %s: %v, want EIO after %s", waited, err, boundWait)
		}
	case <-time.After(longest):
		wait.RanOut(t, "the end of I/O that waits")
		t.Fatalf("I/O still waits after %s", longest)
	}
	_ = d.Close() // its device is gone
	c.eventually(volume+" is faulted and detached", func(ctx context.Context) error {
		v, err := c.rest.Volume(ctx, volume)
		if err == nil && (v.Robustness != "faulted" || v.State != "detached") {
			err = fmt.Errorf("%s, %s", v.State, v.Robustness)
		}
		return err
	})
	for _, k := range away {
		c.StartNode(t, k)
	}
	d = c.device(c.awaitUsable(volume, node, 2))
	w.Device = d
	w.Verify(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.detach(volume)
	c.identical(volume, 2)
}

// untilError writes on until that fails.
func untilError(w *rig.Writer, version uint64) <-chan error {
	ended := make(chan error, 1)
	go func() {
		for {
			version++
			if err := w.Step(version); err != nil {
				ended <- err
				return
			}
		}
	}()
	return ended
}

// withoutReplica returns a node that has no replica of the volume, and the numbers of those that
// have one.
func (c *cluster) withoutReplica(volume string) (node string, with []int) {
	dirs := slices.Collect(maps.Values(c.replicaDirs(volume)))
	for i, n := range c.Nodes {
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(dir, n.Root+"/") }) {
			with = append(with, i+1)
		} else {
			node = n.Name
		}
	}
	return node, with
}
