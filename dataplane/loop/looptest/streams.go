package looptest

import (
	"strings"

	"ankole.storage/dataplane/loop"
)

// pair returns the two ends of a connection.
func (d *driver) pair() (server, client loop.Handle) {
	d.Helper()
	l, addr := d.Listen(d.T)
	tags := d.submit(op(loop.Accept, l, 0), loop.Op{Kind: loop.Connect, Addr: addr})
	a, c := d.wait(tags[0]), d.wait(tags[1])
	if a.Errno != 0 || c.Errno != 0 || a.New < 0 || c.New < 0 || a.New == c.New {
		d.Fatalf("accept gave %+v, connect %+v", a, c)
	}
	// The address at which it has come in: that which was connected to, if it has a host and a port.
	at, _ := a.Value.(string)
	if want, tcp := strings.CutPrefix(addr, "tcp:"); tcp && at != want || !tcp && at != "" {
		d.Fatalf("accept at %q tells %q", addr, at)
	}
	return a.New, c.New
}

// recvAll receives n bytes into b.
func (d *driver) recvAll(h loop.Handle, b loop.Buf, n int) {
	d.Helper()
	for got := 0; got < n; {
		c := d.must(op(loop.Recv, h, 0, seg(b, got, n-got)))
		if c.N <= 0 || c.N > n-got {
			d.Fatalf("received %d bytes after %d of %d", c.N, got, n)
		}
		got += c.N
	}
}

func streamEcho(d *driver) {
	s, c := d.pair()
	w, r := d.fill(4096, 1), d.fill(4096, 0)
	for i := range 50 {
		n := 1 + i*37
		d.must(op(loop.Send, c, 0, seg(w, 0, n)))
		d.recvAll(s, r, n)
		d.check(r, 0, n, 1)
		d.must(op(loop.Send, s, 0, seg(r, 0, n)))
		d.recvAll(c, r, n)
		d.check(r, 0, n, 1)
	}
}

func streamPartial(d *driver) {
	s, c := d.pair()
	r, w := d.fill(64<<10, 0), d.fill(4096, 4)
	recv := d.submit(op(loop.Recv, s, 0, seg(r, 0, 64<<10)))[0]
	d.quiet("receive with nothing sent")
	d.must(op(loop.Send, c, 0, seg(w, 0, 100)))
	got := d.wait(recv)
	if got.Errno != 0 || got.N < 1 || got.N > 100 {
		d.Fatalf("receive gave %+v, want up to 100 bytes", got)
	}
	d.check(r, 0, got.N, 4)
	d.must(op(loop.Send, c, 0, seg(w, 0, 200)))
	if got := d.must(op(loop.Recv, s, 0, seg(r, 0, 50))); got.N > 50 {
		d.Fatalf("received %d bytes into 50", got.N)
	}
}

func streamEnd(d *driver) {
	s, c := d.pair()
	w, r := d.fill(4096, 4), d.fill(64<<10, 0)
	d.must(op(loop.Send, c, 0, seg(w, 0, 1000)))
	d.must(op(loop.Close, c, 0))
	d.recvAll(s, r, 1000)
	d.check(r, 0, 1000, 4)
	for range 2 {
		if got := d.must(op(loop.Recv, s, 0, seg(r, 0, 64<<10))); got.N != 0 {
			d.Fatalf("received %d bytes after the end", got.N)
		}
	}
	// The peer is gone: sends fail sooner or later, and nothing else does.
	for range 1000 {
		if got := d.do(op(loop.Send, s, 0, seg(w, 0, 4096))); got.Errno != 0 {
			d.must(op(loop.Close, s, 0))
			return
		}
	}
	d.Fatal("1000 sends to a closed connection succeeded")
}

