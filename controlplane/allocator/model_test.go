package allocator

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/seeded"
)

// cluster is an API server with replicas, a cache that lags behind it, and volumes that ask an
// allocator before they start rebuilds. Calls fail, and fail without saying whether they were done.
type cluster struct {
	t   *testing.T
	rng *rand.Rand
	a   *Allocator
	now time.Time

	nodes   []string
	limit   int
	version int
	// stored are the objects, history what the cache has still to show of each, cached what it shows.
	stored  map[string]*v1beta2.Replica
	history map[string][]*v1beta2.Replica
	cached  map[string]*v1beta2.Replica
	// due are the volumes to look at, busy those that are being looked at; broken ones fail each time.
	due, busy, broken map[string]bool
	// underway are writes that the API server has not carried out, and until when it may.
	underway []underway
	done     int
}

type underway struct {
	object *v1beta2.Replica
	base   string
	until  time.Time
}

var (
	errUnclear  = errors.New("the connection broke")
	errRefused  = apierrors.NewForbidden(schema.GroupResource{Resource: "replicas"}, "r", errors.New("by a webhook"))
	errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "replicas"}, "r", errors.New("changed meanwhile"))
)

func newCluster(t *testing.T, rng *rand.Rand) *cluster {
	w := &cluster{t: t, rng: rng, now: time.Unix(1e9, 0), nodes: []string{"n1", "n2", "n3"}, limit: 1 + rng.IntN(2),
		stored: map[string]*v1beta2.Replica{}, history: map[string][]*v1beta2.Replica{},
		cached: map[string]*v1beta2.Replica{}, due: map[string]bool{}, busy: map[string]bool{}, broken: map[string]bool{}}
	w.a = New("ns", func() time.Time { return w.now })
	w.a.SetRebuildLimit(w.limit)
	return w
}

func (w *cluster) bump(r *v1beta2.Replica) *v1beta2.Replica {
	w.version++
	r = r.DeepCopy()
	r.ResourceVersion = strconv.Itoa(w.version)
	return r
}

// store writes an object, and holds the limit.
func (w *cluster) store(r *v1beta2.Replica) {
	r = w.bump(r)
	w.stored[r.Name] = r
	w.history[r.Name] = append(w.history[r.Name], r)
	on := 0
	for _, o := range w.stored {
		if claimOf(o).rebuildOn == r.Spec.NodeID {
			on++
		}
	}
	if on > w.limit {
		w.t.Fatalf("%d rebuilds on node %s, the limit is %d", on, r.Spec.NodeID, w.limit)
	}
}

// want gives a volume another replica to rebuild.
func (w *cluster) want(volume string) {
	r := &v1beta2.Replica{Spec: v1beta2.ReplicaSpec{Active: true}}
	r.Name = fmt.Sprintf("%s-r-%d", volume, w.version)
	r.Spec.VolumeName, r.Spec.NodeID, r.Spec.RebuildRetryCount = volume, w.nodes[w.rng.IntN(len(w.nodes))], 5
	w.store(r)
}

// show lets the cache catch up with one object, maybe not to the end.
func (w *cluster) show(name string) {
	queue := w.history[name]
	n := 1 + w.rng.IntN(len(queue))
	last := queue[n-1]
	if w.history[name] = queue[n:]; n == len(queue) {
		delete(w.history, name)
	}
	if last == nil {
		if r := w.cached[name]; r != nil { // else the cache never knew it
			w.due[r.Spec.VolumeName] = true
			delete(w.cached, name)
			w.a.Gone(name)
		}
		return
	}
	w.cached[name] = last
	w.due[last.Spec.VolumeName] = true
	w.a.Observe(last)
}

// look is one reconciliation of a volume.
func (w *cluster) look(volume string) {
	delete(w.due, volume)
	if w.broken[volume] {
		w.due[volume] = true
		return
	}
	w.busy[volume] = true
	defer delete(w.busy, volume)
	wanted := map[string]bool{}
	var start *v1beta2.Replica
	for _, name := range slices.Sorted(maps.Keys(w.cached)) {
		r := w.cached[name]
		if r.Spec.VolumeName != volume || r.Spec.DesireState == v1beta2.InstanceStateRunning || r.Spec.HealthyAt != "" {
			continue
		}
		wanted[r.Spec.NodeID] = w.a.MayRebuild(volume, r.Spec.NodeID)
		if start == nil && wanted[r.Spec.NodeID] {
			start = r.DeepCopy()
		}
	}
	w.a.Wait(volume, wanted)
	if start == nil {
		return
	}
	if w.rng.IntN(3) == 0 { // another worker
		w.step()
	}
	start.Spec.DesireState = v1beta2.InstanceStateRunning
	w.due[volume] = true // the loop looks again after each write and each failure
	if done := w.a.Reserve(start, 0); done != nil {
		done(w.write(start))
	}
}

