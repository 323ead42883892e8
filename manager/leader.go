package manager

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/process/engine"
	"ankole.storage/controlplane/volume/snapshot"
)

// Leadership is who leads. It is safe for concurrent use.
type Leadership struct {
	self   string
	leader atomic.Value // string: Pod name
	// cached reads all objects while this process leads; nil otherwise.
	cached atomic.Pointer[cached]
	// calls reach the engines' snapshots once this process has led.
	calls atomic.Pointer[snapshot.Calls]
	// streams are those of engines' states, once this process has led.
	streams atomic.Pointer[engine.Monitor]
}

// cached is the leader's cache.
type cached struct {
	client.Reader
	informers cache.Informers
}

// Leader returns the name of the leading manager Pod, empty while nobody is known to lead.
func (l *Leadership) Leader() string {
	s, _ := l.leader.Load().(string)
	return s
}

// IsLeader tells whether this Pod leads.
func (l *Leadership) IsLeader() bool { return l.Leader() == l.self }

// elect takes part in the election until ctx ends. While this Pod leads, lead runs; its context
// ends when the lease is lost, and the lease is released only after lead has returned. A lead that
// fails gives the lease up to somebody else.
func elect(ctx context.Context, cfg Common, api *rest.Config, who *Leadership, lead func(context.Context) error) error {
	clients, err := kubernetes.NewForConfig(rest.AddUserAgent(counted(api, "election"), "leader-election"))
	if err != nil {
		return fmt.Errorf("client for leader election: %w", err)
	}
	watched, wait := watchLease(ctx, clients, cfg.Namespace, leaseName)
	defer wait()
	lock := &quietLock{watched: watched, now: time.Now, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: cfg.Namespace, Name: leaseName},
		Client:     clients.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: cfg.PodName},
	}}
	for ctx.Err() == nil {
		failed, err := term(ctx, lock, who, lead)
		if err != nil {
			return err
		}
		if failed != nil && ctx.Err() == nil {
			slog.Error("controllers failed; the lease is free for others", "err", failed, "pause", leaseDuration)
			pause(ctx, leaseDuration)
		}
	}
	return nil
}

// pause waits, so that a Pod whose controllers fail leaves the lease to a healthier one.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// term waits for the lease, leads, and returns when the lease or the context is gone. failed is why
// lead gave up by itself.
func term(ctx context.Context, lock resourcelock.Interface, who *Leadership, lead func(context.Context) error) (failed,
	err error) {
	// The elector releases the lease when its context ends. The controllers must have stopped by
	// then, so they run on a context of their own that ends first.
	electing, stopElecting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopElecting()
	leading := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: leaseName,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(c context.Context) { leading <- c },
			OnStoppedLeading: func() {},
			OnNewLeader: func(id string) {
				who.leader.Store(id)
				slog.Info("leader known", "leader", id)
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	over := make(chan struct{})
	go func() { defer close(over); elector.Run(electing) }()
	defer func() { stopElecting(); <-over }()
	select {
	case <-ctx.Done():
		return nil, nil
	case <-over:
		return nil, nil
	case lease := <-leading:
		slog.Info("leading")
		running, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(lease, stop)()
		failed := leadUntil(running, lead)
		who.leader.CompareAndSwap(who.self, "")
		slog.Info("leading no more", "leaseLost", lease.Err() != nil, "ending", ctx.Err() != nil)
		return failed, nil
	}
}

// exit ends the process at once; a test replaces it.
var exit = os.Exit

// leadUntil runs lead, and ends the process if it has not returned stopLimit after its context
// ended: no orderly way is short enough to be sure that nothing of it still writes when another
// manager leads.
func leadUntil(ctx context.Context, lead func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- lead(ctx) }()
	select {
	case failed := <-done:
		return failed
	case <-ctx.Done():
	}
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case failed := <-done:
		return failed
	case <-limit.C:
		slog.Error("the controllers did not stop in time; the process ends, so that they cannot write beside those "+
			"of another manager", "limit", stopLimit)
		exit(1)
		return context.Cause(ctx)
	}
}
