package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ankole.storage/standalone/control"
	"ankole.storage/standalone/forward"
	"ankole.storage/standalone/kube"
	"ankole.storage/standalone/node"
	"ankole.storage/standalone/pki"
	"ankole.storage/standalone/process"
	"ankole.storage/standalone/statedir"
)

// Cluster is a running standalone cluster.
type Cluster struct {
	cfg  Config
	out  *progress
	log  *slog.Logger
	logs io.Closer
	// stderr is given back at the end.
	stderr *stderrGuard
	dir    *statedir.Dir
	ports  ports

	spawner  *process.Spawner
	pki      *pki.Store
	kubeCfg  kube.Config
	plane    *kube.ControlPlane
	rest     *rest.Config
	client   kubernetes.Interface
	objects  *node.Objects
	images   node.Images
	cancel   context.CancelFunc // ends watches
	watches  context.Context
	pods     *managerPods
	forwards []*forward.Forwarder
	control  *control.Server
	manager  bool       // the manager is deployed
	kinds    chan error // the kinds are prepared; nil if they are not ours to prepare

	mu     sync.Mutex
	agents map[string]*node.Agent
}

type ports struct{ kube, etcd, etcdPeer, webhook int }

// Run starts a cluster, reports its readiness, and serves until ctx ends or the control plane
// fails.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	c := &Cluster{cfg: cfg, out: newProgress(out, cfg.Output == "text"), agents: map[string]*node.Agent{}}
	defer c.stop()
	if err := c.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop while starting
		}
		return err
	}
	if err := c.announce(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-c.plane.Down():
		return c.plane.Err()
	}
}

// start brings everything up. What it started is undone by stop, however far it came.
func (c *Cluster) start(ctx context.Context) error {
	var err error
	if c.dir, err = statedir.Open(c.cfg.Dir); err != nil {
		return err
	}
	c.out.line("state in %s", c.dir.Path())
	if err := c.openLog(); err != nil {
		return err
	}
	if n := process.KillMarked(process.Marker(c.dir.Path())); n > 0 {
		c.out.line("ended %d processes left by an instance that was killed", n)
	}
	c.sweepDevices()
	if c.images, err = c.cfg.images(c.dir); err != nil {
		return err
	}
	c.manager = c.wantManager()
	if err := c.choosePorts(); err != nil {
		return err
	}
	c.spawner = process.NewSpawner()
	c.watches, c.cancel = context.WithCancel(context.Background())
	for _, step := range []func(context.Context) error{c.startPlane, c.startNodes, c.startControl, c.startManager} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) wantManager() bool {
	if c.cfg.NoManager {
		return false
	}
	if _, err := c.images.Find(c.cfg.ManagerImage); err != nil {
		c.out.line("no manager: %v", err)
		return false
	}
	return true
}

func (c *Cluster) openLog() error {
	if err := os.MkdirAll(c.dir.Path("logs"), 0o700); err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	f := kube.RotatedLog(c.dir.Path("logs", "standalone.log"))
	c.logs = f
	c.log = slog.New(slog.NewTextHandler(f, nil))
	var err error
	c.stderr, err = guardStderr(c.dir.Path("logs", "stderr.log"))
	return err
}

