package journal

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
)

// request puts a header into cell i, as the kernel does.
func request(j *Journal, i, size int, opcode uint32, unique uint64) {
	h := j.header(i)
	ne.PutUint32(h, uint32(size))
	ne.PutUint32(h[4:], opcode)
	ne.PutUint64(h[8:], unique)
}

func create(t *testing.T) *Journal {
	t.Helper()
	j, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Discard(); err != nil {
			t.Error(err)
		}
	})
	return j
}

// reopen maps the memory once more, as a successor does.
func reopen(t testing.TB, j *Journal) (*Journal, error) {
	t.Helper()
	fd, err := unix.Dup(j.FD())
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	t.Cleanup(func() { other.Discard() })
	return other, nil
}

func TestSuccessorReadsWhatWasWritten(t *testing.T) {
	j := create(t)
	if next, err := reopen(t, j); err != nil || len(next.Left()) != 0 {
		t.Fatalf("a new journal: %v", err)
	}
	j.Offer(0, 1) // in vain
	j.Offer(1, 2)
	request(j, 1, 500, opWrite, 10)
	j.Offer(2, 3)
	request(j, 2, HeaderSize+LargeSize, opWrite, 12)
	j.Take(2)
	j.Offer(3, 4)
	request(j, 3, 80, 15, 14)
	j.Take(3)
	j.Offer(4, 5)
	request(j, 4, HeaderSize+LargeSize, opWrite, 16)
	j.Take(4)
	j.Finish(4, 28)
	j.Offer(5, 6)
	request(j, 5, 80, 15, 18)
	j.Take(5)
	j.Free(5)
	next, err := reopen(t, j)
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{Small: 1, Large: 2, State: Receiving, Len: 500, Unique: 10},
		{Small: 2, Large: 3, State: Taken, Len: HeaderSize + LargeSize, Unique: 12},
		{Small: 3, Large: -1, State: Taken, Len: 80, Unique: 14},
		{Small: 4, Large: -1, State: Done, Errno: 28, Len: HeaderSize + LargeSize, Unique: 16},
	}
	clear(next.header(3)) // somebody has used the place
	if got := next.Inherit(); !slices.Equal(got, want) {
		t.Errorf("left are %+v", got)
	}
	if ne.Uint64(next.header(3)[8:]) != 14 {
		t.Error("the header is not back in its place")
	}
	// A cell that was offered in vain keeps nobody from offering its large one.
	next.Offer(9, 1)
	if _, err := reopen(t, j); err != nil {
		t.Error(err)
	}
	next.Clear()
	if got := j.Left(); len(got) != 0 {
		t.Errorf("after Clear: %+v", got)
	}
}

func TestAnOfferForgetsWhatWasThere(t *testing.T) {
	j := create(t)
	request(j, 0, 500, opWrite, 10)
	j.Offer(0, 0)
	if got := j.Left(); len(got) != 0 {
		t.Errorf("an older request is there again: %+v", got)
	}
}

func TestOpenRefusesNonsense(t *testing.T) {
	taken := func(j *Journal, i, large, size int, unique uint64) {
		j.Offer(i, large)
		request(j, i, size, opWrite, unique)
		j.Take(i)
	}
	for name, spoil := range map[string]func(j *Journal){
		"magic":                   func(j *Journal) { j.mem[0]++ },
		"version":                 func(j *Journal) { j.mem[len(magic)]++ },
		"geometry":                func(j *Journal) { j.mem[len(magic)+4]++ },
		"a state":                 func(j *Journal) { j.word(7, stateAt).Store(4) },
		"an error":                func(j *Journal) { taken(j, 0, 0, 80, 4); j.Finish(0, maxErrno+1) },
		"a large cell":            func(j *Journal) { j.Offer(0, Large) },
		"one large cell twice":    func(j *Journal) { j.Offer(0, 3); j.Offer(1, 3) },
		"one request twice":       func(j *Journal) { taken(j, 0, 0, 80, 4); taken(j, 1, 1, 80, 4) },
		"a short request":         func(j *Journal) { taken(j, 0, 0, inHeader-1, 4) },
		"a long request":          func(j *Journal) { taken(j, 0, 0, maxRequest+1, 4) },
		"no length":               func(j *Journal) { taken(j, 0, 0, 0, 4) },
		"no identifier":           func(j *Journal) { taken(j, 0, 0, 80, 0) },
		"a write without its end": func(j *Journal) { taken(j, 0, 0, maxRequest, 4); j.word(0, largeRef).Store(0) },
	} {
		j := create(t)
		spoil(j)
		if _, err := reopen(t, j); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOpenRefusesOtherFiles: a file that could shrink would kill whoever reads the mapping.
func TestOpenRefusesOtherFiles(t *testing.T) {
	for name, size := range map[string]int64{"empty": 0, "of the right size, which can change": total} {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err == nil {
			err = unix.Ftruncate(fd, size)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(fd); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		unix.Close(fd)
	}
	if _, err := Open(-1); err == nil {
		t.Error("no file: opened")
	}
}

// TestCellsAreBuffers: the arena gives them out once, and unmaps them.
func TestCellsAreBuffers(t *testing.T) {
	j, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	defer j.CloseFD()
	a := loop.NewArena(1 << 20)
	small, large := j.Attach(a)
	if s, l := j.Attach(a); s != small || l != large {
		t.Error("attached twice, the pools are others")
	}
	seen := map[loop.Buf]bool{}
	for _, p := range []loop.Pool{small, large} {
		for {
			b, ok := a.GetPool(p)
			if !ok {
				break
			}
			if seen[b] {
				t.Fatalf("buffer %#x twice", b)
			}
			seen[b] = true
		}
	}
	if len(seen) != Small+Large {
		t.Errorf("%d buffers", len(seen))
	}
	for b := range seen {
		a.Release(b)
	}
	b, ok := a.ClaimPool(small, 17)
	if !ok || loop.PoolIndex(b) != 17 || len(a.Bytes(b)) != SmallSize {
		t.Errorf("buffer %#x of %d bytes", b, len(a.Bytes(b)))
	}
	copy(a.Bytes(b), "seventeen")
	if got := string(j.cell(17)[page : page+9]); got != "seventeen" {
		t.Errorf("cell 17 has %q", got)
	}
	if _, ok := a.ClaimPool(small, 17); ok {
		t.Error("claimed twice")
	}
	a.Release(b)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
