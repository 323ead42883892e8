package replica

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
)

// joinSync answers j when everything written to the head so far is stable, and its whiteouts. One
// sync is in flight at a time; those that arrive meanwhile share the next one, since the running
// one may have begun before their writes completed.
func (r *Replica) joinSync(j *job) {
	r.syncNext = append(r.syncNext, j)
	r.startSync()
}

func (r *Replica) startSync() {
	if r.syncing || len(r.syncNext) == 0 {
		return
	}
	r.syncing, r.syncLeft, r.syncCode = true, 2, block.OK
	r.syncNow, r.syncNext = r.syncNext, r.syncNow[:0]
	r.op(loop.Op{Kind: loop.FileSync, Handle: loop.Handle(r.blocks.HeadHandle()), Tag: loop.Tag(ownerSync, 0)})
	r.settleWhiteouts(true, r.synced)
	r.copyLog()
}

// copyLog has marks that are in one slot of the log only written to the other one. Nobody waits for
// it: marks are answered before, and beside a flush it holds back few of the next.
func (r *Replica) copyLog() {
	if !r.marked {
		return
	}
	r.marked = false
	r.enqueue(&metaOp{note: (*sidecarSet).copyLog, done: func(v any) {
		if err := v.(result).err; err != nil {
			r.cfg.Event("dirty-log-failed", err.Error())
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

func (r *Replica) syncDone(d *loop.Done) {
	code := block.OK
	if d.Errno != 0 {
		code = block.IOError
	}
	r.synced(code)
}

// synced answers everybody who waited when the head and its whiteouts are both stable. A failed
// sync is never retried: the system may have dropped the data, and would report success the next
// time.
func (r *Replica) synced(code block.Code) {
	if code != block.OK {
		r.syncCode = code
	}
	if r.syncLeft--; r.syncLeft > 0 {
		return
	}
	r.syncing = false
	for _, j := range r.syncNow {
		r.finish(j, r.syncCode, loop.Seg{})
	}
	r.syncNow = r.syncNow[:0]
	if r.syncCode != block.OK {
		r.fail("a sync failed: the content of the disk is no longer known")
		return
	}
	r.startSync()
}
