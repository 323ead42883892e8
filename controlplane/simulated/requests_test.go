package simulated_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestWritesOfAnAttach bounds what the attachment of a volume of three replicas writes, and how
// often controllers look, where nothing is in the way.
func TestWritesOfAnAttach(t *testing.T) {
	story(t, 3, func(w *world) {
		w.calm = true
		v := w.newVolume()
		edit(w, v.name, func(o *v1beta2.Volume) { o.Spec.NumberOfReplicas = 3 })
		w.run(5 * time.Minute)
		writes, looks := maps.Clone(w.writes), w.allLooks()
		w.attach(v, "n1")
		w.run(30 * time.Second)
		if o := get[*v1beta2.Volume](w, v.name); o.Status.State != v1beta2.VolumeStateAttached ||
			o.Status.Robustness != v1beta2.VolumeRobustnessHealthy {
			w.failf("%s and %s", o.Status.State, o.Status.Robustness)
		}
		most := map[string]int{
			// being attached; satisfied
			"status of *v1beta2.VolumeAttachment": 2,
			// attaching; what the engine says of its size; attached
			"status of *v1beta2.Volume": 3, "update *v1beta2.Volume": 1,
			// ordered, starts, runs, states of the engine; refused where the witness writes meanwhile
			"status of *v1beta2.Engine": 8, "update *v1beta2.Engine": 1,
			// ordered, starts, runs, each; wanted, in sync, each
			"status of *v1beta2.Replica": 9, "update *v1beta2.Replica": 6,
			// of each what starts, and what runs; here the processes take up to two seconds
			"status of *v1beta2.InstanceManager": 8,
			"update *v1beta2.Setting":            1,
		}
		made, told := map[string]int{}, 0
		for what, n := range w.writes {
			kind := what[:strings.LastIndexByte(what, ' ')]
			made[kind] += n - writes[what]
			told += n - writes[what]
		}
		for kind, n := range made {
			if n > most[kind] {
				t.Errorf("%s: %d times, want %d at most", kind, n, most[kind])
			}
		}
		if n := w.allLooks() - looks; n > 130 {
			t.Errorf("%d looks", n)
		} else {
			t.Logf("%d writes, %d looks: %v", told, n, made)
		}
	})
}

// allLooks counts the looks of the leader's controllers.
func (w *world) allLooks() (n int) {
	for _, c := range w.leader.controllers {
		for _, looks := range c.looks {
			n += looks
		}
	}
	return n
}
