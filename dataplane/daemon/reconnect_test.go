package daemon

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
)

// TestWitnessIsTriedAgainSoon: an instance manager that could not be reached for some minutes, for
// want of descriptors say, is tried again within two seconds all the time: an engine that needs the
// witness holds its users' requests.
func TestWitnessIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		last, longest := time.Now(), time.Duration(0)
		attempt := func() {
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, time.Since(last))
			last = time.Now()
		}
		w, err := dialWitness("unix:/nowhere", "v", "u", "e", grpc.WithContextDialer(
			func(context.Context, string) (net.Conn, error) {
				attempt()
				return nil, errors.New("nobody is there")
			}))
		if err != nil {
			t.Fatal(err)
		}
		for range 10 * 60 {
			if _, err := w.Read(); err == nil {
				t.Fatal("the witness answers")
			}
			<-time.After(time.Second)
		}
		attempt()
		w.(*witness).conn.Close()
		if longest > 2*time.Second {
			t.Errorf("after a failure the next attempt came %s later", longest)
		}
	})
}
