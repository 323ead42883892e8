package witness_test

import (
	"slices"
	"testing"
	"time"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/instancemanager/witness"
)

// TestSwapDelay measures what a change of the set waits for when it needs the witness, as from two
// replicas to one: a question over the engine's socket, the relay and a manager's stream, and back.
// The API server's update comes on top. From three to two nothing of this is waited for.
func TestSwapDelay(t *testing.T) {
	r := newRig(t, witness.TotalWait, witness.AttemptWait)
	r.attach(t, "m1", &register{})
	var expected *witnessv1.Membership
	var took []time.Duration
	for g := range int64(300) {
		next := record(1, g+1)
		began := time.Now()
		a, err := r.engine.CompareAndSwap(t.Context(), &witnessv1.CompareAndSwapRequest{
			VolumeName: "demo", EngineName: "demo-e-0", Expected: expected, Next: next})
		if err != nil || !a.GetSwapped() {
			t.Fatalf("generation %d: %v, %v", g+1, a, err)
		}
		took = append(took, time.Since(began))
		expected = next
	}
	slices.Sort(took)
	t.Logf("a swap through the relay: median %s, 99 of 100 within %s", took[len(took)/2], took[len(took)*99/100])
}