// write carries a write out, or does not.
func (w *cluster) write(r *v1beta2.Replica) error {
	current := w.stored[r.Name]
	switch {
	case current == nil || current.ResourceVersion != r.ResourceVersion:
		return errConflict
	case w.rng.IntN(10) == 0:
		return errRefused
	case w.rng.IntN(10) == 0:
		return errUnclear
	case w.rng.IntN(10) == 0:
		w.underway = append(w.underway, underway{r, r.ResourceVersion, w.now.Add(time.Minute)})
		return errUnclear
	}
	w.store(r)
	if w.rng.IntN(10) == 0 {
		return errUnclear
	}
	return nil
}

// arrive lets the API server carry out, or forget, what is under way.
func (w *cluster) arrive() {
	w.underway = slices.DeleteFunc(w.underway, func(u underway) bool {
		if w.now.Before(u.until) && w.rng.IntN(2) == 0 {
			return false
		}
		if o := w.stored[u.object.Name]; o != nil && o.ResourceVersion == u.base && w.now.Before(u.until) {
			w.store(u.object)
		}
		return true
	})
}

// end lets a rebuild end, well or by the deletion of the replica.
func (w *cluster) end(anyState bool) {
	for _, name := range slices.Sorted(maps.Keys(w.stored)) {
		r := w.stored[name]
		if (claimOf(r).rebuildOn == "" && !anyState) || w.rng.IntN(3) > 0 {
			continue
		}
		w.done++
		if r.Spec.HealthyAt != "" || w.rng.IntN(4) == 0 {
			delete(w.stored, name)
			w.history[name] = append(w.history[name], nil)
			return
		}
		r = r.DeepCopy()
		r.Spec.HealthyAt = "now"
		w.store(r)
		return
	}
}

func (w *cluster) step() {
	for len(w.a.Wakeups()) > 0 {
		w.due[(<-w.a.Wakeups()).Object.GetName()] = true
	}
	due := slices.DeleteFunc(slices.Sorted(maps.Keys(w.due)), func(v string) bool { return w.busy[v] })
	switch n := w.rng.IntN(20); {
	case n < 8 && len(due) > 0:
		w.look(due[w.rng.IntN(len(due))])
	case n < 14:
		if names := slices.Sorted(maps.Keys(w.history)); len(names) > 0 {
			w.show(names[w.rng.IntN(len(names))])
		}
	case n < 15:
		w.end(false)
	case n == 16:
		w.arrive()
	case n == 17:
		w.now = w.now.Add(time.Duration(w.rng.IntN(20)) * time.Second)
		w.arrive()
		w.a.Sweep()
	}
}

// TestSlotsAgainstTheModel: whatever fails, and however late the cache is, no node has more
// rebuilds than the limit. Volumes are looked at only when something of them changed or they are
// woken, and each of them gets its turn.
func TestSlotsAgainstTheModel(t *testing.T) {
	t.Parallel()
	src := seeded.New(t, "no node has more rebuilds than its limit, and each volume gets its turn")
	for range src.Seeds(60) {
		w := newCluster(t, src.Rand(0))
		const volumes = 12
		name := func() string { return fmt.Sprintf("v%d", w.rng.IntN(volumes)) }
		for range 1500 {
			switch w.rng.IntN(40) {
			case 0, 1, 6, 7:
				w.want(name())
			case 2:
				w.broken[name()] = true
			case 3:
				delete(w.broken, name())
			case 4:
				w.end(true)
			case 5:
				if w.rng.IntN(30) == 0 {
					w.limit++
					w.a.SetRebuildLimit(w.limit)
				}
			}
			w.step()
		}
		// One volume stays broken for ever; the others are served.
		bad := name()
		w.broken = map[string]bool{bad: true}
		for steps := 0; w.waiting(bad) > 0; steps++ {
			if steps == 20000 {
				t.Fatalf("%d replicas are never rebuilt; limit %d, waits %v, due %v", w.waiting(bad), w.limit, w.a.rebuilds.waits,
					w.due)
			}
			w.step()
		}
		if w.done == 0 {
			t.Fatal("no rebuild has ended")
		}
	}
}

// waiting counts the replicas that are still to be rebuilt, those of one volume aside.
func (w *cluster) waiting(but string) (n int) {
	for _, r := range w.stored {
		if r.Spec.HealthyAt == "" && r.Spec.VolumeName != but {
			n++
		}
	}
	return n
}
