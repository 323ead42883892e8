package looptest

import "ankole.storage/dataplane/loop"

func fileReadWrite(d *driver) {
	f := d.File(d.T)
	w := d.fill(64<<10, 7)
	if c := d.must(op(loop.FileWrite, f, 8192, seg(w, 0, 64<<10))); c.N != 64<<10 {
		d.Fatalf("wrote %d bytes", c.N)
	}
	r := d.fill(4096, 0)
	for _, off := range []int{0, 4096, 60 << 10} {
		if c := d.must(op(loop.FileRead, f, int64(8192+off), seg(r, 0, 4096))); c.N != 4096 || c.Handle != f {
			d.Fatalf("read gave %+v", c)
		}
		d.check(r, off, 4096, 7)
	}
	c := d.must(op(loop.FileRead, f, 0, seg(r, 0, 4096)))
	for i, b := range d.arena.Bytes(r)[:c.N] {
		if b != 0 {
			d.Fatalf("byte %d before the first write is %#x", i, b)
		}
	}
}

func fileShortRead(d *driver) {
	f := d.File(d.T)
	w := d.fill(4096, 1)
	d.must(op(loop.FileWrite, f, 0, seg(w, 0, 4096)))
	r := d.fill(16<<10, 0)
	if c := d.must(op(loop.FileRead, f, 0, seg(r, 0, 16<<10))); c.N != 4096 {
		d.Fatalf("read across the end gave %d bytes, want 4096", c.N)
	}
	d.check(r, 0, 4096, 1)
	if c := d.must(op(loop.FileRead, f, 1<<20, seg(r, 0, 4096))); c.N != 0 {
		d.Fatalf("read beyond the end gave %d bytes", c.N)
	}
}

func fileVectors(d *driver) {
	f := d.File(d.T)
	w := d.fill(64<<10, 9)
	d.must(op(loop.FileWrite, f, 0, seg(w, 0, 8192), seg(w, 8192, 4096), seg(w, 12<<10, 52<<10)))
	a, b := d.fill(16<<10, 0), d.fill(64<<10, 0)
	if c := d.must(op(loop.FileRead, f, 0, seg(a, 0, 16<<10), seg(b, 0, 48<<10))); c.N != 64<<10 {
		d.Fatalf("read %d bytes", c.N)
	}
	d.check(a, 0, 16<<10, 9)
	d.check(b, 16<<10, 48<<10, 9)
}

func filePunch(d *driver) {
	f := d.File(d.T)
	w := d.fill(16<<10, 3)
	d.must(op(loop.FileWrite, f, 0, seg(w, 0, 16<<10)))
	punch := op(loop.FilePunch, f, 4096)
	punch.Len = 12 << 10
	d.must(punch)
	r := d.fill(16<<10, 1)
	if c := d.must(op(loop.FileRead, f, 0, seg(r, 0, 16<<10))); c.N != 16<<10 {
		d.Fatalf("the size changed: read %d bytes", c.N)
	}
	d.check(r, 0, 4096, 3)
	for i, b := range d.arena.Bytes(r)[4096 : 16<<10] {
		if b != 0 {
			d.Fatalf("byte %d of the hole is %#x", i, b)
		}
	}
}

func fileSync(d *driver) {
	f := d.File(d.T)
	d.must(op(loop.FileSync, f, 0))
	d.must(op(loop.FileWrite, f, 0, seg(d.fill(4096, 2), 0, 4096)))
	d.must(op(loop.FileSync, f, 0))
}

func fileMany(d *driver) {
	f := d.File(d.T)
	const n = 500
	bufs := make([]loop.Buf, n)
	ops := make([]loop.Op, n)
	for i := range n {
		bufs[i] = d.fill(4096, byte(i))
		ops[i] = op(loop.FileWrite, f, int64(i)*4096, seg(bufs[i], 0, 4096))
	}
	for _, tag := range d.submit(ops...) {
		if c := d.wait(tag); c.Errno != 0 || c.N != 4096 {
			d.Fatalf("write gave %+v", c)
		}
	}
	d.quiet("after all completed")
	for i := range n {
		ops[i] = op(loop.FileRead, f, int64(n-1-i)*4096, seg(bufs[i], 0, 4096))
	}
	for i, tag := range d.submit(ops...) {
		if c := d.wait(tag); c.Errno != 0 || c.N != 4096 {
			d.Fatalf("read gave %+v", c)
		}
		d.check(bufs[i], 0, 4096, byte(n-1-i))
	}
}

func fileCloseWaits(d *driver) {
	f := d.File(d.T)
	const n = 64
	b := d.fill(1<<20, 5)
	var ops []loop.Op
	for i := range n {
		ops = append(ops, op(loop.FileWrite, f, int64(i)<<20, seg(b, 0, 1<<20)))
	}
	ops = append(ops, op(loop.Close, f, 0))
	tags := d.submit(ops...)
	for len(d.got) <= n {
		d.reap()
	}
	for i, c := range d.got {
		if last := i == n; last != (c.Tag == tags[n]) {
			d.Fatalf("completion %d of %d is %+v; Close has to be last", i, n, c)
		}
		if c.Errno != 0 && c.Errno != loop.Canceled {
			d.Fatalf("%+v", c)
		}
	}
}

func fileBadHandle(d *driver) {
	f := d.File(d.T)
	b := d.fill(4096, 5)
	tags := d.submit(op(loop.FileWrite, loop.None, 0, seg(b, 0, 4096)), op(loop.FileWrite, f, 0, seg(b, 0, 4096)))
	if c := d.wait(tags[0]); c.Errno == 0 {
		d.Fatal("a write to no file succeeded")
	}
	if c := d.wait(tags[1]); c.Errno != 0 {
		d.Fatalf("a good write failed: %+v", c)
	}
}
