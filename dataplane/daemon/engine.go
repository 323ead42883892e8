package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
	"ankole.storage/host/mtls"
)

// engineArena bounds an engine's buffers: the deepest queue a kernel keeps, with the largest
// requests.
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
	// Certificates secure the control interface; nil: it serves plaintext.
	Certificates *mtls.Source
	Secret       []byte
	// Size in bytes.
	Size     int64
	Replicas []string // "ip:port"
	// Options of the volume at the start.
	Options engine.Options
	// Frontend is "tgt-blockdev" or "" (none).
	Frontend string
	// Transport is how a block device is offered: "auto", "fuse-loop" or "nbd-unix".
	Transport string
	// Keeper is the instance manager's socket that keeps block devices over the death of an engine;
	// empty: none does.
	Keeper string
	// DeviceWait is how long a block device is kept after the engine until the next one takes it
	// over; 0 is the keeper's own.
	DeviceWait time.Duration
	// Upgrade: follow the engine of this instance that runs, when it has left the volume.
	// Predecessor is the address of that one, "ip:port".
	Upgrade     bool
	Predecessor string
	// StandInFor is the address of the engine, "ip:port", that serves the volume on another node: this
	// process only offers it here. Empty: this is the engine.
	StandInFor       string
	ReplicaTimeout   time.Duration
	NoReplicaTimeout time.Duration
	// AcceptDataLoss names members (data directories) to start from if the volume cannot start
	// otherwise.
	AcceptDataLoss []string
	// InSync names members (data directories) that the control plane knows to hold the same, from
	// before the volume's members were recorded.
	InSync []string
	// RebuildBudget bounds what a rebuild sends, in bytes per second; 0 means no bound.
	RebuildBudget int64
	GatherTimeout time.Duration // 0 is the engine's own
	Lease         time.Duration // 0 is the engine's own
	Witness       engine.Witness
	// LocalHost is the address without port of replicas on this node, which is that of the node on the
	// network to replicas; empty: unknown.
	LocalHost string
	// Network is what the log calls the network of the connections to replicas.
	Network string
	Log     *slog.Logger
}

// managementNetwork is what logs call the network of the cluster.
const managementNetwork = "management network"

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
	state watched
	front frontendShell
	srv   *server
	// loop and arena are those of the life.
	loop  *posix.Loop
	arena *loop.Arena

	mu   sync.Mutex
	life *life // nil before it and after it
	// kept is the block device of an engine that was killed, taken over from the instance manager
	// and not brought up yet. noKept says why none goes on here any more, "" while it may.
	kept   *keptDevice
	noKept string
	// left is closed when the engine has left the volume to a successor.
	left chan struct{}
	// standIns are processes on other nodes that offer what this engine serves.
	standIns standIns
	// dataSrv is where they bring their requests, nil until the first one has asked.
	dataSrv *server
	// backups are those under way and their results.
	backups backups
	// upgradePause is how long users of the volume waited in the live upgrade by which this engine
	// came, in nanoseconds; 0 if it came otherwise. usersWait is since when they do.
	upgradePause atomic.Int64
	usersWait    time.Time
}

// RunEngine runs an engine until ctx ends, then shuts it down cleanly; or until it has left the
// volume to a successor.
func RunEngine(ctx context.Context, cfg EngineConfig) error {
	p := &engineProcess{cfg: cfg, left: make(chan struct{})}
	p.state.init()
	p.backups.init(p)
	srv, err := serveControl(cfg.Listen, identity{cfg.VolumeName, cfg.Instance}, cfg.Certificates, !cfg.Upgrade,
		func(s *grpc.Server) { enginev1.RegisterEngineServer(s, &service{p: p}) })
	if err != nil {
		return err
	}
	defer srv.stop()
	p.srv = srv
	defer p.endDataServer((*server).stop)
	defer p.end()
	defer p.backups.end()
	if cfg.StandInFor != "" {
		switch err := p.beginStandIn(ctx); {
		case ctx.Err() != nil && p.current() == nil:
			return nil // told to end; what is kept stays for the process that comes next
		case err != nil:
			return err
		}
		return p.superviseStandIn(ctx)
	}
	if cfg.Upgrade {
		if err := p.succeed(ctx); err != nil {
			return err
		}
	} else if err := p.begin(); err != nil {
		return err
	}
	srv.ready(true)
	cfg.Log.Info("engine is starting", "volume", cfg.VolumeName, "replicas", cfg.Replicas, "network", cfg.Network)
	return p.supervise(ctx)
}

// supervise brings the frontend up when the volume serves, and takes it down at the end, while the
// core still runs: it answers what comes in with errors then, and lets its clients go. A block
// device that is kept stays, unless the engine is told to end or another one has replaced it: its
// users wait for the next engine.
func (p *engineProcess) supervise(ctx context.Context) error {
	for {
		l := p.current()
		start := l.start
		if l.offered {
			start = nil
		}
		select {
		case <-start:
			if err := l.offerFirst(ctx); err != nil {
				p.cfg.Log.Error("frontend cannot start", "error", err)
				l.fatal(err)
			}
		case <-ctx.Done():
			p.shutdown()
			l.fatal(nil)
			return l.outcome()
		case <-l.ctx.Done():
			if p.hasLeft() {
				return nil
			}
			if p.front.outlives(l) {
				p.srv.cut() // users wait for the end of this process
				p.endDataServer((*server).cut)
			} else {
				p.front.end(p)
			}
			if errors.Is(context.Cause(l.ctx), ErrFenced) {
				// What was taken over and is not up yet cannot go on in any engine.
				p.endKept("a newer engine serves the volume")
			}
			return l.outcome()
		}
	}
}

// shutdownWait bounds a clean end: then the connections are simply closed, and the next start
// compares dirty regions.
const shutdownWait = 20 * time.Second

func (p *engineProcess) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWait)
	defer cancel()
	p.front.end(p)
	p.endKept("the engine is told to end")
	if err := p.ask(ctx, func(reply func(error)) any { return engine.Shutdown{Reply: reply} }); err != nil {
		p.cfg.Log.Warn("engine did not shut down cleanly", "error", err)
	}
}

// errBetween: nobody is there to be asked.
var errBetween = fmt.Errorf("%w: the engine is ending, or leaves the volume to another one; ask again", engine.ErrBusy)

// ask posts a message to the core and waits for its reply. The core carries it out even if ctx ends
// before that: with the context of a caller, who may leave, only what concerns the core alone may
// be asked. What another half of the process has to follow is asked with a context that outlives
// the caller.
func (p *engineProcess) ask(ctx context.Context, message func(reply func(error)) any) error {
	l := p.current()
	if l == nil {
		return errBetween
	}
	done := make(chan error, 1)
	m := message(func(err error) { done <- err })
	if p.cfg.StandInFor != "" && !forFrontend(m) {
		return errStandIn
	}
	l.loop.Post(m)
	select {
	case err := <-done:
		return err
	case <-l.ended:
		select {
		case err := <-done:
			return err
		default:
			return errBetween
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forFrontend reports whether a message is about the frontend alone, which a stand-in has too.
func forFrontend(m any) bool {
	switch m.(type) {
	case engine.AttachFrontend, engine.DetachFrontend:
		return true
	}
	return false
}
