package simulated_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// counts is what the work of the controllers costs, by what does not depend on the machine.
type counts struct {
	// looks at objects by controller, writes by verb and kind; both of the leader and of agents.
	looks, writes map[string]int
	// live are the reads that no cache answers, orders the calls to instance managers and engines.
	live int
	// cached are the objects that caches have handed out, by who asked (a controller, or the watches)
	// and kind: what a look costs in processor time is mostly that.
	cached map[string]int
	// telling: watches are being told of a change.
	telling bool
}

func newCounts() counts {
	return counts{looks: map[string]int{}, writes: map[string]int{}, cached: map[string]int{}}
}

// counted notes that a cache has handed out so many objects of a kind.
func (a *api) counted(of reflect.Type, n int) {
	if a.view == nil {
		return
	}
	who := "watches"
	if c := a.w.looking; c != nil && !a.w.counts.telling {
		who = c.Name
	}
	a.w.counts.cached[who+" "+of.Name()] += n
}

// passed forgets the changes of a kind that every cache has shown, where there are many.
func (w *world) passed(k *kind) {
	if !w.crowded {
		return
	}
	for i := w.leader.view.position[k] - 1; i >= 0 && k.changes[i] != (change{}); i-- {
		k.changes[i] = change{}
	}
}

// copied is the counts as they are now.
func (c counts) copied() counts {
	c.looks, c.writes, c.cached = maps.Clone(c.looks), maps.Clone(c.writes), maps.Clone(c.cached)
	return c
}

// since is what has been added to earlier counts.
func (c counts) since(before counts) counts {
	d := newCounts()
	d.live = c.live - before.live
	for _, m := range []struct{ to, now, was map[string]int }{
		{d.looks, c.looks, before.looks}, {d.writes, c.writes, before.writes}, {d.cached, c.cached, before.cached}} {
		for name, n := range m.now {
			if n != m.was[name] {
				m.to[name] = n - m.was[name]
			}
		}
	}
	return d
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// most tells the largest of them, divided by n.
func most(m map[string]int, n, lines int) string {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if m[a] != m[b] {
			return m[b] - m[a]
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for _, name := range names[:min(lines, len(names))] {
		fmt.Fprintf(&b, "\n    %10.2f %s", float64(m[name])/float64(n), name)
	}
	return b.String()
}
