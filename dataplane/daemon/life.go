package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
)

// life is the run of a process's core, with a loop and memory of its own.
type life struct {
	p     *engineProcess
	loop  *posix.Loop
	arena *loop.Arena
	// ctx ends when the core cannot go on, with the reason; fatal ends it. The loop outlives it:
	// the frontend is taken down through it.
	ctx   context.Context
	fatal context.CancelCauseFunc
	// spin is what the loop runs under, stop ends it.
	spin context.Context
	stop context.CancelFunc
	// start is closed when the volume serves for the first time; begun when it has been offered
	// then: from then on frontends come and go as they are ordered to. ended is closed when the loop
	// does not run any more, for err.
	start chan struct{}
	once  sync.Once
	begun chan struct{}
	ended chan struct{}
	err   error
	// offered: the first offer is under way or done.
	offered bool
	// follows is the epoch of the engine whose acknowledgements this one follows, 0 before that is
	// certain.
	follows uint64
	// epochs are those of the kept device that was taken over, this engine's last.
	epochs []uint64
	// offer brings the frontend up.
	offer func(ctx context.Context) error
}

func newLife(p *engineProcess, l *posix.Loop, arena *loop.Arena) *life {
	v := &life{p: p, loop: l, arena: arena, start: make(chan struct{}), begun: make(chan struct{}),
		ended: make(chan struct{})}
	v.offer = v.offerAsToldAtStart
	v.ctx, v.fatal = context.WithCancelCause(context.Background())
	v.spin, v.stop = context.WithCancel(context.Background())
	return v
}

// begin starts the core.
func (p *engineProcess) begin() error {
	cfg := &p.cfg
	arena := loop.NewArena(engineArena)
	l, err := posix.New(arena, engineOptions(cfg.Log))
	if err != nil {
		return errors.Join(err, arena.Close())
	}
	v := newLife(p, l, arena)
	ec := engine.Config{
		VolumeName: cfg.VolumeName, VolumeUUID: cfg.VolumeUUID, Instance: cfg.Instance,
		InstanceManager: cfg.InstanceManager, Build: build(),
		Trust: cfg.AcceptDataLoss, InSync: cfg.InSync,
		Secret: cfg.Secret, Size: cfg.Size, Replicas: cfg.Replicas, LocalHost: cfg.LocalHost,
		NewWindow:     newWindow,
		Options:       cfg.Options,
		RebuildBudget: cfg.RebuildBudget, ReplicaTimeout: cfg.ReplicaTimeout,
		NoReplicaTimeout: cfg.NoReplicaTimeout, GatherTimeout: cfg.GatherTimeout, Lease: cfg.Lease, Arena: arena,
		Witness: cfg.Witness, Successor: cfg.Upgrade, Nonce: nonce,
		OnState: v.onState,
		Event: func(e engine.Event) {
			about := []any{"event", e.Name, "replica", e.Replica, "text", e.Text}
			if e.Replica != "" {
				about = append(about, "network", cfg.Network)
			}
			cfg.Log.Info("engine event", about...)
		},
	}
	ec.Follow = v.follow
	core := engine.New(ec)
	p.loop, p.arena = l, arena
	p.mu.Lock()
	p.life = v
	p.mu.Unlock()
	go func() {
		v.err = posix.Run(v.spin, l, core)
		v.fatal(v.err)
		close(v.ended)
	}()
	return nil
}

// offerFirst brings the frontend up when the volume serves for the first time.
func (l *life) offerFirst(ctx context.Context) error {
	l.offered = true
	if err := l.offer(ctx); err != nil {
		return err
	}
	if p := l.p; !p.usersWait.IsZero() {
		p.upgradePause.Store(int64(time.Since(p.usersWait)))
	}
	close(l.begun)
	return nil
}

// offerAsToldAtStart is the ordinary offer.
func (l *life) offerAsToldAtStart(ctx context.Context) error {
	if err := l.p.mayOffer(); err != nil {
		// Whoever asks for the rest of the content asks for the frontend afterwards.
		l.p.dropKept("the volume is not offered")
		l.p.cfg.Log.Warn("volume is not offered", "reason", err)
		return nil
	}
	if err := at("offering"); err != nil {
		return err
	}
	l.p.front.mu.Lock()
	defer l.p.front.mu.Unlock()
	return l.p.startFrontend(ctx, l.p.cfg.Frontend)
}

// mayBeOrdered tells why nobody may order a frontend to come or to go, or the engine to leave: what
// it is to have from its start is not up yet. It holds as long as front.mu is held.
func (l *life) mayBeOrdered() error {
	if l == nil {
		return errBetween
	}
	select {
	case <-l.begun:
		return nil
	default:
		return fmt.Errorf("%w: the volume is not served yet; try again", engine.ErrBusy)
	}
}

func (p *engineProcess) current() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

// end ends the present life, if there is one, and waits for it.
func (p *engineProcess) end() {
	p.mu.Lock()
	v := p.life
	p.life = nil
	p.mu.Unlock()
	if v == nil {
		return
	}
	v.stop()
	<-v.ended
	v.fatal(nil)
	v.loop.Close()
	_ = v.arena.Close() // after the loop, whose workers use it; a caller may run many engines
}

// outcome is what the process ends with: the fatal reason, or what ended the loop by itself.
func (l *life) outcome() error {
	l.stop()
	<-l.ended
	fatal := context.Cause(l.ctx)
	switch {
	case fatal != nil && !errors.Is(fatal, context.Canceled):
		return fatal
	case errors.Is(l.err, context.Canceled):
		return nil
	}
	return l.err
}

// onState is called from the loop's thread.
func (l *life) onState(s engine.State) {
	l.p.state.set(func(w *published) { w.engine = s })
	switch {
	case s.Fenced:
		l.fatal(fmt.Errorf("%w: %s", ErrFenced, s.Reason))
	case s.Fatal:
		l.fatal(fmt.Errorf("%w: %s", ErrNoReplica, s.Reason))
	case s.Serving:
		l.once.Do(func() { close(l.start) })
	}
}
