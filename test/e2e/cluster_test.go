// Package e2e runs the acceptance scenarios on standalone clusters: real API server, real managers,
// real engines and replicas. Test names carry the scenario's number.
package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	restclient "ankole.storage/rest/client"
	"ankole.storage/rest/resource"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
)

const (
	mib       = 1 << 20
	namespace = "longhorn-system"
	// longest bounds every wait for a condition; machines that run tests are slow and shared.
	longest = 3 * time.Minute
	// nodeGrace is how long a node is silent before it counts as lost. The gate and the hunt make it
	// longer (package patience).
	nodeGrace = 6 * time.Second
)

// cluster is a running cluster with clients.
type cluster struct {
	*testcluster.Cluster
	t    *testing.T
	rest *restclient.Client
	kube client.Client
}

func start(t *testing.T) *cluster {
	t.Helper()
	return startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace})
}

func startWith(t *testing.T, o testcluster.Options) *cluster {
	t.Helper()
	network := networkEverywhere && o.Manager && o.Dir == "" && o.PodNetworks == nil
	if network {
		o.PodNetworks = storageNetworks
	}
	c := &cluster{Cluster: testcluster.Start(t, o), t: t}
	c.connect()
	t.Cleanup(func() {
		if t.Failed() {
			c.dump()
		}
	})
	if network {
		c.useStorageNetwork()
	}
	return c
}

func (c *cluster) connect() {
	c.t.Helper()
	var err error
	if c.API != "" { // else there is no manager
		if c.rest, err = c.REST(); err != nil {
			c.t.Fatal(err)
		}
	}
	s := runtime.NewScheme()
	if err := longhorn.AddToScheme(s); err != nil {
		c.t.Fatal(err)
	}
	if c.kube, err = client.New(c.RESTConfig(c.t), client.Options{Scheme: s}); err != nil {
		c.t.Fatal(err)
	}
}

