package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
)

// TestCluster runs the scenarios that leave a cluster whole, one after the other on one cluster.
// Each makes its own volumes and can run alone.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace, Plaintext: true,
		Args: []string{"--node-cpu", nodeCPUs}, PodNetworks: storageNetworks})
	c.managersRun() // each scenario finds the cluster as the ones before it leave it
	orphans := &orphanTest{}
	c.each(t, []scenario{
		{"A1", scenarioA1}, {"A13", scenarioA13}, {"A3", scenarioA3},
		{"B1", onCPU((*cpuTest).scenarioB1)}, {"B2", onCPU((*cpuTest).scenarioB2)},
		{"B3", onCPU((*cpuTest).scenarioB3)}, {"B4", onCPU((*cpuTest).scenarioB4)},
		{"B5", onCPU((*cpuTest).scenarioB5)}, {"B7", onCPU((*cpuTest).scenarioB7)},
		{"B9", onCPU((*cpuTest).scenarioB9)}, {"Refused", onCPU((*cpuTest).refused)},
		{"B10", onCPU((*cpuTest).scenarioB10)},
		{"C4", onNetwork((*networkTest).scenarioC4)}, {"C5", onNetwork((*networkTest).scenarioC5)},
		{"C6", onNetwork((*networkTest).scenarioC6)}, {"C16", onNetwork((*networkTest).scenarioC16)},
		{"C10", onNetwork((*networkTest).scenarioC10)}, {"C13", onNetwork((*networkTest).scenarioC13)},
		{"A2", scenarioA2}, {"F1", scenarioF1},
		{"F3", scenarioF3}, {"F6", scenarioF6}, {"F7", scenarioF7}, {"A17", scenarioA17}, {"Snapshots", scenarioSnapshots},
		{"Backup", scenarioBackup}, {"BackupS3", scenarioBackupS3}, {"Standby", scenarioStandby}, {"F10", scenarioF10},
		{"F10Clock", scenarioF10Clock},
		{"OrphansLeft", orphans.leave}, {"DataIntegrity", dataIntegrity}, {"DataLoss", acceptLoss},
		{"VolumeKeys", volumeKeys}, {"Agents", agents},
		{"Orphans", orphans.found},
		{"F15", scenarioAllReplicas}, {"FilesystemReadOnly", readOnlyFileSystem},
		{"Metrics", metrics},
		{"Mounted", mountedVolume}, {"P7", promiseP7},
		{"P7APIServer", promiseP7APIServer},
		{"Updates", updates},
		{"BadInput", badInput}, {"WebUI", webUI}, {"Guide", guidePages},
		{"C2", scenarioC2}, {"C3", scenarioC3}, {"C9", scenarioC9}, {"A9", scenarioA9},
		{"A10", scenarioA10},
	})
}

// managersRun waits until each node has its one instance manager, of type aio, and that runs.
func (c *cluster) managersRun() {
	c.t.Helper()
	c.eventually("the aio instance managers run", func(ctx context.Context) error {
		var list longhorn.InstanceManagerList
		if err := c.kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		nodes := map[string]bool{}
		for _, m := range list.Items {
			if m.Spec.Type != "aio" {
				c.t.Fatalf("instance manager %s has type %s", m.Name, m.Spec.Type)
			}
			if m.Status.CurrentState == "running" {
				nodes[m.Spec.NodeID] = true
			}
		}
		if len(list.Items) != len(c.Nodes) || len(nodes) != len(c.Nodes) {
			return fmt.Errorf("%d instance managers, running on %d nodes", len(list.Items), len(nodes))
		}
		return nil
	})
}

// scenarioA1: one aio instance manager per node, running, and the columns kubectl shows.
func scenarioA1(t *testing.T, c *cluster) {
	c.managersRun()
	ks := kubernetesOf(t, c)
	raw, err := ks.RESTClient().Get().AbsPath("/apis/longhorn.io/v1beta2/namespaces/"+namespace+"/instancemanagers").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		ColumnDefinitions []struct{ Name string }
	}
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, d := range table.ColumnDefinitions {
		columns = append(columns, d.Name)
	}
	if want := []string{"Name", "State", "Type", "Node", "Age"}; !slices.Equal(columns, want) {
		t.Errorf("kubectl get lhim prints %v, want %v", columns, want)
	}
}

