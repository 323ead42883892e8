package frontendtest

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
	"ankole.storage/test/lack"
)

// suspensions is how often the frontend is suspended under load.
const suspensions = 30

// suspended suspends the frontend again and again, sometimes for a moment only, while clients use
// the volume: it is given nothing while it is suspended, and all goes on afterwards.
func suspended(t *testing.T, tr Transport) {
	const size, workers = 16 << 20, 16
	r := Up(t, tr, size, func(v *Device) { v.Delay = time.Millisecond })
	if _, ok := r.Device.Frontend.(frontend.Suspender); !ok {
		lack.Unfit(t, "nobody goes on with this frontend in another process")
	}
	suspender := func(v *Device) frontend.Suspender { return v.Frontend.(frontend.Suspender) }
	c := tr.Open(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { exercise(t, c, stop, rand.New(rand.NewPCG(uint64(w), 3)), int64(w)*size/workers, size/workers) })
	}
	for i := range suspensions {
		r.Do(func(v *Device, out *[]loop.Op) { suspender(v).Suspend(out) })
		if i%5 != 4 {
			r.Until("nothing is under way", func(v *Device) bool { return suspender(v).Suspended() })
		}
		seen := 0
		r.Do(func(v *Device, out *[]loop.Op) {
			if i%5 != 4 && len(v.waiting) > 0 {
				t.Errorf("a suspended frontend waits for %d requests", len(v.waiting))
			}
			seen = v.total()
			suspender(v).Continue(out)
		})
		r.Until("requests go on", func(v *Device) bool { return v.total() > seen+workers })
	}
	close(stop)
	wg.Wait()
}

// total counts the requests of all kinds.
func (v *Device) total() int {
	n := 0
	for _, k := range v.Seen {
		n += k
	}
	return n
}

// exercise writes, flushes and reads back in its own region until stop is closed.
func exercise(t *testing.T, c Client, stop <-chan struct{}, rnd *rand.Rand, base, room int64) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		n := sector * (1 + rnd.Int64N(1<<rnd.IntN(9)))
		off := base + sector*rnd.Int64N((room-n)/sector)
		p, q := randomBytes(rnd, int(n)), aligned(int(n))
		if _, err := c.WriteAt(p, off); err != nil {
			t.Errorf("write: %v", err)
			return
		}
		if rnd.IntN(10) == 0 {
			if err := c.Flush(); err != nil {
				t.Errorf("flush: %v", err)
				return
			}
		}
		if _, err := c.ReadAt(q, off); err != nil || !bytes.Equal(p, q) {
			t.Errorf("read back at %d: %v, equal %v", off, err, bytes.Equal(p, q))
			return
		}
	}
}
