package filesystem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// holdVariable has the directory of the marks for a process that freezes a volume until it is
// killed.
const holdVariable = "ANKOLE_TEST_HOLD"

func holdFrozen(marks, volume string) {
	q := &Quiescer{Marks: marks, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), SyncLimit: time.Minute,
		FreezeLimit: time.Hour}
	q.Quiesce(context.Background(), volume, true)
	fmt.Println("frozen")
	select {}
}

// leaveMark makes a mark as a process leaves it that is killed while a file system is frozen.
func (d *disk) leaveMark(volume string) {
	d.t.Helper()
	boot, err := os.ReadFile(bootID)
	if err != nil {
		d.t.Fatal(err)
	}
	d.leaveMarkOf(volume, string(boot))
}

func (d *disk) leaveMarkOf(volume, content string) {
	d.t.Helper()
	if err := errors.Join(os.MkdirAll(d.q.Marks, 0o700),
		os.WriteFile(filepath.Join(d.q.Marks, volume), []byte(content), 0o600)); err != nil {
		d.t.Fatal(err)
	}
}

// recovered looks for marks and waits until all of them have been worked on.
func (d *disk) recovered(q *Quiescer, volumes ...string) {
	d.t.Helper()
	if err := q.recover(); err != nil {
		d.t.Fatal(err)
	}
	for _, volume := range volumes {
		if err := q.busy.wait(d.t.Context(), volume); err != nil {
			d.t.Fatal(err)
		}
		q.busy.end(volume)
	}
}

// A process that is killed leaves a frozen file system and its mark; the next one thaws it. The
// mark of one that is not frozen goes, and so do one from before the machine's last start and one
// whose maker was killed before it had frozen anything. That of a volume that is not mounted stays:
// its file system may be frozen.
func TestLeftFrozen(t *testing.T) {
	d := newDisk(t, "left").mount()
	if err := d.ioctl(fifreeze); err != nil {
		t.Fatal(err)
	}
	for range 2 { // frozen, and not
		d.leaveMark(d.volume)
		d.leaveMark("elsewhere")
		d.leaveMarkOf("before", "11111111-2222-3333-4444-555555555555\n")
		d.leaveMarkOf("begun", "")
		d.leaveMarkOf("torn", "11111111-2222")
		d.recovered(d.q, d.volume, "elsewhere", "before", "begun", "torn")
		left, err := os.ReadDir(d.q.Marks)
		if err != nil || len(left) != 1 || left[0].Name() != "elsewhere" {
			t.Errorf("marks that are left: %v, %v", left, err)
		}
		if d.frozen() {
			t.Error("it is still frozen")
		}
	}
	if err := (&Quiescer{Marks: filepath.Join(t.TempDir(), "none")}).recover(); err != nil {
		t.Error(err)
	}
	if d.said.Len() > 0 {
		t.Errorf("it has complained: %s", d.said)
	}
}

