package powerloss

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
	"ankole.storage/test/rig"
)

// recording is a workload as its disks saw it.
type recording struct {
	fs           string
	volume       *rig.Volume
	size         int64 // before it grew
	grown        int64 // after it grew; the same where it does not
	growing      int   // the moment before it was asked to
	events       []powerdisk.Event
	disks        []*powerdisk.Image // before the first event
	history      *History
	snapshots    []*snapshot
	acknowledged []int // moments after something was acknowledged
	larger       int   // it was told that the volume is larger; never where it does not grow
}

// snapshot is a snapshot that was acknowledged.
type snapshot struct {
	name       string
	begin, end int
	removed    int               // the moment before its removal was asked for
	hash       [sha256.Size]byte // of its content
}

// swap is noted when the witness replaces its record.
type swap struct{ record *witnessv1.Membership }

// plan says how a workload is recorded.
type plan struct {
	fs       string
	binary   string // of the engine; "" is the usual one
	replicas int
	size     int64
	seed     uint64
	// ops is how many writes each stage makes.
	ops int
	// changes adds a snapshot that is removed and purged, and an expansion.
	changes bool
	// faults adds a killed replica, its rebuild, and a kill of everything.
	faults bool
}

// diskSize is the size of the disk below each replica. XFS refuses less than 300 MiB.
func diskSize(fs string) int64 {
	if fs == "xfs" {
		return 320 * mib
	}
	return 64 * mib
}

const (
	writers = 3
	// growth is what an expansion adds: a region of the dirty log.
	growth = 4 * mib
)

// recorder drives a workload.
type recorder struct {
	*recording
	t       *testing.T
	journal *powerdisk.Journal
	disks   []*powerdisk.Disk
	stages  uint64
	now     int64 // the volume's size
	seed    uint64
}

// record runs a workload and returns what happened.
func record(t *testing.T, p plan) *recording {
	t.Helper()
	began := time.Now()
	j := &powerdisk.Journal{}
	rec := &recording{fs: p.fs, size: p.size, grown: p.size, growing: never, larger: never}
	if p.changes {
		rec.grown += growth
	}
	rec.history = newHistory(j, rec.grown)
	r := &recorder{recording: rec, t: t, journal: j, seed: p.seed, now: p.size}
	v := rig.New(t, 0, p.size)
	v.SetBinary(p.binary)
	r.volume = v
	v.Witness().OnSwap(func(m *witnessv1.Membership) { j.Note(swap{m}) })
	for i := range p.replicas {
		v.AddReplica(fmt.Sprintf("vol-%08d", i)).Dir = filepath.Join(r.disk(i), fmt.Sprintf("vol-%08d", i))
	}
	t.Cleanup(func() { v.KillAll(); r.release() }) // before the rig removes its directory
	for _, x := range v.Replicas {
		x.Start()
	}
	v.StartEngine()
	r.workload(p)
	v.StopEngine()
	for _, x := range v.Replicas {
		x.Stop()
	}
	r.hashBusy()
	r.release()
	r.events = j.Events()
	r.acknowledged = r.moments()
	if r.history.count == 0 || len(r.history.flushes) == 0 || p.changes && len(r.snapshots) == 0 {
		t.Errorf("%d writes, %d flushes, %d snapshots recorded: too little was tried", r.history.count,
			len(r.history.flushes), len(r.snapshots))
	}
	t.Logf("%s, %d replicas: %d events, %d MiB, %d writes, %d flushes, %d snapshots recorded in %v", p.fs, p.replicas,
		len(r.events), j.Bytes()>>20,
		r.history.count, len(r.history.flushes), len(r.snapshots), time.Since(began).Round(time.Millisecond))
	return r.recording
}

