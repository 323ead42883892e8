// Package frontend is how a volume is offered to its user: a block device, an NBD socket, an iSCSI
// target.
//
// A Frontend is the codec part of the engine's step core: it turns bytes received into Requests and
// answers into bytes sent. It knows nothing of replicas. Every frontend passes the conformance
// suite in frontendtest.
package frontend

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
)

// Request is one piece of work for the engine.
//
// Off and Len are checked by the frontend against the volume's size and are multiples of
// block.SectorSize. Read and Write carry at most block.MaxTransfer bytes; Discard and WriteZeroes
// may carry more and have no buffer. The frontend owns one reference of Buf from Request to
// Complete: for Write it holds the data at payload offset 0, for Read the engine fills it there.
type Request struct {
	// ID is the frontend's own and comes back in Complete.
	ID   uint64
	Kind block.Kind
	// FUA: Write or WriteZeroes must be on stable storage before it completes.
	FUA bool
	// Unmap: WriteZeroes may be done by giving the space back, wherever the range reads zero then.
	Unmap bool
	// Trim: the WriteZeroes may be a discard; the frontend cannot tell.
	Trim bool
	Off  int64
	Len  int64
	Buf  loop.Buf
}

// Frontend is one way to offer a volume. All methods are called by the engine's core; none blocks.
// Within a step they are given the core's own out, which is submitted and emptied between steps: an
// operation still in out is not submitted, and a frontend may add to it, so that the answers of one
// step leave in one send.
type Frontend interface {
	// Start appends the first operations (accept or receive).
	Start(out *[]loop.Op)
	// Handle takes a completion whose tag has the owner given to the frontend, and appends requests
	// and operations.
	Handle(now clock.Ticks, d *loop.Done, reqs *[]Request, out *[]loop.Op)
	// Complete answers a request. The frontend sends the answer and releases the buffer.
	Complete(id uint64, code block.Code, out *[]loop.Op)
	// SetSize announces a new volume size in bytes.
	SetSize(size int64, out *[]loop.Op)
	// Stop closes everything; requests not yet answered are abandoned, their Complete must still be
	// called and only releases buffers. Stopped reports when nothing is outstanding any more.
	Stop(out *[]loop.Op)
	Stopped() bool
}

// Expirer is implemented by frontends whose users can hold memory that others wait for. The core
// calls Expire at the end of every step and, where nothing else happens, at the time that it
// returned last: there the frontend ends users who have kept others waiting for too long.
type Expirer interface {
	Expire(now clock.Ticks, out *[]loop.Op) (next clock.Ticks)
}

// Resumer is implemented by frontends that hold work back when the arena is empty. Buffers may come
// free by events the frontend does not see (a replica's connection releases one), so the core
// calls Resume at the end of every step; it costs nothing when nothing is held back.
type Resumer interface {
	Resume(reqs *[]Request, out *[]loop.Op)
}
