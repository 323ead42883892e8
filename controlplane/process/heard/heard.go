// Package heard keeps what the leader hears of the processes in instance managers.
//
// An instance manager tells on one stream which processes it has and what becomes of them. Who
// decides by that (the controllers of engines, replicas, orphans and instance managers) gets it
// from here, at once, and from nowhere else: the lists in the status of an InstanceManager are
// written for clients, some time later. As long as the leader has not heard a list from a Pod,
// nobody knows what runs there, whatever the last leader has written.
package heard

import (
	"context"
	"iter"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"ankole.storage/api/longhorn/v1beta2"
)

const (
	// wakeupBuffer holds wake-ups while a controller is busy; a full buffer only makes a stream wait.
	wakeupBuffer = 256
	// startPause is how long nobody is told of a process that starts: the change after it says that it
	// runs.
	startPause = 200 * time.Millisecond
	// statusPause is how long a change may wait until it is written into the status of its instance
	// manager: a volume that attaches is over by then. pausePerProcess makes it longer where many
	// processes are, since all of the list is written, checked and sent to every manager again: of 400
	// processes for a quarter of a second of a core.
	statusPause     = time.Second
	pausePerProcess = 5 * time.Millisecond
)

// Processes is what the stream from a Pod says. Engines and Replicas are never nil. It is never
// changed: the next thing that is heard makes another one.
type Processes struct {
	Engines, Replicas map[string]v1beta2.InstanceProcess
	// API and Proxy versions with their minima; 0 as proxy version means that there is no proxy.
	APIVersion, APIMinVersion, ProxyAPIVersion, ProxyAPIMinVersion int
}

// Find returns the process of that name, nil if it is not there or nothing was heard.
func (p *Processes) Find(name string) *v1beta2.InstanceProcess {
	if p == nil {
		return nil
	}
	for _, m := range []map[string]v1beta2.InstanceProcess{p.Engines, p.Replicas} {
		if found, ok := m[name]; ok {
			return &found
		}
	}
	return nil
}

// Lists are the processes in the Pods of all instance managers. Use New. It may be used by several
// goroutines.
type Lists struct {
	namespace string
	// What each kind of controller is woken by: an object of its kind, or an instance manager of which
	// everything is new.
	managers, engines, replicas chan event.GenericEvent

	mu   sync.Mutex
	pods map[string]*pod // by instance manager
	// within are the instance managers that list a process of a name.
	within map[string]map[string]bool
}

// pod is what is heard from one Pod.
type pod struct {
	uid   types.UID
	known *Processes // nil until the first list
	// lost is since when changes may be missing; zero while the stream stands.
	lost time.Time
	// starting are the processes that nobody is told of yet, with their UUID.
	starting map[string]string
	// due: the status is to be written, and somebody is woken for that already.
	due bool
}

// New returns lists in which nothing was heard.
func New(namespace string) *Lists {
	channel := func() chan event.GenericEvent { return make(chan event.GenericEvent, wakeupBuffer) }
	return &Lists{namespace: namespace, managers: channel(), engines: channel(), replicas: channel(),
		pods: map[string]*pod{}, within: map[string]map[string]bool{}}
}

// Managers names the instance managers of which there is news for their status.
func (l *Lists) Managers() <-chan event.GenericEvent { return l.managers }

// Engines names the engines of whose process there is news.
func (l *Lists) Engines() <-chan event.GenericEvent { return l.engines }

// Replicas names the replicas of whose process there is news.
func (l *Lists) Replicas() <-chan event.GenericEvent { return l.replicas }

// Begin makes a Pod the one of an instance manager, from which nothing was heard yet.
func (l *Lists) Begin(manager string, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists(manager, l.pods[manager], nil)
	l.pods[manager] = &pod{uid: uid, lost: time.Now(), starting: map[string]string{}}
}

// Drop forgets an instance manager that has no Pod which runs.
func (l *Lists) Drop(manager string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists(manager, l.pods[manager], nil)
	delete(l.pods, manager)
}

// lists notes what an instance manager lists from now on, which its Pod is to know next. The caller
// holds the lock.
func (l *Lists) lists(manager string, p *pod, now *Processes) {
	if p != nil {
		for name := range p.known.names() {
			if delete(l.within[name], manager); len(l.within[name]) == 0 {
				delete(l.within, name)
			}
		}
	}
	for name := range now.names() {
		if l.within[name] == nil {
			l.within[name] = map[string]bool{}
		}
		l.within[name][manager] = true
	}
}

// names are those of all processes, none if nothing was heard.
func (p *Processes) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		if p == nil {
			return
		}
		for _, m := range []map[string]v1beta2.InstanceProcess{p.Engines, p.Replicas} {
			for name := range m {
				if !yield(name) {
					return
				}
			}
		}
	}
}

// With names the instance managers that list a process of a name, in order.
func (l *Lists) With(process string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.within[process]))
}

// Of returns what was heard from an instance manager, nil if nothing was, and since when that is
// not confirmed, zero if it is.
func (l *Lists) Of(manager string) (*Processes, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pods[manager]
	if p == nil {
		return nil, time.Time{}
	}
	return p.known, p.lost
}

