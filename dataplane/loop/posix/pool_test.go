package posix

import (
	"testing"
	"time"

	"ankole.storage/dataplane/loop"
	"ankole.storage/test/wait"
)

// A slow disk gets more operations at a time than a fast one, up to the bound, and no more than
// that; what is waited for by Calls is no disk.
func TestSlowDiskGetsMoreWorkers(t *testing.T) {
	for _, most := range []int{2, 8} {
		var in inbox
		in.efd = -1
		p := newPool(2, most, time.Minute, &in)
		begun, end := make(chan bool, 100), make(chan bool)
		one := func() { p.submit(&task{kind: loop.Call, fn: func() any { begun <- true; <-end; return nil }}) }
		running := 0
		for late := wait.Late(); running < most; {
			one()
			select {
			case <-begun:
				running++
			case <-time.After(2 * slow):
			case <-late:
				t.Fatalf("%d of %d at a time", running, most)
			}
		}
		for range 8 {
			one()
		}
		if n := len(begun); n > 0 {
			t.Errorf("%d more than %d at a time", n, most)
		}
		close(end)
		p.close()
	}
}
