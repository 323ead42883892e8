// Package loop is the seam between the data path's step cores and the machine.
//
// A core is a state machine: it is given completions and appends operations, and never blocks,
// reads a clock, starts a goroutine or takes a lock. A Loop performs operations: the production
// loop (package posix below this one) is one locked OS thread over non-blocking sockets and a
// bounded pool of workers for files; the simulator drives many cores from one seeded event heap.
// One interface call carries a batch, so the cost per operation stays small.
package loop

import (
	"fmt"
	"time"

	"ankole.storage/dataplane/clock"
)

// Handle names a file, device, listener or connection of a loop. In production it is the file
// descriptor.
type Handle int32

// None is no handle.
const None Handle = -1

// Kind is what an operation does.
type Kind uint8

// Operation kinds. "Vec" is Op.Vec[:Op.Segs]. Several operations on one file may be in flight and
// finish in any order; on a connection at most one Recv and one Send may be outstanding. On a
// device (FUSE) each Recv takes one message and each Send is one; several Recvs may wait, and are
// served in order.
const (
	// FileRead reads the whole Vec at Off. A file that ends early gives a short N, never an error.
	FileRead Kind = iota + 1
	// FileWrite writes the whole Vec at Off.
	FileWrite
	// FileSync makes every write completed before it was submitted, and the metadata needed to read
	// it back, stable (fdatasync).
	FileSync
	// FilePunch makes [Off, Off+Len) a hole and keeps the size.
	FilePunch
	// Accept waits for one connection on a listener; Done.New is its handle, ready for use, and
	// Done.Value the address ("ip:port") at which it has come in, "" on a socket in a file system.
	Accept
	// Connect opens a connection to Addr ("tcp:ip:port" or "unix:path"); Done.New is its handle.
	Connect
	// Recv receives between one byte and the whole Vec; N 0 without error is the end of the stream.
	Recv
	// Send sends the whole Vec; short sends are continued by the loop. On a device (FUSE) it is one
	// writev.
	Send
	// Close cancels what is outstanding on the handle (those complete with Canceled, before Close
	// does) and closes it.
	Close
	// Release cancels what is outstanding on a listener, connection or device, as Close does, and
	// forgets the handle without closing it: it is as if the loop had never seen it, and another
	// process may go on with it. A Send that is cancelled tells in N how much of it was sent; a
	// Recv that is cancelled has received nothing.
	Release
	// Fetch waits for the request of one place of a device that hands requests out by places (ublk):
	// Off is the number of its queue times 1<<16, plus that of the place. Commit gives the result of
	// that request back, a number of bytes or a negative errno in Len, and waits for the next one. One
	// of them is outstanding per place, all are submitted on one thread, and those submitted first
	// together. On such a device FileRead and FileWrite copy a request's data, at the place that the
	// device has for it; they are done at once.
	Fetch
	Commit
	// Call runs Fn away from the loop's thread (inline in the simulator) for rare blocking work:
	// opening, renaming, metadata. Done.Value is its result.
	Call
	// Posted marks a Done that answers no operation: a message put in by Poster.Post, in Done.Value.
	Posted
)

// String names the kind in traces.
func (k Kind) String() string {
	names := [...]string{"?", "file-read", "file-write", "file-sync", "file-punch", "accept", "connect", "recv", "send",
		"close", "release", "fetch", "commit", "call", "posted"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MaxSegs bounds the scatter-gather list of one operation: enough to batch eight frames, of a
// header and a payload each, into one system call.
const MaxSegs = 16

// Seg is a piece of an arena buffer. Off is relative to the aligned start of the buffer's payload
// and may reach back to -Headroom.
type Seg struct {
	Buf Buf
	Off int32
	Len int32
}

// Op is one operation. Tag comes back unchanged in its Done.
type Op struct {
	Kind   Kind
	Segs   uint8
	Handle Handle
	Off    int64
	Len    int64
	Tag    uint64
	Vec    [MaxSegs]Seg
	Addr   string
	Fn     func() any
}

// Add appends a segment to the operation's vector. It panics when the vector is full: callers bound
// their batches by MaxSegs.
func (o *Op) Add(s Seg) {
	o.Vec[o.Segs] = s
	o.Segs++
}

// Errno is a positive errno value; 0 is success.
type Errno int32

// Errors a core distinguishes. The rest count as a failed medium or connection.
const (
	EIO      Errno = 5
	ENOSPC   Errno = 28
	EINVAL   Errno = 22
	EDQUOT   Errno = 122
	Canceled Errno = 125
)

// Done is the completion of one operation, or a posted message.
type Done struct {
	Kind   Kind
	Handle Handle
	Errno  Errno
	New    Handle
	// N counts bytes.
	N   int
	Tag uint64
	// Value is the result of Call, the address of Accept, or the posted message.
	Value any
}

// Loop performs operations for one core. Submit and Reap are called by one thread only.
type Loop interface {
	// Submit starts operations. The slice may be reused when it returns; buffers belong to the loop
	// until completion.
	Submit(ops []Op)
	// Reap fills done with completions and returns how many, waiting up to wait for the first one.
	// A negative wait is without bound.
	Reap(done []Done, wait time.Duration) int
	// Now is the loop's clock.
	Now() clock.Ticks
}

// Poster hands a message to a core from any goroutine; it never blocks.
type Poster interface {
	Post(v any)
}

// Core is a step core. Step consumes completions and appends operations to out; it returns the tick
// at which it wants to be called again although nothing completed, or clock.Never.
//
// A step at that tick or later has been handed everything that had completed by now, up to
// milliseconds, in in or before: a core may take what it has not been handed for silence, however
// long its thread has stood still.
type Core interface {
	Step(now clock.Ticks, in []Done, out *[]Op) (wake clock.Ticks)
}

// Owner is the top byte of a tag: which part of a core an operation belongs to.
type Owner uint8

const ownerShift = 56

// Tag builds a tag of an owner; value must fit in 56 bits.
func Tag(o Owner, value uint64) uint64 {
	if value>>ownerShift != 0 {
		panic("loop: tag value exceeds 56 bits")
	}
	return uint64(o)<<ownerShift | value
}

// OwnerOf returns the owner part of a tag.
func OwnerOf(tag uint64) Owner { return Owner(tag >> ownerShift) }

// ValueOf returns the value part of a tag.
func ValueOf(tag uint64) uint64 { return tag &^ (0xff << ownerShift) }
