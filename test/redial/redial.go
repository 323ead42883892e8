// Package redial tells how soon a client tries again to connect to a server that cannot be reached.
// What gRPC does by itself is up to two minutes.
package redial

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// asks is how often the client is asked for something, once a second: an outage of some minutes, in
// which the pauses of gRPC reach their longest.
const asks = 10 * 60

// Dial is how the client connects: it fails.
type Dial = func(context.Context, string) (net.Conn, error)

// Within is a test, on a clock of its own, of a client that makes its connections by dial: in an
// outage the next attempt must come within most, however many have failed before. ask has the
// client do something that needs the connection, and must fail; end ends the client.
func Within(t *testing.T, most time.Duration, client func(t *testing.T, dial Dial) (ask func() error, end func())) {
	synctest.Test(t, func(t *testing.T) {
		a := &attempts{last: time.Now()}
		ask, end := client(t, func(context.Context, string) (net.Conn, error) {
			a.note()
			return nil, errors.New("nobody is there")
		})
		for range asks {
			if ask() == nil {
				t.Fatal("somebody answers")
			}
			<-time.After(time.Second)
		}
		if longest := a.note(); longest > most {
			t.Errorf("after a failure the next attempt came %s later, %s are allowed", longest, most)
		}
		end()
	})
}

// attempts measures the time between attempts.
type attempts struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

// note notes an attempt and returns the longest time between two.
func (a *attempts) note() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.longest = max(a.longest, time.Since(a.last))
	a.last = time.Now()
	return a.longest
}
