package manager

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestLeaderStopsBeforeTheNext: from the last renewal that succeeded, the time until a leader
// notices, plus the time its controllers have to end, is shorter than the lease, or there are two
// leaders at once; and a leader that is gone is replaced within 8 s.
func TestLeaderStopsBeforeTheNext(t *testing.T) {
	if last := renewEvery + retryPeriod + renewDeadline + stopLimit; last >= leaseDuration {
		t.Errorf("a leader may write for %s after its last renewal, and another one leads after %s", last, leaseDuration)
	}
	if next := leaseDuration + 22*retryPeriod/10; next >= 8*time.Second {
		t.Errorf("failover takes up to %s, want less than 8 s", next)
	}
	if renewDeadline <= 12*retryPeriod/10 {
		t.Errorf("renewDeadline %s: client-go wants more than 1.2 times retryPeriod", renewDeadline)
	}
}

// TestControllersThatDoNotStopEndTheProcess: controllers that have not ended by the time another
// leader may begin would write beside it, so the process ends.
func TestControllersThatDoNotStopEndTheProcess(t *testing.T) {
	ended := make(chan int, 1)
	exit = func(code int) { ended <- code }
	defer func() { exit = os.Exit }()
	failure := errors.New("failed")
	for name, c := range map[string]struct {
		takes time.Duration // from the end of the context; negative: it fails before
		exits bool
		want  error
	}{
		"fails by itself": {-1, false, failure},
		"stops at once":   {0, false, nil},
		"stops in time":   {stopLimit - time.Millisecond, false, nil},
		"stops late":      {stopLimit + time.Millisecond, true, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Minute, cancel)
				err := leadUntil(ctx, func(ctx context.Context) error {
					if c.takes < 0 {
						return failure
					}
					<-ctx.Done()
					<-time.After(c.takes)
					return nil
				})
				if !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				cancel()
				<-time.After(2 * stopLimit) // a late one ends
			})
			select {
			case <-ended:
				if !c.exits {
					t.Error("the process was ended")
				}
			default:
				if c.exits {
					t.Error("the process goes on")
				}
			}
		})
	}
}
