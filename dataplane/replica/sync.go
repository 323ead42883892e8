package replica

import (
	"ankole.storage/block"
	"ankole.storage/dataplane/loop"
)

// joinSync answers j when everything written to the head so far is stable. One sync is in flight at a time; those that
// arrive meanwhile share the next one, since the running one may have begun before their writes completed.
func (r *Replica) joinSync(j *job) {
	r.syncNext = append(r.syncNext, j)
	r.startSync()
}

func (r *Replica) startSync() {
	if r.syncing || len(r.syncNext) == 0 {
		return
	}
	r.syncing = true
	r.syncNow, r.syncNext = r.syncNext, r.syncNow[:0]
	r.op(loop.Op{Kind: loop.FileSync, Handle: loop.Handle(r.chain.HeadHandle()), Tag: loop.Tag(ownerSync, 0)})
}

// syncDone answers everybody who waited. A failed sync is never retried: the system may have dropped the data, and would
// report success the next time.
func (r *Replica) syncDone(d *loop.Done) {
	r.syncing = false
	code := block.OK
	if d.Errno != 0 {
		code = block.IOError
	}
	for _, j := range r.syncNow {
		r.finish(j, code, loop.Seg{})
	}
	r.syncNow = r.syncNow[:0]
	if code != block.OK {
		r.fail("fdatasync failed: the content of the disk is no longer known")
		return
	}
	r.startSync()
}
