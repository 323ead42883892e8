package replica

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/wire"
)

// A live upgrade runs two processes on one directory; whoever has its lock may use it. A process
// without it is standby: it answers prepared hellos from what the directory says at that moment,
// and an activating one makes it take the lock and open the directory. docs/design/upgrade.md has
// the whole.

// Directory is how a replica gives up its directory and takes it again. All methods block and are
// called one at a time, away from the loop's thread.
type Directory interface {
	// Acquire takes the lock, which it may wait for a little, and opens the directory.
	Acquire() (*chain.Chain, error)
	// Release closes f and s cleanly and gives up the lock; m is its block map. After an error the
	// directory must not be used any more by this process.
	Release(f *chain.Files, s *chain.Sidecars, m chain.Retired) error
	// Inspect reads the directory of another process, and prepares what makes Acquire fast.
	Inspect() (chain.Info, error)
}

// prepare tells what the directory holds and has promised. Nothing changes, and whoever has a
// session keeps it; the caller can activate its connection with another hello.
func (s *session) prepare(h *wire.Header, m *wire.HelloMessage) {
	r, hdr, hello := s.r, *h, *m
	r.ops.enqueue(&metaOp{s: s, both: inspect, done: func(v any) {
		if s.closing() {
			return
		}
		seen := v.(inspected)
		if seen.err != nil {
			s.refuse(&hdr, codeOf(seen.err), seen.err.Error())
			return
		}
		reply := r.handover.describeStandby(&seen.info)
		if r.blocks != nil {
			reply = r.welcome(&hello, &seen.held)
			reply.Promised, reply.PromisedTo = r.record.Promised, r.record.Engine
		}
		s.send(hdr.Answer(block.OK), wire.Marshal(reply))
	}})
}

type inspected struct {
	info chain.Info
	held held // of a directory that is open here
	err  error
}

// inspect reads the directory if another process may have it.
func inspect(w *worker, l *sidecarSet) any {
	if w.files != nil {
		return inspected{held: l.held()}
	}
	info, err := w.directory.Inspect()
	return inspected{info: info, err: err}
}

// handover is whether the directory is this process's, and its way to another one and back.
type handover struct {
	r       *Replica
	standby bool
}

// describeStandby is welcome for a directory that is not open here.
func (k *handover) describeStandby(info *chain.Info) wire.HelloReply {
	reply := wire.HelloReply{Standby: true, Size: info.SizeBytes, Rebuilding: info.Rebuilding, DirtyAll: true}
	if info.RecordValid {
		reply.Promised, reply.PromisedTo = info.Record.Promised, info.Record.Engine
		reply.Record = k.r.recordMessage(&info.Record)
	}
	return reply
}

// giveBack returns a directory that was taken for an engine which was refused.
func (k *handover) giveBack() {
	// Another hello may have been on its way: then the directory is for that one.
	wanted := func() bool { return !k.standby && k.r.sessions.open == 0 }
	k.giveUp(&metaOp{wanted: wanted, done: func(v any) {
		k.r.cfg.Event("standby", "the directory is given back: its engine was refused")
		k.released(v.(result).err, takenOver)
	}})
}

// takenOver is why readers of a directory that was released are ended.
const takenOver = "another process takes the directory over"

// giveUp closes the directory, if it is open, as the operation m: nothing is in flight, and the
// loop has no use for its map any more.
func (k *handover) giveUp(m *metaOp) {
	var retired chain.Retired
	m.exclusive = true
	m.begin = func() {
		if k.r.blocks != nil {
			retired = k.r.blocks.Retire()
		}
	}
	m.both = func(w *worker, l *sidecarSet) any { return result{err: w.release(l, retired)} }
	k.r.ops.enqueue(m)
}

// released makes the process standby. A directory that could not be closed is left by ending the
// process.
func (k *handover) released(err error, reason string) {
	k.r.dropBlocks(reason)
	k.standby, k.r.ops.writable = true, true
	if err != nil {
		k.r.fail("the directory could not be closed: " + err.Error())
	}
}

// releaseDirectory carries out an engine's request to hand the directory to another process. The
// session is over with it; the connection can be activated again.
func (k *handover) releaseDirectory(s *session, h *wire.Header) {
	k.giveUp(&metaOp{s: s, done: func(v any) {
		err := v.(result).err
		k.released(err, takenOver)
		k.r.reply(s, h, codeOf(err), wire.ControlReply{})
		if err == nil && !s.closing() {
			k.r.sessions.count(-1)
			s.phase, s.released = sessionGreeted, true
			k.r.ops.forget(s)
			k.r.cfg.Event("standby", "the directory is released by "+s.engine)
		}
	}})
}
