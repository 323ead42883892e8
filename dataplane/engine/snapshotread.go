package engine

import (
	"errors"
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
)

// A snapshot is read for a backup through a read-only session with one of the volume's own
// replicas, as another volume's engine reads it for a clone. Another replica takes over at an
// error. Users come first: while they use the volume, few reads are under way.

const (
	// maxSnapshotReaders bounds snapshots that are read at a time; a clone needs a session too.
	maxSnapshotReaders = 2
	// readWidth and readWidthBusy are how many reads, of 1 MiB at most, are under way at once while
	// nobody uses the volume, and while somebody does.
	readWidth, readWidthBusy = 8, 2
)

// OpenedSnapshot is a snapshot that can be read.
type OpenedSnapshot struct {
	// ID names it in the other messages.
	ID uint64
	// Size of the volume at the snapshot, in bytes.
	Size int64
	// Created is the time that is recorded with the snapshot.
	Created string
	// Snapshots are all of the volume when it was opened: the times that are recorded with them, by
	// name.
	Snapshots map[string]string
	// From is the address of the replica that is read from.
	From string
}

type (
	// OpenSnapshot begins to read a snapshot, which a purge then leaves alone on the replica that is
	// read. Expires is when no replica lets it in any more, in seconds since 1970, UTC.
	OpenSnapshot struct {
		Snapshot string
		Expires  int64
		Reply    func(OpenedSnapshot, error)
	}
	// ListSnapshot tells where the snapshot has data from Off on, or with Since what was written or
	// discarded after that snapshot: [start, end) in whole blocks, and where the next page begins, -1
	// at the end. ErrNotFound: Since is not below it.
	ListSnapshot struct {
		ID    uint64
		Since string
		Off   int64
		Reply func(ranges [][2]int64, next int64, err error)
	}
	// ReadSnapshot fills Data, whole blocks and at most block.MaxTransfer bytes.
	ReadSnapshot struct {
		ID    uint64
		Off   int64
		Data  []byte
		Reply func(error)
	}
	// CloseSnapshot ends it. What was asked for and not answered fails.
	CloseSnapshot struct{ ID uint64 }
)

// snapshotReads are the snapshots of this volume that are read.
type snapshotReads struct {
	untimed
	e   *Engine
	all []*snapshotReader
}

// snapshotReader is a snapshot that is read.
type snapshotReader struct {
	e      *Engine
	id     uint64
	origin *cloneOrigin
	opened OpenedSnapshot
	// opening: a session is being begun. waiting goes on when there is one, or with the error.
	opening bool
	waiting []func(error)
	// reads wait for their turn; running are under way.
	reads   []func()
	running int
	// ended is why nothing can be read any more.
	ended error
}

func (k *snapshotReads) open(m OpenSnapshot) {
	e := k.e
	fail := func(err error) { m.Reply(OpenedSnapshot{}, err) }
	if len(k.all) >= maxSnapshotReaders {
		fail(fmt.Errorf("%w: %d snapshots of volume %s are read already; try again when one is done", ErrBusy,
			maxSnapshotReaders, e.cfg.VolumeName))
		return
	}
	e.sources.runs++
	r := &snapshotReader{e: e, id: e.sources.runs}
	k.all = append(k.all, r)
	k.grant(GrantClone{Snapshot: m.Snapshot, For: e.cfg.VolumeUUID, Expires: m.Expires,
		Reply: func(from CloneSource, err error) {
			if err != nil {
				r.end(err)
				fail(err)
				return
			}
			r.origin = &cloneOrigin{e: e, from: from}
			r.open(func(err error) {
				if err != nil {
					r.end(err)
				}
				m.Reply(r.opened, err)
			})
			r.opened.Created, r.opened.Snapshots = from.Created, from.Snapshots
		}})
}

// open begins a session with the next replica that has all data, and calls then.
func (r *snapshotReader) open(then func(error)) {
	if r.ended != nil {
		then(r.ended)
		return
	}
	r.waiting = append(r.waiting, then)
	if r.opening {
		return
	}
	r.opening = true
	r.origin.from.Replicas = r.e.links.addresses()
	if len(r.origin.from.Replicas) == 0 {
		r.wake(fmt.Errorf("%w: no replica left", ErrState))
		return
	}
	r.origin.open(func(size int64, err error) {
		switch {
		case err != nil:
		case r.opened.Size != 0 && size != r.opened.Size:
			err = fmt.Errorf("the snapshot has %d bytes at %s, and %d elsewhere", size, r.origin.where(), r.opened.Size)
		default:
			r.opened.ID, r.opened.Size, r.opened.From = r.id, size, r.origin.where()
		}
		r.wake(err)
	})
}

// addresses are the addresses of replicas that have all data, those on this node first.
func (k *links) addresses() (addrs []string) {
	for _, local := range []bool{true, false} {
		for _, l := range k.all {
			if l != nil && l.mode == RW && l.local == local {
				addrs = append(addrs, l.addr)
			}
		}
	}
	return addrs
}

