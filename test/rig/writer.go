package rig

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// Device is a volume as its user sees it.
type Device interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Flush() error
}

// Writer writes blocks that carry their own number and version, and remembers which version of each
// was written, and which was covered by a flush that succeeded.
type Writer struct {
	// Device is what is written to; it may be exchanged between steps.
	Device Device
	blocks int
	rng    *rand.Rand

	mu      sync.Mutex
	written []uint64 // last version acknowledged, or sent and failed
	stable  []uint64 // last version acknowledged before a flush began that succeeded
	// Flushes and Ops count what succeeded.
	flushes int
	ops     int
	// last is when a write was answered, pause the longest time between two answers.
	last  time.Time
	pause time.Duration
	// failed is what ended Run.
	failed error
}

const (
	blockSize = 4096
	mib       = 1 << 20
)

// NewWriter returns a writer for a volume of zeroes.
func NewWriter(d Device, size int64, seed uint64) *Writer {
	n := int(size / blockSize)
	return &Writer{Device: d, blocks: n, rng: rand.New(rand.NewPCG(seed, 1)), written: make([]uint64, n),
		stable: make([]uint64, n)}
}

// fill makes the content of a block's version.
func fill(p []byte, block int, version uint64) {
	binary.LittleEndian.PutUint64(p[0:], uint64(block))
	binary.LittleEndian.PutUint64(p[8:], version)
	s := sha256.Sum256(p[:16])
	for i := 16; i < len(p); i += len(s) {
		copy(p[i:], s[:])
	}
}

// versionOf reads a block back: 0 for a block of zeroes, an error for anything no writer ever
// wrote.
func versionOf(p []byte, block int) (uint64, error) {
	if bytes.Count(p, []byte{0}) == len(p) {
		return 0, nil
	}
	version := binary.LittleEndian.Uint64(p[8:])
	want := make([]byte, len(p))
	fill(want, block, version)
	if !bytes.Equal(p, want) {
		return 0, fmt.Errorf("block %d holds something that was never written whole", block)
	}
	return version, nil
}

// Step writes one to eight neighbouring blocks, and flushes now and then. It returns the first
// error.
func (w *Writer) Step(version uint64) error {
	n := 1 + w.rng.IntN(8)
	first := w.rng.IntN(w.blocks - n)
	p := make([]byte, n*blockSize)
	for i := range n {
		fill(p[i*blockSize:(i+1)*blockSize], first+i, version)
	}
	w.mu.Lock()
	for i := range n {
		w.written[first+i] = version
	}
	w.mu.Unlock()
	if _, err := w.Device.WriteAt(p, int64(first)*blockSize); err != nil {
		return err
	}
	w.completed(time.Now())
	if w.rng.IntN(16) != 0 {
		return nil
	}
	w.mu.Lock()
	before := append([]uint64(nil), w.written...)
	w.mu.Unlock()
	if err := w.Device.Flush(); err != nil {
		return err
	}
	w.mu.Lock()
	w.stable = before
	w.flushes++
	w.mu.Unlock()
	return nil
}

// completed notes an answer.
func (w *Writer) completed(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops++
	if !w.last.IsZero() {
		w.pause = max(w.pause, at.Sub(w.last))
	}
	w.last = at
}

// TakePause returns the longest time without an answer to a write since the last call, the one that
// has not ended yet included.
func (w *Writer) TakePause(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := w.pause
	if !w.last.IsZero() {
		most = max(most, now.Sub(w.last))
	}
	w.pause = 0
	return most
}

// Verify reads everything through c and checks that no flushed version is lost and nothing was made
// up.
func (w *Writer) Verify(t testing.TB, c Device) {
	t.Helper()
	p := make([]byte, mib)
	for off := 0; off < w.blocks*blockSize; off += mib {
		if _, err := c.ReadAt(p, int64(off)); err != nil {
			Final(t, err)
		}
		for i := 0; i < mib; i += blockSize {
			b := (off + i) / blockSize
			v, err := versionOf(p[i:i+blockSize], b)
			switch {
			case err != nil:
			case v < w.stable[b]:
				err = fmt.Errorf("block %d: version %d was flushed, found %d", b, w.stable[b], v)
			case v > w.written[b]:
				err = fmt.Errorf("block %d: found version %d, never wrote more than %d", b, v, w.written[b])
			}
			Final(t, err)
			// What is read now is what the next round builds on.
			w.written[b], w.stable[b] = max(v, w.stable[b]), v
		}
	}
}

// Settle flushes while nothing is being written and every write was acknowledged: from then on each
// block must have exactly what was written last.
func (w *Writer) Settle() error {
	if err := w.Device.Flush(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stable = append([]uint64(nil), w.written...)
	w.flushes++
	return nil
}

// pace is the time between two writes of Run in the gate, whose scenarios need processors for what
// happens beside the writes. The hunt writes as fast as the volume takes it.
const pace = 2 * time.Millisecond

// Run writes until stop is closed, flushes, and reports the first error.
func (w *Writer) Run(stop <-chan struct{}) <-chan error {
	done := make(chan error, 1)
	go func() {
		var due <-chan time.Time
		if lack.Deciding() {
			ticker := time.NewTicker(pace)
			defer ticker.Stop()
			due = ticker.C
		}
		for version := uint64(1); ; version++ {
			select {
			case <-stop:
				done <- w.Device.Flush()
				return
			default:
			}
			if due != nil {
				<-due
			}
			if err := w.Step(version); err != nil {
				w.mu.Lock()
				w.failed = err
				w.mu.Unlock()
				done <- err
				return
			}
		}
	}()
	return done
}

// Load is a writer at work that must see no error.
type Load struct {
	*Writer
	t    testing.TB
	stop chan struct{}
	done <-chan error
}

// StartLoad writes to a volume of zeroes until the load is finished.
func StartLoad(t testing.TB, d Device, size int64, seed uint64) *Load {
	l := &Load{Writer: NewWriter(d, size, seed), t: t, stop: make(chan struct{})}
	l.done = l.Run(l.stop)
	return l
}

// Check fails the test if the writer has seen an error so far.
func (l *Load) Check() {
	l.t.Helper()
	select {
	case err := <-l.done:
		Final(l.t, fmt.Errorf("the writer saw an error: %w", err))
	default:
	}
}

// Finish ends the load and compares what the volume holds with what was written.
func (l *Load) Finish() {
	l.t.Helper()
	close(l.stop)
	if err := <-l.done; err != nil {
		Final(l.t, fmt.Errorf("the writer saw an error: %w", err))
	}
	l.Verify(l.t, l.Device)
}

// Ops returns how many writes have succeeded.
func (w *Writer) Ops() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ops
}

// Flushes returns how many flushes have succeeded.
func (w *Writer) Flushes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flushes
}

// AwaitMore waits until n more writes have succeeded.
func (w *Writer) AwaitMore(t testing.TB, n int) {
	t.Helper()
	n += w.Ops()
	wait.For(t, "progress of the writer", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.failed != nil {
			Final(t, fmt.Errorf("the writer saw an error: %w", w.failed))
		}
		if w.ops < n {
			return fmt.Errorf("it is at %d of %d operations", w.ops, n)
		}
		return nil
	})
}