// remove deletes a volume and waits until it is gone, its directories included.
func (c *cluster) remove(name string) {
	c.t.Helper()
	dirs := c.replicaDirs(name)
	if err := c.rest.DeleteVolume(context.Background(), name); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("delete "+name, func(ctx context.Context) error {
		var v longhorn.Volume
		err := c.kube.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &v)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil {
			return fmt.Errorf("state %s, finalizers %v", v.Status.State, v.Finalizers)
		}
		for _, d := range dirs {
			if _, err := os.Stat(d); err == nil {
				return fmt.Errorf("%s is still there", d)
			}
		}
		return nil
	})
}

// scenarioF1: create, attach, make a file system, write, detach, attach elsewhere, read the same.
func scenarioF1(t *testing.T, c *cluster) {
	c.create("f1", 256*mib, 3)
	defer c.remove("f1")
	endpoint := c.attach("f1", "node-1", 3)
	var before [32]byte
	if strings.HasPrefix(endpoint, "/") {
		before = withMount(t, c.Info.Dir, endpoint, true)
	} else {
		lack.Less(t, "no block device here, so content is written without a file system: the endpoint is ", endpoint)
		before = fillDevice(t, c, endpoint)
	}
	c.detach("f1")
	endpoint = c.attach("f1", "node-2", 3)
	var after [32]byte
	if strings.HasPrefix(endpoint, "/") {
		after = withMount(t, c.Info.Dir, endpoint, false)
	} else {
		after = hashDevice(t, c, endpoint)
	}
	if before != after {
		rig.Final(t, fmt.Errorf("checksum %x on node-1, %x on node-2", before, after))
	}
	c.detach("f1")
	c.identical("f1", 3)
}

// promiseP7: I/O goes on while every manager is killed again and again, and a replica is lost
// meanwhile; afterwards everything heals by itself.
func promiseP7(t *testing.T, c *cluster) {
	if _, err := c.rest.SetSetting(context.Background(), "replica-replenishment-wait-interval", "5"); err != nil {
		t.Fatal(err)
	}
	c.create("p7", 64*mib, 3)
	defer c.remove("p7")
	d := c.device(c.attach("p7", "node-1", 3))
	g := rig.StartGauge(t, c.Info.Dir)
	w := rig.StartLoad(t, d, 64*mib, 7)
	c.Permit(t, managersRestart)
	victim := c.directoryOn("p7", "node-2")
	for round := range 3 {
		w.AwaitMore(t, 50)
		w.TakePause(time.Now())
		g.Take()
		killed := c.killManagers()
		w.AwaitMore(t, 200)
		pause, machine := w.TakePause(time.Now()), g.Take()
		if err := pauseBound.Check(pause, machine); err != nil && !lack.Deciding() {
			t.Errorf("P7, round %d, %d managers killed: %v", round+1, len(killed), err)
		}
		t.Logf("round %d: %d managers killed, longest pause %v, the machine cost %v", round+1, len(killed), pause, machine)
		c.awaitManagers(killed)
	}
	c.killManagers()
	c.kill(victim)
	w.AwaitMore(t, 500)
	// The API may still tell what was before: wait for the set without the replica, and then for
	// the one with it again.
	c.awaitMembership("p7", "a set with the replica rebuilt", func(m *longhorn.Membership) bool {
		return m.Generation >= 3 && len(m.Members) == 3
	})
	c.awaitUsable("p7", "node-1", 3)
	w.Finish()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.detach("p7")
	c.identical("p7", 3)
}

// managersRestart is what a cluster's log says of managers that were killed or gave up.
const managersRestart = testcluster.Restarts + `.* container=(longhorn-manager|longhorn-controller|f10-[a-z]+) ` // F10 kills a run

// pauseBound is for I/O in which no process took part that was killed.
var pauseBound = rig.Bound{Promised: time.Second, Ratio: 25}

// managerProcesses returns the processes of this cluster's controllers and agents.
func (c *cluster) managerProcesses() []int {
	return append(holding(c.Info.Dir, "manager\x00control\x00"), holding(c.Info.Dir, "manager\x00daemon\x00")...)
}

// killManagers kills every controller and agent that runs, which must be one at least, and returns
// whom.
func (c *cluster) killManagers() (killed []int) {
	c.t.Helper()
	for _, pid := range c.managerProcesses() {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed = append(killed, pid)
		}
	}
	if len(killed) == 0 {
		c.t.Fatal("there was no manager to kill: this shows nothing")
	}
	return killed
}

