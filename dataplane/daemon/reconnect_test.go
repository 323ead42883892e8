package daemon

import (
	"context"
	"errors"
	"net"
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
		last, longest := time.Now(), time.Duration(0)
		w, err := dialWitness("unix:/nowhere", "v", "u", "e", grpc.WithContextDialer(
			func(context.Context, string) (net.Conn, error) {
				longest = max(longest, time.Since(last))
				last = time.Now()
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
		longest = max(longest, time.Since(last))
		w.(*witness).conn.Close()
		if longest > 2*time.Second {
			t.Errorf("after a failure the next attempt came %s later", longest)
		}
	})
}
