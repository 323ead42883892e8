// Package daemon runs an engine or a replica as a process: it opens what the step core needs
// (directory, sockets, secret), drives the core with the production loop, serves the control
// interface, and ends everything in order.
package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
	"ankole.storage/dataplane/replica"
	"ankole.storage/dataplane/window"
	"ankole.storage/dataplane/wire"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/mtls"
)

// replicaArena bounds a replica's buffers: 64 requests of the largest size in flight.
const replicaArena = 96 << 20

// ReplicaConfig is what a replica process is started with.
type ReplicaConfig struct {
	// Dir is the replica directory as the Pod sees it.
	Dir string
	// Listen is "ip:port" of the first port; the data connection is served on the next one.
	Listen     string
	VolumeName string
	VolumeUUID string
	Instance   string
	Secret     []byte
	// Size in bytes makes the directory if there is none; 0 only opens.
	Size        int64
	BackingFile string
	// Encrypted is noted in a directory that is made.
	Encrypted        bool
	SnapshotMaxCount int
	SnapshotMaxSize  int64
	// Standby: if another process has the directory, serve as standby instead of refusing. Part of
	// a live upgrade.
	Standby bool
	// Certificates secure the control interface; nil: it serves plaintext.
	Certificates *mtls.Source
	// Network is what the log calls the network of the connections to engines.
	Network string
	Log     *slog.Logger
}

// ErrDisk ends a replica whose disk failed a sync.
var ErrDisk = errors.New("replica: the disk failed")

// RunReplica serves a replica directory until ctx ends; then it closes the directory cleanly and
// returns nil.
func RunReplica(ctx context.Context, cfg ReplicaConfig) (err error) {
	uuid, err := replica.ParseUUID(cfg.VolumeUUID)
	if err != nil {
		return err
	}
	fs := osdisk.New(hostpath.Resolve)
	opts := chain.Options{Size: cfg.Size, VolumeUUID: uuid, BackingFile: cfg.BackingFile,
		SnapshotMaxCount: cfg.SnapshotMaxCount, SnapshotMaxSize: cfg.SnapshotMaxSize, Boot: boot(), Log: cfg.Log}
	c, err := openDirectory(ctx, fs, &cfg, uuid, opts)
	if cfg.Standby && errors.Is(err, disk.ErrInUse) {
		cfg.Log.Info("another process has the directory: standby", "directory", cfg.Dir)
		c, err = nil, nil
	}
	if err != nil {
		return err
	}
	dir := &directory{fs: fs, dir: cfg.Dir, opts: opts, chain: c, quit: ctx.Done()}
	if c != nil {
		dir.listen()
	}
	var core *replica.Replica
	// After the loop, which finishes what is under way on the files.
	defer func() { err = errors.Join(err, dir.close(core == nil)) }()
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	sessions := &lingering{idle: make(chan struct{})}
	sessions.set(0)
	arena := loop.NewArena(replicaArena)
	defer func() { _ = arena.Close() }() // after the loop, whose workers use it; a caller may run many
	l, err := posix.New(arena, replicaOptions(cfg.Log))
	if err != nil {
		return err
	}
	defer l.Close()
	if err := dir.heldBy(l.Hold); err != nil {
		return err
	}
	listener, bound, err := listenForData(cfg.Listen)
	if err != nil {
		return err
	}
	core, err = replica.New(replica.Config{
		Member: path.Base(cfg.Dir), VolumeName: cfg.VolumeName, VolumeUUID: cfg.VolumeUUID, Secret: cfg.Secret,
		Chain: c, Directory: dir, Recreate: dir.recreate, Listener: listener, Arena: arena, Nonce: nonce, Unix: unixNow,
		OpenWindow: window.Open, FreeWindow: freeWindow,
		Exit:     func(reason string) { cancel(fmt.Errorf("%w: %s", ErrDisk, reason)) },
		Sessions: sessions.set, Lost: sessions.lost.Store,
		Event: func(name, text string) {
			cfg.Log.Info("replica event", "event", name, "text", text, "network", cfg.Network)
		},
	})
	if err != nil {
		return err
	}
	srv, err := serveControl(cfg.Listen, identity{cfg.VolumeName, cfg.Instance}, cfg.Certificates, true, nil)
	if err != nil {
		return err
	}
	defer srv.stop()
	defer context.AfterFunc(ctx, func() {
		sessions.wait(run)
		l.Post(replica.End{})
		waitForEnd(run, &sessions.lost)
		cancel(errNotEnded)
	})()
	files, why := l.Files()
	cfg.Log.Info("replica is serving", "directory", cfg.Dir, "data", bound, "standby", c == nil, "files", files,
		"why", why)
	return howEnded(&cfg, posix.Run(run, l, core), context.Cause(run))
}

