package instancemanager

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/heard"
	imclient "ankole.storage/instancemanager/client"
)

const (
	// versionTimeout bounds the question for the API versions after each (re)connection,
	// versionPause is the wait before it is asked again.
	versionTimeout = 5 * time.Second
	versionPause   = time.Second
)

// Connect opens a client to an instance manager at host:port; imclient.Dial with the TLS
// configuration in place.
type Connect func(address string) (*imclient.Client, error)

// Streams keeps one process watch per running Pod and puts what it says into the lists. The leader
// runs it as a Runnable: all streams end with its context, and Start returns after the last of
// them.
type Streams struct {
	connect Connect
	heard   *heard.Lists

	// ctx ends with Start. The manager starts controllers and Runnables in no order.
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	work    sync.WaitGroup
	current map[string]*stream // by instance manager
}

// stream follows the processes of one Pod.
type stream struct {
	pod    types.UID
	cancel context.CancelFunc
}

var _ Follower = (*Streams)(nil)

// NewStreams returns it without any stream.
func NewStreams(connect Connect, lists *heard.Lists) *Streams {
	s := &Streams{connect: connect, heard: lists, current: map[string]*stream{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start lets streams run until ctx ends.
func (s *Streams) Start(ctx context.Context) error {
	<-ctx.Done()
	s.mu.Lock()
	s.cancel()
	for manager := range s.current {
		s.heard.Drop(manager)
	}
	s.current = map[string]*stream{}
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// Follow implements Follower.
func (s *Streams) Follow(manager string, pod types.UID, ip string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.current[manager]
	if s.ctx.Err() != nil || st != nil && st.pod == pod {
		return
	}
	if st != nil {
		st.cancel()
	}
	ctx, cancel := context.WithCancel(s.ctx)
	st = &stream{pod: pod, cancel: cancel}
	s.current[manager] = st
	s.heard.Begin(manager, pod)
	s.work.Go(func() { s.run(ctx, manager, st, net.JoinHostPort(ip, strconv.Itoa(naming.PortProcessManager))) })
}

// Drop implements Follower.
func (s *Streams) Drop(manager string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.current[manager]; st != nil {
		st.cancel()
		delete(s.current, manager)
	}
	s.heard.Drop(manager)
}

func (s *Streams) run(ctx context.Context, manager string, st *stream, address string) {
	log := slog.With("instanceManager", manager, "address", address)
	log.Info("connection to an instance manager", "network", naming.ManagementNetwork)
	c, err := s.connect(address)
	if err != nil {
		log.Error("cannot follow the instance manager", "err", err)
		s.mu.Lock()
		if s.current[manager] == st {
			delete(s.current, manager) // the next look tries again
		}
		s.mu.Unlock()
		return
	}
	defer c.Close()
	var known *heard.Processes // what was told; nil until the first list
	other := false             // somebody else answers at the address
	c.Watch(ctx, func(u imclient.Update) {
		switch {
		case u.Lost != nil:
			log.Info("lost the instance manager, trying again", "err", u.Lost)
			s.heard.Lose(ctx, manager, st.pod)
		case u.List != nil:
			version, err := versionOf(ctx, c, log)
			if err != nil {
				return // the stream ends
			}
			// The address of a Pod that has ended, or has not begun to listen, may be another one's. When
			// that one ends so does the connection, and the next list tells who answers then.
			if name := version.GetInstanceManager(); name != "" && name != manager {
				log.Warn("another instance manager answers at the address", "name", name)
				other = true
				s.heard.Lose(ctx, manager, st.pod)
				return
			}
			other = false
			known = listed(u.List, version)
			s.heard.Tell(ctx, manager, st.pod, known)
		case u.Changed != nil && !other && known != nil: // a list of one would lie about the others
			known = changed(known, u.Changed)
			s.heard.Tell(ctx, manager, st.pod, known)
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

// listed is what a full list says.
func listed(list map[string]*imrpc.ProcessResponse, version *imrpc.VersionResponse) *heard.Processes {
	p := &heard.Processes{
		Engines: map[string]v1beta2.InstanceProcess{}, Replicas: map[string]v1beta2.InstanceProcess{},
		APIVersion:         int(version.GetInstanceManagerAPIVersion()),
		APIMinVersion:      int(version.GetInstanceManagerAPIMinVersion()),
		ProxyAPIVersion:    int(version.GetInstanceManagerProxyAPIVersion()),
		ProxyAPIMinVersion: int(version.GetInstanceManagerProxyAPIMinVersion()),
	}
	for _, process := range list {
		p.Put(processOf(process))
	}
	return p
}

// changed is a copy of before with one process put in or taken out.
func changed(before *heard.Processes, process *imrpc.ProcessResponse) *heard.Processes {
	p := before.Clone()
	if process.GetDeleted() {
		delete(p.Engines, process.GetSpec().GetName())
		delete(p.Replicas, process.GetSpec().GetName())
	} else {
		p.Put(processOf(process))
	}
	return p
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
