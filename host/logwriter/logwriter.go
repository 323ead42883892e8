// Package logwriter lets a program write its log without ever waiting for whoever reads it.
//
// The standard error of a process is a pipe, and a pipe that nobody reads stops whoever writes to
// it: a line of a log written with a lock held stops everybody who needs the lock, and one of an
// engine's loop its volume. So lines are queued, and one goroutine writes them. Lines that find the
// queue full are dropped and counted, and a later line says how many are missing.
package logwriter

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/grpclog"
)

// Bounds of what waits; as much again may be on its way to the output.
const (
	// maxLines is some seconds of a program that says a lot.
	maxLines = 1024
	// maxBytes is for long lines.
	maxBytes = 1 << 20
	// CloseWait is how long a program that ends waits for its log to be read: as long as a reader
	// that is there may need on a busy machine.
	CloseWait = 2 * time.Second
)

// Writer queues what is written to it, one line or several at a time, for another writer. It may be
// used by many goroutines.
type Writer struct {
	out   io.Writer
	wake  chan struct{} // of the goroutine that writes; holds one
	ended chan struct{}

	// now writes as much of a line as the output takes without waiting, and returns how much; nil:
	// not possible.
	now func(p []byte) int

	mu      sync.Mutex
	busy    bool // the goroutine has lines that are not out
	queue   [][]byte
	bytes   int
	dropped int
	closed  bool
}

// New returns a writer to out. Close it.
func New(out io.Writer) *Writer {
	w := &Writer{out: out, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go w.run()
	return w
}

// Standard returns a writer to the standard error of a program that serves, and sends everything
// there that packages log on their own. A reader that has gone costs such a program nothing but its
// lines: without this the Go runtime ends it, by SIGPIPE.
func Standard() *Writer {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // not Ignore, which children would inherit
	w := &Writer{out: os.Stderr, wake: make(chan struct{}, 1), ended: make(chan struct{}), now: nonBlocking(os.Stderr)}
	go w.run()
	log.SetOutput(w)
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, w))
	return w
}

// Write never blocks and never fails. To a pipe that has room the line goes at once, so that a
// program that ends in a panic has said what led to it.
func (w *Writer) Write(line []byte) (int, error) {
	p := line
	w.mu.Lock()
	if w.now != nil && !w.busy && len(w.queue) == 0 && w.dropped == 0 && !w.closed {
		if p = p[w.now(p):]; len(p) == 0 {
			w.mu.Unlock()
			return len(line), nil
		}
	}
	if w.closed || w.dropped > 0 || len(w.queue) >= maxLines || len(w.queue) > 0 && w.bytes+len(p) > maxBytes {
		w.dropped++ // and what follows is, until it can be said where lines are missing
	} else {
		w.queue = append(w.queue, append([]byte(nil), p...))
		w.bytes += len(p)
	}
	w.mu.Unlock()
	w.rouse()
	return len(line), nil
}

// nonBlocking returns a function that writes to a pipe what it takes at once, nil for another file.
// The pipe is opened again: whether writing waits is a property of the open file, which other
// processes share.
func nonBlocking(f *os.File) func(p []byte) int {
	if info, err := f.Stat(); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		return nil
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return func(p []byte) int {
		for {
			n, err := unix.Write(fd, p)
			if !errors.Is(err, unix.EINTR) {
				return max(n, 0) // after an error the goroutine tries
			}
		}
	}
}

func (w *Writer) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close drops what is written from now on, and waits until the rest is out, at most for CloseWait.
func (w *Writer) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.rouse()
	t := time.NewTimer(CloseWait)
	defer t.Stop()
	select {
	case <-w.ended:
	case <-t.C:
	}
}

func (w *Writer) run() {
	defer close(w.ended)
	for range w.wake {
		if w.drain() {
			return
		}
	}
}

// drain writes what is queued, and reports whether nothing can come any more.
func (w *Writer) drain() (over bool) {
	for {
		w.mu.Lock()
		lines, dropped := w.queue, w.dropped
		w.queue, w.bytes, w.dropped = nil, 0, 0
		w.busy = len(lines) > 0 || dropped > 0
		over = w.closed
		w.mu.Unlock()
		if len(lines) == 0 && dropped == 0 {
			return over
		}
		for _, p := range lines {
			w.put(p)
		}
		if dropped > 0 {
			w.put(fmt.Appendf(nil, "[%d lines are missing here: nobody read this output]\n", dropped))
		}
	}
}

// put writes one piece. What the output refuses is lost: there is no other place to say so.
func (w *Writer) put(p []byte) { _, _ = w.out.Write(p) }
