// Package lock is the lock of a volume in a backup store.
//
// Clients that know nothing of each other share a store: two clusters, or this system and Longhorn.
// A lock is an object in the volume's folder. Backups and restores share (format.LockShared), and a
// deletion (format.LockDelete) excludes both: docs/design/backup-store.md has the protocol and how
// it compares times. A client that dies leaves its lock behind, and it expires.
package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
)

// Times of the protocol; other clients of the store have the same.
const (
	settle  = 2 * time.Second   // from the put of a lock to the look at the others
	expiry  = 150 * time.Second // age at which a lock counts for nothing
	refresh = 60 * time.Second
	// lost is how long a holder goes on without a successful refresh: it stops before others may take
	// its lock for expired.
	lost = 100 * time.Second
	// again is the pause after a conflict.
	again = 5 * time.Second
	// retry is the pause after a refresh that failed.
	retry = 5 * time.Second
	// cleanup is the time for the removal of a lock.
	cleanup = 20 * time.Second
)

// ErrLost: the lock could not be renewed in time, so another client may hold one that excludes it.
var ErrLost = errors.New("the lock in the backup store could not be renewed: repeat the operation when the store answers")

// Lock is one that is held. Make one with Acquire, and Release it.
type Lock struct {
	store  object.Store
	volume string
	record format.Lock

	// ctx ends with the lock: its cause is ErrLost if it was lost.
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   sync.WaitGroup

	mu sync.Mutex
	// renewed is a moment before the store took the last put.
	renewed time.Time
}

// Acquire waits until the lock of a volume is held, or the context ends: then the error says which
// lock is in the way. kind is format.LockShared or format.LockDelete. Everything that needs the
// lock runs in the context of Context.
func Acquire(ctx context.Context, store object.Store, volume string, kind int) (*Lock, error) {
	var random [8]byte
	rand.Read(random[:])
	l := &Lock{store: store, volume: volume,
		record: format.Lock{Name: "lock-" + hex.EncodeToString(random[:]), Type: kind}}
	for atOnce := store.ListsAtOnce(); ; atOnce = false {
		try := l.try
		if atOnce {
			try = l.tryAtOnce
		}
		conflict, err := try(ctx)
		if err == nil && conflict == "" {
			break
		}
		l.remove(ctx)
		if err == nil && !atOnce {
			err = wait(ctx, again)
		}
		if conflict != "" && err != nil {
			return nil, fmt.Errorf("failed to acquire lock of volume %s in %s: %s is in the way: %w", volume, store, conflict, err)
		}
		if err != nil {
			return nil, fmt.Errorf("failed to acquire lock of volume %s in %s: %w", volume, store, err)
		}
	}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.done.Go(l.keep)
	return l, nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// try makes the lock, and names the one that is in its way.
func (l *Lock) try(ctx context.Context) (conflict string, err error) {
	l.record.Acquired = false
	if err := l.put(ctx); err != nil {
		return "", err
	}
	if err := wait(ctx, settle); err != nil {
		return "", err
	}
	if conflict, err := l.conflict(ctx, l.after); conflict != "" || err != nil {
		return conflict, err
	}
	l.record.Acquired = true
	return "", l.put(ctx)
}

// tryAtOnce makes the lock where a list shows what was put before: of two clients that put and then
// look, one at least sees the other. It names any that is in its way or may come to be, and the
// times of the two are not asked for: that of a file is older than its name.
func (l *Lock) tryAtOnce(ctx context.Context) (conflict string, err error) {
	l.record.Acquired = true
	if err := l.put(ctx); err != nil {
		return "", err
	}
	return l.conflict(ctx, func(format.Lock, time.Time, time.Time) bool { return true })
}

func (l *Lock) put(ctx context.Context) error {
	data, err := l.record.Marshal()
	if err != nil {
		return err
	}
	before := time.Now()
	if err := l.store.Put(ctx, format.LockObject(l.volume, l.record.Name), data); err != nil {
		return err
	}
	l.mu.Lock()
	l.renewed = before
	l.mu.Unlock()
	return nil
}

// after reports whether the lock comes after another one, which was put at that time, the own one
// at own.
func (l *Lock) after(other format.Lock, at, own time.Time) bool {
	return before(other, at, l.record, own)
}

// conflict looks at all locks of the volume, and names one of the other type that is in the way.
func (l *Lock) conflict(ctx context.Context, inTheWay func(other format.Lock, at, own time.Time) bool) (string, error) {
	var others []object.Info
	var own time.Time // by the store's clock
	for info, err := range l.store.List(ctx, format.LocksFolder(l.volume), false) {
		if err != nil {
			return "", err
		}
		switch name, ok := format.LockOf(info.Name); {
		case ok && name == l.record.Name:
			own = info.Modified
		case ok:
			others = append(others, info)
		}
	}
	if own.IsZero() {
		return "", fmt.Errorf("lock %s is gone: another client removed it: %w", l.record.Name, ErrLost)
	}
	l.mu.Lock()
	now := own.Add(time.Since(l.renewed)) // by the store's clock
	l.mu.Unlock()
	for _, info := range others {
		if now.Sub(info.Modified) > expiry {
			continue
		}
		name, _ := format.LockOf(info.Name)
		// A lock that cannot be read may be of either type: it is in the way until it expires.
		other := format.Lock{Name: name, Acquired: true}
		data, err := l.store.Get(ctx, info.Name, nil, format.MaxLockBytes)
		if errors.Is(err, object.ErrNotFound) {
			continue
		} else if err != nil {
			return "", err
		}
		if parsed, err := format.ParseLock(data); err == nil {
			other.Type, other.Acquired = parsed.Type, parsed.Acquired
		}
		if other.Type != l.record.Type && inTheWay(other, info.Modified, own) {
			return name, nil
		}
	}
	return "", nil
}

// before reports whether lock a comes before lock b, with the times of their objects.
func before(a format.Lock, at time.Time, b format.Lock, bt time.Time) bool {
	if a.Acquired != b.Acquired {
		return a.Acquired
	}
	if !at.Equal(bt) {
		return at.Before(bt)
	}
	return a.Name < b.Name
}

// keep renews the lock until it is released, and ends its context if that does not succeed.
func (l *Lock) keep() {
	for pause := refresh; wait(l.ctx, pause) == nil; {
		l.mu.Lock()
		deadline := l.renewed.Add(lost)
		l.mu.Unlock()
		ctx, cancel := context.WithDeadline(l.ctx, deadline)
		err := l.put(ctx)
		cancel()
		if pause = refresh; err != nil {
			pause = min(retry, time.Until(deadline))
		}
		if pause <= 0 {
			l.cancel(fmt.Errorf("volume %s in %s: %w: %w", l.volume, l.store, ErrLost, err))
		}
	}
}

// Context ends when the lock is lost, with a cause that is ErrLost, when it is released, and with
// the context of Acquire.
func (l *Lock) Context() context.Context { return l.ctx }

// Release ends the lock. One that cannot be removed expires.
func (l *Lock) Release() {
	l.cancel(nil)
	l.done.Wait()
	l.remove(l.ctx)
}

// remove removes the object of the lock, also after the end of the context.
func (l *Lock) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	_ = l.store.Delete(ctx, format.LockObject(l.volume, l.record.Name)) // it expires
}
