package powerdisk

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/test/lack"
	"ankole.storage/test/seeded"
	"ankole.storage/test/wait"
)

const mib = 1 << 20

// begin starts a run that ends with the test, or skips where there can be no disks.
func begin(t *testing.T) *Run {
	t.Helper()
	if err := Available(); err != nil {
		lack.Skip(t, err)
	}
	r, err := Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.End(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func open(t *testing.T, r *Run, name string, o Options) *Disk {
	t.Helper()
	d, err := r.Open(name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestImageIsItsModel(t *testing.T) {
	const size = 64 << 10
	src := seeded.New(t, "an image holds what was written to it")
	src.Seed(1)
	rng := src.Rand(2)
	m, model := NewImage(size), make([]byte, size)
	var old *Image
	var oldModel []byte
	for step := range 2000 {
		n := SectorSize * (1 + rng.Int64N(20))
		off := SectorSize * rng.Int64N((size-n)/SectorSize+1)
		if rng.IntN(3) == 0 {
			m.Zero(off, n)
			clear(model[off : off+n])
		} else {
			p := bytes.Repeat([]byte{byte(step)}, int(n))
			m.Write(p, off)
			copy(model[off:], p)
		}
		got := make([]byte, size)
		if m.Read(got, 0); !bytes.Equal(got, model) {
			t.Fatalf("step %d: content differs", step)
		}
		if old != nil {
			if old.Read(got, 0); !bytes.Equal(got, oldModel) {
				t.Fatalf("step %d: a clone changed", step)
			}
		}
		if step%100 == 0 {
			old, oldModel = m.Clone(), append([]byte(nil), model...)
		}
	}
}

// TestOnlyWhatAFlushCoversIsCertain goes through a journal made by hand.
func TestOnlyWhatAFlushCoversIsCertain(t *testing.T) {
	data := func(b byte) []byte { return bytes.Repeat([]byte{b}, 2*SectorSize) }
	events := []Event{
		0: {Kind: Write, Off: superblockEnd, Len: 1024, Data: data(1)},
		1: {Kind: Write, Off: superblockEnd + 1024, Len: 1024, Data: data(2)}, // not answered when the flush was sent
		2: {Kind: Sync, Covers: []int{0}},
		3: {Kind: Note},
		4: {Kind: Zero, Off: superblockEnd, Len: 512},
	}
	for at, c := range []struct{ nothing, everything [4]byte }{
		{},
		{everything: [4]byte{1, 1, 0, 0}},
		{everything: [4]byte{1, 1, 2, 2}},
		{nothing: [4]byte{1, 1, 0, 0}, everything: [4]byte{1, 1, 2, 2}},
		{nothing: [4]byte{1, 1, 0, 0}, everything: [4]byte{1, 1, 2, 2}},
		{nothing: [4]byte{1, 1, 0, 0}, everything: [4]byte{0, 1, 2, 2}},
	} {
		r := NewReplay(events, []*Image{NewImage(2 * superblockEnd)})
		r.Advance(at)
		for s, want := range map[Survival][4]byte{Nothing: c.nothing, Everything: c.everything} {
			if got := sectors(r.State(0, s, nil)); got != want {
				t.Errorf("before event %d, %v survives: %v, want %v", at, s, got, want)
			}
		}
	}
	r := NewReplay(events, []*Image{NewImage(2 * superblockEnd)})
	r.Advance(2)
	src := seeded.New(t, "any sector of what was not flushed may survive a loss of power, or not")
	src.Seed(3)
	rng, seen := src.Rand(4), map[[4]byte]bool{}
	for range 400 {
		seen[sectors(r.State(0, Half, rng))] = true
	}
	if len(seen) < 9 { // each write is there, not there, or one of its halves is
		t.Errorf("only %d states: %v", len(seen), seen)
	}
}

// TestSuperblockIsNotTorn: a write to the first block is there or not.
func TestSuperblockIsNotTorn(t *testing.T) {
	r := NewReplay([]Event{{Kind: Write, Off: 1024, Len: 1024, Data: bytes.Repeat([]byte{1}, 1024)}},
		[]*Image{NewImage(superblockEnd)})
	r.Advance(1)
	src := seeded.New(t, "a superblock is there or not, never a part of it")
	src.Seed(3)
	rng, seen := src.Rand(4), map[[2]byte]int{}
	for range 400 {
		var p [1024]byte
		r.State(0, Half, rng).Read(p[:], 1024)
		seen[[2]byte{p[0], p[SectorSize]}]++
	}
	if len(seen) != 2 || seen[[2]byte{0, 0}] == 0 || seen[[2]byte{1, 1}] == 0 {
		t.Errorf("halves of the superblock: %v", seen)
	}
}

// TestWholeBlocks: of a write of three blocks, the first and the last in part, any block survives,
// and none in part.
func TestWholeBlocks(t *testing.T) {
	const off, length = 2*blockSize - SectorSize, blockSize + 2*SectorSize
	r := NewReplay([]Event{{Kind: Write, Off: off, Len: length, Data: bytes.Repeat([]byte{1}, length)}},
		[]*Image{NewImage(4 * blockSize)})
	r.WholeBlocks = true
	r.Advance(1)
	src := seeded.New(t, "a block is there or not, never a part of it")
	src.Seed(3)
	rng, seen := src.Rand(4), map[string]int{}
	for range 400 {
		p := make([]byte, length)
		r.State(0, Half, rng).Read(p, off)
		blocks := ""
		for _, b := range [][]byte{p[:SectorSize], p[SectorSize : SectorSize+blockSize], p[SectorSize+blockSize:]} {
			if n := bytes.Count(b, []byte{1}); n != 0 && n != len(b) {
				t.Fatalf("%d of %d bytes of a block survive", n, len(b))
			}
			blocks += fmt.Sprint(b[0])
		}
		seen[blocks]++
	}
	if len(seen) < 6 || seen["010"] == 0 || seen["100"] == 0 {
		t.Errorf("states of the three blocks: %v", seen)
	}
}

// sectors returns the first byte of each of four sectors after the first block.
func sectors(m *Image) (s [4]byte) {
	var p [2048]byte
	m.Read(p[:], superblockEnd)
	for i := range s {
		s[i] = p[i*SectorSize]
	}
	return s
}

// TestDeviceKeepsAndRemembers writes through the block device and finds it in the image and in the
// journal.
func TestDeviceKeepsAndRemembers(t *testing.T) {
	r := begin(t)
	var j Journal
	d := open(t, r, "a", Options{Image: NewImage(16 * mib), Journal: &j, Number: 5, Seed: 1})
	f, err := os.OpenFile(d.Path(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 3*mib)
	for i := range want {
		want[i] = byte(i / 511)
	}
	if _, err := f.WriteAt(want, mib); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if d.Snapshot().Read(got, mib); !bytes.Equal(got, want) {
		t.Error("the image differs")
	}
	events := j.Events()
	re := NewReplay(events, append(make([]*Image, 0), NewImage(0), NewImage(0), NewImage(0), NewImage(0), NewImage(0),
		NewImage(16*mib)))
	re.Advance(len(events))
	if re.State(5, Nothing, nil).Read(got, mib); !bytes.Equal(got, want) {
		t.Error("what was flushed is not certain")
	}
	other := NewImage(16 * mib)
	other.Write(bytes.Repeat([]byte{9}, pageSize), mib)
	if err := d.Exchange(other, nil); err != nil {
		t.Fatal(err)
	}
	if f, err = os.Open(d.Path()); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(got[:2*pageSize], mib); err != nil || got[0] != 9 || got[pageSize] != 0 {
		t.Errorf("after an exchange: %d %d, %v", got[0], got[pageSize], err)
	}
}

// TestFileIsThereOnceItWasSynced is the method in small: every moment of a file's life on ext4 and
// XFS is mounted again. A file that was synced is there at every later moment; one that was not is
// missing at some, or the test could not fail.
func TestFileIsThereOnceItWasSynced(t *testing.T) {
	for fs, size := range map[string]int64{"ext4": 32 * mib, "xfs": 512 * mib} {
		t.Run(fs, func(t *testing.T) {
			r := begin(t)
			d := open(t, r, "a", Options{Image: NewImage(size), Seed: 3})
			if err := d.Format(fs); err != nil {
				lack.Skip(t, err)
			}
			var j Journal
			base := d.Snapshot()
			if err := d.Exchange(base.Clone(), &j); err != nil {
				t.Fatal(err)
			}
			synced, last := writeFiles(t, d, fs, &j)
			check := open(t, r, "b", Options{Image: NewImage(size)})
			src := seeded.New(t, "a file system in which everything was synced is whole after any loss of power")
			src.Seed(1)
			rng := src.Rand(1)
			re := NewReplay(j.Events(), []*Image{base})
			states, lost := 0, 0
			for at := 0; at <= last; at++ {
				re.Advance(at)
				for _, s := range []Survival{Nothing, Everything, Half} {
					states++
					lost += lostAt(t, check, fs, re.State(0, s, rng), at, synced)
				}
			}
			t.Logf("%d states of %d moments; %d files that were not synced were lost", states, last+1, lost)
			if lost == 0 {
				t.Error("nothing that was not synced was ever lost: this test cannot fail")
			}
		})
	}
}

// writeFiles writes eight files and syncs the even ones. It returns when, and the last moment.
func writeFiles(t *testing.T, d *Disk, fs string, j *Journal) (synced [8]int, last int) {
	t.Helper()
	at, err := d.Mount(fs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range synced {
		f, err := os.Create(filepath.Join(at, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(bytes.Repeat([]byte{byte('a' + i)}, 20000)); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		synced[i] = j.Note("synced")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	last = len(j.Events())
	if err := d.Unmount(); err != nil {
		t.Fatal(err)
	}
	return synced, last
}

// lostAt mounts a state and counts the files that had been written before and were not synced and
// are not whole.
func lostAt(t *testing.T, d *Disk, fs string, m *Image, at int, synced [8]int) (lost int) {
	t.Helper()
	if err := d.Exchange(m, nil); err != nil {
		t.Fatal(err)
	}
	dir, err := d.Mount(fs)
	if err != nil {
		t.Fatalf("before event %d: %v", at, err)
	}
	for i, when := range synced {
		p, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i)))
		whole := err == nil && len(p) == 20000 && bytes.Count(p, []byte{byte('a' + i)}) == len(p)
		switch {
		case at <= when || whole:
		case i%2 == 0:
			t.Fatalf(
				"before event %d: file %d, synced before event %d, is lost: %d bytes, %v",
				at,
				i,
				when,
				len(p),
				err,
			)
		default:
			lost++
		}
	}
	if err := d.Unmount(); err != nil {
		t.Fatal(err)
	}
	return lost
}

// TestSweepRemovesWhatADeadProcessLeft leaves a mounted file system whose server is gone.
func TestSweepRemovesWhatADeadProcessLeft(t *testing.T) {
	r := begin(t)
	d, err := r.Open("a", Options{Image: NewImage(32 * mib)})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Format("ext4"); err != nil {
		lack.Skip(t, err)
	}
	if _, err := d.Mount("ext4"); err != nil {
		t.Fatal(err)
	}
	// As a kill would: nobody answers any more and the lock is free.
	if _, err := unix.Write(d.wake[1], []byte{0}); err != nil {
		t.Fatal(err)
	}
	if err := <-d.done; err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Close(d.fuse), r.lock.Close()); err != nil {
		t.Fatal(err)
	}
	t.Setenv(Variable, "")
	if err := Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
	// A loop device that is forgotten until its file is unmounted has only this path left.
	if text, err := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/loop/backing_file", d.loop)); err == nil &&
		string(text) == "/"+fileName+"\n" {
		t.Errorf("loop device %d is left", d.loop)
	}
	if mounts, err := mountsBelow(r.dir); err != nil || len(mounts) > 0 {
		t.Errorf("mounts %v are left, %v", mounts, err)
	}
	r.lock, err = os.Open(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
}

// TestMain turns the test binary into a process that is killed in the middle of an unmount.
func TestMain(m *testing.M) {
	if dir := os.Getenv(watchVariable); dir != "" {
		if err := watch(dir); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("ANKOLE_POWERDISK_VICTIM") != "" {
		if err := victim(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// victim waits for a flush that its own disk never answers.
func victim() error {
	r, err := Begin()
	if err != nil {
		return err
	}
	d, err := r.Open("a", Options{Image: NewImage(32 * mib)})
	if err != nil {
		return err
	}
	if err := d.Format("ext4"); err != nil {
		return err
	}
	if _, err := d.Mount("ext4"); err != nil {
		return err
	}
	if _, err := unix.Write(d.wake[1], []byte{0}); err != nil { // the server goes away
		return err
	}
	if err := <-d.done; err != nil {
		return err
	}
	if os.Getenv("ANKOLE_POWERDISK_VICTIM") == "watched" {
		if err := watchOver(r.dir); err != nil {
			return err
		}
	}
	fmt.Println(r.dir)
	return d.Unmount()
}

// TestSweepEndsAProcessThatWaitsForItself kills a process whose thread waits for its own disk, so
// that it cannot end.
func TestSweepEndsAProcessThatWaitsForItself(t *testing.T) {
	begin(t)
	c, dir := killVictim(t, "1")
	wait.Until(t, "the end of the others", func() bool { return dying(dir) })
	if n := threads(c.Process.Pid, "D"); n == 0 {
		t.Error("the victim ended by itself: this test shows nothing")
	}
	if err := Sweep(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the victim ended with %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its directory is still there: %v", err)
	}
}

// TestWatchEndsAProcessThatWaitsForItself: nobody has to begin another run.
func TestWatchEndsAProcessThatWaitsForItself(t *testing.T) {
	begin(t)
	c, dir := killVictim(t, "watched")
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the victim ended with %v", err)
	}
	wait.Until(t, "its directory is gone", func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) })
}

// killVictim starts a victim, and kills it when it waits for its own disk.
func killVictim(t *testing.T, kind string) (c *exec.Cmd, dir string) {
	t.Helper()
	c = exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "ANKOLE_POWERDISK_VICTIM="+kind)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if dir = strings.TrimSpace(line); err != nil || !filepath.IsAbs(dir) {
		t.Fatalf("the victim says %q, %v", line, err)
	}
	wait.Until(t, "a thread that waits for the disk", func() bool { return threads(c.Process.Pid, "D") > 0 })
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	return c, dir
}

// threads counts the threads of a process in a state.
func threads(pid int, state string) (n int) {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is well formed
	for _, f := range stats {
		text, err := os.ReadFile(f)
		if _, rest, _ := strings.Cut(string(text), ") "); err == nil && strings.HasPrefix(rest, state) {
			n++
		}
	}
	return n
}
