package simulated_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// TestEvictionKeepsTheRebuildLimit: all replicas of a node are evicted; their volumes are healthy,
// and yet no more rebuilds run on a node than the setting allows. A limit that is counted in the
// cache, or for degraded volumes only, starts all of them at once. Each volume gets its turn,
// without being looked at while it waits.
func TestEvictionKeepsTheRebuildLimit(t *testing.T) {
	const volumes, looksPerVolume = 12, 400
	drawn(t, 2, 4, func(w *world) {
		w.held, w.calm = false, false // caches are late
		w.setting(setting.ConcurrentReplicaRebuildPerNodeLimit, "2")
		w.run(heardWithin + time.Minute)
		for range volumes {
			v := w.newVolume()
			edit(w, v.name, func(o *v1beta2.Volume) { o.Spec.NumberOfReplicas, o.Spec.DataLocality = 2, "" })
		}
		w.run(5 * time.Minute)
		for _, name := range w.names() {
			w.attach(w.volumes[name], "n2")
		}
		healthy := func() bool {
			return !slices.ContainsFunc(all[*v1beta2.Volume](w), func(v *v1beta2.Volume) bool {
				return v.Status.Robustness != v1beta2.VolumeRobustnessHealthy
			})
		}
		w.until("healthy", time.Hour, healthy)
		looks := func() (sum int) {
			for object, n := range w.looks() {
				if strings.HasPrefix(object, "longhorn-volume-controller ") {
					sum += n
				}
			}
			return sum
		}
		before := looks()
		edit(w, "n1", func(n *v1beta2.Node) { n.Spec.AllowScheduling, n.Spec.EvictionRequested = false, true })
		w.until("evicted", time.Hour, func() bool {
			return healthy() && !slices.ContainsFunc(all[*v1beta2.Replica](w), func(r *v1beta2.Replica) bool {
				return r.Spec.NodeID == "n1"
			})
		})
		if n := looks() - before; n > volumes*looksPerVolume {
			w.failf("%d looks at %d volumes", n, volumes)
		}
	})
}

// TestVolumesCreatedAtOnceShareTheRoom: of volumes created at once, those for which there is no
// room left are told so, although no node's status says yet what the others have taken. By that
// status alone all would get the same room.
func TestVolumesCreatedAtOnceShareTheRoom(t *testing.T) {
	const volumes = 6
	drawn(t, 8, 2, func(w *world) {
		w.calm = false
		for range volumes {
			v := w.newVolume()
			edit(w, v.name, func(o *v1beta2.Volume) {
				o.Spec.NumberOfReplicas, o.Spec.Size, o.Spec.DataLocality = 1, 40*gib, ""
			})
		}
		w.until("judged", time.Hour, func() bool {
			return !slices.ContainsFunc(all[*v1beta2.Volume](w), func(v *v1beta2.Volume) bool {
				c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
				return c.Status != v1beta2.ConditionTrue && c.Status != v1beta2.ConditionFalse
			})
		})
		w.run(time.Minute)
		placed := 0
		for _, r := range all[*v1beta2.Replica](w) {
			if r.Spec.NodeID != "" {
				placed++
			}
		}
		if placed != 4 {
			w.failf("%d of %d volumes have a place, 4 fit", placed, volumes)
		}
	})
}

// until lets time pass until something holds.
func (w *world) until(what string, limit time.Duration, holds func() bool) {
	for end := time.Now().Add(limit); !holds(); w.run(time.Second) {
		if time.Now().After(end) {
			w.failf("after %s: not %s", limit, what)
		}
	}
}
