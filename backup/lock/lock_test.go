package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ankole.storage/backup/format"
	"ankole.storage/backup/lock"
	"ankole.storage/backup/object"
	"ankole.storage/backup/object/objecttest"
	"ankole.storage/test/seeded"
)

const volume = "vol1"

// locks counts the locks in a store.
func locks(t *testing.T, s object.Store) (n int) {
	t.Helper()
	for _, err := range s.List(t.Context(), format.LocksFolder(volume), false) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func acquire(t *testing.T, s object.Store, kind int, patience time.Duration) (*lock.Lock, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	l, err := lock.Acquire(ctx, s, volume, kind)
	if err != nil {
		cancel()
		return nil, err
	}
	t.Cleanup(cancel)
	return l, nil
}

// plant puts a lock of another client.
func plant(t *testing.T, s object.Store, l format.Lock) {
	t.Helper()
	data, err := l.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), format.LockObject(volume, l.Name), data); err != nil {
		t.Fatal(err)
	}
}

func TestSharedLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		a, err := acquire(t, s, format.LockShared, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		b, err := acquire(t, s, format.LockShared, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if n := locks(t, s); n != 2 {
			t.Errorf("%d locks", n)
		}
		_, err = acquire(t, s, format.LockDelete, 20*time.Second)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "failed to acquire lock") {
			t.Errorf("a deletion beside backups: %v", err)
		}
		a.Release()
		b.Release()
		d, err := acquire(t, s, format.LockDelete, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := acquire(t, s, format.LockShared, 20*time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a backup beside a deletion: %v", err)
		}
		d.Release()
		if n := locks(t, s); n != 0 {
			t.Errorf("%d locks stay", n)
		}
	})
}

// TestLocksUnderClocksApart: the clock of the store is hours off; a lock that is held excludes, and
// one of a client that died expires.
func TestLocksUnderClocksApart(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-25 * time.Hour, -time.Hour, 0, time.Hour, 25 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := &objecttest.Memory{Now: func() time.Time { return time.Now().Add(off) }}
			a, err := acquire(t, s, format.LockShared, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			// It is renewed for as long as it is held.
			if _, err := acquire(t, s, format.LockDelete, 20*time.Minute); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("off by %v: a deletion beside a backup: %v", off, err)
			}
			a.Release()
			plant(t, s, format.Lock{Name: "lock-00000000000000aa", Type: format.LockShared, Acquired: true})
			began := time.Now()
			d, err := acquire(t, s, format.LockDelete, time.Hour)
			if took := time.Since(began); err != nil || took < 150*time.Second || took > 170*time.Second {
				t.Fatalf("off by %v: the lock of a client that died: %v after %v", off, err, took)
			}
			d.Release()
		})
	}
}

// TestTwoBegin: of two that begin at once one waits, and both end.
func TestTwoBegin(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &objecttest.Memory{}
			held := make(chan int, 4)
			for i, kind := range []int{format.LockShared, format.LockDelete} {
				go func() {
					<-time.After(time.Duration(i) * delay)
					l, err := lock.Acquire(t.Context(), s, volume, kind)
					if err != nil {
						t.Error(err)
						held <- 0
						held <- 0
						return
					}
					held <- kind
					<-time.After(3 * time.Minute)
					held <- kind
					l.Release()
				}()
			}
			a, b, c, d := <-held, <-held, <-held, <-held
			if a != b || c != d || a == c {
				t.Errorf("delay %v: both held it: %d %d %d %d", delay, a, b, c, d)
			}
			synctest.Wait()
			if n := locks(t, s); n != 0 {
				t.Errorf("%d locks stay", n)
			}
		})
	}
}

// TestLockIsLost: a holder whose store does not answer stops before others take its lock for
// expired.
func TestLockIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down error
		s := &objecttest.Memory{Before: func(string, string) error { return down }}
		l, err := acquire(t, s, format.LockShared, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(50 * time.Second)
		down = errors.New("no answer")
		<-time.After(30 * time.Second) // a short silence does not matter
		down = nil
		<-time.After(60 * time.Second)
		if l.Context().Err() != nil {
			t.Errorf("lost after a short silence: %v", context.Cause(l.Context()))
		}
		down = errors.New("no answer")
		began := time.Now()
		<-l.Context().Done()
		if took := time.Since(began); took > 149*time.Second || !errors.Is(context.Cause(l.Context()), lock.ErrLost) {
			t.Errorf("%v after %v", context.Cause(l.Context()), took)
		}
		down = nil
		l.Release()
	})
}

// A lock of unknown content is in the way until it expires, whatever is to be locked.
func TestUnreadableLock(t *testing.T) {
	t.Parallel()
	for _, kind := range []int{format.LockShared, format.LockDelete} {
		synctest.Test(t, func(t *testing.T) {
			s := &objecttest.Memory{}
			if err := s.Put(t.Context(), format.LockObject(volume, "lock-00000000000000aa"), []byte("{")); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			l, err := acquire(t, s, kind, time.Hour)
			if err != nil || time.Since(began) < 150*time.Second {
				t.Fatalf("%v after %v", err, time.Since(began))
			}
			l.Release()
		})
	}
}

// TestAtOnce: where lists show what was put, a lock that nothing is in the way of is had at once,
// and no two that exclude each other are had.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{AtOnce: true}
		began := time.Now()
		a, err := acquire(t, s, format.LockShared, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		b, err := acquire(t, s, format.LockShared, time.Minute)
		if took := time.Since(began); err != nil || took > 0 {
			t.Fatalf("%v after %v", err, took)
		}
		if _, err = acquire(t, s, format.LockDelete, 20*time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a deletion beside backups: %v", err)
		}
		a.Release()
		b.Release()
		// One that another client is about to have.
		plant(t, s, format.Lock{Name: "lock-00000000000000aa", Type: format.LockDelete})
		if _, err := acquire(t, s, format.LockShared, 20*time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside a lock that came first: %v", err)
		}
	})
	src := seeded.New(t, "locks of both kinds are never held at a time (docs/design/backup-store.md)")
	for seed := range src.Seeds(200) {
		synctest.Test(t, func(t *testing.T) { exclude(t, src.Rand(1), seed%2 == 0) })
	}
}

// exclude has clients of both kinds acquire, some in the way of Longhorn. Each operation of the
// store takes a while that is drawn, before it takes place.
func exclude(t *testing.T, r *rand.Rand, longhorn bool) {
	var mu sync.Mutex
	pause := func() {
		mu.Lock()
		d := time.Duration(r.IntN(4)) * time.Millisecond
		mu.Unlock()
		<-time.After(d)
	}
	s := &objecttest.Memory{AtOnce: true, Before: func(string, string) error { pause(); return nil }}
	held := map[int]int{}
	var clients sync.WaitGroup
	for i := range 4 {
		kind := []int{format.LockShared, format.LockDelete}[i%2]
		var store object.Store = s
		if i == 3 && longhorn {
			store = waits{s}
		}
		clients.Go(func() {
			pause()
			l, err := lock.Acquire(t.Context(), store, volume, kind)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			if held[kind]++; held[format.LockShared] > 0 && held[format.LockDelete] > 0 {
				t.Error("both kinds are held")
			}
			mu.Unlock()
			pause()
			mu.Lock()
			held[kind]--
			mu.Unlock()
			l.Release()
		})
	}
	clients.Wait()
}

// waits is a store whose clients wait before they look.
type waits struct{ object.Store }

func (waits) ListsAtOnce() bool { return false }
