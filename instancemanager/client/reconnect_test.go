package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTriedAgainSoon: an instance manager that could not be reached for some minutes is tried again
// within seven seconds all the time, whoever asks: what a manager has a stream for, the witness and
// the ends of processes, is missing until then.
func TestTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		last, longest := time.Now(), time.Duration(0)
		attempt := func() {
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, time.Since(last))
			last = time.Now()
		}
		conn, err := connTo("192.0.2.1:8500", func(context.Context, string) (net.Conn, error) {
			attempt()
			return nil, errors.New("nobody is there")
		})
		if err != nil {
			t.Fatal(err)
		}
		c := &Client{address: "192.0.2.1:8500", conn: conn}
		for range 10 * 60 {
			if err := c.Check(t.Context()); err == nil {
				t.Fatal("the instance manager answers")
			}
			<-time.After(time.Second)
		}
		attempt()
		conn.Close()
		if longest > 7*time.Second {
			t.Errorf("after a failure the next attempt came %s later", longest)
		}
	})
}
