package fuseloop

import (
	"bytes"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
)

// readBody and writeBody are the fixed parts of READ and WRITE.
func readBody(off uint64, n uint32) []byte {
	return append(words(0, off, uint64(n)), make([]byte, 16)...)
}

func writeBody(off uint64, data []byte) []byte {
	return append(append(words(0, off, uint64(len(data))), make([]byte, 16)...), data...)
}

func fallocBody(off, n uint64, mode uint32) []byte { return words(0, off, n, uint64(mode)) }

func TestInitAsksForWhatDepthNeeds(t *testing.T) {
	k := newScript(t, nil)
	const everything = ^uint32(0)
	body := append(words(7|45<<32, 128<<10|uint64(everything)<<32, uint64(everything)), make([]byte, 40)...)
	b := k.want(k.ask(opInit, 0, body), 0)
	if len(b) != 64 || ne.Uint32(b) != 7 || ne.Uint32(b[4:]) != minor {
		t.Fatalf("answer of %d bytes, version %d.%d", len(b), ne.Uint32(b), ne.Uint32(b[4:]))
	}
	flags := uint64(ne.Uint32(b[12:])) | uint64(ne.Uint32(b[32:]))<<32
	if flags != wantedFlags || k.f.Negotiated() != wantedFlags {
		t.Errorf("flags %#x, want %#x", flags, uint64(wantedFlags))
	}
	if bg, write, pages := ne.Uint16(b[16:]), ne.Uint32(b[20:]),
		ne.Uint16(b[28:]); bg != 256 || write != 1<<20 || pages != 256 {
		t.Errorf("max_background %d, max_write %d, max_pages %d", bg, write, pages)
	}
	k.stop()
}

func TestInitTakesOnlyWhatIsOffered(t *testing.T) {
	k := newScript(t, nil)
	b := k.want(k.ask(opInit, 0, words(7|31<<32, uint64(initAsyncDIO|1<<1)<<32)), 0)
	if minor, flags := ne.Uint32(b[4:]), ne.Uint32(b[12:]); minor != 31 || flags != initAsyncDIO ||
		ne.Uint32(b[32:]) != 0 {
		t.Errorf("version 7.%d, flags %#x", minor, flags)
	}
	k.want(k.ask(opInit, 0, words(6, 0)), errProto)
	k.want(k.ask(opInit, 0), errProto)
	k.stop()
}

func TestTheFileSystemIsOneFile(t *testing.T) {
	k := newScript(t, nil)
	b := k.want(k.ask(opLookup, rootNode, []byte("vol\x00")), 0)
	if node, valid, size := ne.Uint64(b), ne.Uint64(b[24:]),
		ne.Uint64(b[48:]); node != fileNode || valid != attrValid || size != testSize {
		t.Errorf("node %d, attributes valid %d s, size %d", node, valid, size)
	}
	if mode := ne.Uint32(b[40+60:]); mode != modeFile {
		t.Errorf("mode %o", mode)
	}
	k.want(k.ask(opLookup, rootNode, []byte("other\x00")), errNoEntry)
	k.want(k.ask(opLookup, fileNode, []byte("vol\x00")), errNotDir)
	if b := k.want(k.ask(opGetattr, rootNode, words(0, 0)), 0); ne.Uint32(b[16+60:]) != modeDir {
		t.Errorf("root has mode %o", ne.Uint32(b[16+60:]))
	}
	k.want(k.ask(opGetattr, 77, words(0, 0)), errNoEntry)
	if b := k.want(k.ask(opOpen, fileNode, words(2)), 0); ne.Uint32(b[8:])&openDirectIO == 0 {
		t.Error("the file is not opened for direct I/O")
	}
	k.want(k.ask(opOpen, rootNode, words(0)), errIsDir)
	k.want(k.ask(opOpendir, rootNode, words(0)), 0)
	b = k.want(k.ask(opReaddir, rootNode, words(0, 0, 4096, 0, 0)), 0)
	if !bytes.Contains(b, []byte("vol")) || len(b) != 32+32+32 {
		t.Errorf("directory of %d bytes: %q", len(b), b)
	}
	if b := k.want(k.ask(opReaddir, rootNode, words(0, 3, 4096, 0, 0)), 0); len(b) != 0 {
		t.Errorf("%d bytes after the last entry", len(b))
	}
	if b := k.want(k.ask(opStatfs, rootNode), 0); len(b) != 80 || ne.Uint32(b[40:]) != 4096 {
		t.Errorf("statfs of %d bytes, block size %d", len(b), ne.Uint32(b[40:]))
	}
	k.stop()
}