// Starting tells whether the process of that name has begun to start only a moment ago. Who asks is
// woken when the moment is over, or the process runs.
func (l *Lists) Starting(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for manager := range l.within[name] {
		if _, ok := l.pods[manager].starting[name]; ok {
			return true
		}
	}
	return false
}

// Lose notes that changes may be missing from now on: what is known stays, unconfirmed.
func (l *Lists) Lose(ctx context.Context, manager string, uid types.UID) {
	l.mu.Lock()
	p := l.pods[manager]
	news := p != nil && p.uid == uid && p.lost.IsZero()
	if news {
		p.lost = time.Now()
	}
	l.mu.Unlock()
	if news {
		l.wake(ctx, l.managers, instanceManager(manager))
	}
}

// Tell takes in what the stream from a Pod says now, and wakes those it concerns.
func (l *Lists) Tell(ctx context.Context, manager string, uid types.UID, now *Processes) {
	l.mu.Lock()
	p := l.pods[manager]
	if p == nil || p.uid != uid || p.lost.IsZero() && reflect.DeepEqual(p.known, now) {
		l.mu.Unlock()
		return
	}
	before, lost := p.known, !p.lost.IsZero()
	l.lists(manager, p, now)
	p.known, p.lost = now, time.Time{}
	if before == nil {
		l.mu.Unlock()
		for _, to := range []chan event.GenericEvent{l.managers, l.engines, l.replicas} {
			l.wake(ctx, to, instanceManager(manager))
		}
		return
	}
	engines := l.changed(ctx, p, l.engines, before.Engines, now.Engines)
	replicas := l.changed(ctx, p, l.replicas, before.Replicas, now.Replicas)
	later := !lost && !p.due && !reflect.DeepEqual(before, now)
	if later {
		p.due = true
		l.after(ctx, p, statusPauseOf(now), func() {
			p.due = false
		}, l.managers, instanceManager(manager))
	}
	l.mu.Unlock()
	if lost {
		l.wake(ctx, l.managers, instanceManager(manager))
	}
	for _, name := range engines {
		l.wake(ctx, l.engines, named(name))
	}
	for _, name := range replicas {
		l.wake(ctx, l.replicas, named(name))
	}
}

// statusPauseOf is how long a change of a list may wait until it is written.
func statusPauseOf(p *Processes) time.Duration {
	return max(statusPause, pausePerProcess*time.Duration(len(p.Engines)+len(p.Replicas)))
}

// changed names the processes of which there is news, and has the others woken later that begin to
// start. The caller holds the lock.
func (l *Lists) changed(ctx context.Context, p *pod, to chan event.GenericEvent,
	before, now map[string]v1beta2.InstanceProcess) (names []string) {
	for name := range before {
		if _, there := now[name]; !there {
			delete(p.starting, name)
			names = append(names, name)
		}
	}
	for name, process := range now {
		was, there := before[name]
		if there && reflect.DeepEqual(was, process) {
			continue
		}
		run, starts := process.Status.UUID, process.Status.State == v1beta2.InstanceStateStarting
		if waits, ok := p.starting[name]; starts && ok && waits == run {
			continue
		}
		delete(p.starting, name)
		if !starts || there {
			names = append(names, name)
			continue
		}
		p.starting[name] = run
		l.after(ctx, p, startPause, func() {
			if p.starting[name] == run {
				delete(p.starting, name)
			}
		}, to, named(name))
	}
	return names
}

// after does something in a while, and wakes a controller then, if the Pod is still followed.
func (l *Lists) after(ctx context.Context, p *pod, in time.Duration, do func(), to chan event.GenericEvent,
	o client.Object) {
	time.AfterFunc(in, func() {
		l.mu.Lock()
		do()
		l.mu.Unlock()
		if ctx.Err() == nil {
			l.wake(ctx, to, o)
		}
	})
}

// instanceManager is a wake-up about everything that one has.
func instanceManager(name string) client.Object {
	return &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// named is a wake-up of one object of the controller's kind.
func named(name string) client.Object {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func (l *Lists) wake(ctx context.Context, to chan event.GenericEvent, o client.Object) {
	o.SetNamespace(l.namespace)
	select {
	case to <- event.GenericEvent{Object: o}:
	case <-ctx.Done():
	}
}

// Clone is a copy that may be changed until it is told.
func (p *Processes) Clone() *Processes {
	c := *p
	c.Engines, c.Replicas = maps.Clone(p.Engines), maps.Clone(p.Replicas)
	return &c
}

// Put adds a process, or what is new of one.
func (p *Processes) Put(process v1beta2.InstanceProcess) {
	if process.Status.Type == v1beta2.InstanceTypeEngine {
		p.Engines[process.Spec.Name] = process
	} else {
		p.Replicas[process.Spec.Name] = process
	}
}

// Busy tells whether one of the processes runs or is about to.
func (p *Processes) Busy() bool {
	for _, m := range []map[string]v1beta2.InstanceProcess{p.Engines, p.Replicas} {
		for _, process := range m {
			switch process.Status.State {
			case v1beta2.InstanceStateRunning, v1beta2.InstanceStateStarting, v1beta2.InstanceStateStopping:
				return true
			}
		}
	}
	return false
}
