// Package looptest is the contract of loop.Loop as a test suite. Every loop must pass it: the
// production loop, and the simulator that stands in for it. What a core may rely on is what is
// tested here.
package looptest

import (
	"testing"
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// World is a loop under test and the means to give it something to work on.
type World interface {
	Loop() loop.Loop
	Poster() loop.Poster
	Arena() *loop.Arena
	// File returns the handle of a new empty file.
	File(t *testing.T) loop.Handle
	// Listen returns a new listener and the address that reaches it.
	Listen(t *testing.T) (loop.Handle, string)
}

// SingleThreaded is implemented by worlds whose Poster may only be used by the thread that runs the
// loop.
type SingleThreaded interface{ SingleThreaded() }

// Excuser is implemented by worlds that do not pass everything: the reason by the name of the case.
// An excuse for a case that does not exist is an error.
type Excuser interface{ Excuses() map[string]string }

// Run runs the suite; make returns a fresh world and registers its clean-up.
func Run(t *testing.T, make func(t *testing.T) World) {
	cases := []struct {
		name string
		run  func(d *driver)
	}{
		{"file reads return what was written", fileReadWrite},
		{"a read across the end of a file is short and no error", fileShortRead},
		{"vectors scatter and gather in order", fileVectors},
		{"a punched range reads zero and the size stays", filePunch},
		{"sync succeeds after writes", fileSync},
		{"many file operations complete once each", fileMany},
		{"close of a file waits for what is in flight", fileCloseWaits},
		{"an operation on a bad handle fails alone", fileBadHandle},
		{"a connection carries bytes in order both ways", streamEcho},
		{"a receive takes what is there and no more", streamPartial},
		{"the end of a stream is a receive of nothing", streamEnd},
		{"a send larger than any socket buffer is sent whole", streamLarge},
		{"vectors of a send arrive in order", streamVectors},
		{"close cancels a receive and a send first", streamCloseCancels},
		{"close cancels an accept", acceptClose},
		{"release cancels, tells what was sent and leaves the connection open", streamRelease},
		{"release of a listener leaves it open", acceptRelease},
		{"a listener accepts many connections", acceptMany},
		{"connect to nobody fails", connectRefused},
		{"connect to nonsense fails", connectNonsense},
		{"a busy connection does not starve another", streamFair},
		{"calls run and return their value", callValue},
		{"posted messages arrive in order", postOrder},
		{"a post wakes a waiting loop", postWakes},
		{"reap with nothing to do waits as long as asked", reapWaits},
		{"the clock does not go back", clockMonotonic},
	}
	known := map[string]bool{}
	for _, c := range cases {
		known[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			w := make(t)
			if e, ok := w.(Excuser); ok {
				for name, why := range e.Excuses() {
					if name == c.name {
						lack.Unfit(t, why)
					}
				}
			}
			c.run(&driver{T: t, World: w, loop: w.Loop(), arena: w.Arena()})
		})
	}
	if e, ok := make(t).(Excuser); ok {
		for name := range e.Excuses() {
			if !known[name] {
				t.Errorf("excuse for %q, which is no case", name)
			}
		}
	}
}

// patience bounds every wait of the suite: far beyond what a healthy loop needs on a busy machine.
const patience = 30 * time.Second

// driver submits operations and collects completions by tag.
type driver struct {
	*testing.T
	World
	loop    loop.Loop
	arena   *loop.Arena
	nextTag uint64
	got     []loop.Done // completions nobody waited for yet, in order of arrival
}

// submit starts operations in one batch and returns their tags.
func (d *driver) submit(ops ...loop.Op) []uint64 {
	tags := make([]uint64, len(ops))
	for i := range ops {
		d.nextTag++
		ops[i].Tag = d.nextTag
		tags[i] = d.nextTag
	}
	d.loop.Submit(ops)
	return tags
}

// reap waits for at least one completion.
func (d *driver) reap() {
	d.Helper()
	var buf [16]loop.Done
	start := time.Now()
	for time.Since(start) < patience {
		if n := d.loop.Reap(buf[:], patience); n > 0 {
			d.got = append(d.got, buf[:n]...)
			return
		}
	}
	wait.RanOut(d.T, "a completion")
	d.Fatalf("no completion within %v", patience)
}

// wait returns the completion of tag.
func (d *driver) wait(tag uint64) loop.Done {
	d.Helper()
	for {
		for i, c := range d.got {
			if c.Tag == tag && c.Kind != loop.Posted {
				d.got = append(d.got[:i], d.got[i+1:]...)
				return c
			}
		}
		d.reap()
	}
}

