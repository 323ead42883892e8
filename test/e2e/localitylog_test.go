package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
)

// replicaLog is every change of every Replica of a cluster, in the order of the API server.
type replicaLog struct {
	mu     sync.Mutex
	events []replicaEvent
	ended  bool
}

type replicaEvent struct {
	kind watch.EventType
	r    longhorn.Replica
}

// recordReplicas begins a log, which ends with the test.
func (c *cluster) recordReplicas() *replicaLog {
	c.t.Helper()
	l := &replicaLog{}
	c.follow(&longhorn.ReplicaList{}, func(kind watch.EventType, o runtime.Object) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if r, ok := o.(*longhorn.Replica); ok {
			l.events = append(l.events, replicaEvent{kind, *r})
		} else {
			l.ended = true
		}
	})
	return l
}

// follow tells every change of the objects of a kind, in the order of the API server, until the
// test ends. An object of another kind, or none, says that there is a gap.
func (c *cluster) follow(list client.ObjectList, note func(watch.EventType, runtime.Object)) {
	c.t.Helper()
	watcher, err := client.NewWithWatch(c.RESTConfig(c.t), client.Options{Scheme: c.kube.Scheme()})
	if err != nil {
		c.t.Fatal(err)
	}
	stream, err := watcher.Watch(context.Background(), list, client.InNamespace(namespace))
	if err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range stream.ResultChan() {
			note(e.Type, e.Object)
		}
		note(watch.Error, nil)
	}()
	c.t.Cleanup(func() {
		stream.Stop()
		<-done
	})
}

// check fails the test if the log has a gap.
func (l *replicaLog) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		t.Fatal("the log of replicas has ended")
	}
}

// nodes are the nodes of all replicas in the log.
func (l *replicaLog) nodes() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := map[string]string{}
	for _, e := range l.events {
		at[e.r.Name] = e.r.Spec.NodeID
	}
	return at
}

// mark is a point in the log.
func (l *replicaLog) mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// first are the places in the log where each of a volume's replicas is first seen since the mark as
// it is to be.
func (l *replicaLog) first(volume string, since int, is func(replicaEvent) bool) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := map[string]int{}
	for i := since; i < len(l.events); i++ {
		e := l.events[i]
		if _, seen := at[e.r.Name]; !seen && e.r.Spec.VolumeName == volume && is(e) {
			at[e.r.Name] = i
		}
	}
	return at
}

func isMade(e replicaEvent) bool { return e.kind == watch.Added }

func isRemoved(e replicaEvent) bool {
	return e.kind == watch.Deleted || e.r.DeletionTimestamp != nil
}

// changes are the replicas of a volume that were made and removed since the mark, in order.
func (l *replicaLog) changes(volume string, since int) (made, removed []string) {
	inOrder := func(at map[string]int) (names []string) {
		for name := range at {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return at[a] - at[b] })
		return names
	}
	return inOrder(l.first(volume, since, isMade)), inOrder(l.first(volume, since, isRemoved))
}

// move returns the replica that was removed for one on the node: exactly one was made, bound to the
// node, and in sync before exactly one other was removed.
func (l *replicaLog) move(volume string, since int, node string) (gone longhorn.Replica, err error) {
	made := l.first(volume, since, isMade)
	removed := l.first(volume, since, isRemoved)
	inSync := l.first(volume, since, func(e replicaEvent) bool { return e.r.Spec.HealthyAt != "" })
	if len(made) != 1 || len(removed) != 1 {
		return gone, fmt.Errorf("replicas made %v and removed %v, want one of each", made, removed)
	}
	for name := range made {
		at, ready := inSync[name]
		l.mu.Lock()
		last := l.events[at].r.Spec
		l.mu.Unlock()
		if !ready || last.NodeID != node || last.HardNodeAffinity != node {
			return gone, fmt.Errorf("replica %s, in sync %v, is on %q and bound to %q", name, ready, last.NodeID,
				last.HardNodeAffinity)
		}
		for other, i := range removed {
			l.mu.Lock()
			gone = l.events[i].r
			l.mu.Unlock()
			if other == name || gone.Spec.NodeID == node || i < at {
				return gone, fmt.Errorf("replica %s on %s was removed, %v after the one on %s was in sync", other,
					gone.Spec.NodeID, i > at, node)
			}
		}
	}
	return gone, nil
}

// patchVolume changes a Volume in the API server.
func (c *cluster) patchVolume(name, patch string) error {
	v := &longhorn.Volume{}
	v.Namespace, v.Name = namespace, name
	return c.kube.Patch(context.Background(), v, client.RawPatch(types.MergePatchType, []byte(patch)))
}
