package work

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/backup/object"
	"ankole.storage/backup/target"
	"ankole.storage/backup/worker"
)

const (
	// enterWait is how long a worker waits at most for another one that looks whether the target
	// answers.
	enterWait  = 20 * time.Second
	enterRetry = 100 * time.Millisecond
	// askers bounds the workers that can ask who holds a guard, each once, while that one does not
	// end.
	askers = 4096
	// probe is an object that no store has.
	probe = "backupstore/.ankole-probe"
)

// enter opens the store of a target. Where the kernel may wait for it, one worker at a time looks
// whether it answers, so that of any number that begin while it does not only one waits for it.
func (w *process) enter(ctx context.Context, t *target.Target, resolve func(string) string) (*watched, error) {
	s := &watched{began: map[uint64]time.Time{}}
	s.guard.of(t)
	w.mu.Lock()
	w.store = s
	w.mu.Unlock()
	if err := s.guard.enter(ctx, t.String(), min(enterWait, w.order.GiveUp)); err != nil {
		return nil, err
	}
	defer s.guard.leave()
	var err error
	s.timed(func() { s.Store, err = open(ctx, t, w.order.Credentials, resolve) })
	if err == nil && s.guard.name != "" {
		if _, err = s.Stat(ctx, probe); errors.Is(err, object.ErrNotFound) {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// guard keeps workers of one target apart. It is held by an address in the kernel's memory, which
// is free again when the last thread of the process that has it has ended, however that came.
type guard struct {
	name string // "" where nothing of the target can wait in the kernel
	mu   sync.Mutex
	fd   int
	held bool
}

func (g *guard) of(t *target.Target) {
	switch t.Kind {
	case target.VFS, target.NFS, target.CIFS:
		sum := sha256.Sum256([]byte(t.String()))
		g.name = "@ankole-backup-target-" + hex.EncodeToString(sum[:16])
	}
}

// take takes the guard if it is free.
func (g *guard) take() (taken bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.name == "" || g.held {
		return true, nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false, fmt.Errorf("backup target: %w", err)
	}
	if err = unix.Bind(fd, g.address()); err == nil {
		if err = unix.Listen(fd, askers); err == nil { // so that others can ask who it is
			g.fd, g.held = fd, true
			return true, nil
		}
	}
	_ = unix.Close(fd) // nothing was written to it
	if errors.Is(err, unix.EADDRINUSE) {
		return false, nil
	}
	return false, fmt.Errorf("backup target: %w", err)
}

func (g *guard) address() unix.Sockaddr { return &unix.SockaddrUnix{Name: g.name} }

// holder names the process that has the guard.
func (g *guard) holder() string {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return "a process"
	}
	defer unix.Close(fd)
	if unix.Connect(fd, g.address()) != nil {
		return "a process"
	}
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return "a process"
	}
	return fmt.Sprintf("process %d", c.Pid)
}

func (g *guard) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held {
		_ = unix.Close(g.fd) // nothing was written to it
		g.held = false
	}
}

// enter waits for the guard.
func (g *guard) enter(ctx context.Context, name string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(enterRetry)
	defer tick.Stop()
	for {
		if taken, err := g.take(); taken || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %s waits for it, and no other one is let in before that has ended: "+
				"look after the file system", name, worker.ErrHeld, g.holder())
		case <-tick.C:
		}
	}
}

// watched is a store whose requests are timed.
type watched struct {
	object.Store
	guard guard

	mu    sync.Mutex
	next  uint64
	began map[uint64]time.Time
	// kept: the guard was taken because the store does not answer.
	kept bool
}

// timed carries out one request.
func (s *watched) timed(do func()) {
	s.mu.Lock()
	id := s.next
	s.next++
	s.began[id] = time.Now()
	s.mu.Unlock()
	do()
	s.mu.Lock()
	delete(s.began, id)
	s.mu.Unlock()
}

// waits is how long the oldest request has no answer.
func (s *watched) waits() (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.began {
		longest = max(longest, time.Since(t))
	}
	return longest
}

// keepOut keeps other workers from a target that does not answer, or lets them in again.
func (s *watched) keepOut(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case yes && !s.kept:
		s.kept, _ = s.guard.take() // whoever has it keeps them out too
	case !yes && s.kept:
		s.guard.leave()
		s.kept = false
	}
}

// Get implements object.Store.
func (s *watched) Get(ctx context.Context, name string, buf []byte, limit int64) (p []byte, err error) {
	s.timed(func() { p, err = s.Store.Get(ctx, name, buf, limit) })
	return p, err
}

// Put implements object.Store.
func (s *watched) Put(ctx context.Context, name string, data []byte) (err error) {
	s.timed(func() { err = s.Store.Put(ctx, name, data) })
	return err
}

// Stage implements object.Store.
func (s *watched) Stage(ctx context.Context, name string, data []byte) (err error) {
	s.timed(func() { err = s.Store.Stage(ctx, name, data) })
	return err
}

// Commit implements object.Store.
func (s *watched) Commit(ctx context.Context) (err error) {
	s.timed(func() { err = s.Store.Commit(ctx) })
	return err
}

// Stat implements object.Store.
func (s *watched) Stat(ctx context.Context, name string) (info object.Info, err error) {
	s.timed(func() { info, err = s.Store.Stat(ctx, name) })
	return info, err
}

// After implements object.Store.
func (s *watched) After(ctx context.Context, folder, after string, most int) (found []object.Info, err error) {
	s.timed(func() { found, err = s.Store.After(ctx, folder, after, most) })
	return found, err
}

// Delete implements object.Store.
func (s *watched) Delete(ctx context.Context, name string) (err error) {
	s.timed(func() { err = s.Store.Delete(ctx, name) })
	return err
}

// List implements object.Store. The time of who takes the list does not count.
func (s *watched) List(ctx context.Context, folder string, deep bool) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		next, stop := iter.Pull2(s.Store.List(ctx, folder, deep))
		defer stop()
		for {
			var info object.Info
			var err error
			var ok bool
			s.timed(func() { info, err, ok = next() })
			if !ok || !yield(info, err) {
				return
			}
		}
	}
}
