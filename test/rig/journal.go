package rig

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"ankole.storage/test/wait"
)

// Journal is a writer that knows of every sector of a volume what it may hold. Its workers write,
// zero, discard, flush and read back all the time, each in sectors of its own, so that of one
// sector there is never more than one request under way. Neighbouring workers share 4 KiB blocks.
//
// The rule that it checks is that of a disk whose power does not fail: a request that succeeded has
// happened; one that failed, or whose answer never came, has happened or not, sector by sector; and
// what was once read stays.
type Journal struct {
	seed    uint64
	sectors []sector
	history history

	mu     sync.Mutex
	cond   *sync.Cond
	target Target
	// epoch counts targets; a worker whose request failed waits for the next one.
	epoch int
	// crew counts how often the workers were replaced, since those before hang in a request.
	crew       int
	paused     bool
	ended      bool
	busy       int // workers in a request
	parked     int // workers waiting for another target
	tolerate   func(error) bool
	violations []string
	counts     Counts
	// during collects, while a snapshot is taken, the versions that are being written, by sector;
	// nil otherwise.
	during map[int][]uint64

	workers sync.WaitGroup
}

// Counts is what a journal has done with success, and what went wrong.
type Counts struct {
	Writes, Zeroes, Discards, Flushes int
	// Reads were made and verified.
	Reads int
	// Errors are requests that failed, as they may when something was killed.
	Errors int
	// Verified counts passes over the whole volume.
	Verified int
}

// Add adds up.
func (c *Counts) Add(d Counts) {
	c.Writes += d.Writes
	c.Zeroes += d.Zeroes
	c.Discards += d.Discards
	c.Flushes += d.Flushes
	c.Reads += d.Reads
	c.Errors += d.Errors
	c.Verified += d.Verified
}

// Ops is how many requests have succeeded.
func (c Counts) Ops() int { return c.Writes + c.Zeroes + c.Discards + c.Flushes + c.Reads }

// sectorSize is the smallest piece a volume is written in.
const sectorSize = 512

// sector is what is known of a sector. Values are versions; 0 is a sector of zeroes.
type sector struct {
	value uint64
	// maybe are values of requests without success since value was known to be there.
	maybe []uint64
	// loose: a request failed while the engine went on, which may then read from copies that
	// differ; so a read decides nothing until the sector is written again or another engine has
	// compared the copies.
	loose bool
	// order of the newest request that succeeded here.
	order uint64
}

const (
	// workers of a journal.
	workers = 6
	// stripe is how many sectors in a row belong to one worker: no multiple of a block, so that
	// blocks are shared.
	stripe = 28
	// largest request in sectors, within one worker's stripes.
	largest = stripe
	// maxViolations bounds what is reported; the first tells most.
	maxViolations = 8
)

// NewJournal returns a journal for a volume of zeroes. The seed makes it unique: what it writes
// says whose it is.
func NewJournal(size int64, seed uint64) *Journal {
	j := &Journal{seed: seed, sectors: make([]sector, size/sectorSize), paused: true}
	j.cond = sync.NewCond(&j.mu)
	j.hire()
	return j
}

// hire starts workers. j.mu is held, or nobody else has j yet.
func (j *Journal) hire() {
	for w := range workers {
		j.workers.Add(1)
		go j.work(w, j.crew)
	}
}

// Abandon leaves the workers alone with whatever they wait for, and makes others that wait for the
// next Use. A write of theirs may still be acknowledged, as one that had happened before; nothing
// else that they hear counts.
func (j *Journal) Abandon() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.crew++
	j.busy, j.parked, j.paused = 0, 0, true
	j.hire()
	j.cond.Broadcast()
}

// Use makes the workers go on with another target. fresh says that another engine serves it: it has
// compared the copies.
func (j *Journal) Use(t Target, fresh bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.target = t
	j.epoch++
	if fresh {
		for i := range j.sectors {
			j.sectors[i].loose = false
		}
	}
	j.paused = false
	j.cond.Broadcast()
}

// Tolerate says which errors are no violation from now on; nil means that none is allowed. A worker
// whose request failed waits for the next Use, but goes on at once after "no space".
func (j *Journal) Tolerate(may func(error) bool) {
	j.mu.Lock()
	j.tolerate = may
	j.mu.Unlock()
}

// AnyError tolerates every error.
func AnyError(error) bool { return true }

// NoSpace tolerates ENOSPC.
func NoSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) }

// Pause waits until no request is under way and keeps the workers still.
func (j *Journal) Pause(t testing.TB) {
	t.Helper()
	j.mu.Lock()
	j.paused = true
	j.mu.Unlock()
	wait.Until(t, "the end of all requests", func() bool { j.mu.Lock(); defer j.mu.Unlock(); return j.busy == 0 })
}

