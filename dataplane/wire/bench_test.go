package wire

import (
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
)

// BenchmarkRead is what a read of 4 KiB costs in this package on both sides, 32 at once: the
// request is sent and received, and so is the answer with the data.
func BenchmarkRead(b *testing.B) {
	arena := newArena(8<<20, 2)
	defer arena.Close()
	engine, replica := open(0, arena, 1, 2), open(1, arena, 3, 4)
	here, there := testKeys()
	engine.Secure(here)
	replica.Secure(there)
	var out, toEngine, toReplica []loop.Op
	engine.Start(&toEngine)
	replica.Start(&toReplica)
	var data [32]loop.Buf
	for i := range data {
		data[i], _ = arena.Get(block.Size)
	}
	var h Handler = drop{arena}
	for range b.N/32 + 1 {
		for i := range data {
			engine.Send(&Header{Type: Read, ID: uint64(i), Len: block.Size})
		}
		carry(arena, engine, replica, h, &out, &toReplica)
		for i, buf := range data {
			p := NewPayload(arena, loop.Seg{Buf: buf, Len: block.Size})
			arena.Retain(buf)
			replica.SendPayload(&Header{Type: Read, Flags: Response, ID: uint64(i), Len: block.Size}, &p, true)
		}
		carry(arena, replica, engine, h, &out, &toEngine)
	}
	if engine.Err() != nil || replica.Err() != nil {
		b.Fatal(engine.Err(), replica.Err())
	}
}

// carry moves everything that is queued from one connection to the other.
func carry(arena *loop.Arena, from, to *Conn, h Handler, out, in *[]loop.Op) {
	*out = (*out)[:0]
	for from.Flush(out); len(*out) > 0; {
		op := (*out)[0]
		*out = (*out)[:0]
		for _, sent := range op.Vec[:op.Segs] {
			for p := arena.Seg(sent); len(p) > 0; {
				recv := (*in)[0]
				*in = (*in)[:0]
				n := 0
				for _, into := range recv.Vec[:recv.Segs] {
					k := copy(arena.Seg(into), p)
					p, n = p[k:], n+k
				}
				to.Received(&loop.Done{Kind: loop.Recv, N: n}, h, in)
			}
		}
		from.Sent(&loop.Done{Kind: loop.Send}, out)
	}
}
