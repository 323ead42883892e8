package posix_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
	"ankole.storage/test/lack"
)

// waiter is a core that waits for a byte until a deadline. While it handles the message "stop" its
// thread stands still: the byte arrives, the deadline passes, and more messages are there than one
// step is given.
type waiter struct {
	t        *testing.T
	l        *posix.Loop
	near     int // the core's end of the connection
	far      int
	buf      loop.Buf
	deadline clock.Ticks
	begun    bool
	heard    bool
	silent   bool
	messages int
	// crowd are other connections, on which something has arrived before: the core's ends and the
	// others.
	crowd    [][2]int
	crowdBuf loop.Buf
}

const waiterPatience = 20 * time.Millisecond

func (w *waiter) Step(now clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	if !w.begun {
		w.begun = true
		op := loop.Op{Kind: loop.Recv, Handle: loop.Handle(w.near)}
		op.Add(loop.Seg{Buf: w.buf, Len: 1})
		*out = append(*out, op)
		for i, c := range w.crowd {
			op := loop.Op{Kind: loop.Recv, Handle: loop.Handle(c[0]), Tag: 1}
			op.Add(loop.Seg{Buf: w.crowdBuf, Off: int32(i), Len: 1})
			*out = append(*out, op)
		}
		w.l.Post("stop")
		return clock.Never
	}
	for i := range in {
		switch d := &in[i]; {
		case d.Kind == loop.Recv && d.Tag == 1:
		case d.Kind == loop.Recv:
			w.heard = w.heard || d.N == 1
		case d.Value == "stop":
			w.deadline = now.Add(waiterPatience)
			w.standStill()
		default:
			w.messages++
		}
	}
	if w.silent = w.silent || (now >= w.deadline && !w.heard); w.silent {
		return clock.Never
	}
	return w.deadline
}

func (w *waiter) standStill() {
	for _, c := range w.crowd {
		if _, err := unix.Write(c[1], []byte{1}); err != nil {
			w.t.Error(err)
		}
	}
	if _, err := unix.Write(w.far, []byte{1}); err != nil {
		w.t.Error(err)
	}
	for range waiterMessages {
		w.l.Post("more")
	}
	for w.l.Now() < w.deadline.Add(waiterPatience) {
		// The thread does nothing, as if it were stopped.
	}
}

// waiterMessages are more than one step is given.
const waiterMessages = 1000

func (w *waiter) Stopped() bool { return w.silent || w.heard }

// TestRunHandsOverWhatIsThereBeforeADeadline: what has arrived while the thread stood still is not
// silence, however much else there is to do, and on however many connections.
func TestRunHandsOverWhatIsThereBeforeADeadline(t *testing.T) {
	lack.RealTime(t, "a deadline of 20 ms")
	for name, crowd := range map[string]int{"alone": 0, "in a crowd": 150} {
		t.Run(name, func(t *testing.T) {
			world := newWorld(t, false)
			w := &waiter{t: t, l: world.l, deadline: clock.Never, buf: mustGet(t, world, 1),
				crowdBuf: mustGet(t, world, max(1, crowd))}
			for range crowd {
				w.crowd = append(w.crowd, pair(t))
			}
			fds := pair(t)
			w.near, w.far = fds[0], fds[1]
			if err := posix.Run(t.Context(), world.l, w); err != nil {
				t.Fatal(err)
			}
			if w.silent {
				t.Errorf("the byte was there when the deadline passed, and %d of %d messages had been handed over",
					w.messages, waiterMessages)
			}
		})
	}
}

func mustGet(t *testing.T, w *world, n int) loop.Buf {
	t.Helper()
	buf, ok := w.Arena().Get(n)
	if !ok {
		t.Fatal("no buffer")
	}
	return buf
}

// pair returns two ends of a connection. The loop closes the first.
func pair(t *testing.T) [2]int {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[1]) })
	return fds
}