// Resume lets the workers go on with the target they have.
func (j *Journal) Resume() {
	j.mu.Lock()
	j.paused = false
	j.cond.Broadcast()
	j.mu.Unlock()
}

// End stops the workers and waits for them. Their target must be alive or gone, not stopped.
func (j *Journal) End() {
	j.mu.Lock()
	j.ended = true
	j.cond.Broadcast()
	j.mu.Unlock()
	j.workers.Wait()
}

// Counts returns what was done so far.
func (j *Journal) Counts() Counts {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counts
}

// Idle reports whether every worker waits for another target.
func (j *Journal) Idle() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.parked == workers
}

// Stuck reports whether every worker is in a request.
func (j *Journal) Stuck() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := j.counts
	if j.busy < workers {
		return false
	}
	j.mu.Unlock()
	<-time.After(stuckFor)
	j.mu.Lock()
	return j.busy == workers && j.counts == before
}

// stuckFor is how long nothing must have been answered: far more than a request takes.
const stuckFor = 500 * time.Millisecond

// Violations returns what must not have happened.
func (j *Journal) Violations() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.violations
}

// violation notes what must not have happened; j.mu is held.
func (j *Journal) violation(format string, args ...any) {
	if len(j.violations) < maxViolations {
		j.violations = append(j.violations, fmt.Sprintf(format, args...))
	}
}

// work is a worker's life.
func (j *Journal) work(worker, crew int) {
	defer j.workers.Done()
	rng := rand.New(rand.NewPCG(j.seed, uint64(worker+crew*workers)))
	buf := Aligned(largest * sectorSize)
	failed := -1
	for {
		t, epoch, ok := j.enter(crew, failed)
		if !ok {
			return
		}
		failed = -1
		if err := j.step(worker, crew, rng, t, buf); err != nil && !NoSpace(err) {
			failed = epoch
		}
	}
}

// enter waits until a request may begin, with another target than that of epoch failed; false at
// the end of the crew.
func (j *Journal) enter(crew, failed int) (Target, int, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for !j.ended && crew == j.crew && (j.paused || j.target == nil || j.epoch == failed) {
		if j.epoch == failed {
			j.parked++
			j.cond.Wait()
			if crew == j.crew {
				j.parked--
			}
			continue
		}
		j.cond.Wait()
	}
	if j.ended || crew != j.crew {
		return nil, 0, false
	}
	j.busy++
	return j.target, j.epoch, true
}

