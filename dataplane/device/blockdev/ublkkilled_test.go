package blockdev_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/frontendtest"
	"ankole.storage/dataplane/frontend/ublk"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// ublkVictimIn of the environment is the folder of a server that is killed. Its volume is a file
// there, so that the next server has what it has written.
const ublkVictimIn = "BLOCKDEV_TEST_UBLK"

const (
	ublkVictimSize = 64 << 20
	// firstFile is the descriptor of the record in a server that takes a device over.
	firstFile = 3
)

// ublkOrder is what such a server is told, as JSON, and what it answers when the device is there.
type ublkOrder struct {
	// Kept is of the device that it takes over; nil: it makes one.
	Kept *blockdev.Kept `json:"kept,omitempty"`
	// Hold: it answers nothing.
	Hold bool `json:"hold,omitempty"`
	// Record is the descriptor of the record in it.
	Record int `json:"record,omitempty"`
}

// ublkVictim serves a volume under dir, says so, and waits to be killed.
func ublkVictim(dir string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "server:", err)
		return 1
	}
	var order ublkOrder
	if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
		return fail(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "volume"), os.O_RDWR, 0)
	if err != nil {
		return fail(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, ublkVictimSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fail(err)
	}
	arena := loop.NewArena(32 << 20)
	l, err := posix.New(arena, posix.Options{})
	if err != nil {
		return fail(err)
	}
	var u *blockdev.Ublk
	if order.Kept != nil {
		u, err = blockdev.AdoptUblk(context.Background(), victimConfig(dir), *order.Kept, firstFile)
	} else {
		u, err = blockdev.OpenUblk(context.Background(), victimConfig(dir), ublkVictimSize)
	}
	if err != nil {
		return fail(err)
	}
	v := frontendtest.NewDevice(arena, ublkVictimSize)
	v.Mem = mem
	if order.Hold {
		v.Hold = 1 << 30
		var asked atomic.Int64
		v.Log = func(*frontend.Request) {
			if asked.Add(1) == ublk.MaxInFlight {
				fmt.Println("full")
			}
		}
	}
	v.Frontend, err = ublk.New(ublk.Config{Owner: frontendtest.Owner, Arena: arena, Device: u.Handle(), Queues: u.Queues(),
		Depth: u.Depth(), Size: ublkVictimSize, Asked: u.Asked})
	if err != nil {
		return fail(err)
	}
	go func() {
		err := u.Expose(context.Background())
		kept := u.Kept()
		order.Kept = &kept
		if err == nil {
			order.Record, err = u.Duplicate()
		}
		if err != nil {
			os.Exit(fail(err))
		}
		_ = json.NewEncoder(os.Stdout).Encode(order)
	}()
	return fail(posix.Run(context.Background(), l, v))
}

// ublkServer is such a server, and what it has left: the record, kept as an instance manager does.
type ublkServer struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	out    *bufio.Reader
	kept   *blockdev.Kept
	record *os.File
}

func newUblkServer(t *testing.T) *ublkServer {
	needUblk(t)
	s := &ublkServer{t: t, dir: t.TempDir()}
	f, err := os.Create(filepath.Join(s.dir, "volume"))
	if err == nil {
		err = errors.Join(f.Truncate(ublkVictimSize), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		s.drop()
		if err := blockdev.Recover(background(), victimConfig(s.dir)); err != nil {
			t.Error(err)
		}
		noUblkLeft(t, victimConfig(s.dir))
	})
	return s
}

func (s *ublkServer) path() string {
	cfg := victimConfig(s.dir)
	return filepath.Join(cfg.DeviceDir, cfg.Volume)
}

// start starts the next server, and waits until it has the device.
func (s *ublkServer) start(hold bool) {
	s.t.Helper()
	order, err := json.Marshal(ublkOrder{Kept: s.kept, Hold: hold})
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), ublkVictimIn+"="+s.dir)
	s.cmd.Stdin, s.cmd.Stderr = bytes.NewReader(order), os.Stderr
	if s.record != nil {
		s.cmd.ExtraFiles = []*os.File{s.record}
	}
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	var is ublkOrder
	line, err := s.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &is)
	}
	if err != nil {
		s.t.Fatalf("the server says %q: %v", line, err)
	}
	pidfd, err := unix.PidfdOpen(s.cmd.Process.Pid, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, is.Record, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.drop()
	s.kept, s.record = is.Kept, os.NewFile(uintptr(fd), "record")
}

// kill kills the server, and waits for its end.
func (s *ublkServer) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// drop gives the record up.
func (s *ublkServer) drop() {
	if s.record != nil {
		s.record.Close()
		s.record = nil
	}
}