// kubernetesOf is a client of a cluster, for the objects of Kubernetes itself.
func kubernetesOf(t *testing.T, c *cluster) *kubernetes.Clientset {
	t.Helper()
	ks, err := kubernetes.NewForConfig(c.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	return ks
}

// eventually waits until cond returns nil.
func (c *cluster) eventually(what string, cond func(ctx context.Context) error) {
	c.t.Helper()
	c.within(longest, what, cond)
}

// within waits at most so long until cond returns nil.
func (c *cluster) within(limit time.Duration, what string, cond func(ctx context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var last error
	wait.Within(c.t, limit, what, func() error {
		if err := cond(ctx); err == nil || last == nil || ctx.Err() == nil { // what is cut short says nothing
			last = err
		}
		return last
	})
}

func (c *cluster) volume(name string) *resource.Volume {
	c.t.Helper()
	v, err := c.rest.Volume(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

func (c *cluster) create(name string, size int64, replicas int) {
	c.t.Helper()
	_, err := c.rest.CreateVolume(context.Background(),
		restclient.VolumeSpec{Name: name, Size: strconv.FormatInt(size, 10), NumberOfReplicas: replicas})
	if err != nil {
		c.t.Fatal(err)
	}
}

// attach attaches the volume and waits until it is usable and has the given number of RW replicas.
func (c *cluster) attach(name, node string, rw int) string {
	c.t.Helper()
	c.askToAttach(name, node)
	return c.awaitUsable(name, node, rw)
}

// askToAttach asks until it is granted: a new volume has no places for its replicas yet.
func (c *cluster) askToAttach(name, node string) {
	c.t.Helper()
	c.eventually("attach "+name, func(ctx context.Context) error {
		_, err := c.rest.AttachVolume(ctx, name, resource.AttachInput{HostID: node})
		return err
	})
}

func (c *cluster) awaitUsable(name, node string, rw int) (endpoint string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%s attached to %s with %d replicas", name, node, rw), func(ctx context.Context) error {
		v, err := c.rest.Volume(ctx, name)
		if err != nil {
			return err
		}
		n := 0
		for _, r := range v.Replicas {
			if r.Mode == "RW" {
				n++
			}
		}
		if v.State != "attached" || len(v.Controllers) == 0 || v.Controllers[0].Endpoint == "" ||
			v.Controllers[0].HostID != node || n < rw {
			return fmt.Errorf("state %s, robustness %s, %d RW, controllers %+v", v.State, v.Robustness, n, v.Controllers)
		}
		endpoint = v.Controllers[0].Endpoint
		return nil
	})
	return endpoint
}

func (c *cluster) detach(name string) {
	c.t.Helper()
	if _, err := c.rest.DetachVolume(context.Background(), name, resource.DetachInput{}); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("detach "+name, func(ctx context.Context) error {
		v, err := c.rest.Volume(ctx, name)
		if err == nil && v.State != "detached" {
			err = fmt.Errorf("state %s", v.State)
		}
		return err
	})
}

// userDevice is a volume as its user has it open.
type userDevice interface {
	rig.Device
	io.Closer
}

// device opens an endpoint as a user would: the block device, or the NBD socket.
func (c *cluster) device(endpoint string) userDevice {
	c.t.Helper()
	if socket, ok := strings.CutPrefix(endpoint, "nbd+unix:///"); ok {
		name, path, _ := strings.Cut(socket, "?socket=")
		d, err := nbdclient.Dial(context.Background(), "unix:"+path, nbdclient.Options{Export: name})
		if err != nil {
			c.t.Fatal(err)
		}
		return d
	}
	fd, err := unix.Open(endpoint, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		c.t.Fatalf("open %s: %v", endpoint, err)
	}
	return &blockDevice{os.NewFile(uintptr(fd), endpoint)}
}

// blockDevice is a block device used through the page cache.
type blockDevice struct{ *os.File }

// Flush implements rig.Device.
func (b *blockDevice) Flush() error { return b.Sync() }

// replicaDirs returns the directories of the volume's replicas by replica name.
func (c *cluster) replicaDirs(volume string) map[string]string {
	c.t.Helper()
	var list longhorn.ReplicaList
	if err := c.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		c.t.Fatal(err)
	}
	dirs := map[string]string{}
	for _, r := range list.Items {
		if r.Spec.VolumeName != volume {
			continue
		}
		for _, n := range c.Nodes {
			if n.Name == r.Spec.NodeID {
				dirs[r.Name] = filepath.Join(n.Root, r.Spec.DiskPath, "replicas", r.Spec.DataDirectoryName)
			}
		}
	}
	return dirs
}

// identical checks that all replicas of a detached volume hold the same. A replica that was
// replaced may go only now.
func (c *cluster) identical(volume string, n int) {
	c.t.Helper()
	var dirs []string
	c.eventually(fmt.Sprintf("volume %s has %d replicas", volume, n), func(context.Context) error {
		if dirs = slices.Collect(maps.Values(c.replicaDirs(volume))); len(dirs) != n {
			return fmt.Errorf("there are %d: %v", len(dirs), dirs)
		}
		return nil
	})
	c.eventually("replica directories are closed", func(context.Context) error {
		for _, d := range dirs {
			if pids := holding(c.Info.Dir, d); len(pids) > 0 {
				return fmt.Errorf("%s is used by %v", d, pids)
			}
		}
		return nil
	})
	rig.Identical(c.t, dirs...)
}

// holding returns the processes of this cluster whose command line names s.
func holding(dir, s string) (pids []int) {
	entries, _ := os.ReadDir("/proc") // an empty list shows at once
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !strings.Contains(string(cmd), s) {
			continue
		}
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && strings.Contains(string(env), dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill sends SIGKILL to the one process of this cluster whose command line has all of the given
// words.
func (c *cluster) kill(word string) {
	c.t.Helper()
	pids := holding(c.Info.Dir, word)
	if len(pids) != 1 {
		c.t.Fatalf("%d processes match %q, want one", len(pids), word)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
}
