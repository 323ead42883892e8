package replica

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
)

// syncs is the sync of the head: one at a time, for everybody who waits for it.
type syncs struct {
	r *Replica
	// marked: the dirty log was written since it was copied.
	marked  bool
	running bool
	// left are the parts of the sync that is under way, code its worst result.
	left int
	code block.Code
	// now are those whom it is for, next those for whom it has begun too early.
	now, next []*job
}

// join answers j when everything written to the head so far is stable, and its whiteouts. One
// sync is in flight at a time; those that arrive meanwhile share the next one, since the running
// one may have begun before their writes completed.
func (y *syncs) join(j *job) {
	y.next = append(y.next, j)
	y.start()
}

func (y *syncs) start() {
	if y.running || len(y.next) == 0 {
		return
	}
	y.running, y.left, y.code = true, 2, block.OK
	y.now, y.next = y.next, y.now[:0]
	y.r.op(loop.Op{Kind: loop.FileSync, Handle: loop.Handle(y.r.blocks.HeadHandle()), Tag: loop.Tag(ownerSync, 0)})
	y.r.white.settle(true, y.synced)
	y.copyLog()
}

// copyLog has marks that are in one slot of the log only written to the other one. Nobody waits for
// it: marks are answered before, and beside a flush it holds back few of the next.
func (y *syncs) copyLog() {
	if !y.marked {
		return
	}
	y.marked = false
	y.r.ops.enqueue(&metaOp{note: (*sidecarSet).copyLog, done: func(v any) {
		if err := v.(result).err; err != nil {
			y.r.cfg.Event("dirty-log-failed", err.Error())
		}
	}})
}

// copyLog is for whoever has the directory when its turn comes.
func (l *sidecarSet) copyLog() any {
	if l.side == nil {
		return result{}
	}
	return result{err: l.side.CopyLog()}
}

func (y *syncs) headDone(d *loop.Done) {
	code := block.OK
	if d.Errno != 0 {
		code = block.IOError
	}
	y.synced(code)
}

// synced answers everybody who waited when the head and its whiteouts are both stable. A failed
// sync is never retried: the system may have dropped the data, and would report success the next
// time.
func (y *syncs) synced(code block.Code) {
	if code != block.OK {
		y.code = code
	}
	if y.left--; y.left > 0 {
		return
	}
	y.running = false
	for _, j := range y.now {
		y.r.requests.finish(j, y.code, loop.Seg{})
	}
	y.now = y.now[:0]
	if y.code != block.OK {
		y.r.fail("a sync failed: the content of the disk is no longer known")
		return
	}
	y.start()
}
