package simulated_test

import (
	"container/heap"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// agenda is which objects a controller is to look at, each once, at the earliest time that was
// asked for. What it costs to look into it does not depend on how many wait.
type agenda struct {
	at map[client.ObjectKey]time.Time
	// later are those whose time has not come; one that was taken, or has another time, is skipped.
	later *entries
	// ready are those whose time has come, in order.
	ready []client.ObjectKey
}

type entry struct {
	key client.ObjectKey
	at  time.Time
}

type entries []entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e entries) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *entries) Push(x any)        { *e = append(*e, x.(entry)) }
func (e *entries) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newAgenda() agenda { return agenda{at: map[client.ObjectKey]time.Time{}, later: &entries{}} }

func (a *agenda) add(key client.ObjectKey, at time.Time) {
	if before, ok := a.at[key]; ok && !at.Before(before) {
		return
	}
	a.at[key] = at
	heap.Push(a.later, entry{key, at})
}

func (a *agenda) take(key client.ObjectKey) {
	delete(a.at, key)
	if i, found := slices.BinarySearchFunc(a.ready, key, compareKeys); found {
		a.ready = slices.Delete(a.ready, i, i+1)
	}
}

// until gives those whose time has come, and when the next one's does, zero for never.
func (a *agenda) until(now time.Time) (ready []client.ObjectKey, next time.Time) {
	for len(*a.later) > 0 {
		first := (*a.later)[0]
		if at, ok := a.at[first.key]; ok && at.Equal(first.at) && at.After(now) {
			return a.ready, at
		} else if ok && at.Equal(first.at) {
			if i, found := slices.BinarySearchFunc(a.ready, first.key, compareKeys); !found {
				a.ready = slices.Insert(a.ready, i, first.key)
			}
		}
		heap.Pop(a.later)
	}
	return a.ready, time.Time{}
}

// free are those whose time has come and that nobody looks at.
func (c *controller) free(now time.Time) (keys []client.ObjectKey) {
	ready, _ := c.waiting.until(now)
	for _, key := range ready {
		if !c.busy[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// lookAt makes one of the steps that are due.
func (w *world) lookAt(which int) {
	for _, p := range w.processes() {
		for _, c := range p.controllers {
			if which < len(c.waiting.ready) {
				c.look(reconcile.Request{NamespacedName: c.waiting.ready[which]})
				return
			}
			which -= len(c.waiting.ready)
		}
	}
}
