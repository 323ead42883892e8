package frontendtest

import (
	"context"
	"io"
	"testing"
	"time"

	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
	"ankole.storage/host/patience"
	"ankole.storage/test/wait"
)

// Env is what a frontend is made for.
type Env struct {
	Arena *loop.Arena
	Owner loop.Owner
	Name  string
	Size  int64
}

// Client uses the volume as its user would. Errors are syscall.Errno where the transport carries
// them.
type Client interface {
	io.ReaderAt
	io.WriterAt
	Flush() error
	Trim(off, n int64) error
	WriteZeroes(off, n int64) error
	Close() error
}

// Transport is one frontend under test and its kind of client; a fresh one is made for every case.
type Transport interface {
	// Frontend makes the frontend for env.
	Frontend(t *testing.T, env Env) frontend.Frontend
	// Open returns another client of the running frontend. The transport closes what a test leaves
	// open.
	Open(t *testing.T) Client
	// Down releases what Frontend has set up outside the process, after the frontend has stopped.
	Down(t *testing.T)
	// Caps says what the transport can do.
	Caps() Caps
}

// A Transport may have a method Withdraw(t), called before the frontend is stopped in the ordinary
// way, a method Grow(t, size), called after the frontend was told a new size, and a method End(t),
// called after a frontend was stopped under its users, where a device outlives that and has to be
// ended.

// Caps are the abilities in which transports differ.
type Caps struct {
	// FUA: the client's WriteAtFUA reaches the device as one FUA write.
	FUA bool
	// Kill: the client has a method Kill that breaks off in the middle.
	Kill bool
	// NoSpace: ENOSPC reaches the client as such and not as EIO.
	NoSpace bool
	// Depth is how many single requests can be under way at once.
	Depth int
	// GrowsOpen: an open client sees a new size.
	GrowsOpen bool
}

// FUAWriter is a client that can write with FUA.
type FUAWriter interface {
	WriteAtFUA(p []byte, off int64) (int, error)
}

// Killer is a client that can die.
type Killer interface{ Kill() }

// Patience bounds every wait of the suite.
const Patience = wait.Limit

// arenaBudget is small on purpose: the deep and large cases must meet its end.
const arenaBudget = 40 << 20

// Rig is a running device with its frontend.
type Rig struct {
	*testing.T
	Device *Device
	Loop   *posix.Loop
	Tr     Transport
	size   int64
	done   chan error
	cancel context.CancelFunc
	// stopped: the test has stopped the frontend itself.
	stopped bool
}

// Up starts a device of size bytes behind tr; tell configures it first. It is stopped, and checked
// for leaks, when the test ends.
func Up(t *testing.T, tr Transport, size int64, tell func(v *Device)) *Rig {
	t.Helper()
	arena := loop.NewArena(arenaBudget)
	l, err := posix.New(arena, posix.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := NewDevice(arena, size)
	v.Frontend = tr.Frontend(t, Env{Arena: arena, Owner: Owner, Name: "vol", Size: size})
	if tell != nil {
		tell(v)
	}
	r := &Rig{T: t, Device: v, Loop: l, Tr: tr, size: size, done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.done <- posix.Run(ctx, l, v) }()
	t.Cleanup(r.down)
	return r
}

// down stops the device and checks that nothing is left behind.
func (r *Rig) down() {
	defer r.Tr.Down(r.T)
	defer r.Loop.Close()
	defer r.cancel()
	if w, ok := r.Tr.(interface{ Withdraw(t *testing.T) }); ok && !r.stopped {
		w.Withdraw(r.T)
	}
	r.Loop.Post(stopDevice{})
	select {
	case err := <-r.done:
		if err != nil {
			r.Errorf("the device ended with %v", err)
		}
	case <-time.After(patience.Of(Patience)):
		wait.RanOut(r.T, "the end of the frontend")
		r.Errorf("the frontend did not stop within %v", Patience)
		r.cancel()
		<-r.done
		return
	}
	if n := r.Device.arena.InUse(); n != 0 {
		r.Errorf("%d buffers are still in use after the stop", n)
	} else {
		r.Device.arena.Close()
	}
}

// StopDevice stops the frontend at once, whatever is under way, as an engine does that has to go.
func (r *Rig) StopDevice() {
	r.Helper()
	r.stopped = true
	r.Do(func(v *Device, out *[]loop.Op) { v.stopping = true; v.Frontend.Stop(out) })
	if e, ok := r.Tr.(interface{ End(t *testing.T) }); ok {
		e.End(r.T)
	}
}

// Do runs f on the device's thread and waits for it.
func (r *Rig) Do(f func(v *Device, out *[]loop.Op)) {
	r.Helper()
	done := make(chan struct{})
	r.Loop.Post(func(out *[]loop.Op) { f(r.Device, out); close(done) })
	select {
	case <-done:
	case <-time.After(patience.Of(Patience)):
		wait.RanOut(r.T, "the answer of the device")
		r.Fatalf("the device did not answer within %v", Patience)
	}
}

// Until waits for a condition of the device.
func (r *Rig) Until(what string, cond func(v *Device) bool) {
	r.Helper()
	wait.Until(r.T, what, func() (ok bool) {
		r.Do(func(v *Device, _ *[]loop.Op) { ok = cond(v) })
		return ok
	})
}