func (r *snapshotReader) wake(err error) {
	waiting := r.waiting
	r.opening, r.waiting = false, nil
	for _, f := range waiting {
		if r.ended != nil {
			err = r.ended
		}
		f(err)
	}
}

// try asks the replica in use, and the next one where that fails. done gets the last error.
func (r *snapshotReader) try(ask func(done func(error)), done func(error)) {
	switch {
	case r.ended != nil:
		done(r.ended)
		return
	case r.origin == nil:
		done(fmt.Errorf("%w: the snapshot is not open yet", ErrState))
		return
	}
	at := r.origin.at
	ask(func(err error) {
		switch {
		case err == nil || errors.Is(err, block.NotFound) || r.ended != nil:
			done(err)
		case r.origin.at != at && !r.opening: // another request has found that out
			r.try(ask, done)
		default:
			if !r.opening {
				r.e.event("source-failed", r.origin.where(), err.Error())
			}
			r.open(func(err error) {
				if err != nil {
					done(err)
					return
				}
				r.try(ask, done)
			})
		}
	})
}

// end fails what is asked for from now on.
func (r *snapshotReader) end(err error) {
	if r.ended != nil {
		return
	}
	r.ended = err
	r.e.snapshotReads.all = without(r.e.snapshotReads.all, r)
	reads := r.reads
	r.reads = nil
	if r.origin != nil {
		r.origin.close()
	}
	r.wake(err)
	for _, read := range reads {
		read()
	}
}

func without(all []*snapshotReader, r *snapshotReader) (rest []*snapshotReader) {
	for _, o := range all {
		if o != r {
			rest = append(rest, o)
		}
	}
	return rest
}

var errNotOpen = fmt.Errorf("%w: the snapshot is not open", ErrNotFound)

func (k *snapshotReads) find(id uint64) *snapshotReader {
	for _, r := range k.all {
		if r.id == id && r.opened.ID == id {
			return r
		}
	}
	return nil
}

func (k *snapshotReads) list(m ListSnapshot) {
	r := k.find(m.ID)
	if r == nil {
		m.Reply(nil, 0, errNotOpen)
		return
	}
	var ranges [][2]int64
	var next int64
	r.try(func(done func(error)) {
		r.origin.listSince(m.Off, m.Since, func(found [][2]int64, n int64, err error) {
			ranges, next = found, n
			done(err)
		})
	}, func(err error) {
		if errors.Is(err, block.NotFound) {
			err = fmt.Errorf("%w: snapshot %q is not below the one that is read", ErrNotFound, m.Since)
		}
		if err == nil && next >= 0 && next <= m.Off {
			err = fmt.Errorf("%w: the list of changes does not go on at %d", block.Invalid, next)
		}
		m.Reply(ranges, next, err)
	})
}

func (k *snapshotReads) read(m ReadSnapshot) {
	e := k.e
	r, n := k.find(m.ID), int64(len(m.Data))
	switch {
	case r == nil:
		m.Reply(errNotOpen)
		return
	case n == 0 || n > block.MaxTransfer || m.Off < 0 || (m.Off|n)%block.Size != 0 || m.Off > r.opened.Size-n:
		m.Reply(fmt.Errorf("%w: read of %d bytes at %d of a snapshot of %d", block.Invalid, n, m.Off, r.opened.Size))
		return
	}
	r.reads = append(r.reads, func() {
		if r.ended != nil {
			m.Reply(r.ended)
			return
		}
		r.running++
		e.memory.buffer(&e.memory.imports, n, func(seg loop.Seg) {
			r.try(func(done func(error)) { r.origin.read(m.Off, seg, done) }, func(err error) {
				if err == nil {
					copy(m.Data, e.arena.Seg(seg))
				}
				e.arena.Release(seg.Buf)
				r.running--
				m.Reply(err)
			})
		})
	})
	r.more()
}

// more begins reads that wait, as many as leave the volume to its users.
func (r *snapshotReader) more() {
	width := readWidth
	if r.e.requests.foreground > 0 {
		width = readWidthBusy
	}
	for len(r.reads) > 0 && r.running < width && r.ended == nil {
		read := r.reads[0]
		r.reads = r.reads[1:]
		read()
	}
}

func (k *snapshotReads) close(id uint64) {
	if r := k.find(id); r != nil {
		r.end(errNotOpen)
	}
}

// step goes on: the user may have left room, the engine may have come to its end.
func (k *snapshotReads) step() {
	for _, r := range append([]*snapshotReader(nil), k.all...) {
		switch {
		case k.e.fatal != "" || k.e.stopped:
			r.end(fmt.Errorf("%w: the engine has ended", ErrState))
		default:
			r.more()
		}
	}
}
