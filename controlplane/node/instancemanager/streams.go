package instancemanager

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"reflect"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/object/naming"
	imclient "ankole.storage/instancemanager/client"
)

const (
	// wakeupBuffer holds wake-ups while the controller is busy; a full buffer only makes a stream
	// wait.
	wakeupBuffer = 256
	// versionTimeout bounds the question for the API versions after each (re)connection,
	// versionPause is the wait before it is asked again.
	versionTimeout = 5 * time.Second
	versionPause   = time.Second
)

// Connect opens a client to an instance manager at host:port; imclient.Dial with the TLS
// configuration in place.
type Connect func(address string) (*imclient.Client, error)

// streams keeps one process watch per running Pod and remembers what it said. The leader runs it as
// a Runnable: all streams end with its context, and Start returns after the last of them.
type streams struct {
	connect Connect
	wakeups chan event.GenericEvent

	mu      sync.Mutex
	ctx     context.Context // nil before Start and after its end
	work    sync.WaitGroup
	current map[client.ObjectKey]*stream
	// early are those asked for before Start; the manager starts controllers and Runnables in no
	// order.
	early map[client.ObjectKey]bool
}

// stream follows the processes of one Pod.
type stream struct {
	pod    types.UID
	cancel context.CancelFunc

	mu    sync.Mutex
	known *Processes  // what was reported; nil until the first list
	shown *Processes  // what the controller is shown of it
	pace  pace        // of the changes of shown
	due   time.Time   // when what is known will be shown; zero if it is shown
	timer *time.Timer // shows it; nil without due
	lost  time.Time   // since when changes may be missing; zero while the stream stands
}

func newStreams(connect Connect) *streams {
	return &streams{
		connect: connect, wakeups: make(chan event.GenericEvent, wakeupBuffer),
		current: map[client.ObjectKey]*stream{}, early: map[client.ObjectKey]bool{},
	}
}

