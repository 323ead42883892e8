package manager

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/controlplane/backingimage"
)

const (
	// firstPause and mostPause bound the time between attempts to make a file that fails.
	firstPause = 10 * time.Second
	mostPause  = 10 * time.Minute
	// deleteTimeout bounds a deletion, which waits for who reads the file; it is less than a step of
	// the loop may take.
	deleteTimeout = time.Minute
)

// The orders that decide names, to the process at the address IP.
type (
	fetchOrder struct {
		IP, Source string
		File       content
	}
	syncOrder struct {
		IP, From string
		File     content
	}
	deleteOrder struct {
		IP   string
		File fileID
	}
	// content is a file that the process is to have; 0 and empty: not known.
	content struct {
		fileID
		Size     int64
		Checksum string
	}
)

func (f content) spec() *bimrpc.BackingImageSpec {
	return &bimrpc.BackingImageSpec{Name: f.name, Uuid: f.uuid, Size: f.Size, Checksum: f.Checksum}
}

func (r *Reconciler) carry(ctx context.Context, m *v1beta2.BackingImageManager, _ seen, order any) error {
	key := client.ObjectKeyFromObject(m)
	switch o := order.(type) {
	case fetchOrder:
		return r.orders.fetch(ctx, key, o.IP, o.Source, o.File.spec())
	case syncOrder:
		return r.orders.sync(ctx, key, o.IP, o.From, o.File.spec())
	case deleteOrder:
		return r.orders.delete(ctx, key, o.IP, o.File)
	}
	return fmt.Errorf("backing image manager %s: nobody carries out %T", m.Name, order)
}

// orders carries orders out and remembers them: how often a file was tried, and what was deleted.
// Losing that costs a try without a pause, and a deletion of what is gone.
type orders struct {
	dial Dial
	now  func() time.Time

	mu  sync.Mutex
	all map[client.ObjectKey]map[fileID]*attempts
}

type attempts struct {
	count     int
	notBefore time.Time
	// deleted: nothing of the file is on the disk, since it was deleted and not ordered again.
	deleted bool
}

func newOrders(dial Dial, now func() time.Time) *orders {
	return &orders{dial: dial, now: now, all: map[client.ObjectKey]map[fileID]*attempts{}}
}

// forget drops what is known of a manager that is gone.
func (o *orders) forget(key client.ObjectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, key)
}

// of returns a copy of what is remembered of a file.
func (o *orders) of(key client.ObjectKey, id fileID) attempts {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a := o.all[key][id]; a != nil {
		return *a
	}
	return attempts{}
}

// note changes what is remembered of a file.
func (o *orders) note(key client.ObjectKey, id fileID, change func(*attempts)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all[key] == nil {
		o.all[key] = map[fileID]*attempts{}
	}
	if o.all[key][id] == nil {
		o.all[key][id] = &attempts{}
	}
	change(o.all[key][id])
}

// succeeded takes note that a file is ready: the next failure is the first.
func (o *orders) succeeded(key client.ObjectKey, id fileID) {
	o.note(key, id, func(a *attempts) { a.count, a.notBefore = 0, time.Time{} })
}

// tried takes note of an attempt to make a file.
func (a *attempts) tried(now time.Time) {
	pause := mostPause
	if a.count < 6 { // 10 s << 6 exceeds mostPause
		pause = firstPause << a.count
	}
	a.count++
	a.notBefore, a.deleted = now.Add(pause), false
}

// call makes one call to the process at ip.
func (o *orders) call(ctx context.Context, ip, what string, limit time.Duration,
	do func(context.Context, bimrpc.BackingImageManagerServiceClient) error) error {
	conn, err := o.dial(backingimage.Address(ip))
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err = do(ctx, bimrpc.NewBackingImageManagerServiceClient(conn))
		_ = conn.Close() // the call is over
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// fetch has a process take over the file of a data source.
func (o *orders) fetch(ctx context.Context, key client.ObjectKey, ip, source string,
	spec *bimrpc.BackingImageSpec) error {
	o.note(key, fileID{spec.Name, spec.Uuid}, func(a *attempts) { a.tried(o.now()) })
	return o.call(ctx, ip, "take over the file of data source "+source, callTimeout,
		func(ctx context.Context, c bimrpc.BackingImageManagerServiceClient) error {
			_, err := c.Fetch(ctx, &bimrpc.FetchRequest{Spec: spec, DataSourceAddress: source})
			return err
		})
}

// sync has a process copy a file from another one.
func (o *orders) sync(ctx context.Context, key client.ObjectKey, ip, from string, spec *bimrpc.BackingImageSpec) error {
	o.note(key, fileID{spec.Name, spec.Uuid}, func(a *attempts) { a.tried(o.now()) })
	return o.call(ctx, ip, "copy the file from "+from, callTimeout,
		func(ctx context.Context, c bimrpc.BackingImageManagerServiceClient) error {
			_, err := c.Sync(ctx, &bimrpc.SyncRequest{Spec: spec, FromAddress: from})
			return err
		})
}

// delete has a process remove a file. The second call finds none, and removes what a data source
// has left.
func (o *orders) delete(ctx context.Context, key client.ObjectKey, ip string, id fileID) error {
	err := o.call(ctx, ip, "delete the file", deleteTimeout,
		func(ctx context.Context, c bimrpc.BackingImageManagerServiceClient) error {
			for range 2 {
				if _, err := c.Delete(ctx, &bimrpc.DeleteRequest{Name: id.name, Uuid: id.uuid}); err != nil {
					return err
				}
			}
			return nil
		})
	if err == nil {
		o.note(key, id, func(a *attempts) { a.deleted = true })
	}
	return err
}
