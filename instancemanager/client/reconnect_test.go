package client

import (
	"testing"
	"time"

	"ankole.storage/test/redial"
)

// TestTriedAgainSoon: an instance manager that could not be reached for some minutes is tried again
// within seven seconds all the time, whoever asks: what a manager has a stream for, the witness and
// the ends of processes, is missing until then.
func TestTriedAgainSoon(t *testing.T) {
	redial.Within(t, 7*time.Second, func(t *testing.T, dial redial.Dial) (ask func() error, end func()) {
		conn, err := connTo("192.0.2.1:8500", dial)
		if err != nil {
			t.Fatal(err)
		}
		c := &Client{address: "192.0.2.1:8500", conn: conn}
		return func() error { return c.Check(t.Context()) }, func() { conn.Close() }
	})
}