func TestRequestsAboutTheFileSystem(t *testing.T) {
	for name, c := range map[string]struct {
		opcode uint32
		body   []byte
		want   int32
	}{
		"truncate":           {opSetattr, words(setattrSize, 0, 0), errPerm},
		"touch":              {opSetattr, words(1<<5, 0, 0), 0},
		"setattr cut short":  {opSetattr, nil, errPerm},
		"release":            {opRelease, words(0, 0, 0), 0},
		"flush":              {opFlush, words(0, 0, 0), 0},
		"access":             {opAccess, words(0), 0},
		"destroy":            {opDestroy, nil, 0},
		"ioctl":              {opIoctl, words(0, 0, 0, 0), errNoTTY},
		"getxattr":           {22, words(0), errNoSys},
		"interrupt":          {opInterrupt, words(0), errNoSys},
		"mkdir":              {9, words(0), errNoSys},
		"an unknown request": {9999, nil, errNoSys},
		"readdir cut short":  {opReaddir, words(0), errInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			k := newScript(t, nil)
			k.want(k.ask(c.opcode, fileNode, c.body), c.want)
			k.stop()
		})
	}
}

func TestForgetIsNotAnswered(t *testing.T) {
	k := newScript(t, nil)
	for _, op := range []uint32{opForget, opBatchForget} {
		if _, answered := k.errors[k.ask(op, fileNode, words(1))]; answered {
			t.Errorf("request %d was answered", op)
		}
	}
	k.stop()
}

func TestWritesOfEverySizeArriveWhole(t *testing.T) {
	k := newScript(t, nil)
	for _, n := range []int{512, 4096, smallSize, smallSize + 512, copyLimit, copyLimit + 512, block.MaxTransfer} {
		data := make([]byte, n)
		for i := range data {
			data[i] = patternAt(int64(i)) + byte(n>>9)
		}
		b := k.want(k.ask(opWrite, fileNode, writeBody(4096, data)), 0)
		if len(b) != writeOut || int(ne.Uint32(b)) != n || !bytes.Equal(k.kept, data) {
			t.Errorf("%d bytes: answer %d bytes %v, equal %v", n, len(b), b, bytes.Equal(k.kept, data))
		}
	}
	k.stop()
}

func TestReadsOfEverySize(t *testing.T) {
	k := newScript(t, nil)
	for _, c := range []struct {
		off  uint64
		n    uint32
		want int
	}{
		{0, 512, 512}, {4096, 4096, 4096}, {512, 128 << 10, 128 << 10}, {1 << 29, 1 << 20, 1 << 20},
		{testSize - 512, 4096, 512}, {testSize, 4096, 0}, {1 << 62, 4096, 0},
	} {
		b := k.want(k.ask(opRead, fileNode, readBody(c.off, c.n)), 0)
		if len(b) != c.want {
			t.Errorf("read of %d at %d gave %d bytes, want %d", c.n, c.off, len(b), c.want)
		}
		for i, x := range b {
			if x != patternAt(int64(c.off)+int64(i)) {
				t.Fatalf("byte %d of the read at %d is wrong", i, c.off)
			}
		}
	}
	k.stop()
}

func TestWrongRequestsAreRefused(t *testing.T) {
	cut := writeBody(0, make([]byte, 512))
	ne.PutUint32(cut[16:], 1024) // claims more than there is
	for name, c := range map[string]struct {
		opcode uint32
		node   uint64
		body   []byte
		want   int32
	}{
		"read unaligned":             {opRead, fileNode, readBody(1, 512), errInvalid},
		"read too much":              {opRead, fileNode, readBody(0, 2<<20), errInvalid},
		"read of the directory":      {opRead, rootNode, readBody(0, 512), errInvalid},
		"read cut short":             {opRead, fileNode, words(0, 0), errInvalid},
		"write unaligned":            {opWrite, fileNode, writeBody(100, make([]byte, 512)), errInvalid},
		"write of an odd size":       {opWrite, fileNode, writeBody(0, make([]byte, 100)), errInvalid},
		"write of nothing":           {opWrite, fileNode, writeBody(0, nil), errInvalid},
		"write across the end":       {opWrite, fileNode, writeBody(testSize-512, make([]byte, 1024)), errNoSpace},
		"write beyond the end":       {opWrite, fileNode, writeBody(1<<62, make([]byte, 512)), errNoSpace},
		"write with a false size":    {opWrite, fileNode, cut, errInvalid},
		"write to the directory":     {opWrite, rootNode, writeBody(0, make([]byte, 512)), errInvalid},
		"write cut short":            {opWrite, fileNode, words(0), errInvalid},
		"punch across the end":       {opFallocate, fileNode, fallocBody(testSize-512, 1024, 3), errNoSpace},
		"punch unaligned":            {opFallocate, fileNode, fallocBody(1, 512, 3), errInvalid},
		"punch nothing":              {opFallocate, fileNode, fallocBody(0, 0, 3), errInvalid},
		"allocate":                   {opFallocate, fileNode, fallocBody(0, 4096, 0), errOpNotSupp},
		"collapse":                   {opFallocate, fileNode, fallocBody(0, 4096, 8), errOpNotSupp},
		"fallocate cut short":        {opFallocate, fileNode, words(0), errInvalid},
		"fallocate of the directory": {opFallocate, rootNode, fallocBody(0, 4096, 3), errInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			k := newScript(t, nil)
			k.auto = false
			k.want(k.ask(c.opcode, c.node, c.body), c.want)
			if len(k.reqs) != 0 {
				t.Errorf("the engine was given %+v", k.reqs)
			}
			k.stop()
		})
	}
}

