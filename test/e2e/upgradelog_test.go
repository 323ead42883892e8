package e2e

import (
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineupgrade"
)

// volumeLog is every change of every Volume of a cluster, in the order of the API server.
type volumeLog struct {
	mu     sync.Mutex
	events []longhorn.Volume
	ended  bool
}

// recordVolumes begins a log, which ends with the test.
func (c *cluster) recordVolumes() *volumeLog {
	c.t.Helper()
	l := &volumeLog{}
	c.follow(&longhorn.VolumeList{}, func(_ watch.EventType, o runtime.Object) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if v, ok := o.(*longhorn.Volume); ok {
			l.events = append(l.events, *v)
		} else {
			l.ended = true
		}
	})
	return l
}

// check fails the test if the log has a gap.
func (l *volumeLog) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		t.Fatal("the log of volumes has ended")
	}
}

// mark is a point in the log.
func (l *volumeLog) mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// replay tells each change with the state of all volumes after it.
func (l *volumeLog) replay(tell func(i int, before, now *longhorn.Volume, all map[string]*longhorn.Volume)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]*longhorn.Volume{}
	for i := range l.events {
		now := &l.events[i]
		before := all[now.Name]
		all[now.Name] = now
		tell(i, before, now, all)
	}
}

// upgraded says whether a volume is being upgraded.
func upgraded(v *longhorn.Volume) bool {
	return v.Status.CurrentImage != "" && v.Spec.Image != v.Status.CurrentImage
}

// wanted are the images that volumes were to have since the mark, one after the other; those that
// stayed with theirs are not in it.
func (l *volumeLog) wanted(since int) map[string][]string {
	images := map[string][]string{}
	l.replay(func(i int, before, now *longhorn.Volume, _ map[string]*longhorn.Volume) {
		if i >= since && before != nil && before.Spec.Image != now.Spec.Image {
			images[now.Name] = append(images[now.Name], now.Spec.Image)
		}
	})
	return images
}

// mostAtOnce are the most volumes of each node that were being upgraded at once since the mark.
func (l *volumeLog) mostAtOnce(since int) map[string]int {
	most := map[string]int{}
	l.replay(func(i int, _, _ *longhorn.Volume, all map[string]*longhorn.Volume) {
		if i < since {
			return
		}
		now := map[string]int{}
		for _, v := range all {
			if upgraded(v) {
				now[v.Status.OwnerID]++
			}
		}
		for node, n := range now {
			most[node] = max(most[node], n)
		}
	})
	return most
}

// within judges that no node had more upgrades at once than the limit since the mark, and one had
// some.
func (l *volumeLog) within(t *testing.T, since, limit int) {
	t.Helper()
	most := l.mostAtOnce(since)
	for node, n := range most {
		if n > limit {
			t.Errorf("%d volumes of %s were upgraded at once, the limit is %d", n, node, limit)
		}
	}
	if len(most) == 0 {
		t.Error("no upgrade was seen")
	}
	t.Logf("most upgrades of a node at once: %v, with a limit of %d", most, limit)
}

// underWay are the volumes that are being upgraded.
func (l *volumeLog) underWay() (names []string) {
	var last map[string]*longhorn.Volume
	l.replay(func(_ int, _, _ *longhorn.Volume, all map[string]*longhorn.Volume) { last = all })
	for name, v := range last {
		if upgraded(v) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// states are those of a volume since the mark, each as often as it began, and before it the last.
func (l *volumeLog) states(name string, since int) (states []string) {
	l.replay(func(i int, _, now *longhorn.Volume, _ map[string]*longhorn.Volume) {
		state := string(now.Status.State)
		switch {
		case now.Name != name:
		case i < since:
			states = []string{state}
		case len(states) == 0 || states[len(states)-1] != state:
			states = append(states, state)
		}
	})
	return states
}

// givenUpAt is where an upgrade of a volume was given up, -1 if none was.
func (l *volumeLog) givenUpAt(name string) int {
	at := -1
	l.replay(func(i int, before, now *longhorn.Volume, _ map[string]*longhorn.Volume) {
		if now.Name == name && before != nil && engineupgrade.RolledBackAt(before) != engineupgrade.RolledBackAt(now) {
			at = i
		}
	})
	return at
}

// TestVolumeLog: the judge of upgrades sees what is between two looks.
func TestVolumeLog(t *testing.T) {
	t.Parallel()
	l := &volumeLog{}
	note := func(name, node, want, have string, state longhorn.VolumeState, rolledBack string) {
		v := longhorn.Volume{}
		v.Name, v.Spec.Image, v.Status.CurrentImage = name, want, have
		v.Status.OwnerID, v.Status.State = node, state
		v.Annotations = map[string]string{naming.AnnotationUpgradeRolledBack: rolledBack}
		l.events = append(l.events, v)
	}
	note("a", "n1", "old", "", "creating", "")
	note("a", "n1", "old", "old", "attached", "")
	note("b", "n1", "old", "old", "detached", "")
	note("c", "n2", "old", "old", "attached", "")
	mark := l.mark()
	note("a", "n1", "new", "old", "attached", "")
	note("b", "n1", "new", "old", "detached", "")
	note("b", "n1", "new", "new", "detached", "")
	note("c", "n2", "new", "old", "attached", "")
	note("c", "n2", "new", "new", "detached", "")
	if got := l.mostAtOnce(mark); got["n1"] != 2 || got["n2"] != 1 {
		t.Errorf("at once: %v, want two of n1 and one of n2", got)
	}
	if got := l.underWay(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%v are under way, want a", got)
	}
	if l.givenUpAt("a") >= 0 {
		t.Error("an upgrade under way counts as given up")
	}
	note("a", "n1", "old", "old", "attached", "now")
	if at := l.givenUpAt("a"); at != l.mark()-1 || len(l.wanted(at+1)) > 0 {
		t.Errorf("given up at %d of %d, then wanted %v", at, l.mark(), l.wanted(at+1))
	}
	if got := l.wanted(mark); !slices.Equal(got["a"], []string{"new", "old"}) || len(got) != 3 {
		t.Errorf("wanted: %v", got)
	}
	for name, want := range map[string][]string{"a": {"attached"}, "c": {"attached", "detached"}} {
		if got := l.states(name, mark); !slices.Equal(got, want) {
			t.Errorf("states of %s: %v, want %v", name, got, want)
		}
	}
}
