package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ankole.storage/dataplane/wire"
	"ankole.storage/test/seeded"
)

// model is a replica's chain in the little that repairs look at: snapshots by name, each with its
// parent.
type model struct {
	size   int64
	parent map[string]string
	gone   map[string]bool
	head   string // what the head stands on
	filled bool   // the head holds something
	// data stands for what a reader sees, now and at each snapshot.
	data int
	at   map[string]int
	// reverts are the snapshots that reverts made for themselves, with those they go to.
	reverts map[string]string
}

func newModel() *model {
	return &model{size: 1, parent: map[string]string{}, gone: map[string]bool{}, at: map[string]int{},
		reverts: map[string]string{}}
}

func (m *model) view() view {
	v := view{size: m.size, known: map[string]bool{}, below: m.head}
	for n := range m.parent {
		v.known[n] = m.gone[n]
		if m.reverts[n] != "" && !m.gone[n] {
			v.reverts = append(v.reverts, n)
		}
	}
	if !m.gone[m.head] {
		v.reverting = m.reverts[m.head]
	}
	for n := m.head; n != ""; n = m.parent[n] {
		if !m.gone[n] {
			v.live = append([]string{n}, v.live...)
		}
	}
	return v
}

// do carries out a request as a replica does.
func (m *model) do(q *wire.ControlRequest) {
	switch {
	case q.Snapshot != nil:
		m.parent[q.Snapshot.Name], m.at[q.Snapshot.Name] = m.head, m.data
		m.head, m.filled = q.Snapshot.Name, false
		if to := q.Snapshot.Labels[revertLabel]; to != "" {
			m.reverts[q.Snapshot.Name] = to
		}
	case q.Expand != nil:
		if q.Expand.Size != m.size {
			name := fmt.Sprintf("expand-%d", q.Expand.Size)
			m.parent[name], m.at[name] = m.head, m.data
			m.head, m.filled, m.size = name, false, q.Expand.Size
		}
	case q.RemoveSnapshot != nil:
		m.gone[q.RemoveSnapshot.Name] = true
	case q.Revert != nil:
		m.head, m.filled, m.data = q.Revert.Name, false, m.at[q.Revert.Name]
	case q.Purge != nil && q.Purge.Begin:
		for n := range m.parent {
			m.gone[n] = m.gone[n] || strings.HasPrefix(n, "expand-")
		}
	case q.Purge != nil:
		m.merge()
	}
}

// merge drops one removed snapshot that is not directly below the head, as a purge does.
func (m *model) merge() {
	for _, n := range slices.Sorted(maps.Keys(m.parent)) {
		children := 0
		for _, p := range m.parent {
			if p == n {
				children++
			}
		}
		if !m.gone[n] || n == m.head || children > 1 {
			continue
		}
		for c, p := range m.parent {
			if p == n {
				m.parent[c] = m.parent[n]
			}
		}
		delete(m.parent, n)
		delete(m.gone, n)
		return
	}
}

// settle carries repairs out until there are none, and not all of a round every time: then the
// start was interrupted too. It returns how many were dropped.
func settle(t *testing.T, ms []*model, rng *rand.Rand) int {
	t.Helper()
	dropped := map[int]bool{}
	for round := 0; ; round++ {
		if round > maxRepairs {
			t.Fatal("repairs do not come to an end")
		}
		var at []int
		var views []view
		for i, m := range ms {
			if !dropped[i] {
				at, views = append(at, i), append(views, m.view())
			}
		}
		todo := repairs(views)
		if todo == nil {
			break
		}
		for k, r := range todo {
			switch {
			case r.drop != "":
				dropped[at[k]] = true
			case r.request != nil && rng.IntN(4) > 0:
				ms[at[k]].do(r.request)
			}
		}
	}
	return len(dropped)
}

// history makes random changes on all replicas of a volume, as an engine does.
type history struct {
	rng  *rand.Rand
	ms   []*model
	told map[string]bool // snapshots the user knows
	next int
}

