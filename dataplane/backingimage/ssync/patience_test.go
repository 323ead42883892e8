package ssync

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestPatience: the sender is waited for from the moment on that it was told to send, however long
// it was busy before.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewReceiver(nil, "token", 4096, nil)
		<-time.After(2 * time.Hour)
		begun := time.Now()
		_, err := r.Wait(t.Context(), time.Minute)
		if took := time.Since(begun); !errors.Is(err, ErrSilent) || took < time.Minute || took > 70*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}
