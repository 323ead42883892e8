package posix_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/looptest"
	"ankole.storage/dataplane/loop/posix"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

type world struct {
	l   *posix.Loop
	tcp bool
	dir string
	n   int
}

func newWorld(t *testing.T, tcp bool) *world { return newWorldBy(t, tcp, "") }

// newWorldBy makes a loop that does operations of files in a certain way.
func newWorldBy(t *testing.T, tcp bool, files string) *world {
	l, err := posix.New(loop.NewArena(64<<20), posix.Options{Files: files})
	if err != nil {
		if files == posix.FilesByRing {
			lack.Skip(t, fmt.Sprintf("no io_uring here: %v", err))
		}
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return &world{l: l, tcp: tcp, dir: t.TempDir()}
}

func (w *world) Loop() loop.Loop     { return w.l }
func (w *world) Poster() loop.Poster { return w.l }
func (w *world) Arena() *loop.Arena  { return w.l.Arena() }

func (w *world) File(t *testing.T) loop.Handle {
	w.n++
	fd, err := unix.Open(filepath.Join(w.dir, "file"+strconv.Itoa(w.n)), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return loop.Handle(fd)
}

func (w *world) Listen(t *testing.T) (loop.Handle, string) {
	network, addr := "unix", filepath.Join(w.dir, "s"+strconv.Itoa(w.n))
	w.n++
	if w.tcp {
		network, addr = "tcp", "127.0.0.1:0"
	}
	h, bound, err := posix.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return h, network + ":" + bound
}

func TestConformance(t *testing.T) {
	t.Run("unix", func(t *testing.T) {
		looptest.Run(t, func(t *testing.T) looptest.World { return newWorld(t, false) })
	})
	for _, files := range []string{posix.FilesByPool, posix.FilesByRing} {
		t.Run("tcp, files by "+files, func(t *testing.T) {
			looptest.Run(t, func(t *testing.T) looptest.World { return newWorldBy(t, true, files) })
		})
	}
}

// pinger is a core that counts its steps and wakes itself by its deadline.
type pinger struct {
	every time.Duration
	next  clock.Ticks
	steps int
	limit int
	seen  []any
}

func (p *pinger) Step(now clock.Ticks, in []loop.Done, _ *[]loop.Op) clock.Ticks {
	p.steps++
	for i := range in {
		p.seen = append(p.seen, in[i].Value)
	}
	if p.every == 0 {
		return clock.Never
	}
	if now >= p.next {
		p.next = now.Add(p.every)
	}
	return p.next
}

func (p *pinger) Stopped() bool { return p.limit > 0 && p.steps >= p.limit }

func TestRunHonoursTheDeadlineOfTheCore(t *testing.T) {
	w := newWorld(t, false)
	p := &pinger{every: 2 * time.Millisecond, limit: 11}
	start := time.Now()
	if err := posix.Run(t.Context(), w.l, p); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 20*time.Millisecond {
		t.Fatalf("ten periods of 2 ms took %v: the loop spins", d)
	}
}

// ender is a core whose first step asks for something that ends the context the loop runs under,
// and for a message beside it.
type ender struct {
	l     *posix.Loop
	end   context.CancelFunc
	steps int
}

func (e *ender) Step(_ clock.Ticks, _ []loop.Done, out *[]loop.Op) clock.Ticks {
	if e.steps++; e.steps == 1 {
		*out = append(*out, loop.Op{Kind: loop.Call, Fn: func() any { e.end(); e.l.Post("more"); return nil }})
	}
	return clock.Never
}

// TestNoStepAfterTheEndOfTheContext: a core is not told of what has completed when the context of
// its loop has ended; one whose context ended before takes no step at all.
func TestNoStepAfterTheEndOfTheContext(t *testing.T) {
	for range 20 {
		w := newWorld(t, false)
		ctx, cancel := context.WithCancel(t.Context())
		e := &ender{l: w.l, end: cancel}
		for want := 1; want <= 2; want++ {
			if err := posix.Run(ctx, w.l, e); !errors.Is(err, context.Canceled) {
				t.Fatalf("Run returned %v", err)
			}
			if e.steps != 1 {
				t.Fatalf("run %d: %d steps, of which all but the first follow the end of the context", want, e.steps)
			}
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []posix.Options{{Workers: -1}, {Workers: 1000}, {Callers: -3}, {WorkerIdle: -1}} {
		if _, err := posix.New(loop.NewArena(1<<20), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestIdleWorkersExit(t *testing.T) {
	lack.RealTime(t, "goroutines are counted")
	before := runtime.NumGoroutine()
	l, err := posix.New(loop.NewArena(1<<20), posix.Options{WorkerIdle: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	began, release := make(chan struct{}), make(chan struct{})
	var ops []loop.Op
	for range 4 {
		ops = append(ops, loop.Op{Kind: loop.Call, Fn: func() any { began <- struct{}{}; <-release; return nil }})
	}
	l.Submit(ops)
	for range ops { // none ends before all have begun: each has a goroutine
		<-began
	}
	close(release)
	var done [8]loop.Done
	for n := 0; n < 4; {
		n += l.Reap(done[:], time.Second)
	}
	wait.For(t, "the end of the goroutines", func() error {
		if n := runtime.NumGoroutine(); n > before {
			return fmt.Errorf("%d are left, %d before", n, before)
		}
		return nil
	})
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	lack.RealTime(t, "allocations are counted, those of the runtime too")
	w := newWorld(t, false)
	lh, addr := w.Listen(t)
	var done [8]loop.Done
	var fresh [loop.Connect + 1]loop.Handle // by kind
	reap := func(n int) {
		for n > 0 {
			got := w.l.Reap(done[:], time.Second)
			for _, d := range done[:got] {
				if d.Kind == loop.Accept || d.Kind == loop.Connect {
					fresh[d.Kind] = d.New
				}
			}
			n -= got
		}
	}
	w.l.Submit([]loop.Op{{Kind: loop.Accept, Handle: lh}, {Kind: loop.Connect, Addr: addr}})
	reap(2)
	s, c := fresh[loop.Accept], fresh[loop.Connect]
	f := w.File(t)
	b, _ := w.Arena().Get(4096)
	v := [loop.MaxSegs]loop.Seg{{Buf: b, Len: 4096}}
	ops := []loop.Op{
		{Kind: loop.Recv, Handle: s, Segs: 1, Vec: v},
		{Kind: loop.Send, Handle: c, Segs: 1, Vec: v},
		{Kind: loop.FileWrite, Handle: f, Segs: 1, Vec: v},
	}
	round := func() { w.l.Submit(ops); reap(3) }
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); n > 0.1 {
		t.Fatalf("%.2f allocations per round of three operations", n)
	}
}

func TestAnIdleLoopGivesMemoryBack(t *testing.T) {
	lack.RealTime(t, "a memory trim every 5 ms")
	arena := loop.NewArena(16 << 20)
	l, err := posix.New(arena, posix.Options{TrimEvery: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, _ := arena.Get(1 << 20)
	arena.Release(b)
	if !arena.Slack() {
		t.Fatal("a released buffer is no slack: the test proves nothing")
	}
	var done [1]loop.Done
	wait.Until(t, "the memory is given back", func() bool {
		l.Reap(done[:], 20*time.Millisecond)
		return !arena.Slack()
	})
}

func TestListenRefusesALiveSocketAndTakesAStaleOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	h, _, err := posix.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("socket has mode %v, %v", st.Mode(), err)
	}
	if _, _, err := posix.Listen("unix", path); !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("a second listener got %v", err)
	}
	unix.Close(int(h))
	h, _, err = posix.Listen("unix", path)
	if err != nil {
		t.Fatalf("a stale socket was not replaced: %v", err)
	}
	unix.Close(int(h))
	plain := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := posix.Listen("unix", plain); err == nil {
		t.Fatal("a regular file was replaced by a socket")
	}
}