// TestUblkTakeOver: servers are killed one after the other under writers that read back what they
// have written. Each next one goes on with the device, and no writer sees an error.
func TestUblkTakeOver(t *testing.T) {
	s := newUblkServer(t)
	s.start(false)
	f, err := os.OpenFile(s.path(), os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const writers, kills, region = 8, 6, 1 << 20
	var rounds [writers]atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			p, q := page(16<<10), page(16<<10)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				for i := range p {
					p[i] = byte(n*31 + w*7 + i>>8)
				}
				off := int64(w)*region + int64(n%(region>>14))<<14
				_, err := f.WriteAt(p, off)
				if err == nil && n%8 == 0 {
					err = unix.Fsync(int(f.Fd()))
				}
				if err == nil {
					_, err = f.ReadAt(q, off)
				}
				if err != nil || !bytes.Equal(p, q) {
					t.Errorf("writer %d, round %d: %v, read back right: %v", w, n, err, bytes.Equal(p, q))
					return
				}
				rounds[w].Add(1)
			}
		})
	}
	defer wg.Wait()
	defer close(stop)
	progress := func() {
		t.Helper()
		var from [writers]int64
		for w := range writers {
			from[w] = rounds[w].Load()
		}
		wait.Until(t, "every writer goes on", func() bool {
			for w := range writers {
				if rounds[w].Load() < from[w]+2 {
					return t.Failed()
				}
			}
			return true
		})
	}
	for range kills {
		progress()
		s.kill()
		s.start(false)
	}
	progress()
}

// page returns n bytes where direct I/O wants them.
func page(n int) []byte {
	p, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	return p
}

// TestUblkTakeOverFull: a server is killed that has a request in every place. Some kernels notice
// its end by a timeout only.
func TestUblkTakeOverFull(t *testing.T) {
	s := newUblkServer(t)
	s.start(true)
	f, err := os.OpenFile(s.path(), os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var wg sync.WaitGroup
	for i := range 2 * ublk.MaxInFlight {
		wg.Go(func() {
			if _, err := f.WriteAt(page(4096), int64(i)*8192); err != nil {
				t.Error(err)
			}
		})
	}
	if line, err := s.out.ReadString('\n'); err != nil || line != "full\n" {
		t.Fatalf("the server says %q, %v", line, err)
	}
	s.kill()
	s.start(false)
	wg.Wait()
}

// TestUblkEnds: a device whose server is dead is left alone as long as somebody keeps its record,
// and is removed then; whoever has it open gets errors, also for what has waited.
func TestUblkEnds(t *testing.T) {
	s := newUblkServer(t)
	s.start(false)
	cfg := victimConfig(s.dir)
	f, err := os.OpenFile(s.path(), os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other := cfg
	other.RunDir = filepath.Join(s.dir, "other") // as in another container
	remove := func() {
		t.Helper()
		if err := blockdev.RemoveDead(t.Context(), other); err != nil {
			t.Error(err)
		}
	}
	remove()
	readPage(t, s.path())
	s.kill()
	failed := make(chan error)
	go func() {
		_, err := f.ReadAt(page(4096), 0)
		failed <- err
	}()
	remove()
	select {
	case err := <-failed:
		t.Fatalf("a read of a device that waits for its next server: %v", err)
	default:
	}
	s.drop()
	remove()
	if err := <-failed; !errors.Is(err, unix.EIO) {
		t.Errorf("a read that waited when the device was removed: %v", err)
	}
	if _, err := f.WriteAt(page(4096), 0); err == nil {
		t.Error("a write to a device that was removed")
	}
	if _, err := os.Lstat(s.path()); err == nil {
		t.Error("the node is left")
	}
}

// TestUblkHoldsAFileSystem: a file system on the device outlives the server, and keeps what was
// written to it, mounted and after it was mounted again.
func TestUblkHoldsAFileSystem(t *testing.T) {
	s := newUblkServer(t)
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		lack.Skip(t, "mkfs.ext4 is not installed (package e2fsprogs)")
	}
	s.start(false)
	sh(t, "mkfs.ext4", "-q", s.path())
	at := t.TempDir()
	mount := func() {
		t.Helper()
		if err := unix.Mount(s.path(), at, "ext4", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	mount()
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	sums := map[string][sha256.Size]byte{}
	write := func(round int) {
		t.Helper()
		for i := range 20 {
			p := bytes.Repeat([]byte(fmt.Sprintf("round %d file %d\n", round, i)), 3000)
			name := filepath.Join(at, fmt.Sprintf("%d-%d", round, i))
			if err := os.WriteFile(name, p, 0o600); err != nil {
				t.Fatal(err)
			}
			sums[name] = sha256.Sum256(p)
		}
	}
	write(0)
	s.kill()
	synced := make(chan error, 1)
	write(1)
	go func() {
		d, err := os.Open(at)
		if err == nil {
			err = errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
		}
		synced <- err
	}()
	s.start(false)
	if err := <-synced; err != nil {
		t.Errorf("sync while the server was away: %v", err)
	}
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	sh(t, "fsck.ext4", "-f", "-n", s.path())
	mount()
	for name, sum := range sums {
		f, err := os.Open(name)
		if err != nil {
			t.Error(err)
			continue
		}
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil || !bytes.Equal(h.Sum(nil), sum[:]) {
			t.Errorf("%s differs: %v", name, err)
		}
		f.Close()
	}
	if err := unix.Unmount(at, 0); err != nil {
		t.Error(err)
	}
}

// TestUblkOneServer: a device that is served is refused to another server, and goes on.
func TestUblkOneServer(t *testing.T) {
	s := newUblkServer(t)
	s.start(false)
	cfg := victimConfig(s.dir)
	cfg.RunDir = filepath.Join(s.dir, "other")
	cfg.Timeout = 1
	if u, err := blockdev.OpenUblk(t.Context(), cfg, ublkVictimSize); !errors.Is(err, blockdev.ErrInUse) {
		t.Errorf("another server opens the volume: %v", err)
		if err == nil {
			_ = u.Close(background(), false)
		}
	}
	readPage(t, s.path())
}
