//go:build !nolegacy

package engine

import (
	"strings"
	"testing"
)

// TestInstanceManagerThatCannotHandOver: nothing is ordered where the instance manager is from
// before the proxy; the attempt has failed, with what to do instead, once.
func TestInstanceManagerThatCannotHandOver(t *testing.T) {
	e, s := upgraded()
	s.Managers[0].Status.ProxyAPIVersion = 0
	events, d := settle(e, s)
	why := e.Status.LastUpgradeError
	if d.Do != nil || e.Status.FailedUpgradeAttempt != 1 || !strings.Contains(why, "detach the volume") ||
		len(events) != 1 || !strings.Contains(events[0].Message, "im-1 is of a version") {
		t.Errorf("wants %v, failed attempt %d: %q, events %+v", d.Do, e.Status.FailedUpgradeAttempt, why, events)
	}
	if events, _ = settle(e, s); len(events) > 0 {
		t.Errorf("told again: %+v", events)
	}
}
