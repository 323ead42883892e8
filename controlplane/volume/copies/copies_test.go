package copies

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/seeded"
)

// world is a volume v with replicas a, b, c… in directories of the same names, each on a node of
// its own, na, nb, nc….
type world struct {
	volume   *v1beta2.Volume
	engines  []v1beta2.Engine
	replicas []v1beta2.Replica
	nodes    []v1beta2.Node
}

// volumeOf makes a volume whose recorded members are those of the word, each letter one replica.
// modes are what a running engine reports, as in "a=RW b=ERR"; without any, none runs.
func volumeOf(names, members, modes string) *world {
	w := &world{volume: &v1beta2.Volume{}}
	w.volume.Name, w.volume.UID = "v", "uid"
	for _, name := range names {
		r := v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Name: string(name)}}
		r.Spec.DataDirectoryName, r.Spec.HealthyAt, r.Spec.LastHealthyAt = string(name), "t", "t"
		r.Spec.NodeID = "n" + r.Name
		w.nodes = append(w.nodes, v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Spec.NodeID}})
		w.replicas = append(w.replicas, r)
	}
	e := v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Name: "v-e-0"}}
	if members != "" {
		e.Status.Membership = &v1beta2.Membership{VolumeUUID: "uid", Epoch: 3, Members: strings.Split(members, "")}
	}
	e.Spec.DesireState, e.Status.CurrentState = v1beta2.InstanceStateStopped, v1beta2.InstanceStateStopped
	if modes != "" {
		e.Spec.DesireState, e.Status.CurrentState = v1beta2.InstanceStateRunning, v1beta2.InstanceStateRunning
		e.Status.ReplicaModeMap = map[string]v1beta2.ReplicaMode{}
		for _, m := range strings.Fields(modes) {
			name, mode, _ := strings.Cut(m, "=")
			e.Status.ReplicaModeMap[name] = v1beta2.ReplicaMode(mode)
		}
	}
	w.engines = []v1beta2.Engine{e}
	return w
}

func (w *world) edit(name string, edit func(r *v1beta2.Replica)) *world {
	edit(w.replica(name))
	return w
}

func (w *world) replica(name string) *v1beta2.Replica {
	for i := range w.replicas {
		if w.replicas[i].Name == name {
			return &w.replicas[i]
		}
	}
	panic("no replica " + name)
}

func (w *world) set() Set { return Of(w.volume, w.engines, w.replicas, w.nodes) }

// dead lets the nodes of these replicas be lost.
func (w *world) dead(names string) *world {
	for i := range w.nodes {
		if strings.Contains(names, w.nodes[i].Name[1:]) {
			w.nodes[i].Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "False",
				Reason: v1beta2.NodeReasonKubernetesNodeNotReady}}
		}
	}
	return w
}

func failed(r *v1beta2.Replica)   { r.Spec.FailedAt = "t" }
func evicting(r *v1beta2.Replica) { r.Spec.EvictionRequested = true }
func deleting(r *v1beta2.Replica) { r.DeletionTimestamp = &metav1.Time{} }
func empty(r *v1beta2.Replica)    { r.Spec.HealthyAt, r.Spec.LastHealthyAt = "", "" }