// Of two instance managers on a node one is killed while a file system is frozen, and not started
// again. The other one thaws it: at the next snapshot, or when it looks for marks.
func TestLeftFrozenBesideAnother(t *testing.T) {
	d := newDisk(t, "beside").mount()
	leave := func() {
		d.leaveMark(d.volume)
		if err := d.ioctl(fifreeze); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tick, ended := make(chan time.Time), make(chan struct{})
	go func() { d.q.Recover(ctx, tick); close(ended) }() // there is nothing at its start
	tick <- time.Time{}
	leave()
	d.q.Quiesce(t.Context(), d.volume, true)()
	if d.frozen() || d.marked() {
		t.Errorf("after the next snapshot: frozen %v, marked %v", d.frozen(), d.marked())
	}
	leave()
	tick <- time.Time{}
	d.until("it is thawed", func() bool { return !d.frozen() && !d.marked() })
	cancel()
	<-ended
}

// What another instance manager has frozen for a snapshot stays frozen while that one is alive,
// whoever starts or looks for marks meanwhile; and is thawed when it was killed.
func TestFrozenByAnotherThatIsAlive(t *testing.T) {
	d := newDisk(t, "alive").mount()
	other := &Quiescer{Marks: d.q.Marks, Log: d.q.Log, SyncLimit: time.Minute, FreezeLimit: time.Minute}
	resume := d.q.Quiesce(t.Context(), d.volume, true)
	d.recovered(other, d.volume)
	other.Quiesce(t.Context(), d.volume, true)()
	if !d.frozen() || !d.marked() {
		t.Errorf("while it is frozen for a snapshot somebody else has thawed it: frozen %v, marked %v", d.frozen(), d.marked())
	}
	resume()
	if d.frozen() || d.marked() {
		t.Errorf("afterwards: frozen %v, marked %v", d.frozen(), d.marked())
	}

	holder := exec.Command(os.Args[0], d.volume)
	holder.Env, holder.Stderr = append(os.Environ(), holdVariable+"="+d.q.Marks), os.Stderr
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	n, rerr := out.Read(make([]byte, 16))
	d.recovered(d.q, d.volume)
	held := d.frozen()
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // it was killed
	if n == 0 || !held || !d.marked() {
		t.Fatalf("another process (%d, %v) does not hold it: frozen %v, marked %v", n, rerr, held, d.marked())
	}
	d.until("it is thawed after its holder was killed", func() bool {
		d.recovered(d.q, d.volume)
		return !d.frozen() && !d.marked()
	})
}

// A file system is unmounted while it is frozen: its next mount is frozen as well, and is thawed.
func TestUnmountedWhileFrozen(t *testing.T) {
	d := newDisk(t, "unmounted").mount()
	d.leaveMark(d.volume)
	if err := errors.Join(d.ioctl(fifreeze), unix.Unmount(d.at, 0)); err != nil {
		t.Fatal(err)
	}
	d.recovered(d.q, d.volume)
	d.mountedAgain()
}

// A snapshot that is taken before the next mount does not take the mark away.
func TestSnapshotOfOneUnmountedWhileFrozen(t *testing.T) {
	d := newDisk(t, "between").mount()
	d.leaveMark(d.volume)
	if err := errors.Join(d.ioctl(fifreeze), unix.Unmount(d.at, 0)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.q.Quiesce(t.Context(), d.volume, true)()
	}
	d.mountedAgain()
}

// mountedAgain mounts a file system that was unmounted while it was frozen: it is frozen, and is
// thawed.
func (d *disk) mountedAgain() {
	d.t.Helper()
	if err := unix.Mount(d.loop, d.at, "ext4", 0, ""); err != nil {
		d.t.Fatal(err)
	}
	if !d.frozen() {
		d.t.Fatal("the kernel has thawed it: the test shows nothing")
	}
	d.recovered(d.q, d.volume)
	if d.frozen() || d.marked() {
		d.t.Fatalf("mounted again: frozen %v, marked %v\n%s", d.frozen(), d.marked(), d.said)
	}
	d.write("afterwards")
}

// A thaw says of a file system that is about to be frozen what it says of one that is not.
func TestThawWhileAFreezeIsUnderWay(t *testing.T) {
	for _, row := range []struct {
		name    string
		answers []error // to FITHAW, FIFREEZE, FITHAW, ...
		want    error   // on a device that is there
		ended   error   // on one that has ended
	}{
		{"frozen", []error{nil}, nil, nil},
		{"not frozen", []error{unix.EINVAL, nil, nil}, nil, nil},
		{"not frozen, thawed by somebody else", []error{unix.EINVAL, nil, unix.EINVAL}, nil, nil},
		{"cannot be frozen", []error{unix.EINVAL, unix.EOPNOTSUPP}, nil, nil},
		{"freezing, and frozen after that", []error{unix.EINVAL, unix.EBUSY, nil}, nil, nil},
		{"freezing for long", []error{unix.EINVAL, unix.EBUSY, unix.EINVAL, unix.EBUSY}, errFreezing, errFreezing},
		{"thaw fails", []error{unix.EIO}, unix.EIO, unix.EIO},
		{"freeze fails", []error{unix.EINVAL, unix.EIO}, unix.EIO, nil},
		{"thaw of its own freeze fails", []error{unix.EINVAL, nil, unix.EIO}, unix.EIO, unix.EIO},
	} {
		for _, ended := range []bool{false, true} {
			n, want := 0, row.want
			if ended {
				want = row.ended
			}
			err := thawBy(func(request uint) error {
				if want := []uint{fithaw, fifreeze}[n%2]; request != want {
					t.Errorf("%s: request %d is %x", row.name, n, request)
				}
				n++
				return row.answers[n-1]
			}, ended)
			if !errors.Is(err, want) || n != len(row.answers) {
				t.Errorf("%s, its device has ended %v: %v after %d requests", row.name, ended, err, n)
			}
		}
	}
}
