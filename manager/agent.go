package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"ankole.storage/controlplane/node"
	"ankole.storage/controlplane/node/orphan"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/replica"
	"ankole.storage/controlplane/process/witness"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/listener"
	imclient "ankole.storage/instancemanager/client"
	imwitness "ankole.storage/instancemanager/witness"
	"ankole.storage/metrics"
)

// agent is the process of one node: it looks after the node's disks and directories, answers the
// engines of its node in place of the witness, and keeps block devices while instance managers are
// replaced.
type agent struct {
	base
	// started is whether it works, or waits for the end of a manager of another system: a rolling
	// update waits for that too.
	started atomic.Bool
}

// RunAgent is the agent of a node. It returns when ctx ends, after everything it started has
// stopped.
func RunAgent(ctx context.Context, cfg Common) error {
	cfg, err := cfg.Complete()
	if err != nil {
		return err
	}
	b, err := newBase(cfg)
	if err != nil {
		return err
	}
	a := &agent{base: b}
	if err := refuseOlder(ctx, a.live, cfg); err != nil {
		return ended(ctx, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { holdDevices(ctx); return nil })
	group.Go(func() error { return listener.ServeHealth(ctx, cfg.HealthListen, naming.HealthPath, a.ready) })
	group.Go(func() error {
		return listener.ServeOpen(ctx, cfg.Listen, map[string]http.Handler{"GET /metrics": metrics.New(metrics.Config{})})
	})
	group.Go(func() error { return a.work(ctx) })
	return ended(ctx, group.Wait())
}

func (a *agent) ready(context.Context) error {
	if !a.started.Load() {
		return errors.New("the node has not joined yet: the controllers have not made the settings, or do not admit it")
	}
	return nil
}

// work joins the node and looks after it.
func (a *agent) work(ctx context.Context) error {
	waits := func() { a.started.Store(true) }
	if err := a.others.awaitAlone(ctx, a.live, a.common, waits); err != nil {
		return err
	}
	a.started.Store(false)
	cfg := node.AgentConfig{Namespace: a.common.Namespace, NodeName: a.common.NodeName, PodName: a.common.PodName,
		Host: node.Host{Resolve: hostpath.Resolve}}
	if err := a.join(ctx, cfg); err != nil {
		return err
	}
	options := a.options()
	options.Cache = nodeCache(a.common)
	mgr, err := ctrl.NewManager(counted(a.api, "node"), options)
	if err != nil {
		return fmt.Errorf("manager of the node's objects: %w", err)
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { // once the caches are filled
		a.started.Store(true)
		slog.Info("the agent works", "node", a.common.NodeName)
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("register what tells that the agent works: %w", err)
	}
	return start(ctx, mgr, append(a.logLevel(),
		node.NewAgent(cfg),
		replica.NewAgent(replica.AgentConfig{Namespace: cfg.Namespace, NodeName: cfg.NodeName, Resolve: hostpath.Resolve}),
		orphan.NewAgent(orphan.AgentConfig{Namespace: cfg.Namespace, NodeName: cfg.NodeName, Resolve: hostpath.Resolve}),
		&witness.Relay{
			Name:    cfg.PodName,
			Handler: witness.Handler{Client: a.live, Namespace: cfg.Namespace, Node: cfg.NodeName},
			Connect: func(pod *corev1.Pod) (*grpc.ClientConn, error) {
				return imclient.Local(hostpath.Resolve(imwitness.RelaySocket(pod.Name)))
			},
		}))
}

// settingsRetry is how soon an agent looks again for settings: a new cluster has them within
// seconds.
const settingsRetry = 300 * time.Millisecond

// join makes the node's object where there is none, when the controllers are ready for it.
func (a *agent) join(ctx context.Context, cfg node.AgentConfig) error {
	told := false
	return persist(ctx, "join the node", func(ctx context.Context) error {
		for {
			err := node.Join(ctx, a.live, cfg)
			if !errors.Is(err, node.ErrNoSettings) {
				return err
			}
			if !told {
				told = true
				slog.Info("the node joins when the controllers have made the settings", "waits", err)
			}
			if pause(ctx, settingsRetry); ctx.Err() != nil {
				return ctx.Err()
			}
		}
	})
}
