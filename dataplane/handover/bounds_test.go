package handover

import (
	"testing"
	"time"
)

// An engine that takes the volume as late as it may is running well before the instance manager
// kills it for being late.
func TestBoundsLeaveAMargin(t *testing.T) {
	const margin = 5 * time.Second
	if sum := PrepareTime + PassingTime + DrainTime + ReleaseTime + TakeTime; sum+margin > ReplaceTime {
		t.Errorf("%s until the volume is taken, and killed after %s", sum, ReplaceTime)
	}
}