func TestFlushAndZeroingReachTheEngine(t *testing.T) {
	k := newScript(t, nil)
	k.auto = false
	k.ask(opFsync, fileNode, words(0, 1))
	k.ask(opFallocate, fileNode, fallocBody(4096, 1<<29, fallocPunch|fallocKeepSize))
	k.ask(opFallocate, fileNode, fallocBody(0, 4096, fallocZero|fallocKeepSize))
	want := []struct {
		kind  block.Kind
		unmap bool
		len   int64
	}{{block.Flush, false, 0}, {block.WriteZeroes, true, 1 << 29}, {block.WriteZeroes, false, 4096}}
	if len(k.reqs) != len(want) {
		t.Fatalf("%d requests", len(k.reqs))
	}
	for i, w := range want {
		if r := k.reqs[i]; r.Kind != w.kind || r.Unmap != w.unmap || r.Trim != w.unmap || r.Len != w.len {
			t.Errorf("request %d is %+v, want %+v", i, r, w)
		}
	}
	k.stop()
}

func TestErrorsOfTheEngine(t *testing.T) {
	for code, want := range map[block.Code]int32{
		block.OK: 0, block.Invalid: errInvalid, block.NoSpace: errNoSpace, block.IOError: errIO,
		block.Unavailable: errIO, block.NotFound: errIO,
	} {
		for _, opcode := range []uint32{opRead, opWrite, opFsync, opFallocate} {
			k := newScript(t, nil)
			k.auto = false
			body := map[uint32][]byte{opRead: readBody(0, 512), opWrite: writeBody(0, make([]byte, 512)), opFsync: words(0, 0),
				opFallocate: fallocBody(0, 512, 3)}[opcode]
			u := k.ask(opcode, fileNode, body)
			r := k.reqs[0]
			k.reqs = nil
			k.complete(&r, code)
			k.run()
			k.want(u, want)
			if k.errors[u] == errNoSys {
				t.Error("ENOSYS: the kernel would never ask again")
			}
			k.stop()
		}
	}
}

func TestAResentRequestKeepsItsNumber(t *testing.T) {
	k := newScript(t, nil)
	const unique = 1<<63 | 1234
	k.queue = append(k.queue, message(opWrite, unique, fileNode, writeBody(0, make([]byte, 512))))
	k.run()
	k.want(unique, 0)
	k.stop()
}

func TestInFlightIsBoundedAndGoesOn(t *testing.T) {
	k := newScript(t, func(c *Config) { c.MaxInFlight = 8 })
	k.auto = false
	for range 50 {
		k.ask(opRead, fileNode, readBody(0, 4096))
	}
	if len(k.reqs) != 8 || len(k.recvs) != 0 {
		t.Fatalf("%d requests in flight of 8, %d receives", len(k.reqs), len(k.recvs))
	}
	for len(k.reqs) > 0 {
		r := k.reqs[0]
		k.reqs = k.reqs[1:]
		k.complete(&r, block.OK)
		k.run()
		if len(k.reqs) > 8 {
			t.Fatalf("%d requests in flight of 8", len(k.reqs))
		}
	}
	if len(k.errors) != 50 || len(k.recvs) == 0 {
		t.Fatalf("%d of 50 answered, %d receives", len(k.errors), len(k.recvs))
	}
	k.stop()
}

