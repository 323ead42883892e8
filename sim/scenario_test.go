package sim

import (
	"testing"
	"time"
)

// TestIdleEngineLetsGoOfAReplicaThatMoved: a node loses power while nothing is asked of the volume, so the engine hears nothing
// of it. When the replica is back at another address it is taken in.
func TestIdleEngineLetsGoOfAReplicaThatMoved(t *testing.T) {
	w := NewWorld(1)
	v := NewVolume(w, 2, 1<<20)
	defer v.Close()
	var heal func()
	heal = func() {
		v.Heal()
		w.After(20*time.Millisecond, heal)
	}
	heal()
	if !w.Until(time.Minute, v.Healthy) {
		t.Fatalf("does not start\n%s", v.History())
	}
	w.Until(10*time.Second, func() bool { return false }) // nothing is under way any more
	x := v.Replicas[0]
	if v.Current.node == x.Node {
		x = v.Replicas[1] // the engine lives on
	}
	n, before := x.Node, x.Addr()
	v.PowerOff(n)
	w.Until(time.Second, func() bool { return false })
	n.PowerOn()
	if !w.Until(time.Minute, func() bool { return x.Addr() != before && v.Healthy() }) {
		t.Fatalf("the replica is not taken back\n%s", v.History())
	}
}