// request returns the steps of a random change.
func (h *history) request() []*wire.ControlRequest {
	names := sortedNames(h.told)
	pick := func() string { return names[h.rng.IntN(len(names))] }
	switch n := h.rng.IntN(10); {
	case n < 5 || len(names) == 0:
		h.next++
		return []*wire.ControlRequest{{Snapshot: &wire.SnapshotRequest{Name: fmt.Sprintf("s%d", h.next)}}}
	case n < 7:
		return []*wire.ControlRequest{{RemoveSnapshot: &wire.RemoveSnapshot{Name: pick()}}}
	case n < 8:
		return []*wire.ControlRequest{{Expand: &wire.ExpandRequest{Size: h.ms[0].size + 1}}}
	case n < 9:
		return []*wire.ControlRequest{{Purge: &wire.PurgeRequest{Begin: true}}}
	}
	h.next++
	before, to := fmt.Sprintf("revert-%d", h.next), pick()
	return []*wire.ControlRequest{{Snapshot: &wire.SnapshotRequest{Name: before,
		Labels: map[string]string{revertLabel: to}}},
		{Revert: &wire.RevertRequest{Name: to}}, {RemoveSnapshot: &wire.RemoveSnapshot{Name: before}}}
}

// everywhere carries a change out on all replicas, tells the user, and lets some content and some
// pieces of a purge follow.
func (h *history) everywhere() {
	steps := h.request()
	filled := h.rng.IntN(2) == 0
	h.next++
	for _, m := range h.ms {
		for _, q := range steps {
			m.do(q)
		}
		if filled {
			m.filled, m.data = true, h.next
		}
		for range h.rng.IntN(3) {
			m.do(&wire.ControlRequest{Purge: &wire.PurgeRequest{}})
		}
	}
	if q := steps[0]; q.Snapshot != nil && len(steps) == 1 {
		h.told[q.Snapshot.Name] = true
	} else if q.RemoveSnapshot != nil {
		delete(h.told, q.RemoveSnapshot.Name)
	}
}

// interrupted carries the last step of a change out on some replicas and tells nobody. The others
// may lose what was written last and never flushed; a negative number stands for what is there
// then.
func (h *history) interrupted() *wire.ControlRequest {
	steps := h.request()
	steps = steps[:1+h.rng.IntN(len(steps))]
	for _, q := range steps[:len(steps)-1] {
		for _, m := range h.ms {
			m.do(q)
		}
	}
	q := steps[len(steps)-1]
	for _, m := range h.ms {
		switch {
		case h.rng.IntN(2) == 0:
			m.do(q)
			if q.RemoveSnapshot != nil {
				delete(h.told, q.RemoveSnapshot.Name)
			}
		case h.rng.IntN(3) == 0 && m.filled:
			m.data = -m.data
		}
	}
	return q
}

// Every change, interrupted after any number of replicas and followed by whatever a purge had done,
// ends in agreement without anybody being dropped, and never loses a snapshot that the user was
// told of.
func TestInterruptedChangesAgreeAgain(t *testing.T) {
	src := seeded.New(t, "P4: a change that was interrupted is made the same on all replicas, or by none")
	for seed := range src.Seeds(3000) {
		h := &history{rng: src.Rand(1), told: map[string]bool{},
			ms: []*model{newModel(), newModel(), newModel()}}
		for range h.rng.IntN(12) {
			h.everywhere()
		}
		q := h.interrupted()
		before := fmt.Sprintf("%+v\n%+v\n%+v\n%+v", *h.ms[0], *h.ms[1], *h.ms[2], q)
		if n := settle(t, h.ms, h.rng); n > 0 {
			t.Fatalf("seed %d: %d replicas dropped\n%s", seed, n, before)
		}
		for i, m := range h.ms {
			for name := range h.told {
				if _, ok := m.parent[name]; !ok || m.gone[name] {
					t.Fatalf("seed %d: replica %d has lost snapshot %s\n%s", seed, i, name, before)
				}
			}
			// At the head a loss of power shows only until the dirty regions are compared; what a
			// snapshot holds stays.
			if m.size != h.ms[0].size || m.view().top() != h.ms[0].view().top() ||
				max(m.data, -m.data) != max(h.ms[0].data, -h.ms[0].data) {
				t.Fatalf("seed %d: sizes, heads or contents differ\n%s", seed, before)
			}
			for _, name := range m.view().live {
				if m.at[name] != h.ms[0].at[name] {
					t.Fatalf("seed %d: snapshot %s holds %d at replica %d and %d elsewhere\n%s", seed, name, m.at[name],
						i, h.ms[0].at[name], before)
				}
			}
		}
	}
}

