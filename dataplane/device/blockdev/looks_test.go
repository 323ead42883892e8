package blockdev

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneLookAtADevice: a device that does not answer is asked once, however often one looks; who
// waits gets the answer, and after it the device is asked again.
func TestOneLookAtADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l looks
		asked, release, gone := 0, make(chan struct{}), errors.New("gone")
		silent := func() error { asked++; <-release; return gone }
		look := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return l.ask(ctx, 7, silent)
		}
		for range 5 {
			if err := look(); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if asked != 1 {
			t.Fatalf("%d questions wait for their answer", asked)
		}
		if err := l.ask(t.Context(), 8, func() error { return nil }); err != nil {
			t.Fatalf("another device: %v", err)
		}
		got := make(chan error)
		go func() { got <- look() }()
		synctest.Wait()
		close(release)
		if err := <-got; !errors.Is(err, gone) {
			t.Fatal(err)
		}
		if err := look(); !errors.Is(err, gone) || asked != 2 {
			t.Fatalf("%v after %d questions", err, asked)
		}
	})
}
