// Package cluster starts and ends a bed: a Kubernetes cluster of real nodes on one machine.
//
// One process, Run, stays in charge: it is etcd and the Kubernetes control plane, and the parent of
// the nodes, each the first process of its own namespaces. When it ends, the kernel ends the nodes
// with it. What then is left on the machine, bridges, control groups and loop devices, carries
// names that follow from the bed's folder; Sweep removes it, at the next start or on demand.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"ankole.storage/standalone/control"
	"ankole.storage/standalone/kube"
	"ankole.storage/standalone/pki"
	"ankole.storage/standalone/statedir"
	"ankole.storage/test/bed/host"
	"ankole.storage/test/bed/plan"
)

// Config of a bed.
type Config struct {
	plan.Plan
	DiskBytes  int64         // size of each node's disk, sparse
	NodeGrace  time.Duration // without heartbeat until a node is NotReady
	PauseImage string        // archive
	Images     []string      // archives that every node gets
	ReadyFile  string
	DNS        string // program that answers names of Services; empty for none
	// UnsafeNoFsync lets etcd skip fsync.
	UnsafeNoFsync bool
}

// auditPolicy has the API server log what the system's accounts ask for, without bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts:longhorn-system"]
- level: None
`

// readyTimeout bounds the start of nodes on a loaded machine.
const readyTimeout = 4 * time.Minute

// Bed is a running bed.
type Bed struct {
	cfg     Config
	out     io.Writer
	began   time.Time
	program string
	log     *slog.Logger
	logs    io.Closer

	pki     *pki.Store
	kubeCfg kube.Config
	plane   *kube.ControlPlane
	client  kubernetes.Interface
	control *control.Server

	mu    sync.Mutex
	nodes map[int]*running
	// ended tells of a node that ended by itself.
	ended chan error
	// parent starts the nodes' first processes, and the server of names.
	parent  *parent
	stopDNS func()
}

// Run starts a bed and serves until ctx ends, or something of it does.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("a bed makes namespaces, bridges and control groups: run it as root")
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	if err := os.MkdirAll(cfg.Path("logs"), 0o700); err != nil {
		return fmt.Errorf("bed's folder: %w", err)
	}
	lock, pid, err := statedir.Lock(cfg.Dir)
	if errors.Is(err, statedir.ErrInUse) {
		return fmt.Errorf("a bed runs in %s (process %d); end it first, or choose another folder and network", cfg.Dir, pid)
	}
	if err != nil {
		return fmt.Errorf("bed's folder: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := Sweep(cfg.Plan); err != nil {
		return fmt.Errorf("remove what is left of a bed before: %w", err)
	}
	b := &Bed{cfg: cfg, out: out, began: time.Now(), program: program, nodes: map[int]*running{}, ended: make(chan error,
		1),
		parent: newParent()}
	err = b.serve(ctx)
	return errors.Join(err, b.stop())
}

func (b *Bed) serve(ctx context.Context) error {
	if err := b.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop while starting
		}
		return err
	}
	if err := b.announce(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-b.plane.Down():
		return b.plane.Err()
	case err := <-b.ended:
		return err
	}
}

// step tells that something is ready, and when.
func (b *Bed) step(format string, args ...any) {
	_, _ = fmt.Fprintf(b.out, "  %5.1f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// start brings everything up. What it started stop undoes, however far it came.
func (b *Bed) start(ctx context.Context) error {
	logs := kube.RotatedLog(b.cfg.Path("logs", "bed.log"))
	b.logs, b.log = logs, slog.New(slog.NewTextHandler(logs, nil))
	if err := host.SaveParameters(b.cfg.Path(parametersFile)); err != nil {
		return err
	}
	if err := host.MakeNetworks(b.cfg.Plan); err != nil {
		return err
	}
	if err := os.MkdirAll(deviceDir, 0o755); err != nil {
		return fmt.Errorf("devices of volumes: %w", err)
	}
	if err := b.startPlane(ctx); err != nil {
		return err
	}
	if err := b.startDNS(); err != nil {
		return err
	}
	if err := b.startNodes(ctx); err != nil {
		return err
	}
	var err error
	b.control, err = control.Listen(b.cfg.Dir, b.command)
	return err
}

func (b *Bed) startPlane(ctx context.Context) error {
	var err error
	if b.pki, err = pki.Open(b.cfg.Path("pki")); err != nil {
		return err
	}
	policy := b.cfg.Path("audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("bed's folder: %w", err)
	}
	b.kubeCfg = kube.Config{
		DataDir: b.cfg.Path("etcd"), LogDir: b.cfg.Path("logs"), PKI: b.pki, Host: b.cfg.Host(),
		Port: plan.KubePort, EtcdPort: plan.EtcdPort, EtcdPeerPort: plan.EtcdPeerPort,
		NodeGrace: b.cfg.NodeGrace, UnsafeNoFsync: b.cfg.UnsafeNoFsync, Log: b.log,
		Progress:      func(s string) { b.step("%s", s) },
		Authorization: "Node,RBAC",
		APIServerArgs: []string{
			"--enable-admission-plugins=NodeRestriction",
			// The machine has no kube-proxy, so webhooks are called at the Pods behind their
			// Service.
			"--enable-aggregator-routing=true",
			"--endpoint-reconciler-type=lease",
			"--audit-policy-file=" + policy,
			"--audit-log-path=" + b.cfg.AuditLog(),
			"--audit-log-maxsize=200", "--audit-log-maxbackup=1",
		},
		// How often it looks whether volumes are still attached where it knows them (by default 1m).
		ControllerManagerArgs: []string{"--attach-detach-reconcile-sync-period=15s"},
	}
	if b.plane, err = kube.Start(ctx, b.kubeCfg); err != nil {
		return err
	}
	if b.client, err = kubernetes.NewForConfig(b.plane.RESTConfig()); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return kube.WriteAdminKubeconfig(b.cfg.Path("kubeconfig"), b.kubeCfg)
}

// startNodes brings all nodes up at once and waits until the cluster regards them as Ready.
func (b *Bed) startNodes(ctx context.Context) error {
	errs := make([]error, b.cfg.Nodes)
	var wg sync.WaitGroup
	for k := 1; k <= b.cfg.Nodes; k++ {
		wg.Go(func() { errs[k-1] = b.startNode(ctx, k) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := b.awaitNodes(ctx); err != nil {
		return err
	}
	b.step("%d nodes are Ready", b.cfg.Nodes)
	if len(b.cfg.Images) > 0 {
		if err := Load(ctx, b.cfg.Plan, b.cfg.Images); err != nil {
			return err
		}
		b.step("%d images on every node", len(b.cfg.Images))
	}
	return nil
}

// stop ends everything, nodes first.
func (b *Bed) stop() error {
	if b.control != nil {
		b.control.Close()
	}
	b.stopNodes()
	if b.stopDNS != nil {
		b.stopDNS()
	}
	b.parent.close()
	if b.plane != nil {
		b.plane.Stop()
	}
	if b.logs != nil {
		_ = b.logs.Close()
	}
	if b.cfg.ReadyFile != "" {
		_ = os.Remove(b.cfg.ReadyFile)
	}
	return Sweep(b.cfg.Plan)
}