func TestRepairs(t *testing.T) {
	v := func(live, known string) view {
		out := view{size: 8, known: map[string]bool{}}
		for n := range strings.FieldsSeq(known) {
			name, gone := strings.CutSuffix(n, "-")
			out.known[name] = gone
		}
		for n := range strings.FieldsSeq(live) {
			out.live, out.below = append(out.live, n), n
		}
		return out
	}
	larger := v("a", "a")
	larger.size = 16
	grown := v("a e", "a e")
	grown.size = 16
	given := v("a", "a e-")
	given.size, given.below = 16, "e"
	reverting := v("a r", "a b r")
	reverting.reverting, reverting.reverts = "a", []string{"r"}
	reverted := v("a", "a b r")
	reverted.reverts = reverting.reverts
	cleared := v("a", "a b r-")
	begun := v("a b r", "a b r")
	begun.reverting, begun.reverts = "a", reverting.reverts
	for name, c := range map[string]struct {
		views []view
		want  string
	}{
		"equal":                   {[]view{v("a b", "a b"), v("a b", "a b c-")}, ""},
		"one replica":             {[]view{v("a b", "a b")}, ""},
		"expanded here only":      {[]view{v("a", "a"), larger}, "expand "},
		"removed here only":       {[]view{v("a", "a b-"), v("a b", "a b")}, " remove b"},
		"taken here only":         {[]view{v("a b", "a b"), v("a", "a")}, "remove b "},
		"expansion not told of":   {[]view{v("a", "a"), grown}, " remove e"},
		"expansion given up":      {[]view{v("a", "a"), given}, "expand "},
		"expansion finished":      {[]view{grown, given}, "remove e "},
		"reverted here only":      {[]view{reverted, reverting}, " revert a"},
		"reverted by two of it":   {[]view{reverting, reverted, reverted}, "revert a  "},
		"reverted and removed":    {[]view{cleared, reverting}, " revert a"},
		"reverted by all":         {[]view{cleared, reverted}, " remove r"},
		"begun by all":            {[]view{begun, begun}, "remove r remove r"},
		"begun here only":         {[]view{v("a b", "a b"), begun}, " remove r"},
		"heads left alone":        {[]view{v("a", "a b"), v("a b", "a b")}, " drop"},
		"an old one is missing":   {[]view{v("a b", "a b"), v("b", "b")}, " drop"},
		"a branch not known here": {[]view{v("a", "a"), v("a", "a x")}, ""},
	} {
		var got []string
		for _, r := range repairs(c.views) {
			s := ""
			switch {
			case r.drop != "":
				s = "drop"
			case r.request == nil:
			case r.request.Expand != nil:
				s = "expand"
			case r.request.RemoveSnapshot != nil:
				s = "remove " + r.request.RemoveSnapshot.Name
			case r.request.Revert != nil:
				s = "revert " + r.request.Revert.Name
			}
			got = append(got, s)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, strings.Join(got, " "), c.want)
		}
	}
}

// TestOddOneIsDropped: of three the one whose snapshots differ goes, whichever it is; of two the
// second.
func TestOddOneIsDropped(t *testing.T) {
	with := func(names ...string) view {
		v := view{live: names, known: map[string]bool{"a": false, "b": false, "c": false}}
		v.below = names[len(names)-1]
		return v
	}
	usual, odd := with("a", "b", "c"), with("a", "c")
	for i, views := range [][]view{{odd, usual, usual}, {usual, odd, usual}, {usual, usual, odd}} {
		for j, r := range repairs(views) {
			if (r.drop != "") != (j == i) {
				t.Errorf("member %d is odd, and of %d it is said: %q", i, j, r.drop)
			}
		}
	}
	if r := repairs([]view{usual, odd}); r[0].drop != "" || r[1].drop == "" {
		t.Errorf("of two: %+v", r)
	}
}
