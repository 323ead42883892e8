package serve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxNews is how many names a stream notes. From there on reading the whole list costs no more.
const maxNews = 256

// news is what a stream has to look at again. What comes while it is busy is added up, so that a
// slow client costs a set of names and no queue.
type news struct {
	// told has a value while there is something.
	told chan struct{}
	mu   sync.Mutex
	// names are the members that may have changed; whole: all may have.
	names map[string]bool
	whole bool
}

func newNews() *news { return &news{told: make(chan struct{}, 1), names: map[string]bool{}} }

// add notes a member, or with an empty name the whole list.
func (n *news) add(name string) {
	n.mu.Lock()
	if name == "" || len(n.names) >= maxNews {
		n.whole = true
		clear(n.names)
	}
	if !n.whole {
		n.names[name] = true
	}
	n.mu.Unlock()
	select {
	case n.told <- struct{}{}:
	default:
	}
}

// take returns what there is, and forgets it.
func (n *news) take() (names []string, whole bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	names, whole = slices.Sorted(maps.Keys(n.names)), n.whole
	n.names, n.whole = map[string]bool{}, false
	return names, whole
}

// note adds the member that an object of an informer is seen in.
func (n *news) note(o any, of func(client.Object) string) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if object, ok := o.(client.Object); ok && of != nil {
		n.add(of(object))
		return
	}
	n.add("")
}

// informers are what tells of changes now, nil where nothing does.
func (s *Server) informers() cache.Informers {
	if s.cfg.Informers == nil {
		return nil
	}
	return s.cfg.Informers()
}

// watch returns the news of a stream until the context ends. Where no informers tell of changes
// there is news once a second.
func (s *Server) watch(ctx context.Context, which Stream, informers cache.Informers) *news {
	n := newNews()
	if len(which.Kinds) == 0 {
		return n
	}
	if informers == nil || !s.subscribe(ctx, informers, which, n) {
		s.streams.wg.Go(func() { notifyEvery(ctx, pollPeriod, func() { n.add("") }) })
	}
	return n
}

// subscribe has changes of the stream's kinds noted until the context ends. It reports whether it
// could. Objects that are there already are no news: the first list is read after this, from the
// store that the informers fill.
func (s *Server) subscribe(ctx context.Context, informers cache.Informers, which Stream, n *news) bool {
	handler := toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if !initial {
				n.note(o, which.Of)
			}
		},
		UpdateFunc: func(before, after any) {
			n.note(before, which.Of)
			n.note(after, which.Of)
		},
		DeleteFunc: func(o any) { n.note(o, which.Of) },
	}
	for _, kind := range which.Kinds {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		var registration toolscache.ResourceEventHandlerRegistration
		if err == nil {
			registration, err = informer.AddEventHandler(handler)
		}
		if err != nil {
			s.cfg.Logger.Warn("no change notices for a stream, looking once a second instead", "kind",
				fmt.Sprintf("%T", kind), "err", err)
			return false
		}
		context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registration) })
	}
	return true
}

// notifyEvery calls notify again and again until the context ends.
func notifyEvery(ctx context.Context, period time.Duration, notify func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			notify()
		}
	}
}