// disk makes the disk of a replica with an empty file system and returns where it is mounted.
func (r *recorder) disk(i int) string {
	r.t.Helper()
	d, err := run.Open(fmt.Sprintf("r%d-%x", i, r.seed),
		powerdisk.Options{Image: powerdisk.NewImage(diskSize(r.fs)), Number: i, Seed: r.seed + uint64(i)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.disks = append(r.disks, d)
	if err := d.Format(r.fs); err != nil {
		r.release()
		lack.Skip(r.t, fmt.Sprintf("no file system %s here: %v", r.fs, err))
	}
	r.recording.disks = append(r.recording.disks, d.Snapshot())
	if err := d.Exchange(d.Snapshot(), r.journal); err != nil {
		r.t.Fatal(err)
	}
	at, err := d.Mount(r.fs)
	if err != nil {
		r.release()
		lack.Skip(r.t, fmt.Sprintf("the kernel does not mount %s: %v", r.fs, err))
	}
	return at
}

func (r *recorder) release() {
	for _, d := range r.disks {
		if err := d.Close(); err != nil {
			r.t.Error(err)
		}
	}
	r.disks = nil
}

// workload goes through the stages. Every one leaves something of its own on the disks.
func (r *recorder) workload(p plan) {
	v := r.volume
	r.write(p.ops, nil)
	r.snapshot("quiet")
	r.write(p.ops, func() { r.snapshot("busy") })
	if p.faults {
		victim := v.Replicas[1]
		// Without the witness the replicas' own records are all that says who was dropped.
		v.Witness().SetOffline(true)
		r.write(p.ops, func() {
			victim.Kill()
			v.Await(
				"degraded",
				func(s *enginev1.State) bool { return rig.Modes(s)[enginev1.Mode_MODE_RW] == p.replicas-1 },
			)
		})
		v.Witness().SetOffline(false)
		r.write(p.ops, func() { victim.Start(); v.Rebuild(victim) })
		r.write(p.ops, v.KillAll)
		for _, x := range v.Replicas {
			x.Start()
		}
		v.StartEngine()
		r.rebuildMissing()
	}
	if p.changes {
		r.change(p.ops)
	}
	r.write(p.ops, nil)
	r.snapshot("late")
	r.write(p.ops/2, nil)
}

// change removes a snapshot, purges it and expands the volume, all under load.
func (r *recorder) change(ops int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	v := r.volume
	r.snapshot("doomed")
	doomed := r.snapshots[len(r.snapshots)-1]
	r.write(ops, nil)
	r.write(ops, func() {
		doomed.removed = r.journal.Note(nil)
		if _, err := v.Control().SnapshotRemove(ctx, &enginev1.SnapshotRemoveRequest{Name: "doomed"}); err != nil {
			r.t.Fatal(err)
		}
		if _, err := v.Control().SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{}); err != nil {
			r.t.Fatal(err)
		}
		v.Await("purge", func(s *enginev1.State) bool {
			for _, x := range s.Replicas {
				if x.Purge == nil || x.Purge.State != "complete" {
					return false
				}
			}
			return true
		})
	})
	r.write(ops, func() {
		r.growing = r.journal.Note(nil)
		if _, err := v.Control().Expand(ctx, &enginev1.ExpandRequest{Size: r.grown}); err != nil {
			r.t.Fatal(err)
		}
		r.larger = r.journal.Note(nil)
	})
	r.now = r.grown
}

// rebuildMissing brings back replicas that the engine dropped when they were killed a moment before
// it was.
func (r *recorder) rebuildMissing() {
	s, err := r.volume.State()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, x := range s.Replicas {
		for _, y := range r.volume.Replicas {
			if x.Mode != enginev1.Mode_MODE_RW && "tcp://"+y.Addr == x.Address {
				r.volume.Rebuild(y)
			}
		}
	}
}

// write lets the writers make ops writes in all and, beside them, does what else is given; they go
// on until it is done.
func (r *recorder) write(ops int, beside func()) {
	r.t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for k := range writers {
		r.stages++
		w := &writer{h: r.history, c: r.volume.Dial(), rng: rand.New(rand.NewPCG(r.seed, r.stages)), size: r.now}
		wg.Go(func() {
			defer w.c.Close() // the engine may be dead
			for i := 0; i < ops/writers || !closed(done); i++ {
				if err := w.step(); err != nil {
					return // the engine was killed
				}
				if i >= ops/writers && k > 0 {
					return // one goes on beside what else is done
				}
			}
		})
	}
	if beside != nil {
		beside()
	}
	close(done)
	wg.Wait()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// snapshot takes a snapshot and notes it. If nobody writes its content is what is read; otherwise
// it is what is found in the end.
func (r *recorder) snapshot(name string) {
	r.t.Helper()
	s := &snapshot{name: name, removed: never}
	if name != "busy" {
		content := make([]byte, r.now)
		c := r.volume.Dial()
		if _, err := c.ReadAt(content, 0); err != nil {
			r.t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			r.t.Fatal(err)
		}
		s.hash = sha256.Sum256(content)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.begin = r.journal.Note(nil)
	if _, err := r.volume.Control().SnapshotCreate(ctx,
		&enginev1.SnapshotCreateRequest{Name: name, UserCreated: true}); err != nil {
		r.t.Fatal(err)
	}
	s.end = r.journal.Note(nil)
	r.snapshots = append(r.snapshots, s)
}

// hashBusy looks up the content of the snapshots that were taken under load.
func (r *recorder) hashBusy() {
	c, err := chain.Open(osdisk.New(nil), r.volume.Replicas[0].Dir, chain.Options{ReadOnly: true})
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close() // read only
	for _, s := range r.snapshots {
		if s.removed != never {
			continue
		}
		sum, err := c.HashAt(s.name)
		if err != nil {
			r.t.Fatal(err)
		}
		if s.hash == [sha256.Size]byte{} {
			s.hash = sum
		} else if s.hash != sum {
			r.t.Fatalf("snapshot %s has another content in the end, without any loss of power", s.name)
		}
	}
}

// moments lists the moments right after something was acknowledged that a loss of power must not
// take back.
func (r *recorder) moments() []int {
	var list []int
	for _, f := range r.history.flushes {
		list = append(list, f.end+1)
	}
	for _, s := range r.snapshots {
		list = append(list, s.end+1)
	}
	if r.larger != never {
		list = append(list, r.larger+1)
	}
	for i, e := range r.events {
		if _, ok := e.Note.(swap); ok {
			list = append(list, i+1)
		}
	}
	for _, o := range r.history.fua() {
		list = append(list, o.end+1)
	}
	return list
}

// fua returns the acknowledged writes that were durable at once.
func (h *History) fua() []*op {
	var list []*op
	var last *op
	for _, ops := range h.sectors {
		for _, o := range ops {
			if o.fua && o.end != never && o != last {
				list, last = append(list, o), o
			}
		}
	}
	return list
}

// writer makes random requests of one connection.
type writer struct {
	h    *History
	c    *nbdclient.Client
	rng  *rand.Rand
	size int64
}

// step makes one request. Offsets lie close together, so that overwriting, parts of blocks and
// neighbours in flight are frequent.
func (w *writer) step() error {
	n := sectorSize * (1 + w.rng.Int64N(16))
	if w.rng.IntN(8) == 0 {
		n = sectorSize * (1 + w.rng.Int64N(256))
	}
	off := sectorSize * w.rng.Int64N((w.size-n)/sectorSize)
	if w.rng.IntN(2) == 0 {
		off %= mib
	}
	var err error
	var o *op
	switch w.rng.IntN(12) {
	case 0, 4: // often, so that one is sent while another is under way
		return w.h.flushed(w.c.Flush)
	case 1:
		o = w.h.begin(true, false, off, n)
		err = w.c.WriteZeroes(off, n)
	case 2:
		off, n = off&^4095, max(4096, n&^4095) // a discard leaves the edges alone
		o = w.h.begin(true, false, off, n)
		err = w.c.Trim(off, n)
	case 3:
		o = w.h.begin(false, true, off, n)
		_, err = w.c.WriteAtFUA(w.data(o), off)
	default:
		o = w.h.begin(false, false, off, n)
		_, err = w.c.WriteAt(w.data(o), off)
	}
	if err == nil {
		w.h.acknowledged(o)
	}
	return err
}

func (w *writer) data(o *op) []byte {
	p := make([]byte, o.n)
	stamp(p, o.off/sectorSize, o.id)
	return p
}