// do submits one operation and waits for it.
func (d *driver) do(op loop.Op) loop.Done {
	d.Helper()
	return d.wait(d.submit(op)[0])
}

// must is do for an operation that has to succeed.
func (d *driver) must(op loop.Op) loop.Done {
	d.Helper()
	c := d.do(op)
	if c.Errno != 0 {
		d.Fatalf("%v failed: errno %d", op.Kind, c.Errno)
	}
	return c
}

// quiet fails if a completion arrives within a short while.
func (d *driver) quiet(why string) {
	d.Helper()
	var buf [4]loop.Done
	if n := d.loop.Reap(buf[:], 20*time.Millisecond); n > 0 || len(d.got) > 0 {
		d.Fatalf("%s: unexpected completion %+v", why, append(d.got, buf[:n]...)[0])
	}
}

// fill returns a buffer of n bytes of a pattern that depends on seed and position.
func (d *driver) fill(n int, seed byte) loop.Buf {
	d.Helper()
	b, ok := d.arena.Get(n)
	if !ok {
		d.Fatalf("the arena has no %d bytes", n)
	}
	p := d.arena.Bytes(b)[:n]
	for i := range p {
		p[i] = pattern(i, seed)
	}
	return b
}

// apart runs f on another goroutine where the loop allows that. Cases wait for what f does.
func (d *driver) apart(f func()) {
	if _, ok := d.World.(SingleThreaded); ok {
		f()
	} else {
		go f()
	}
}

func pattern(i int, seed byte) byte { return byte(i) ^ byte(i>>8) ^ byte(i>>16) ^ seed }

func (d *driver) check(b loop.Buf, off, n int, seed byte) {
	d.Helper()
	for i, c := range d.arena.Bytes(b)[:n] {
		if want := pattern(off+i, seed); c != want {
			d.Fatalf("byte %d is %#x, want %#x", off+i, c, want)
		}
	}
}

func op(kind loop.Kind, h loop.Handle, off int64, segs ...loop.Seg) loop.Op {
	o := loop.Op{Kind: kind, Handle: h, Off: off}
	for _, s := range segs {
		o.Add(s)
	}
	return o
}

func seg(b loop.Buf, off, n int) loop.Seg { return loop.Seg{Buf: b, Off: int32(off), Len: int32(n)} }

func callValue(d *driver) {
	for i := range 40 {
		if c := d.must(loop.Op{Kind: loop.Call, Fn: func() any { return i * i }}); c.Value != i*i {
			d.Fatalf("call %d returned %v", i, c.Value)
		}
	}
}

func postOrder(d *driver) {
	p := d.Poster()
	const posters, each = 4, 50
	finished := make(chan struct{}, posters)
	for k := range posters {
		d.apart(func() {
			for i := range each {
				p.Post([2]int{k, i})
			}
			finished <- struct{}{}
		})
	}
	for range posters {
		<-finished
	}
	next := [posters]int{}
	for n := 0; n < posters*each; {
		d.reap()
		for _, c := range d.got {
			m, ok := c.Value.([2]int)
			if c.Kind != loop.Posted || !ok || m[1] != next[m[0]] {
				d.Fatalf("got %+v, expected message %v", c, next)
			}
			next[m[0]]++
			n++
		}
		d.got = nil
	}
}

func postWakes(d *driver) {
	p := d.Poster()
	finished := make(chan struct{})
	d.apart(func() {
		defer close(finished)
		p.Post("wake")
	})
	d.reap() // without a wake-up this waits for patience to run out
	<-finished
	if d.got[0].Value != "wake" {
		d.Fatalf("got %+v", d.got[0])
	}
}

func reapWaits(d *driver) {
	var buf [1]loop.Done
	for _, wait := range []time.Duration{0, 200 * time.Microsecond, 3 * time.Millisecond} {
		before := d.loop.Now()
		if n := d.loop.Reap(buf[:], wait); n != 0 {
			d.Fatalf("reap returned %+v from nowhere", buf[0])
		}
		if passed := d.loop.Now().Sub(before); passed < wait {
			d.Fatalf("reap returned after %v, asked for %v", passed, wait)
		}
	}
}

func clockMonotonic(d *driver) {
	last := clock.Ticks(-1)
	for range 1000 {
		now := d.loop.Now()
		if now < last {
			d.Fatalf("clock went from %d to %d", last, now)
		}
		last = now
	}
}