func TestWhichCopiesMayGo(t *testing.T) {
	const (
		last    = "no other healthy replica available"
		few     = "too few to start from"
		counted = "still counts replica"
	)
	both := func(w *world, name string, edits ...func(*v1beta2.Replica)) *world {
		for _, e := range edits {
			w.edit(name, e)
		}
		return w
	}
	gone := volumeOf("a", "a", "")
	gone.volume = nil
	dying := volumeOf("a", "a", "")
	dying.volume.DeletionTimestamp = &metav1.Time{}
	other := volumeOf("ab", "a", "")
	other.engines[0].Status.Membership.VolumeUUID = "another volume of the same name"
	migrating := volumeOf("ab", "a", "a=RW")
	newer := migrating.engines[0].DeepCopy()
	newer.Status.Membership.Epoch, newer.Status.Membership.Members = 4, []string{"b"}
	newer.Status.ReplicaModeMap = map[string]v1beta2.ReplicaMode{"b": v1beta2.ReplicaModeRW}
	migrating.engines = append(migrating.engines, *newer)
	cut := volumeOf("ab", "ab", "a=RW b=RW")
	cut.engines[0].Status.CurrentState = v1beta2.InstanceStateUnknown
	for _, c := range []struct {
		name string
		w    *world
		r    string
		// serves and holds are parts of the reasons; empty: it may go.
		serves, holds string
	}{
		{"one of two in sync", volumeOf("ab", "ab", "a=RW b=RW"), "a", "", counted},
		{"one of two, dropped by the engine", volumeOf("ab", "b", "b=RW"), "a", "", ""},
		{"the other failed, this one evicted",
			both(volumeOf("ab", "a", "a=RW").edit("b", failed), "a", evicting), "a", last, last},
		{"on a dead node, all marked as failed", volumeOf("ab", "a", "").edit("a", failed).edit("b", failed), "a",
			last, last},
		{"the stale one beside it", volumeOf("ab", "a", "").edit("a", failed).edit("b", failed), "b", "", ""},
		{"the record has left the other, which bears no mark yet", volumeOf("ab", "a", "a=RW b=RW"), "a", last,
			last},
		{"the other is a member and not in sync", volumeOf("ab", "ab", "a=RW b=ERR"), "a", last, last},
		{"the other is a member and rebuilding", volumeOf("ab", "ab", "a=RW b=WO"), "a", last, last},
		{"nothing reported yet", volumeOf("ab", "ab", "x=RW"), "a", last, last},
		{"both deleted: neither goes", volumeOf("ab", "ab", "a=RW b=RW").edit("a", deleting).edit("b", deleting), "a",
			last, last},
		{"beside an evicted member", volumeOf("ab", "ab", "a=RW b=RW").edit("b", evicting), "a", last, last},
		{"evicted beside an evicted member", volumeOf("ab", "ab", "a=RW b=RW").edit("a", evicting).edit("b", evicting),
			"a", "", counted},
		{"detached, one of two", volumeOf("ab", "ab", ""), "a", "", ""},
		{"detached, one of three", volumeOf("abc", "abc", ""), "a", "", ""},
		{"detached, the second of three", volumeOf("bc", "abc", ""), "b", few, few},
		{"detached, beside a failed member", volumeOf("ab", "ab", "").edit("b", failed), "a", last, last},
		{"detached, the stale one, member lost", volumeOf("b", "a", ""), "b", "may hold its last data",
			"may hold its last data"},
		{"detached, without data, member lost", volumeOf("b", "a", "").edit("b", empty), "b", "", ""},
		{"detached, the other on a dead node", volumeOf("ab", "ab", "").dead("b"), "a", last, last},
		{"detached, one of three, another on a dead node", volumeOf("abc", "abc", "").dead("b"), "a", few, few},
		{"detached, the one on the dead node", volumeOf("ab", "ab", "").dead("b"), "b", "", ""},
		{"attached, the other on a node that only its engine reaches", volumeOf("ab", "ab", "a=RW b=RW").dead("b"), "a",
			"", counted},
		{"the engine is cut off with the other one", cut.dead("b"), "a", last, last},
		{"no record: the other on a dead node", volumeOf("ab", "", "").dead("b"), "a", last, last},
		{"no record: evicted, the other on a dead node", volumeOf("ab", "", "").dead("b").edit("a", evicting), "a", last,
			last},
		{"no record: failed, the other on a dead node", volumeOf("ab", "", "").dead("b").edit("a", failed), "a", "", ""},
		{"no record: one of two", volumeOf("ab", "", ""), "a", "", ""},
		{"no record: the only one", volumeOf("a", "", ""), "a", last, last},
		{"no record: beside a failed one", volumeOf("ab", "", "").edit("b", failed), "a", last, last},
		{"no record: failed beside a good one", volumeOf("ab", "", "").edit("a", failed), "a", "", ""},
		{"no record: without data", volumeOf("a", "", "").edit("a", empty), "a", "", ""},
		{"record of another volume: marks decide", other, "a", "", ""},
		{"two engines: the newer record decides", migrating, "a", "", ""},
		{"two engines: the newer record keeps", migrating, "b", last, last},
		{"volume gone", gone, "a", "", ""},
		{"volume being deleted", dying, "a", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.w.replica(c.r)
			if got := c.w.set().Serves(r); !has(got, c.serves) {
				t.Errorf("Serves: %q, want %q", got, c.serves)
			}
			if got := c.w.set().Holds(r); !has(got, c.holds) {
				t.Errorf("Holds: %q, want %q", got, c.holds)
			}
		})
	}
}

