package attachment

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// kinds says of every kind of ticket how urgent it is, whether a workload may interrupt it, and
// whether it is a workload.
var kinds = map[v1beta2.AttacherType]struct {
	urgency            int
	yields, isWorkload bool
}{
	v1beta2.AttacherTypeVolumeRestore:    {urgency: 4},
	v1beta2.AttacherTypeVolumeExpansion:  {urgency: 4},
	v1beta2.AttacherTypeLonghornAPI:      {urgency: 3, isWorkload: true},
	v1beta2.AttacherTypeCSI:              {urgency: 2, isWorkload: true},
	v1beta2.AttacherTypeShareManager:     {urgency: 2, isWorkload: true},
	v1beta2.AttacherTypeSalvage:          {urgency: 2},
	v1beta2.AttacherTypeSnapshot:         {urgency: 1, yields: true},
	v1beta2.AttacherTypeBackup:           {urgency: 1, yields: true},
	v1beta2.AttacherTypeVolumeClone:      {urgency: 1},
	v1beta2.AttacherTypeVolumeEviction:   {urgency: 1},
	v1beta2.AttacherTypeBackingImageData: {urgency: 1, yields: true},
	v1beta2.AttacherTypeVolumeRebuilding: {urgency: 1},
	"of another time":                    {},
}

// wishes are what a ticket can say of the frontend: nothing means that it wants it.
var wishes = []string{"", "false", "true", "any"}

func fits(wish string, disabled bool) bool { return wish == "any" || (wish == "true") == disabled }

// wish is one ticket of a pair.
type wish struct {
	kind           v1beta2.AttacherType
	node, frontend string
}

// eachPair calls f for two tickets of every two kinds, with every wish, on one node and on two.
func eachPair(f func(first, second wish)) {
	for k1 := range kinds {
		for k2 := range kinds {
			for _, w1 := range wishes {
				for _, w2 := range wishes {
					for _, node := range []string{"n1", "n2"} {
						f(wish{k1, "n1", w1}, wish{k2, node, w2})
					}
				}
			}
		}
	}
}

func (w wish) put(a *v1beta2.VolumeAttachment, id string) {
	ticket(a, id, w.node, w.kind, with(v1beta2.AttachmentParameterDisableFrontend, w.frontend))
}

// TestTicketsOfAnAttachedVolume: a volume stays on its node as long as a ticket there fits the way
// in which it is attached, unless a workload wants it elsewhere and every such ticket can be
// interrupted. Two tickets are anything, a third one, now and then, is that of a workload on
// another node.
func TestTicketsOfAnAttachedVolume(t *testing.T) {
	failed := 0
	try := func(disabled bool, wishes ...wish) {
		a, s := fixture()
		attachedTo(s.Volume, "n1")
		s.Volume.Spec.DisableFrontend = disabled
		here, yield, workloadElsewhere := false, true, false
		for i, w := range wishes {
			w.put(a, string(rune('a'+i)))
			switch {
			case w.node != "n1":
				workloadElsewhere = workloadElsewhere || kinds[w.kind].isWorkload
			case fits(w.frontend, disabled):
				here, yield = true, yield && kinds[w.kind].yields
			}
		}
		want := ""
		if !here || workloadElsewhere && yield {
			want = "detach"
		}
		if got := outcome(decide(now, a, s)); got != want && failed < 5 {
			failed++
			t.Errorf("attached with the frontend disabled %v, tickets %+v: %q, want %q", disabled, wishes, got, want)
		}
	}
	eachPair(func(first, second wish) {
		for _, disabled := range []bool{false, true} {
			try(disabled, first, second)
			try(disabled, first, second, wish{v1beta2.AttacherTypeCSI, "n2", ""})
		}
	})
}

// TestTwoTicketsOfADetachedVolume: the more urgent ticket gets the volume, the one with the smaller
// id of two that are as urgent, and it gets it as it wishes.
func TestTwoTicketsOfADetachedVolume(t *testing.T) {
	failed := 0
	eachPair(func(first, second wish) {
		a, s := fixture()
		first.put(a, "a")
		second.put(a, "b")
		want := first
		if kinds[second.kind].urgency > kinds[first.kind].urgency {
			want = second
		}
		d := decide(now, a, s)
		got := outcome(d)
		if got != want.node && failed < 5 {
			failed++
			t.Errorf("tickets %+v and %+v: %q, want %q", first, second, got, want.node)
		}
		if v := volumeOf(d); v != nil && v.Spec.DisableFrontend != (want.frontend == "true") && failed < 5 {
			failed++
			t.Errorf("tickets %+v and %+v: attached with the frontend disabled %v", first, second, v.Spec.DisableFrontend)
		}
	})
}

// volumeOf is the volume that a decision writes, nil if it writes none.
func volumeOf(d loop.Decision) *v1beta2.Volume {
	u, ok := d.Do.(loop.Update)
	if !ok {
		return nil
	}
	v, _ := u.Object.(*v1beta2.Volume)
	return v
}
