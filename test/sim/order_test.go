package sim

import (
	"strings"
	"testing"
	"time"
)

// TestEngineOrderedBefore: an engine starts while the witness is away, takes in a write and stands
// still. Another one is ordered, serves, and acknowledges a write of the same block. The first one
// goes on with a witness that answers: it was ordered before, and may not take the volume and carry
// out what its users, who were given up, had asked for.
func TestEngineOrderedBefore(t *testing.T) {
	for name, after := range map[string]time.Duration{"before it has asked": 0, "while it waits": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			o := newTrio(t, 1)
			defer o.v.Close()
			o.v.KillEngine(o.v.Current)
			o.v.Witness.Down = true
			o.v.StartEngine(o.x.Node)
			first := o.v.Current
			old := o.write(1, 0)
			o.pass(after)
			first.Freeze()
			o.v.Witness.Down = false
			o.v.StartEngine(o.v.Nodes[3])
			second := o.v.Current
			o.until("the second engine serves", func() bool { return second.state.Serving })
			o.until("a write", o.write(2, 0))
			first.Thaw()
			o.until("the first engine ends", func() bool { return first.state.Fatal })
			if why := first.state.Reason; !strings.Contains(why, "order") {
				t.Errorf("the first engine ends because of %q\n%s", why, o.v.History())
			}
			o.pass(time.Minute)
			if old() || second.state.Fatal || !second.state.Serving {
				t.Errorf("the old write was answered: %v; the second engine: %+v\n%s", old(), second.state, o.v.History())
			}
			for _, r := range o.v.Replicas {
				if n := o.holds(r, 0); n != 2 {
					t.Errorf("%s holds write %d, want 2\n%s", r.Name, n, o.v.History())
				}
			}
		})
	}
}