func streamLarge(d *driver) {
	s, c := d.pair()
	const n = 1 << 20
	w, r := d.fill(n, 8), d.fill(n, 0)
	var send loop.Op
	send.Kind, send.Handle = loop.Send, c
	for range loop.MaxSegs {
		send.Add(seg(w, 0, n))
	}
	tag := d.submit(send)[0]
	for range loop.MaxSegs {
		d.recvAll(s, r, n)
		d.check(r, 0, n, 8)
	}
	if got := d.wait(tag); got.Errno != 0 || got.N != loop.MaxSegs*n {
		d.Fatalf("send gave %+v, want %d bytes", got, loop.MaxSegs*n)
	}
}

func streamVectors(d *driver) {
	s, c := d.pair()
	w, a, b := d.fill(16<<10, 6), d.fill(4096, 0), d.fill(16<<10, 0)
	copy(d.arena.Seg(loop.Seg{Buf: w, Off: -16, Len: 16}), "header in front!")
	d.must(op(loop.Send, c, 0, seg(w, -16, 16+4096), seg(w, 4096, 1), seg(w, 4097, 12<<10-1)))
	d.recvAll(s, a, 16)
	if got := string(d.arena.Bytes(a)[:16]); got != "header in front!" {
		d.Fatalf("header is %q", got)
	}
	for got, n := 0, 16384; got < n; {
		first := min(100, n-got)
		v := op(loop.Recv, s, 0, seg(a, 0, first))
		if rest := n - got - first; rest > 0 {
			v.Add(seg(b, 0, rest))
		}
		done := d.must(v)
		d.check(a, got, min(done.N, first), 6)
		d.check(b, got+first, max(0, done.N-first), 6)
		got += done.N
	}
}

func streamCloseCancels(d *driver) {
	s, _ := d.pair()
	w, r := d.fill(1<<20, 1), d.fill(4096, 0)
	var send loop.Op
	send.Kind, send.Handle = loop.Send, s
	for range loop.MaxSegs {
		send.Add(seg(w, 0, 1<<20)) // nobody reads: more than socket buffers hold
	}
	tags := d.submit(op(loop.Recv, s, 0, seg(r, 0, 4096)), send, op(loop.Close, s, 0))
	for len(d.got) < 3 {
		d.reap()
	}
	for i, c := range d.got {
		if last := i == 2; last != (c.Tag == tags[2]) {
			d.Fatalf("Close completed before what it cancels: %+v", d.got)
		} else if !last && c.Errno != loop.Canceled {
			d.Fatalf("%+v, want Canceled", c)
		}
	}
}

func streamRelease(d *driver) {
	s, c := d.pair()
	const n = 1 << 20
	w, r := d.fill(n, 8), d.fill(n, 0)
	var send loop.Op
	send.Kind, send.Handle = loop.Send, s
	for range loop.MaxSegs {
		send.Add(seg(w, 0, n)) // nobody reads: more than socket buffers hold
	}
	tags := d.submit(op(loop.Recv, s, 0, seg(r, 0, 4096)), send, op(loop.Release, s, 0))
	for len(d.got) < 3 {
		d.reap()
	}
	sent := 0
	for i, x := range d.got {
		switch last := i == 2; {
		case last != (x.Tag == tags[2]) || last && x.Errno != 0:
			d.Fatalf("Release completed before what it cancels, or failed: %+v", d.got)
		case !last && x.Errno != loop.Canceled, x.Tag == tags[0] && x.N != 0:
			d.Fatalf("%+v, want Canceled", x)
		case x.Tag == tags[1]:
			sent = x.N
		}
	}
	d.got = nil
	// The connection goes on where it was, in both directions.
	rest := loop.Op{Kind: loop.Send, Handle: s}
	for at := sent; at < loop.MaxSegs*n; {
		k := min(n-at%n, loop.MaxSegs*n-at)
		rest.Add(seg(w, at%n, k))
		at += k
	}
	tag := d.submit(rest)[0]
	for range loop.MaxSegs {
		d.recvAll(c, r, n)
		d.check(r, 0, n, 8)
	}
	if got := d.wait(tag); got.Errno != 0 {
		d.Fatalf("the rest could not be sent: %+v", got)
	}
	d.must(op(loop.Send, c, 0, seg(w, 0, 100)))
	d.recvAll(s, r, 100)
	d.check(r, 0, 100, 8)
}

