package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
)

// engineArena bounds an engine's buffers: the deepest queue a kernel keeps, with the largest requests.
const engineArena = 256 << 20

// EngineConfig is what an engine process is started with.
type EngineConfig struct {
	VolumeName string
	VolumeUUID string
	// Instance is the engine instance's name, InstanceManager the Pod it runs in.
	Instance        string
	InstanceManager string
	// Listen is "ip:port" of the control interface.
	Listen string
	Secret []byte
	// Size in bytes.
	Size     int64
	Replicas []string // "ip:port"
	// Options of the volume at the start.
	Options engine.Options
	// Frontend is "tgt-blockdev" or "" (none).
	Frontend string
	// Transport is how a block device is offered: "auto", "fuse-loop" or "nbd-unix".
	Transport string
	// Keeper is the instance manager's socket that keeps block devices over the death of an engine; empty: none does.
	Keeper           string
	ReplicaTimeout   time.Duration
	NoReplicaTimeout time.Duration
	// AcceptDataLoss names members (data directories) to start from if the volume cannot start otherwise.
	AcceptDataLoss []string
	// RebuildBudget bounds what a rebuild sends, in bytes per second; 0 means no bound.
	RebuildBudget int64
	GatherTimeout time.Duration // 0 is the engine's own
	Lease         time.Duration // 0 is the engine's own
	Witness       engine.Witness
	Log           *slog.Logger
}

// Errors that end an engine.
var (
	// ErrNoReplica: not enough replicas that know every acknowledged write; exit status 61.
	ErrNoReplica = errors.New("engine: cannot start from these replicas")
	// ErrFenced: a newer engine serves the volume.
	ErrFenced = errors.New("engine: replaced by a newer one")
)

// engineProcess is a running engine.
type engineProcess struct {
	cfg   EngineConfig
	loop  *posix.Loop
	arena *loop.Arena
	state watched
	front frontendShell
	fatal context.CancelCauseFunc
	once  sync.Once
	start chan struct{} // closed when the volume serves for the first time
}

// RunEngine runs an engine until ctx ends, then shuts it down cleanly.
func RunEngine(ctx context.Context, cfg EngineConfig) error {
	arena := loop.NewArena(engineArena)
	defer func() { _ = arena.Close() }() // after the loop, whose workers use it; a caller may run many
	l, err := posix.New(arena, posix.Options{})
	if err != nil {
		return err
	}
	defer l.Close()
	// The loop outlives ctx and whatever is fatal: the frontend is taken down through it.
	run, fatal := context.WithCancelCause(context.Background())
	defer fatal(nil)
	spin, stop := context.WithCancel(context.Background())
	defer stop()
	p := &engineProcess{cfg: cfg, loop: l, arena: arena, fatal: fatal, start: make(chan struct{})}
	p.state.init()
	core := engine.New(engine.Config{
		VolumeName: cfg.VolumeName, VolumeUUID: cfg.VolumeUUID, Instance: cfg.Instance, InstanceManager: cfg.InstanceManager,
		Trust:  cfg.AcceptDataLoss,
		Secret: cfg.Secret, Size: cfg.Size, Replicas: cfg.Replicas, Options: cfg.Options, RebuildBudget: cfg.RebuildBudget, ReplicaTimeout: cfg.ReplicaTimeout,
		NoReplicaTimeout: cfg.NoReplicaTimeout, GatherTimeout: cfg.GatherTimeout, Lease: cfg.Lease, Arena: arena, Witness: cfg.Witness, Nonce: nonce, OnState: p.onState,
		Event: func(e engine.Event) {
			cfg.Log.Info("engine event", "event", e.Name, "replica", e.Replica, "text", e.Text)
		},
	})
	srv, err := serveControl(cfg.Listen, identity{cfg.VolumeName, cfg.Instance}, func(s *grpc.Server) {
		enginev1.RegisterEngineServer(s, &service{p: p})
	})
	if err != nil {
		return err
	}
	defer srv.stop()
	ended := make(chan error, 1)
	go func() { err := posix.Run(spin, l, core); fatal(err); ended <- err }()
	cfg.Log.Info("engine is starting", "volume", cfg.VolumeName, "replicas", cfg.Replicas)
	p.supervise(ctx, run)
	stop()
	return p.outcome(context.Cause(run), <-ended)
}

// supervise brings the frontend up when the volume serves, and down at the end, while the core still runs: it answers
// what comes in with errors then, and lets its clients go.
func (p *engineProcess) supervise(ctx, run context.Context) {
	select {
	case <-p.start:
		if err := p.startFrontend(ctx, p.cfg.Frontend); err != nil {
			p.cfg.Log.Error("frontend cannot start", "error", err)
			p.fatal(err)
		}
	case <-ctx.Done():
	case <-run.Done():
	}
	select {
	case <-ctx.Done():
		p.shutdown()
		p.fatal(nil)
	case <-run.Done():
		p.front.down(p)
	}
}

// outcome is what the process ends with: the fatal reason, or what ended the loop by itself.
func (p *engineProcess) outcome(fatal, loop error) error {
	switch {
	case fatal != nil && !errors.Is(fatal, context.Canceled):
		return fatal
	case errors.Is(loop, context.Canceled):
		return nil
	}
	return loop
}

// onState is called from the loop's thread.
func (p *engineProcess) onState(s engine.State) {
	p.state.set(func(w *published) { w.engine = s })
	switch {
	case s.Fenced:
		p.fatal(fmt.Errorf("%w: %s", ErrFenced, s.Reason))
	case s.Fatal:
		p.fatal(fmt.Errorf("%w: %s", ErrNoReplica, s.Reason))
	case s.Serving:
		p.once.Do(func() { close(p.start) })
	}
}

// shutdownWait bounds a clean end: then the connections are simply closed, and the next start compares dirty regions.
const shutdownWait = 20 * time.Second

func (p *engineProcess) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWait)
	defer cancel()
	p.front.down(p)
	if err := p.ask(ctx, func(reply func(error)) any { return engine.Shutdown{Reply: reply} }); err != nil {
		p.cfg.Log.Warn("engine did not shut down cleanly", "error", err)
	}
}

// ask posts a message to the core and waits for its reply.
func (p *engineProcess) ask(ctx context.Context, message func(reply func(error)) any) error {
	done := make(chan error, 1)
	p.loop.Post(message(func(err error) { done <- err }))
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