// howEnded is what a replica process returns whose loop has returned err, with the reason why that
// was cut short, if it was.
func howEnded(cfg *ReplicaConfig, err, cause error) error {
	switch {
	case errors.Is(cause, ErrDisk):
		return cause
	case errors.Is(cause, errNotEnded):
		cfg.Log.Warn("the disk has not answered in time: the directory is left as it is, not cleanly stopped",
			"directory", cfg.Dir, "waited", endWait)
		return nil
	}
	return err
}

// endWait is how long a replica that is asked to end waits for its disk when its engine is gone.
// With lingerWait it is below the time after which whoever has asked kills it.
const endWait = 5 * time.Second

// waitForEnd returns after endWait, or when ctx ends; but while files that the replica has in use
// have no names, since what it writes anew goes with the process.
func waitForEnd(ctx context.Context, lost *atomic.Int64) {
	for wait(ctx, endWait); lost.Load() > 0 && ctx.Err() == nil; {
		wait(ctx, endWait)
	}
}

// errNotEnded ends a replica whose disk does not answer.
var errNotEnded = errors.New("replica: requests are under way at the disk")

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// lingerWait is how long a replica that is asked to end waits for its engine to end first. When a
// whole cluster stops, everything is asked at once; a replica that goes first would be dropped from
// the set and have to be rebuilt.
const lingerWait = 3 * time.Second

// lingering knows whether an engine has a session.
type lingering struct {
	// lost is how many files that the replica has in use have no names.
	lost atomic.Int64
	mu   sync.Mutex
	idle chan struct{} // closed while open is 0
}

func (s *lingering) set(open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.idle:
		if open > 0 {
			s.idle = make(chan struct{})
		}
	default:
		if open == 0 {
			close(s.idle)
		}
	}
}

// wait returns when no engine has a session, after lingerWait, or when ctx ends.
func (s *lingering) wait(ctx context.Context) {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	t := time.NewTimer(lingerWait)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	case <-ctx.Done():
	}
}

// openDirectory opens the directory, and makes it where there is none. One that a process which was
// killed has left may be in use for a moment yet: until its last operations have ended.
func openDirectory(ctx context.Context, fs disk.Meta, cfg *ReplicaConfig, uuid chain.UUID,
	opts chain.Options) (*chain.Chain, error) {
	tick := time.NewTicker(acquirePoll)
	defer tick.Stop()
	for deadline := time.Now().Add(acquireWait); ; {
		c, err := tryDirectory(fs, cfg, uuid, opts)
		if cfg.Standby || !errors.Is(err, disk.ErrInUse) || time.Now().After(deadline) {
			return c, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

func tryDirectory(fs disk.Meta, cfg *ReplicaConfig, uuid chain.UUID, opts chain.Options) (*chain.Chain, error) {
	if cfg.Size > 0 {
		spec := chain.Spec{Size: cfg.Size, VolumeUUID: uuid, Self: path.Base(cfg.Dir), BackingFile: cfg.BackingFile,
			Created: now(), Encrypted: cfg.Encrypted}
		if err := chain.Create(fs, cfg.Dir, spec, opts); err != nil {
			return nil, err
		}
	}
	return chain.Open(fs, cfg.Dir, opts)
}

// listenForData listens at the port after that of the control interface.
func listenForData(listen string) (loop.Handle, string, error) {
	data, err := nextPort(listen)
	if err != nil {
		return loop.None, "", err
	}
	return posix.Listen("tcp", data)
}

// nextPort returns listen with the port after it.
func nextPort(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("listen address %q: %w", listen, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65534 {
		return "", fmt.Errorf("listen address %q: port must be a number from 1 to 65534", listen)
	}
	return net.JoinHostPort(host, strconv.Itoa(n+1)), nil
}

// boot is the kernel's name for the time since the machine was started, zero if it does not tell.
func boot() (b chain.Boot) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return chain.Boot{}
	}
	if b, err = replica.ParseUUID(strings.TrimSpace(string(data))); err != nil {
		return chain.Boot{}
	}
	return b
}

func nonce() []byte {
	p := make([]byte, wire.NonceSize)
	_, _ = rand.Read(p) // never fails
	return p
}