// Start lets streams run until ctx ends.
func (s *streams) Start(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	early := s.early
	s.early = map[client.ObjectKey]bool{}
	s.mu.Unlock()
	for key := range early {
		s.wake(ctx, key)
	}
	<-ctx.Done()
	s.mu.Lock()
	s.ctx = nil
	s.current = map[client.ObjectKey]*stream{}
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// Follow implements Follower.
func (s *streams) Follow(key client.ObjectKey, pod types.UID, ip string) (*Processes, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.early[key] = true
		return nil, time.Now()
	}
	st := s.current[key]
	if st == nil || st.pod != pod {
		if st != nil {
			st.cancel()
		}
		ctx, cancel := context.WithCancel(s.ctx)
		begun := time.Now()
		st = &stream{pod: pod, cancel: cancel, lost: begun}
		s.current[key] = st
		s.work.Add(1)
		go func() {
			defer s.work.Done()
			s.run(ctx, key, st, net.JoinHostPort(ip, strconv.Itoa(naming.PortProcessManager)))
		}()
		return nil, begun // the first list wakes the controller
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.shown, st.lost
}

// Wakeups implements Follower.
func (s *streams) Wakeups() <-chan event.GenericEvent { return s.wakeups }

// Drop implements Follower.
func (s *streams) Drop(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.current[key]; st != nil {
		st.cancel()
		delete(s.current, key)
	}
}

func (s *streams) run(ctx context.Context, key client.ObjectKey, st *stream, address string) {
	log := slog.With("instanceManager", key.Name, "address", address)
	log.Info("connection to an instance manager", "network", naming.ManagementNetwork)
	c, err := s.connect(address)
	if err != nil {
		log.Error("cannot follow the instance manager", "err", err)
		s.mu.Lock()
		if s.current[key] == st {
			delete(s.current, key) // the next look tries again
		}
		s.mu.Unlock()
		return
	}
	defer c.Close()
	other := false // somebody else answers at the address
	c.Watch(ctx, func(u imclient.Update) {
		switch {
		case u.Lost != nil:
			log.Info("lost the instance manager, trying again", "err", u.Lost)
			s.lose(ctx, key, st)
		case u.List != nil:
			version, err := versionOf(ctx, c, log)
			if err != nil {
				return // the stream ends
			}
			// The address of a Pod that has ended, or has not begun to listen, may be another one's. When
			// that one ends so does the connection, and the next list tells who answers then.
			if name := version.GetInstanceManager(); name != "" && name != key.Name {
				log.Warn("another instance manager answers at the address", "name", name)
				other = true
				s.lose(ctx, key, st)
				return
			}
			other = false
			s.publish(ctx, key, st, listed(u.List, version))
		case u.Changed != nil && !other:
			s.publish(ctx, key, st, changed(st.known, u.Changed))
		}
	})
}

// versionOf asks for the API versions until they are known: without an answer nobody can tell
// whether there is a proxy, and to take the engine binary because of a lost answer would be wrong.
func versionOf(ctx context.Context, c *imclient.Client, log *slog.Logger) (*imrpc.VersionResponse, error) {
	for {
		asked, cancel := context.WithTimeout(ctx, versionTimeout)
		version, err := c.VersionGet(asked)
		cancel()
		switch {
		case err == nil:
			return version, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case status.Code(err) == codes.Unimplemented:
			return &imrpc.VersionResponse{InstanceManagerAPIVersion: 1, InstanceManagerAPIMinVersion: 1}, nil
		}
		log.Info("no API version from the instance manager, asking again", "err", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(versionPause):
		}
	}
}

// publish stores what is known, which is confirmed now, and shows it to the controller if it is
// news. Only the stream's own goroutine calls it.
func (s *streams) publish(ctx context.Context, key client.ObjectKey, st *stream, p *Processes) {
	if p == nil || st.lost.IsZero() && reflect.DeepEqual(p, st.known) {
		return
	}
	now := time.Now()
	st.mu.Lock()
	var wait time.Duration
	if st.lost.IsZero() {
		wait = st.pace.wait(now, st.shown, p)
	}
	st.known, st.lost = p, time.Time{}
	due := now.Add(wait)
	if wait > 0 {
		if st.due.IsZero() || due.Before(st.due) {
			st.schedule(due, func() { s.show(ctx, key, st) })
		}
		st.mu.Unlock()
		return
	}
	st.mu.Unlock()
	s.show(ctx, key, st)
}

// schedule has show called at due, and not before. The caller holds the lock.
func (st *stream) schedule(due time.Time, show func()) {
	if st.timer != nil {
		st.timer.Stop()
	}
	st.due, st.timer = due, time.AfterFunc(time.Until(due), show)
}

// show shows the controller what is known.
func (s *streams) show(ctx context.Context, key client.ObjectKey, st *stream) {
	st.mu.Lock()
	if st.timer != nil {
		st.timer.Stop()
	}
	st.shown, st.due, st.timer = st.known, time.Time{}, nil
	st.pace.shown(time.Now(), st.shown)
	st.mu.Unlock()
	s.wake(ctx, key)
}

// lose notes that changes may be missing from now on: what is known stays, unconfirmed.
func (s *streams) lose(ctx context.Context, key client.ObjectKey, st *stream) {
	if !st.lost.IsZero() {
		return
	}
	st.mu.Lock()
	st.lost = time.Now()
	st.mu.Unlock()
	s.wake(ctx, key)
}

// wake wakes the controller for one object.
func (s *streams) wake(ctx context.Context, key client.ObjectKey) {
	object := &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	select {
	case s.wakeups <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}

// listed is what a full list says. Values of Processes are never changed after publishing, so
// readers share them.
func listed(list map[string]*imrpc.ProcessResponse, version *imrpc.VersionResponse) *Processes {
	p := &Processes{
		Engines: map[string]v1beta2.InstanceProcess{}, Replicas: map[string]v1beta2.InstanceProcess{},
		APIVersion:         int(version.GetInstanceManagerAPIVersion()),
		APIMinVersion:      int(version.GetInstanceManagerAPIMinVersion()),
		ProxyAPIVersion:    int(version.GetInstanceManagerProxyAPIVersion()),
		ProxyAPIMinVersion: int(version.GetInstanceManagerProxyAPIMinVersion()),
	}
	for _, process := range list {
		p.put(process)
	}
	return p
}

// changed is a copy of before with one process put in or taken out; nil before the first list.
func changed(before *Processes, process *imrpc.ProcessResponse) *Processes {
	if before == nil {
		return nil
	}
	p := *before
	p.Engines, p.Replicas = maps.Clone(before.Engines), maps.Clone(before.Replicas)
	if process.GetDeleted() {
		delete(p.Engines, process.GetSpec().GetName())
		delete(p.Replicas, process.GetSpec().GetName())
	} else {
		p.put(process)
	}
	return &p
}

func (p *Processes) put(process *imrpc.ProcessResponse) {
	told := processOf(process)
	if told.Status.Type == v1beta2.InstanceTypeEngine {
		p.Engines[told.Spec.Name] = told
	} else {
		p.Replicas[told.Spec.Name] = told
	}
}

// processOf is what an instance manager says of one process.
func processOf(process *imrpc.ProcessResponse) v1beta2.InstanceProcess {
	name, st := process.GetSpec().GetName(), process.GetStatus()
	kind, binary := v1beta2.InstanceTypeReplica, ""
	if isEngineName(name) {
		kind, binary = v1beta2.InstanceTypeEngine, process.GetSpec().GetBinary()
	}
	return v1beta2.InstanceProcess{
		Spec: v1beta2.InstanceProcessSpec{Name: name, DataEngine: v1beta2.DataEngineTypeV1,
			Order: process.GetSpec().GetOrder(), Binary: binary},
		Status: v1beta2.InstanceProcessStatus{
			Type:       kind,
			State:      v1beta2.InstanceState(st.GetState()),
			ErrorMsg:   st.GetErrorMsg(),
			PortStart:  int(st.GetPortStart()),
			PortEnd:    int(st.GetPortEnd()),
			Conditions: st.GetConditions(),
			UUID:       st.GetUuid(),
		},
	}
}
