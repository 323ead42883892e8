package manager

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/controlplane/backingimage"
)

const (
	// wakeupBuffer holds wake-ups while the controller is busy; a full buffer only makes a stream
	// wait.
	wakeupBuffer = 64
	// callTimeout bounds a call that is answered at once.
	callTimeout = 10 * time.Second
	// againAfter is the pause before a manager is followed again that was lost.
	againAfter = time.Second
)

// Dial opens a connection to a process at host:port. It connects when it is used.
type Dial func(address string) (*grpc.ClientConn, error)

// fileID names a file: an image, and one life of that name.
type fileID struct{ name, uuid string }

// listing is what a process says of its files. It is never changed once it was published.
type listing struct {
	files                  map[fileID]v1beta2.BackingImageFileInfo
	apiVersion, apiMinimum int
}

// followed keeps a watch per running Pod and remembers what it said. The leader runs it: all
// watches end with its context.
type followed struct {
	dial    Dial
	wakeups chan event.GenericEvent

	mu      sync.Mutex
	ctx     context.Context // nil before Start and after its end
	work    sync.WaitGroup
	current map[client.ObjectKey]*watch
}

// watch is that of one Pod.
type watch struct {
	pod    types.UID
	cancel context.CancelFunc

	mu    sync.Mutex
	known *listing // nil until the first list
	lost  bool     // since known was listed, the connection has ended
}

func newFollowed(dial Dial) *followed {
	return &followed{dial: dial, wakeups: make(chan event.GenericEvent, wakeupBuffer),
		current: map[client.ObjectKey]*watch{}}
}

// Start lets watches run until ctx ends, and returns after the last of them.
func (f *followed) Start(ctx context.Context) error {
	f.mu.Lock()
	f.ctx = ctx
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.ctx, f.current = nil, map[client.ObjectKey]*watch{}
	f.mu.Unlock()
	f.work.Wait()
	return nil
}

// of makes sure that the process in a Pod is watched and returns what it has said last; nil if
// nothing yet, or if the connection is lost: what it has now is not known then.
func (f *followed) of(key client.ObjectKey, pod types.UID, ip string) *listing {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx == nil {
		return nil
	}
	w := f.current[key]
	if w == nil || w.pod != pod {
		if w != nil {
			w.cancel()
		}
		ctx, cancel := context.WithCancel(f.ctx)
		w = &watch{pod: pod, cancel: cancel}
		f.current[key] = w
		f.work.Go(func() { f.run(ctx, key, w, backingimage.Address(ip)) })
		return nil // the first list wakes the controller
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost {
		return nil
	}
	return w.known
}

// drop ends the watch of a manager that has no running Pod.
func (f *followed) drop(key client.ObjectKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.current[key]; w != nil {
		w.cancel()
		delete(f.current, key)
	}
}

// run follows one process until ctx ends.
func (f *followed) run(ctx context.Context, key client.ObjectKey, w *watch, address string) {
	log := slog.With("backingImageManager", key.Name, "address", address)
	for {
		err := f.follow(ctx, key, w, address)
		if ctx.Err() != nil {
			return
		}
		log.Info("lost the backing image manager, trying again", "err", err)
		w.mu.Lock()
		news := !w.lost
		w.lost = true
		w.mu.Unlock()
		if news {
			f.wake(ctx, key)
		}
		t := time.NewTimer(againAfter)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// follow lists the files at each hint of a change, until the connection is lost.
func (f *followed) follow(ctx context.Context, key client.ObjectKey, w *watch, address string) error {
	conn, err := f.dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := bimrpc.NewBackingImageManagerServiceClient(conn)
	asked, cancel := context.WithTimeout(ctx, callTimeout)
	version, err := c.VersionGet(asked, &emptypb.Empty{})
	cancel()
	if err != nil {
		return fmt.Errorf("ask for its version: %w", err)
	}
	stream, err := c.Watch(ctx, &emptypb.Empty{})
	if err != nil {
		return fmt.Errorf("watch its files: %w", err)
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return fmt.Errorf("watch its files: %w", err)
		}
		asked, cancel := context.WithTimeout(ctx, callTimeout)
		list, err := c.List(asked, &emptypb.Empty{})
		cancel()
		if err != nil {
			return fmt.Errorf("list its files: %w", err)
		}
		f.publish(ctx, key, w, listed(list, version))
	}
}

// publish stores what a process has, and wakes the controller if that is news.
func (f *followed) publish(ctx context.Context, key client.ObjectKey, w *watch, l *listing) {
	w.mu.Lock()
	news := w.lost || !reflect.DeepEqual(w.known, l)
	w.known, w.lost = l, false
	w.mu.Unlock()
	if news {
		f.wake(ctx, key)
	}
}

func (f *followed) wake(ctx context.Context, key client.ObjectKey) {
	object := &v1beta2.BackingImageManager{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	select {
	case f.wakeups <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}

// listed is what a list says.
func listed(list *bimrpc.ListResponse, version *bimrpc.VersionResponse) *listing {
	l := &listing{files: map[fileID]v1beta2.BackingImageFileInfo{},
		apiVersion: int(version.GetBackingImageManagerApiVersion()),
		apiMinimum: int(version.GetBackingImageManagerApiMinVersion())}
	for _, r := range list.GetBackingImages() {
		spec, status := r.GetSpec(), r.GetStatus()
		l.files[fileID{spec.GetName(), spec.GetUuid()}] = v1beta2.BackingImageFileInfo{
			Name: spec.GetName(), UUID: spec.GetUuid(), Size: spec.GetSize(), VirtualSize: spec.GetVirtualSize(),
			RealSize: spec.GetRealSize(), State: v1beta2.BackingImageState(status.GetState()),
			CurrentChecksum: status.GetChecksum(), Message: status.GetErrorMsg(), Progress: int(status.GetProgress()),
			SendingReference: int(status.GetSendingReference()), SenderManagerAddress: status.GetSenderManagerAddress(),
		}
	}
	return l
}
