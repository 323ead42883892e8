package powerdisk

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConnectionEndsBetweenRequests breaks connections while requests are being handed over: a
// server takes it for the end, whichever error the kernel has for the moment.
func TestConnectionEndsBetweenRequests(t *testing.T) {
	r := begin(t)
	for round := range 40 {
		d, err := r.Open(fmt.Sprintf("broken-%d", round), Options{Image: NewImage(1 << 20)})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		began := make(chan struct{}, 8)
		for range cap(began) {
			wg.Go(func() {
				// Not by package os: it asks whether the file can be polled without giving its
				// processor up, and the server needs one.
				buf := make([]byte, 256<<10)
				for n := 0; ; n++ {
					fd, err := unix.Open(filepath.Join(d.dir(), fileName), unix.O_RDONLY|unix.O_CLOEXEC, 0)
					if err == nil {
						_, err = unix.Read(fd, buf)
						unix.Close(fd)
					}
					if n == 0 {
						began <- struct{}{}
					}
					if err != nil && !errors.Is(err, unix.EINTR) {
						return
					}
				}
			})
		}
		for range cap(began) {
			<-began
		}
		if err := abortBelow(filepath.Dir(d.dir())); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if err := d.Close(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
