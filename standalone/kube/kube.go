// Package kube runs a Kubernetes control plane inside this process.
//
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler are linked in as the libraries
// that their own commands are made of, with the flags a real installation would give them. They
// talk to each other over loopback with the certificates of package pki, so nothing about the
// cluster is special to the components; what is missing of a full cluster is a network (Services
// have no proxy behind them, and Pods share their node's address).
//
// The libraries keep process-wide state (feature gates, metrics registries, the klog logger), so a
// process runs at most one control plane in its life.
package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"

	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"ankole.storage/standalone/boundedlog"
	"ankole.storage/standalone/pki"
)

const (
	// logBytes bounds each component log file.
	logBytes = 20 << 20
	// readyTimeout for the API server: under a heavily loaded small machine it takes tens of seconds.
	readyTimeout = 3 * time.Minute
	// readyPoll between looks at /readyz.
	readyPoll = 50 * time.Millisecond
	// stopTimeout per component; what has not ended by then ends with the process.
	stopTimeout = 10 * time.Second
)

// Config describes a control plane.
type Config struct {
	DataDir string // etcd's directory
	LogDir  string
	PKI     *pki.Store
	Host    string // address all servers listen on, loopback
	Port    int    // API server
	// EtcdPort and EtcdPeerPort, on Host as well.
	EtcdPort, EtcdPeerPort int
	// NodeGrace is how long a node may miss its lease before it is NotReady.
	NodeGrace time.Duration
	// Authorization modes of the API server; empty for RBAC.
	Authorization string
	// Extra flags per component, appended after ours.
	APIServerArgs, ControllerManagerArgs []string
	// UnsafeNoFsync lets etcd acknowledge before data is on disk: for tests that never lose power.
	UnsafeNoFsync bool
	Log           *slog.Logger
	// Progress is told when a component has come up.
	Progress func(component string)
	// Starting, if not nil, is told how to reach the API server, before that answers.
	Starting func(admin *rest.Config)
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	cfg   Config
	etcd  *etcdServer
	guard *component // watches etcd
	api   *component
	rest  *component // controller manager and scheduler, which stop before the API server

	mu     sync.Mutex
	failed error
	down   chan struct{}

	klog  io.Closer
	admin *rest.Config
}

// component is a group of goroutines that end when cancelled.
type component struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Start brings everything up and returns when the API server answers; controllers and scheduler
// start in the background. The context bounds the start only: call Stop to end.
func Start(ctx context.Context, cfg Config) (*ControlPlane, error) {
	if err := os.MkdirAll(cfg.LogDir, 0o700); err != nil {
		return nil, fmt.Errorf("control plane logs: %w", err)
	}
	c := &ControlPlane{cfg: cfg, down: make(chan struct{})}
	if err := c.startLogs(); err != nil {
		return nil, err
	}
	creds, err := makeCredentials(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.startEtcd(ctx, creds); err != nil {
		c.Stop()
		return nil, err
	}
	if err := c.startAPIServer(ctx, creds); err != nil {
		c.Stop()
		return nil, err
	}
	if err := c.startControllers(creds); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// RESTConfig returns a client configuration of the cluster's administrator, without rate limits.
func (c *ControlPlane) RESTConfig() *rest.Config { return rest.CopyConfig(c.admin) }

// Down is closed when a component ended by itself; Err then says which and why.
func (c *ControlPlane) Down() <-chan struct{} { return c.down }

// Err is the reason of Down.
func (c *ControlPlane) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *ControlPlane) fail(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return
	}
	c.failed = fmt.Errorf("%s ended: %w (see the logs in %s)", name, err, c.cfg.LogDir)
	close(c.down)
}

// run starts fn as part of group g. A return before the group is cancelled counts as a failure.
func (c *ControlPlane) run(ctx context.Context, g *component, name string, fn func(context.Context) error) {
	g.wg.Go(func() {
		err := fn(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("returned without being asked to")
		}
		c.fail(name, err)
	})
}

// Stop ends scheduler and controllers, then the API server, then etcd, each within a bounded time.
// It says which component did not make it.
func (c *ControlPlane) Stop() {
	for _, g := range []struct {
		name string
		c    *component
	}{{"controllers and scheduler", c.rest}, {"kube-apiserver", c.api}, {"watch over etcd", c.guard}} {
		if g.c == nil {
			continue
		}
		g.c.cancel()
		if !waitFor(&g.c.wg, stopTimeout) {
			c.cfg.Log.Warn("component still stopping; going on without it", "component", g.name, "after", stopTimeout)
		}
	}
	if c.etcd != nil {
		c.etcd.stop(stopTimeout)
	}
	if c.klog != nil {
		_ = c.klog.Close()
	}
}

func waitFor(wg *sync.WaitGroup, timeout time.Duration) bool {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(timeout):
		return false
	}
}

// startLogs sends everything the Kubernetes libraries log to one file. It must come before the
// first component, whose own attempt to configure logging is then ignored.
func (c *ControlPlane) startLogs() error {
	file := RotatedLog(filepath.Join(c.cfg.LogDir, "kubernetes.log"))
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	var gates featuregate.FeatureGate = utilfeature.DefaultFeatureGate
	opts := &logsapi.LoggingOptions{ErrorStream: file, InfoStream: file}
	if err := logsapi.ValidateAndApplyWithOptions(logsapi.NewLoggingConfiguration(), opts, gates); err != nil {
		return fmt.Errorf("control plane logs: %w", err)
	}
	c.klog = file
	return nil
}

// RotatedLog is a log file with a bound on its size.
func RotatedLog(path string) *boundedlog.File {
	return &boundedlog.File{Path: path, MaxBytes: logBytes}
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
