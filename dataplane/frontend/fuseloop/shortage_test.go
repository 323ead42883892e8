package fuseloop

import (
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// TestRequestThatCouldNotBeReceived: where the kernel has no memory to hand a request out it fails
// that request and goes on. A frontend that took this for the end of the device would leave all
// later requests waiting for ever, since nobody closes it.
func TestRequestThatCouldNotBeReceived(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.EFAULT, unix.ENODEV} {
		f, err := New(Config{Owner: 1, Arena: loop.NewArena(8 << 20), Device: 3, File: "vol", Size: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		var out []loop.Op
		f.Start(&out)
		if len(out) != 1 || out[0].Kind != loop.Recv {
			t.Fatalf("it begins with %v", out)
		}
		tag := out[0].Tag
		out = nil
		var reqs []frontend.Request
		f.Handle(0, &loop.Done{Tag: tag, Errno: loop.Errno(errno)}, &reqs, &out)
		receives := 0
		for _, op := range out {
			if op.Kind == loop.Recv {
				receives++
			}
		}
		if want := errno != unix.ENODEV; want != (receives == 1) || f.Gone() == want {
			t.Errorf("%v: %d receives follow, the device is gone: %v", errno, receives, f.Gone())
		}
	}
}
