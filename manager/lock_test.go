package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leaseStore is an API server with one lease.
type leaseStore struct {
	mu       sync.Mutex
	lease    *coordinationv1.Lease
	version  int
	requests int
	// away: nothing is answered.
	away bool
}

func (s *leaseStore) watched() *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

func (s *leaseStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.requests
	s.requests = 0
	return n
}

// storeLock is the lock of one candidate, as client-go's: a write counts only if nobody has written
// since this one read or wrote.
type storeLock struct {
	store   *leaseStore
	name    string
	version int
}

var errAway = errors.New("no answer")

func (l *storeLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	switch {
	case s.away:
		return nil, nil, errAway
	case s.lease == nil:
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, leaseName)
	}
	l.version = s.version
	r := resourcelock.LeaseSpecToLeaderElectionRecord(&s.lease.Spec)
	raw, err := json.Marshal(*r)
	return r, raw, err
}

func (l *storeLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *storeLock) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.away {
		return errAway
	}
	if l.version != s.version {
		return fmt.Errorf("conflict: %d, not %d", s.version, l.version)
	}
	s.version++
	l.version = s.version
	s.lease = &coordinationv1.Lease{Spec: resourcelock.LeaderElectionRecordToLeaseSpec(&r)}
	return nil
}

func (*storeLock) RecordEvent(string) {}
func (l *storeLock) Identity() string { return l.name }
func (l *storeLock) Describe() string { return leaseName }

// candidate takes part in elections on the store until stop.
func candidate(t *testing.T, s *leaseStore, name string, lead func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	lock := &quietLock{Interface: &storeLock{store: s, name: name}, watched: s.watched, now: time.Now}
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			_, err := term(ctx, lock, &Leadership{self: name}, func(ctx context.Context) error {
				lead(ctx)
				return nil
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() { cancel(); work.Wait() }
}

// TestElectionIsQuiet: an election costs one request in two seconds, whatever the number of
// candidates, which follow the lease by a watch; one leads at a time, through an API server that is
// away as well; and a leader that ends is replaced at once.
func TestElectionIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseStore{}
		var mu sync.Mutex
		leaders, terms := map[string]bool{}, 0
		lead := func(name string) func(context.Context) {
			return func(ctx context.Context) {
				mu.Lock()
				leaders[name] = true
				terms++
				if len(leaders) > 1 {
					t.Errorf("%v lead at the same time", leaders)
				}
				mu.Unlock()
				<-ctx.Done()
				mu.Lock()
				delete(leaders, name)
				mu.Unlock()
			}
		}
		now := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			for name := range leaders {
				return name
			}
			return ""
		}
		stops := map[string]func(){}
		for i := range 5 {
			name := fmt.Sprintf("m%d", i)
			stops[name] = candidate(t, s, name, lead(name))
		}
		<-time.After(10 * time.Second)
		first := now()
		if first == "" {
			t.Fatal("nobody leads")
		}
		s.count()
		<-time.After(time.Minute)
		if n := s.count(); n > 31 || n < 20 {
			t.Errorf("%d requests in a minute", n)
		}
		if now() != first || terms != 1 {
			t.Errorf("%s leads after %s, %d terms", now(), first, terms)
		}
		stops[first]()
		delete(stops, first)
		<-time.After(time.Second)
		if second := now(); second == "" || second == first {
			t.Errorf("a second after %s released the lease %q leads", first, second)
		}
		s.setAway(true)
		<-time.After(leaseDuration)
		if l := now(); l != "" {
			t.Errorf("%s leads without having renewed for %s", l, leaseDuration)
		}
		s.setAway(false)
		<-time.After(time.Second)
		if now() == "" {
			t.Error("nobody leads after the API server is back")
		}
		for _, stop := range stops {
			stop()
		}
	})
}

func (s *leaseStore) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// TestLeaseIsTakenOnlyAsWatched: a candidate whose watch lags does not take the lease from somebody
// who has renewed it since.
func TestLeaseIsTakenOnlyAsWatched(t *testing.T) {
	record := func(holder string, renewed int64) resourcelock.LeaderElectionRecord {
		r := resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 6}
		r.RenewTime.Time, r.AcquireTime.Time = time.Unix(renewed, 0).UTC(), time.Unix(1, 0).UTC()
		return r
	}
	s := &leaseStore{}
	if err := (&storeLock{store: s, name: "a"}).Create(t.Context(), record("a", 1)); err != nil {
		t.Fatal(err)
	}
	stale := s.watched()
	if err := (&storeLock{store: s, name: "a", version: 1}).Update(t.Context(), record("a", 2)); err != nil {
		t.Fatal(err)
	}
	watched := func() *coordinationv1.Lease { return stale }
	b := &quietLock{Interface: &storeLock{store: s, name: "b"}, now: time.Now,
		watched: func() *coordinationv1.Lease { return watched() }}
	if r, _, err := b.Get(t.Context()); err != nil || r.RenewTime.Unix() != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := b.Update(t.Context(), record("b", 3)); !errors.Is(err, errMoved) {
		t.Errorf("the lease was taken although it had been renewed: %v", err)
	}
	watched = s.watched
	if _, _, err := b.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Update(t.Context(), record("b", 10)); err != nil {
		t.Errorf("an expired lease was not taken: %v", err)
	}
}