// step makes one request and judges its outcome.
func (j *Journal) step(worker, crew int, rng *rand.Rand, t Target, buf []byte) error {
	r := j.plan(worker, rng)
	began := time.Now()
	p := buf[:r.n*sectorSize]
	var err error
	switch off, n := int64(r.first)*sectorSize, int64(r.n)*sectorSize; r.kind {
	case opWrite:
		j.fillAll(p, r)
		_, err = t.WriteAt(p, off)
	case opFUA:
		j.fillAll(p, r)
		_, err = t.WriteFUA(p, off)
	case opZero:
		err = t.Zero(off, n)
	case opDiscard:
		err = t.Discard(off, n)
	case opFlush:
		err = t.Flush()
	case opRead:
		_, err = t.ReadAt(p, off)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r.began, r.ended, r.err = began, time.Now(), err
	if crew != j.crew {
		r.late = true
		j.history.add(r)
		j.settleLate(r)
		return err
	}
	defer func() { j.busy-- }()
	j.history.add(r)
	if err != nil {
		j.counts.Errors++
		if j.tolerate == nil || !j.tolerate(err) {
			j.violation("%s: %v, but nothing was done that allows an error", r, err)
		}
	}
	j.settle(r, p, err)
	return err
}

// plan chooses a request and notes what it may leave behind.
func (j *Journal) plan(worker int, rng *rand.Rand) request {
	const span = workers * stripe
	j.mu.Lock()
	defer j.mu.Unlock()
	stripes := len(j.sectors) / span
	at := rng.IntN(stripe)
	r := request{worker: worker, kind: kinds[rng.IntN(len(kinds))], first: rng.IntN(stripes)*span + worker*stripe + at,
		n: 1 + rng.IntN(stripe-at)}
	if r.kind == opFlush {
		r.n = 0
	}
	if r.kind == opRead || r.kind == opFlush {
		return r
	}
	r.order = j.history.version()
	if r.kind != opZero && r.kind != opDiscard {
		r.version = r.order
	}
	for i := r.first; i < r.first+r.n; i++ {
		j.sectors[i].maybe = append(j.sectors[i].maybe, r.version)
		if j.during != nil {
			j.during[i] = append(j.during[i], r.version)
		}
	}
	return r
}

// settle notes what is known now that the request has ended; j.mu is held.
func (j *Journal) settle(r request, p []byte, err error) {
	switch {
	case r.kind == opFlush && err == nil:
		j.counts.Flushes++
	case r.kind == opRead && err == nil:
		j.counts.Reads++
		j.judge(r.first, p)
	case r.kind == opRead || r.kind == opFlush:
	case err != nil:
		for i := r.first; i < r.first+r.n; i++ {
			j.sectors[i].loose = true
		}
	case r.kind == opDiscard:
		j.counts.Discards++ // it may read as before or as zeroes: the next read decides
		for i := r.first; i < r.first+r.n; i++ {
			j.sectors[i].order = r.order
		}
	default:
		if j.counts.Writes++; r.kind == opZero {
			j.counts.Zeroes++
		}
		for i := r.first; i < r.first+r.n; i++ {
			j.sectors[i] = sector{value: r.version, maybe: j.sectors[i].maybe[:0], order: r.order}
		}
	}
}

// settleLate judges the answer to a request whose worker was abandoned: a write that is
// acknowledged now has happened before the others took over, so nobody may have found anything
// older since. j.mu is held.
func (j *Journal) settleLate(r request) {
	if r.err != nil || r.version == 0 {
		return
	}
	for i := r.first; i < r.first+r.n; i++ {
		s := &j.sectors[i]
		if s.order < r.order && !s.may(r.version) {
			j.violation("%s was acknowledged, but sector %d was found to hold version %d meanwhile\n%s", r, i, s.value,
				j.history.of(i))
		}
	}
}

// judge compares what was read with what may be there; j.mu is held.
func (j *Journal) judge(first int, p []byte) {
	for k := range len(p) / sectorSize {
		i := first + k
		v, err := j.version(p[k*sectorSize:(k+1)*sectorSize], i)
		s := &j.sectors[i]
		if err != nil || !s.may(v) {
			what := fmt.Sprintf("version %d", v)
			if err != nil {
				what = err.Error()
			}
			j.violation("sector %d (byte %d) holds %s; it may hold %d or one of %v\n%s", i, i*sectorSize, what, s.value,
				s.maybe, j.history.of(i))
			continue
		}
		if !s.loose {
			s.value, s.maybe = v, s.maybe[:0]
		}
	}
}

// may reports whether a sector may hold a value.
func (s *sector) may(v uint64) bool {
	if v == s.value {
		return true
	}
	for _, m := range s.maybe {
		if m == v {
			return true
		}
	}
	return false
}

// Verify reads the whole volume and judges every sector. The workers must be paused.
func (j *Journal) Verify(t Target) error {
	p := Aligned(mib)
	for off := int64(0); off < int64(len(j.sectors))*sectorSize; off += mib {
		if _, err := t.ReadAt(p, off); err != nil {
			return fmt.Errorf("read of 1 MiB at %d: %w", off, err)
		}
		j.mu.Lock()
		j.judge(int(off/sectorSize), p)
		j.mu.Unlock()
	}
	j.mu.Lock()
	j.counts.Verified++
	j.mu.Unlock()
	return nil
}

// fillAll makes the content of a write.
func (j *Journal) fillAll(p []byte, r request) {
	for k := range r.n {
		j.fill(p[k*sectorSize:(k+1)*sectorSize], r.first+k, r.version)
	}
}

// fill makes the content of a sector's version: seed, sector, version, and noise that depends on
// all three.
func (j *Journal) fill(p []byte, index int, version uint64) {
	binary.LittleEndian.PutUint64(p[0:], j.seed)
	binary.LittleEndian.PutUint64(p[8:], uint64(index))
	binary.LittleEndian.PutUint64(p[16:], version)
	x := j.seed ^ uint64(index)<<32 ^ version
	for i := 24; i < sectorSize; i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(p[i:], x)
	}
}

// version reads a sector back: an error for anything that was never written there whole.
func (j *Journal) version(p []byte, index int) (uint64, error) {
	v := binary.LittleEndian.Uint64(p[16:])
	var want [sectorSize]byte
	if v != 0 {
		j.fill(want[:], index, v)
	}
	if [sectorSize]byte(p) == want {
		return v, nil
	}
	return 0, fmt.Errorf("something never written there: seed %#x, sector %d, version %d (of this journal: %t)",
		binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:]), v,
		binary.LittleEndian.Uint64(p) == j.seed)
}
