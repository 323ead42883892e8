package sim

import "testing"

// Block maps are handed over in live upgrades, and every one that is used is compared with the
// files (Replica.open).
func TestMapsAreHandedOver(t *testing.T) {
	taken := 0
	for seed := range uint64(20) {
		r := Run(seed)
		if r.Err != nil {
			t.Fatalf("seed %d: %v", seed, r.Err)
		}
		taken += r.MapsTaken
	}
	if taken == 0 {
		t.Error("no replica has taken a block map over in 20 seeds")
	}
}
