package engine

import (
	"errors"
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// CloneSource is what it takes to read a snapshot of another volume: its engine gives it out
// (GrantClone).
type CloneSource struct {
	VolumeName, VolumeUUID string
	Grant                  wire.Grant
	// Key is the grant's.
	Key []byte
	// Replicas are "ip:port" of those that have the snapshot; one is read from, another one follows
	// if it fails.
	Replicas []string
	// Size of the volume in bytes as its engine knows it.
	Size int64
	// Created is the time that is recorded with the snapshot, Snapshots those of all snapshots of the
	// volume, by name.
	Created   string
	Snapshots map[string]string
}

type (
	// GrantClone asks for what another volume's engine needs to read a snapshot of this one.
	// Nothing changes.
	GrantClone struct {
		Snapshot string
		// For is the other volume's UUID; Expires when no more sessions can be begun, in seconds
		// since 1970, UTC.
		For     string
		Expires int64
		Reply   func(CloneSource, error)
	}
	// Clone fills this volume, which has to be empty and without a frontend, with a snapshot of
	// another one. Reply comes when the copy is under way or cannot begin; the state shows the
	// progress. A clone that was interrupted is gone on with by asking for the same one again; one
	// that is complete is complete.
	Clone struct {
		From CloneSource
		// Name is the snapshot that holds the content at the end, Created the time to record with it.
		Name, Created string
		Reply         func(error)
	}
)

// grant derives a grant from the volume's secret.
func (k *snapshotReads) grant(m GrantClone) {
	e := k.e
	fail := func(err error) { m.Reply(CloneSource{}, err) }
	err := e.unavailable()
	if m.Snapshot == "" || m.Snapshot == HeadName {
		err = fmt.Errorf("%w: a clone is made of a snapshot; %q is none", block.Invalid, m.Snapshot)
	}
	if err != nil {
		fail(err)
		return
	}
	// Asked of a replica and not of the state, so that a snapshot just taken is known.
	asked := e.links.first()
	asked.control(&wire.ControlRequest{Describe: &wire.DescribeRequest{}},
		func(code block.Code, r *wire.ControlReply) {
			switch {
			case code == block.OK:
			case asked.mode != RW:
				k.grant(m) // it was lost: another one can tell
				return
			default:
				fail(refusal(code, r.Error))
				return
			}
			made := map[string]string{}
			for _, l := range r.Snapshots {
				made[l.Name] = l.Created
			}
			for _, l := range r.Snapshots {
				switch {
				case l.Name != m.Snapshot:
				case l.Removed:
					fail(fmt.Errorf("%w: snapshot %s of volume %s is marked removed and may be purged at any time",
						ErrState, m.Snapshot, e.cfg.VolumeName))
					return
				default:
					s := k.grantFor(m)
					s.Created, s.Snapshots = l.Created, made
					m.Reply(s, nil)
					return
				}
			}
			fail(fmt.Errorf("%w: volume %s has no snapshot %q", ErrNotFound, e.cfg.VolumeName, m.Snapshot))
		})
}

func (k *snapshotReads) grantFor(m GrantClone) CloneSource {
	e := k.e
	g := wire.Grant{Snapshot: m.Snapshot, For: m.For, Expires: m.Expires}
	s := CloneSource{VolumeName: e.cfg.VolumeName, VolumeUUID: e.cfg.VolumeUUID, Grant: g,
		Key: g.Key(e.cfg.Secret, e.cfg.VolumeUUID), Size: e.agreedSize}
	for _, l := range e.links.all {
		if l != nil && l.mode == RW {
			s.Replicas = append(s.Replicas, l.addr)
		}
	}
	return s
}

func (i *imports) startClone(m Clone) {
	e := i.e
	s := &m.From
	switch {
	case len(s.Replicas) == 0 || s.VolumeUUID == "" || len(s.Key) == 0:
		m.Reply(fmt.Errorf("%w: the source names no replica, volume or key", block.Invalid))
		return
	case s.VolumeUUID == e.cfg.VolumeUUID:
		m.Reply(fmt.Errorf("%w: volume %s cannot be cloned into itself", block.Invalid, e.cfg.VolumeName))
		return
	case s.Grant.For != e.cfg.VolumeUUID:
		m.Reply(fmt.Errorf("%w: the grant to read snapshot %s of %s is for volume %s, not for %s", block.Invalid,
			s.Grant.Snapshot, s.VolumeName,
			s.Grant.For, e.cfg.VolumeUUID))
		return
	}
	what := importMark{Kind: "clone", Volume: s.VolumeName, VolumeUUID: s.VolumeUUID, Snapshot: s.Grant.Snapshot,
		Name: m.Name}
	j := &importJob{origin: &cloneOrigin{e: e, from: m.From}, mark: what, created: m.Created, reply: m.Reply}
	j.copying = copying{e: e, work: j}
	i.start(j)
}

// sourceTries bounds how often the replicas of a source fail without having given anything in
// between, for each of them.
const sourceTries = 3

// cloneOrigin reads the source volume's replicas, one at a time.
type cloneOrigin struct {
	e    *Engine
	from CloneSource
	at   *source
	next int
	// failures since anything was read.
	failures int
	last     error
}

func (o *cloneOrigin) where() string {
	if o.at == nil {
		return ""
	}
	return o.at.addr
}

// open takes the next replica.
func (o *cloneOrigin) open(done func(size int64, err error)) {
	o.close()
	if o.failures >= sourceTries*len(o.from.Replicas) {
		done(0, fmt.Errorf("no replica of volume %s can be read: %w", o.from.VolumeName, o.last))
		return
	}
	addr := o.from.Replicas[o.next%len(o.from.Replicas)]
	o.next++
	o.at = o.e.sources.connect(&o.from, addr, func(size int64, err error) {
		if err != nil {
			o.failed(err)
			o.open(done)
			return
		}
		done(size, nil)
	})
}

func (o *cloneOrigin) failed(err error) {
	o.failures++
	if o.last == nil || !errors.Is(err, errSourceLost) {
		o.last = err
	}
}

func (o *cloneOrigin) close() {
	if s := o.at; s != nil {
		o.at, s.opened = nil, nil // nobody waits for it any more
		s.hangUp(errSourceLost)
	}
}

// ask sends a request to the present replica.
func (o *cloneOrigin) ask(h wire.Header, p []byte, seg loop.Seg, done func(p []byte, err error)) {
	if o.at == nil {
		done(nil, errSourceLost)
		return
	}
	at := o.at
	at.ask(h, p, seg, func(p []byte, err error) {
		if err == nil {
			o.failures = 0
		} else if o.at == at {
			o.failed(err)
		}
		done(p, err)
	})
}

func (o *cloneOrigin) list(off int64, done func(ranges [][2]int64, next int64, err error)) {
	o.listSince(off, "", done)
}

// listSince is list, or lists what was changed since an older snapshot. block.NotFound: the replica
// does not know that one.
func (o *cloneOrigin) listSince(off int64, since string, done func(ranges [][2]int64, next int64, err error)) {
	q := &wire.ControlRequest{ViewExtents: &wire.ViewExtents{Off: off, Since: since}}
	o.ask(wire.Header{Type: wire.Control}, wire.Marshal(q), loop.Seg{}, func(p []byte, err error) {
		var r wire.ControlReply
		if err == nil {
			err = wire.Unmarshal(p, &r)
		}
		switch {
		case err != nil || r.Extents == nil:
			done(nil, 0, errors.Join(err, errors.New("the replica cannot list what its snapshot holds: "+r.Error)))
		default:
			done(r.Extents.Ranges, r.Extents.Next, nil)
		}
	})
}

func (o *cloneOrigin) read(off int64, seg loop.Seg, done func(err error)) {
	o.ask(wire.Header{Type: wire.Read, Flags: wire.AtView, Off: off, Len: int64(seg.Len)}, nil, seg,
		func(_ []byte, err error) {
			done(err)
		})
}

func (o *cloneOrigin) hash(off, n int64, done func(sum []byte, err error)) {
	o.ask(wire.Header{Type: wire.Hash, Flags: wire.AtView, Off: off, Len: n}, nil, loop.Seg{}, done)
}

// CancelClone ends a clone that is under way. What was copied stays, marked as incomplete.
type CancelClone struct{ Reply func(error) }

var errCancelled = errors.New("cancelled")

func (i *imports) cancelClone(reply func(error)) {
	if i.job == nil {
		reply(fmt.Errorf("%w: no clone is under way", ErrNotFound))
		return
	}
	i.job.fail(errCancelled)
	reply(nil)
}