// awaitManagers waits until as many other managers run as were killed, and one of them answers.
func (c *cluster) awaitManagers(killed []int) {
	c.t.Helper()
	c.eventually("the next managers are ready", func(ctx context.Context) error {
		next := slices.DeleteFunc(c.managerProcesses(), func(pid int) bool { return slices.Contains(killed, pid) })
		if len(next) < len(killed) {
			return fmt.Errorf("%d managers run, %d were killed", len(next), len(killed))
		}
		_, err := c.rest.Settings(ctx)
		return err
	})
}

// managerLease is how long a leading manager's lease lasts.
const managerLease = 5 * time.Second

// promiseP7APIServer: I/O goes on while the API server answers nothing, long after the leading
// manager gave up, and while a replica is lost; afterwards everything heals by itself.
func promiseP7APIServer(t *testing.T, c *cluster) {
	c.create("p7api", 64*mib, 3)
	defer c.remove("p7api")
	d := c.device(c.attach("p7api", "node-1", 3))
	w := rig.NewWriter(d, 64*mib, 8)
	stop := make(chan struct{})
	done := w.Run(stop)
	victim := c.directoryOn("p7api", "node-2")
	c.Permit(t, managersRestart) // the leading one gives up
	c.Freeze(t)
	defer c.Thaw(t)
	w.AwaitMore(t, 200)
	c.kill(victim)
	w.AwaitMore(t, 500)
	for since := time.Now(); time.Since(since) < 4*managerLease; {
		w.AwaitMore(t, 500)
	}
	c.Thaw(t)
	c.awaitMembership("p7api", "a set with the replica rebuilt", func(m *longhorn.Membership) bool {
		return m.Generation >= 3 && len(m.Members) == 3
	})
	c.awaitUsable("p7api", "node-1", 3)
	close(stop)
	if err := <-done; err != nil {
		rig.Final(t, fmt.Errorf("the writer saw an error: %w", err))
	}
	w.Verify(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.detach("p7api")
	c.identical("p7api", 3)
}

// withMount mounts the device (after mkfs, if fresh), writes a file or reads it back, and returns
// its checksum.
func withMount(t *testing.T, dir, device string, fresh bool) [32]byte {
	t.Helper()
	if fresh {
		if out, err := exec.Command("mkfs.ext4", "-q", device).CombinedOutput(); err != nil {
			t.Fatalf("mkfs.ext4 %s: %v: %s", device, err, out)
		}
	}
	at := filepath.Join(dir, "mnt-"+filepath.Base(device))
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(device, at, "ext4", 0, ""); err != nil {
		t.Fatalf("mount %s: %v", device, err)
	}
	defer func() {
		if err := powerdisk.Unmount(at); err != nil {
			t.Error(err)
		}
	}()
	file := filepath.Join(at, "data")
	if fresh {
		p := make([]byte, 32*mib)
		r := rand.NewChaCha8([32]byte{1})
		_, _ = r.Read(p) // never fails
		if err := os.WriteFile(file, p, 0o600); err != nil {
			t.Fatal(err)
		}
		unix.Sync()
	}
	p, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(p)
}

func fillDevice(t *testing.T, c *cluster, endpoint string) [32]byte {
	t.Helper()
	return fillWith(t, c, endpoint, 1)
}

// fillWith fills the part of a device that hashDevice reads with the content of a seed.
func fillWith(t *testing.T, c *cluster, endpoint string, seed byte) [32]byte {
	t.Helper()
	d := c.device(endpoint)
	defer d.Close()
	p := make([]byte, 32*mib)
	r := rand.NewChaCha8([32]byte{seed})
	_, _ = r.Read(p) // never fails
	for off := 0; off < len(p); off += mib {
		if _, err := d.WriteAt(p[off:off+mib], int64(off)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(p)
}

// holds fails the test if a device does not have the content that it must have.
func holds(t *testing.T, c *cluster, endpoint string, want [32]byte, otherwise string) {
	t.Helper()
	if got := hashDevice(t, c, endpoint); got != want {
		wait.Final(t, otherwise)
		t.Errorf("%s: %x, want %x", otherwise, got, want)
	}
}

func hashDevice(t *testing.T, c *cluster, endpoint string) [32]byte {
	t.Helper()
	return sha256.Sum256(c.content(endpoint))
}

// content is what a device of 32 MiB holds.
func (c *cluster) content(endpoint string) []byte {
	c.t.Helper()
	d := c.device(endpoint)
	defer d.Close()
	p := make([]byte, 32*mib)
	for off := 0; off < len(p); off += mib {
		if _, err := d.ReadAt(p[off:off+mib], int64(off)); err != nil {
			c.t.Fatal(err)
		}
	}
	return p
}