func TestWhatWasReadFromTheKernelNeverWaitsForMemory(t *testing.T) {
	k := newScript(t, nil)
	k.auto = false
	for range receives { // busy enough to receive several at once
		k.ask(opRead, fileNode, readBody(0, 4096))
	}
	var taken []loop.Buf // somebody else uses the arena up
	for _, n := range []int{1 << 20, 256 << 10, 64 << 10, 16 << 10, 4096} {
		for {
			b, ok := k.arena.Get(n)
			if !ok {
				break
			}
			taken = append(taken, b)
		}
	}
	k.ask(opRead, fileNode, readBody(0, 1<<20))
	k.ask(opWrite, fileNode, writeBody(0, make([]byte, 64<<10)))
	k.ask(opRead, fileNode, readBody(0, 4096))
	k.ask(opFsync, fileNode, words(0, 0))
	if len(k.reqs) != 8 {
		t.Fatalf("%d of 8 requests reached the engine", len(k.reqs))
	}
	for range 20 {
		k.ask(opWrite, fileNode, writeBody(0, make([]byte, 4096)))
	}
	if len(k.recvs) != 0 {
		t.Fatal("it still receives without buffers")
	}
	for _, b := range taken {
		k.arena.Release(b)
	}
	k.auto = true
	k.engine()
	k.run()
	k.f.Resume(&k.reqs, &k.out)
	k.run()
	if len(k.errors) != 28 {
		t.Fatalf("%d of 28 answered", len(k.errors))
	}
	k.stop()
}

// TestQuietFrontendKeepsOneReceive: memory is for those who use it.
func TestQuietFrontendKeepsOneReceive(t *testing.T) {
	k := newScript(t, nil)
	if len(k.recvs) != 1 {
		t.Errorf("%d receives at the start", len(k.recvs))
	}
	k.auto = false
	for range 10 {
		k.ask(opRead, fileNode, readBody(0, 4096))
	}
	if len(k.recvs) != receives {
		t.Errorf("%d receives with 10 requests in flight", len(k.recvs))
	}
	k.auto = true
	k.engine()
	k.run()
	for range 10 { // the receives that are there are used up first
		k.want(k.ask(opRead, fileNode, readBody(0, 4096)), 0)
	}
	if len(k.recvs) != 1 {
		t.Errorf("%d receives when it is quiet again", len(k.recvs))
	}
	k.stop()
}

func TestTheEndOfTheMountIsNoticed(t *testing.T) {
	k := newScript(t, nil)
	for _, r := range k.recvs {
		k.done = append(k.done, loop.Done{Kind: loop.Recv, Handle: 9, Errno: 19, Tag: r.Tag})
	}
	k.recvs = nil
	k.run()
	if !k.f.Gone() || len(k.recvs) != 0 {
		t.Fatalf("gone %v, %d receives", k.f.Gone(), len(k.recvs))
	}
	k.stop()
}

func TestANewSizeIsSeen(t *testing.T) {
	k := newScript(t, nil)
	k.f.SetSize(2<<30, &k.out)
	if b := k.want(k.ask(opGetattr, fileNode, words(0, 0)), 0); ne.Uint64(b) != attrValid || ne.Uint64(b[24:]) != 2<<30 {
		t.Errorf("valid for %d s, size %d", ne.Uint64(b), ne.Uint64(b[24:]))
	}
	k.want(k.ask(opWrite, fileNode, writeBody(2<<30-512, make([]byte, 512))), 0)
	k.stop()
}

func TestConfigIsChecked(t *testing.T) {
	a := loop.NewArena(4 << 20)
	for name, c := range map[string]Config{
		"no arena":      {Size: 512, File: "v"},
		"no device":     {Arena: a, Device: loop.None, Size: 512, File: "v"},
		"no name":       {Arena: a, Size: 512},
		"a small arena": {Arena: loop.NewArena(1 << 20), Size: 512, File: "v"},
		"a long name":   {Arena: a, Size: 512, File: strings.Repeat("x", 256)},
		"no size":       {Arena: a, File: "v"},
		"an odd size":   {Arena: a, File: "v", Size: 1000},
		"in flight":     {Arena: a, File: "v", Size: 512, MaxInFlight: 1},
		"far in flight": {Arena: a, File: "v", Size: 512, MaxInFlight: 1 << 20},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// FuzzRequests throws messages at the frontend. Whatever they are, the engine is only given
// sensible requests, answers are well formed and given once, and everything is freed in the end.
func FuzzRequests(f *testing.F) {
	f.Add(uint32(opWrite), uint64(fileNode), writeBody(0, make([]byte, 512)))
	f.Add(uint32(opRead), uint64(fileNode), readBody(4096, 4096))
	f.Add(uint32(opInit), uint64(0), words(7|45<<32, 1<<62, 0))
	f.Add(uint32(opFallocate), uint64(fileNode), fallocBody(0, 4096, 3))
	f.Add(uint32(opReaddir), uint64(rootNode), words(0, 1, 100))
	f.Add(uint32(opLookup), uint64(rootNode), []byte("vol\x00"))
	f.Fuzz(func(t *testing.T, opcode uint32, node uint64, body []byte) {
		if len(body) > block.MaxTransfer {
			return
		}
		k := newScript(t, nil)
		k.ask(opcode%64, node, body)
		k.queue = append(k.queue, body[:min(len(body), 200)]) // not even a header
		k.run()
		k.stop()
	})
}
