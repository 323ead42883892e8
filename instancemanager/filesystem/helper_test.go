package filesystem

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/test/wait"
)

// A process is killed while a volume that does not answer is made quiet: it ends at once, and what
// waits in the kernel is a process of its own. The volume is a loop device on a file of another
// file system, which is frozen.
func TestKilledWhileAVolumeDoesNotAnswer(t *testing.T) {
	below := newDisk(t, "does-not-answer-below").mount()
	d := newDisk(t, "does-not-answer")
	file := filepath.Join(below.at, "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 16<<20)); err != nil {
		t.Fatal(err)
	}
	run(t, "losetup", "--detach", d.loop)
	run(t, "losetup", d.loop, file)
	d.mount()
	d.write("waits")
	if err := below.ioctl(fifreeze); err != nil {
		t.Fatal(err)
	}
	defer below.thawed()
	holder := exec.Command(os.Args[0], d.volume)
	holder.Env, holder.Stderr = append(os.Environ(), holdVariable+"="+d.q.Marks), os.Stderr
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	var waiting []int
	d.until("somebody waits for the volume", func() bool {
		waiting = waitingFor(holder.Process.Pid)
		return len(waiting) > 0
	})
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- holder.Wait() }()
	select {
	case <-ended:
	case <-wait.Late():
		wait.RanOut(t, "the end of a process that was killed")
		below.thawed()
		<-ended
		t.Error("a process that was killed has not ended, since a thread of it waits for the volume")
	}
	if slices.Contains(waiting, holder.Process.Pid) {
		t.Error("the process waits for the volume itself")
	}
	below.thawed()
	d.until("it is thawed", func() bool {
		d.recovered(d.q, d.volume)
		return !d.frozen() && !d.marked()
	})
}

// The process that holds a file system frozen is killed, by the kernel for its memory, say: the
// file system is thawed at once.
func TestHelperKilledWhileItHoldsAFreeze(t *testing.T) {
	d := newDisk(t, "helper-killed").mount()
	resume := d.q.Quiesce(t.Context(), d.volume, true)
	if !d.frozen() {
		t.Fatal("it is not frozen: the test shows nothing")
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		args := strings.Split(string(text), "\x00")
		if err != nil || args[0] != helperName || len(args) < 2 || !strings.Contains(args[1], d.volume) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		if err == nil {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		killed++
	}
	if killed != 1 {
		t.Fatalf("%d helpers are there", killed)
	}
	d.until("it is thawed", func() bool { return !d.marked() && !d.frozen() })
	resume()
}

// waitingFor returns the process and its children if one of their threads waits, uninterruptibly,
// in an ioctl or syncfs.
func waitingFor(parent int) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		_, rest, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if err != nil || !ok || len(fields) < 2 || fields[0] != "D" {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		if err != nil || pid != parent && fields[1] != strconv.Itoa(parent) {
			continue
		}
		call, err := os.ReadFile(filepath.Join(filepath.Dir(file), "syscall"))
		number, _, _ := bytes.Cut(call, []byte(" "))
		if err == nil && (string(number) == fmt.Sprint(unix.SYS_IOCTL) || string(number) == fmt.Sprint(unix.SYS_SYNCFS)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// What a helper says arrives as it was said, and a helper that cannot understand its task ends.
func TestReports(t *testing.T) {
	for _, err := range []error{nil, errors.New("other"), fmt.Errorf("x: %w: %w", ErrRefused, unix.EROFS),
		errors.Join(ErrCovered, ErrNotMounted)} {
		var r report
		r.set(err)
		got := r.err()
		if (got == nil) != (err == nil) || err != nil && got.Error() != err.Error() {
			t.Errorf("%v arrives as %v", err, got)
		}
		for _, kind := range kinds {
			if errors.Is(got, kind) != errors.Is(err, kind) {
				t.Errorf("%v arrives as %v: another kind", err, got)
			}
		}
	}
	for _, text := range []string{"", "{}", `{"Do":"other"}`} {
		var out bytes.Buffer
		if status := helperMain(text, strings.NewReader(""), &out); status != 2 || out.Len() > 0 {
			t.Errorf("%q: status %d, it says %s", text, status, &out)
		}
	}
}
