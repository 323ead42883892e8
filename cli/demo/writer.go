package demo

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// recordSize is what is written at once.
	recordSize = 16 << 10
	// writeEvery limits the writer: enough to see, not enough to be in the way on a small machine.
	writeEvery = 4 * time.Millisecond
	// flushEvery is the number of records between flushes, as of a database that commits in groups.
	flushEvery = 8
)

// writer writes numbered records round and round an area, flushes, and reads old ones back, until
// it is stopped. What it was told is written must be found later; what it was not told may be there
// or not.
type writer struct {
	area area
	from int64
	// slots is how many records the area holds.
	slots int64
	run   uint64

	mu    sync.Mutex
	state writerState
	err   error

	stop context.CancelFunc
	done chan struct{}
}

// writerState is how far a writer is.
type writerState struct {
	// written counts records whose write was acknowledged, flushed those that a flush has made
	// durable.
	written, flushed, read int64
	// pause is the longest time one record, flush or read took.
	pause time.Duration
}

func startWriter(ctx context.Context, a area, from, to int64) *writer {
	ctx, stop := context.WithCancel(ctx)
	w := &writer{area: a, from: from, slots: (to - from) / recordSize, run: rand.Uint64(), stop: stop,
		done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.fail(w.work(ctx))
	}()
	return w
}

func (w *writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// snapshot returns how far the writer is, and its error if it has ended with one.
func (w *writer) snapshot() (writerState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, w.err
}

// takePause returns the longest time one record, flush or read took since the last call.
func (w *writer) takePause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := w.state.pause
	w.state.pause = 0
	return longest
}

// end stops the writer and waits for it.
func (w *writer) end() (writerState, error) {
	w.stop()
	<-w.done
	return w.snapshot()
}

func (w *writer) work(ctx context.Context) error {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	buf := aligned(recordSize)
	for n := int64(0); ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.one(n, buf); err != nil {
			return err
		}
	}
}

// one writes record n, and from time to time flushes and reads a record back.
func (w *writer) one(n int64, buf []byte) error {
	began := time.Now()
	w.record(buf, n)
	if _, err := w.area.WriteAt(buf, w.at(n)); err != nil {
		return fmt.Errorf("writing record %d: %w", n, err)
	}
	w.note(began, func(s *writerState) { s.written = n + 1 })
	if (n+1)%flushEvery != 0 {
		return nil
	}
	began = time.Now()
	if err := w.area.Flush(); err != nil {
		return fmt.Errorf("flushing after record %d: %w", n, err)
	}
	w.note(began, func(s *writerState) { s.flushed = n + 1 })
	began = time.Now()
	old := max(0, n+1-w.slots) + rand.Int64N(min(n+1, w.slots))
	if err := w.check(old, buf); err != nil {
		return err
	}
	w.note(began, func(s *writerState) { s.read++ })
	return nil
}

func (w *writer) note(began time.Time, change func(*writerState)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.state)
	w.state.pause = max(w.state.pause, time.Since(began))
}

func (w *writer) at(n int64) int64 { return w.from + n%w.slots*recordSize }

// record fills a buffer with record n: the run, the number, and bytes that follow from both.
func (w *writer) record(buf []byte, n int64) {
	binary.LittleEndian.PutUint64(buf, w.run)
	binary.LittleEndian.PutUint64(buf[8:], uint64(n))
	source := rand.NewChaCha8(seedOf(w.run ^ uint64(n)))
	_, _ = source.Read(buf[16:])
}

// check reads record n and compares every byte.
func (w *writer) check(n int64, buf []byte) error {
	if _, err := w.area.ReadAt(buf, w.at(n)); err != nil {
		return fmt.Errorf("reading record %d: %w", n, err)
	}
	want := make([]byte, recordSize)
	w.record(want, n)
	if !bytes.Equal(buf, want) {
		return fmt.Errorf("record %d at offset %d does not hold what was written", n, w.at(n))
	}
	return nil
}

// verify reads back every record that the ended writer was told is written and has not overwritten
// since.
func (w *writer) verify() (int64, error) {
	buf := aligned(recordSize)
	s, _ := w.snapshot()
	checked := int64(0)
	for n := max(0, s.written-w.slots); n < s.written; n++ {
		if err := w.check(n, buf); err != nil {
			return checked, err
		}
		checked++
	}
	return checked, nil
}
