package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// quietLock makes an election cost few requests. Candidates follow the lease by a watch and read it
// from there as often as they like; the holder writes it every renewEvery, however often the
// elector asks for that. So electors can look several times a second, which replaces a dead leader
// soon, while an idle cluster sees one request in two seconds, whatever the number of its nodes.
type quietLock struct {
	// Interface is the lock of client-go, which reads and writes the lease.
	resourcelock.Interface
	watched func() *coordinationv1.Lease
	now     func() time.Time

	// Elections call a lock from one goroutine at a time.
	read    []byte // the record that the watch showed last; nil if the record was read live
	written resourcelock.LeaderElectionRecord
	at      time.Time // when written was; zero if this process does not hold the lease
}

// errMoved means that the lease is not what the watch showed.
var errMoved = errors.New("the lease has changed since it was watched")

// Get returns the record as the watch shows it, or reads it while there is no watch. A record that
// is shown late is taken for newer than it is, so a candidate then waits too long, never too short.
func (l *quietLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease := l.watched()
	if lease == nil {
		l.read = nil
		return l.Interface.Get(ctx)
	}
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	raw, err := json.Marshal(*record)
	l.read = raw
	return record, raw, err
}

// Create creates the lease.
func (l *quietLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.note(r, l.Interface.Create(ctx, r))
}

// Update writes the record. A renewal soon after the last one is left out; whoever takes the lease,
// or gives it up, writes at once.
func (l *quietLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	renewal := r
	renewal.RenewTime = l.written.RenewTime
	if !l.at.IsZero() && renewal == l.written && l.now().Sub(l.at) < renewEvery {
		return nil
	}
	if l.at.IsZero() && l.read != nil {
		// The lock below writes over what it has read itself: it must be what the elector has judged.
		_, raw, err := l.Interface.Get(ctx)
		if err == nil && !bytes.Equal(raw, l.read) {
			err = errMoved
		}
		if err != nil {
			return fmt.Errorf("take the lease: %w", err)
		}
	}
	return l.note(r, l.Interface.Update(ctx, r))
}

// note remembers what this process has written. After a failure nothing is left out: the lease may
// be somebody else's.
func (l *quietLock) note(r resourcelock.LeaderElectionRecord, err error) error {
	l.written, l.at = r, l.now()
	if err != nil || r.HolderIdentity != l.Identity() {
		l.at = time.Time{}
	}
	return err
}

// watchLease follows a lease until ctx ends. seen returns it as it was seen last, nil while it is
// not known; wait returns when nothing of the watch runs any more.
func watchLease(ctx context.Context, clients kubernetes.Interface, namespace, name string) (
	seen func() *coordinationv1.Lease, wait func()) {
	var last atomic.Pointer[coordinationv1.Lease]
	store := func(o any) {
		if lease, ok := o.(*coordinationv1.Lease); ok {
			last.Store(lease)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(clients.CoordinationV1().RESTClient(), "leases", namespace,
			fields.OneTermEqualSelector(metav1.ObjectNameField, name)),
		ObjectType: &coordinationv1.Lease{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    store,
			UpdateFunc: func(_, o any) { store(o) },
			DeleteFunc: func(any) { last.Store(nil) },
		},
	})
	var work sync.WaitGroup
	work.Go(func() { informer.RunWithContext(ctx) })
	return last.Load, work.Wait
}