func acceptRelease(d *driver) {
	l, addr := d.Listen(d.T)
	tags := d.submit(op(loop.Accept, l, 0))
	d.quiet("accept without a peer")
	d.must(op(loop.Release, l, 0))
	if c := d.wait(tags[0]); c.Errno != loop.Canceled {
		d.Fatalf("accept gave %+v, want Canceled", c)
	}
	con := d.submit(loop.Op{Kind: loop.Connect, Addr: addr})[0]
	if a := d.must(op(loop.Accept, l, 0)); a.New < 0 {
		d.Fatalf("accept gave %+v", a)
	}
	if c := d.wait(con); c.Errno != 0 {
		d.Fatalf("connect gave %+v", c)
	}
}

func acceptClose(d *driver) {
	l, addr := d.Listen(d.T)
	tags := d.submit(op(loop.Accept, l, 0))
	d.quiet("accept without a peer")
	d.must(op(loop.Close, l, 0))
	if c := d.wait(tags[0]); c.Errno != loop.Canceled {
		d.Fatalf("accept gave %+v, want Canceled", c)
	}
	if c := d.do(loop.Op{Kind: loop.Connect, Addr: addr}); c.Errno == 0 {
		d.Fatal("connect to a closed listener succeeded")
	}
}

func acceptMany(d *driver) {
	l, addr := d.Listen(d.T)
	b := d.fill(4096, 0)
	for i := range 30 {
		con := d.submit(loop.Op{Kind: loop.Connect, Addr: addr})[0]
		a := d.must(op(loop.Accept, l, 0))
		c := d.wait(con)
		if c.Errno != 0 {
			d.Fatalf("connection %d: %+v", i, c)
		}
		d.must(op(loop.Send, c.New, 0, seg(b, 0, 1)))
		d.recvAll(a.New, b, 1)
		if i%2 == 0 { // numbers of closed handles come back in use
			d.must(op(loop.Close, a.New, 0))
			d.must(op(loop.Close, c.New, 0))
		}
	}
}

func connectRefused(d *driver) {
	l, addr := d.Listen(d.T)
	d.must(op(loop.Close, l, 0))
	if c := d.do(loop.Op{Kind: loop.Connect, Addr: addr}); c.Errno == 0 || c.New != loop.None {
		d.Fatalf("connect to a closed listener gave %+v", c)
	}
}

func connectNonsense(d *driver) {
	for _, addr := range []string{"", "tcp:", "tcp:localhost:1", "unix:", "pipe:/x", "tcp:1.2.3.4:99999"} {
		if c := d.do(loop.Op{Kind: loop.Connect, Addr: addr}); c.Errno == 0 || c.New != loop.None {
			d.Fatalf("connect to %q gave %+v", addr, c)
		}
	}
}

func streamFair(d *driver) {
	s1, c1 := d.pair()
	s2, c2 := d.pair()
	w, r1, r2 := d.fill(64<<10, 0), d.fill(4096, 0), d.fill(4096, 0)
	quietRecv := d.submit(op(loop.Recv, s2, 0, seg(r2, 0, 1)))[0]
	d.must(op(loop.Send, c1, 0, seg(w, 0, 64<<10)))
	d.must(op(loop.Send, c2, 0, seg(w, 0, 1)))
	// The busy side always has a byte at hand; the other must get its turn long before that one
	// runs dry.
	for range 1000 {
		d.must(op(loop.Recv, s1, 0, seg(r1, 0, 1)))
		for _, c := range d.got {
			if c.Tag == quietRecv {
				return
			}
		}
	}
	d.Fatal("1000 receives on one connection while the other waited")
}