// choosePorts finds out before anything starts whether the addresses are free, to name the flag
// that changes them.
func (c *Cluster) choosePorts() error {
	var err error
	if c.ports.kube = c.cfg.KubePort; c.ports.kube == 0 {
		if c.ports.kube, err = c.dir.Port("kube", host); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		name string
		port *int
	}{{"etcd", &c.ports.etcd}, {"etcd-peer", &c.ports.etcdPeer}, {"webhook", &c.ports.webhook}} {
		if *p.port, err = c.dir.Port(p.name, host); err != nil {
			return err
		}
	}
	again := "removing " + c.dir.Path("ports.json") + " (new ones are chosen)"
	checks := []struct {
		host string
		port int
		flag string
	}{
		{host, c.ports.kube, "--kube-port"}, {host, c.ports.etcd, again}, {host, c.ports.etcdPeer, again},
		{host, c.ports.webhook, again},
	}
	if c.manager {
		checks = append(checks, struct {
			host string
			port int
			flag string
		}{host, c.cfg.APIPort, "--api-port"})
	}
	for k := 1; k <= c.cfg.Nodes; k++ {
		checks = append(checks, struct {
			host string
			port int
			flag string
		}{c.cfg.nodeAddress(k), c.cfg.KubeletPort, "--node-network or --kubelet-port"})
	}
	for _, ch := range checks {
		if err := statedir.CheckPort(ch.host, ch.port, ch.flag); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startPlane(ctx context.Context) error {
	var err error
	if c.pki, err = pki.Open(c.dir.Path("pki")); err != nil {
		return err
	}
	c.kubeCfg = kube.Config{
		DataDir: c.dir.Path("etcd"), LogDir: c.dir.Path("logs"), PKI: c.pki, Host: host,
		Port: c.ports.kube, EtcdPort: c.ports.etcd, EtcdPeerPort: c.ports.etcdPeer,
		NodeGrace: c.cfg.NodeGrace, UnsafeNoFsync: c.cfg.UnsafeNoFsync,
		APIServerArgs: c.cfg.APIServerArgs, ControllerManagerArgs: c.cfg.ManagerKCMArg,
		Log: c.log, Progress: func(s string) { c.out.step(s) }, Starting: c.startKinds,
	}
	if c.plane, err = kube.Start(ctx, c.kubeCfg); err != nil {
		return err
	}
	c.rest = c.plane.RESTConfig()
	if c.client, err = kubernetes.NewForConfig(c.rest); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if err := kube.WriteAdminKubeconfig(c.dir.Path("kubeconfig"), c.kubeCfg); err != nil {
		return err
	}
	if c.objects, err = node.StartObjects(c.watches, c.client); err != nil {
		return err
	}
	return nil
}

// startNodes brings all nodes up at once and waits until the cluster regards them as Ready.
func (c *Cluster) startNodes(ctx context.Context) error {
	errs := make([]error, c.cfg.Nodes)
	var wg sync.WaitGroup
	for k := 1; k <= c.cfg.Nodes; k++ {
		wg.Go(func() { errs[k-1] = c.startNode(ctx, k) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := c.waitNodes(ctx); err != nil {
		return err
	}
	c.out.step(fmt.Sprintf("%d nodes (%s … %s)", c.cfg.Nodes, c.cfg.nodeAddress(1), c.cfg.nodeAddress(c.cfg.Nodes)))
	return nil
}

func (c *Cluster) startNode(ctx context.Context, k int) error {
	name, addr := nodeName(k), c.cfg.nodeAddress(k)
	pair, err := c.pki.Server("kubelet-"+name, addr, name)
	if err != nil {
		return err
	}
	capacity, err := c.cfg.capacity(k)
	if err != nil {
		return err
	}
	renew, length := c.cfg.leaseTimes()
	a, err := node.Start(ctx, node.Config{
		Name: name, Place: c.cfg.place(c.cfg.NodeNetwork, k), Networks: c.cfg.podNetworks(k), Port: c.cfg.KubeletPort,
		StateDir: c.dir.Path(), DeviceDir: c.cfg.deviceDir(c.dir.Path(), k), Images: c.images, Capacity: capacity,
		Client: c.client, Objects: c.objects, Spawner: c.spawner, Serving: pair,
		API:     node.APIEndpoint{Host: host, Port: c.ports.kube, CAFile: c.pki.CAFile()},
		BackOff: node.DefaultBackOff, LeaseRenew: renew, LeaseLength: length, Log: c.log,
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.agents[name] = a
	return nil
}

// stop ends everything, Pods first.
func (c *Cluster) stop() {
	if c.dir == nil {
		return
	}
	began := time.Now()
	if c.control != nil {
		c.control.Close()
	}
	for _, f := range c.forwards {
		f.Close()
	}
	c.stopNodes()
	if c.cancel != nil {
		c.cancel()
	}
	if c.pods != nil {
		c.pods.wait()
	}
	if c.kinds != nil {
		<-c.kinds
	}
	if c.objects != nil {
		c.objects.Wait()
	}
	if c.plane != nil {
		c.plane.Stop()
	}
	if c.spawner != nil {
		c.spawner.Close()
	}
	process.KillMarked(process.Marker(c.dir.Path()))
	c.sweepDevices()
	if c.cfg.ReadyFile != "" {
		_ = os.Remove(c.cfg.ReadyFile)
	}
	if c.logs != nil {
		_ = c.logs.Close()
	}
	if c.stderr != nil {
		c.stderr.restore()
	}
	_ = c.dir.Close()
	c.out.line("stopped in %.1f s; the state stays in %s", time.Since(began).Seconds(), filepath.Clean(c.cfg.Dir))
}

func (c *Cluster) stopNodes() {
	c.mu.Lock()
	agents := c.agents
	c.agents = map[string]*node.Agent{}
	c.mu.Unlock()
	if len(agents) > 0 {
		c.out.line("stopping Pods (at most %s) …", c.cfg.StopGrace)
	}
	var wg sync.WaitGroup
	for _, a := range agents {
		wg.Go(func() { a.Stop(c.cfg.StopGrace) })
	}
	wg.Wait()
}
