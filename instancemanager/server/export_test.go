package server

import (
	"testing"
	"time"
)

// SetLogStall changes how long a log may stay unread, for one test.
func SetLogStall(t *testing.T, d time.Duration) {
	before := logStall
	logStall = d
	t.Cleanup(func() { logStall = before })
}