// TestLastCopyIsSaidInTrueWords: what is refused is refused for what is so. One of three is no last
// copy because the engine does not tell of the others, as in the moment of an upgrade.
func TestLastCopyIsSaidInTrueWords(t *testing.T) {
	upgraded := volumeOf("abc", "abc", "a=RW")
	upgraded.engines[0].Status.ReplicaModeMap = nil
	for _, c := range []struct {
		w    *world
		want []string
	}{
		{upgraded, []string{"none of the other recorded members of volume v can take the place of replica a now: ",
			"b is not known to be in sync", "c is not known to be in sync"}},
		{volumeOf("abcd", "abcd", "a=RW b=WO c=ERR d=RW").edit("d", evicting),
			[]string{"b is not in sync (mode WO)", "c is not in sync (mode ERR)", "d is being evicted"}},
		{volumeOf("abc", "abc", "").dead("c").edit("b", failed), []string{"b has failed", "c is away"}},
		{volumeOf("abc", "ab", "").edit("b", deleting), []string{"now: b is being deleted"}},
		{volumeOf("abc", "a", "a=RW b=WO c=WO"), []string{"the only one that its record of members has now"}},
	} {
		got := c.w.set().Serves(c.w.replica("a"))
		for _, want := range c.want {
			if !strings.Contains(got, want) || strings.Contains(got, "last copy") != strings.HasPrefix(want, "the only one") {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}

func has(got, want string) bool {
	if want == "" {
		return got == ""
	}
	return strings.Contains(got, want)
}

// TestSomeMemberStays holds P2: whatever is deleted in whatever order, as far as Serves and Holds
// allow it, a member of the record is left, of a detached volume enough to start from, and one
// whose machine is there if there was one.
func TestSomeMemberStays(t *testing.T) {
	src := seeded.New(t, "P2: a member of the record is left, whatever is deleted in whatever order")
	for seed := range src.Seeds(5_000) {
		rng := src.Rand(7)
		names := "abcd"[:1+rng.IntN(4)]
		members := names[:1+rng.IntN(len(names))]
		modes := ""
		if running := rng.IntN(2) == 0; running {
			for _, m := range members {
				modes += fmt.Sprintf("%c=%s ", m, []string{"RW", "RW", "RW", "ERR"}[rng.IntN(4)])
			}
			modes += members[:1] + "=RW"
		}
		w := volumeOf(names, members, modes)
		for i := range w.replicas {
			for _, f := range []func(*v1beta2.Replica){failed, evicting} {
				if rng.IntN(4) == 0 {
					f(&w.replicas[i])
				}
			}
		}
		lost := ""
		for _, name := range names {
			if modes == "" && rng.IntN(4) == 0 {
				lost += string(name)
			}
		}
		w.dead(lost)
		reached := strings.Trim(members, lost) != ""
		history := fmt.Sprintf("seed %d: members %s of %s, modes %q, lost %q:", seed, members, names, modes, lost)
		for range 12 {
			if len(w.replicas) == 0 {
				break
			}
			i := rng.IntN(len(w.replicas))
			r := &w.replicas[i]
			switch {
			case r.DeletionTimestamp == nil && w.set().Serves(r) == "":
				deleting(r)
				history += " delete " + r.Name
			case r.DeletionTimestamp != nil && w.set().Holds(r) == "":
				history += " remove " + r.Name
				w.replicas = append(w.replicas[:i], w.replicas[i+1:]...)
			case r.DeletionTimestamp != nil && modes != "" && w.set().Serves(r) == "":
				// The engine drops what the volume can do without.
				m := w.engines[0].Status.Membership
				m.Members = strings.Split(strings.ReplaceAll(strings.Join(m.Members, ""), r.Name, ""), "")
				history += " drop " + r.Name
			}
			left, there := 0, false
			for _, o := range w.replicas {
				if strings.Contains(strings.Join(w.engines[0].Status.Membership.Members, ""), o.Name) {
					left++
					there = there || !strings.Contains(lost, o.Name)
				}
			}
			if reached && !there {
				t.Fatalf("%s\nno member is left whose machine is there", history)
			}
			if n := len(w.engines[0].Status.Membership.Members); left == 0 || modes == "" && left*2 < n {
				t.Fatalf("%s\nof the recorded members %v only %d are left", history,
					w.engines[0].Status.Membership.Members, left)
			}
		}
	}
}

// TestDuplicatesAreNoCopies: a second object of a directory may go, and does not stand for the
// first.
func TestDuplicatesAreNoCopies(t *testing.T) {
	inUse := func(r *v1beta2.Replica) { r.Spec.Active = true }
	for _, row := range []struct {
		name  string
		world *world
		of    string
		want  string // part of the reason to keep it
	}{
		{"a duplicate of a member", volumeOf("ab", "a", "a=RW").edit("a", inUse), "b", ""},
		{"a member with a duplicate only", volumeOf("ab", "a", "a=RW").edit("a", inUse), "a", "the last copy"},
		{"the same, detached", volumeOf("ab", "a", "").edit("a", inUse), "a", "the last copy"},
		{"the same, without a record", volumeOf("ab", "", "").edit("a", inUse), "a", "the last copy"},
		{"a duplicate of a deleted replica", volumeOf("ab", "a", "a=RW").edit("a", inUse).edit("a", deleting), "b",
			"the last copy"},
		{"one of two that are in use by mistake", volumeOf("ab", "a", "a=RW").edit("a", inUse).edit("b", inUse), "b",
			"the last copy"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.world.edit("b", func(r *v1beta2.Replica) { r.Spec.DataDirectoryName = "a" })
			got := row.world.set().Holds(row.world.replica(row.of))
			if row.want == "" && got != "" || !strings.Contains(got, row.want) {
				t.Errorf("kept because %q, want %q", got, row.want)
			}
		})
	}
}

// TestLacks: which volumes are not worth attaching for work that can wait.
func TestLacks(t *testing.T) {
	for _, tt := range []struct {
		names, members, away, want string
	}{
		{"abc", "abc", "", ""},
		{"abc", "abc", "a", ""},
		{"abc", "abc", "ab", "of the copies of volume v 1 are there, and 2 are needed; away: a on node na, b on node nb"},
		{"ab", "ab", "a", ""},
		{"ab", "ab", "ab", "0 are there, and 1 are needed"},
		{"a", "a", "a", "away: a on node na"},
		{"abc", "a", "bc", ""},
		{"abc", "a", "a", "away: a on node na"}, // those that are there lack what was written since
		{"b", "ab", "", ""},
		{"c", "ab", "", "of the copies of volume v 0 are there, and 1 are needed"},
		{"ab", "", "a", ""},
		{"ab", "", "ab", "0 are there, and 1 are needed"},
		{"", "", "", ""}, // without a replica that has a place
	} {
		w := volumeOf(tt.names, tt.members, "")
		w.nodes = slices.DeleteFunc(w.nodes, func(n v1beta2.Node) bool {
			return strings.Contains(tt.away, strings.TrimPrefix(n.Name, "n"))
		})
		for i := range w.replicas {
			w.replicas[i].Spec.Active = true
		}
		got := Of(w.volume, w.engines, w.replicas, w.nodes).Lacks()
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("replicas %q, members %q, away %q: %q, want %q", tt.names, tt.members, tt.away, got, tt.want)
		}
	}
}
