package environ

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/test/wait"
)

// The reading of one process's environment does not return: those of all others are read, it is
// waited for once, and read when it can be.
func TestReadingThatDoesNotReturn(t *testing.T) {
	root := t.TempDir()
	const hung, processes = 1_000_000_007, 3 * atOnce
	file := func(pid int) string { return filepath.Join(root, strconv.Itoa(pid), "environ") }
	for i := range processes {
		pid := 2_000_000_000 + i
		if err := errors.Join(os.Mkdir(filepath.Dir(file(pid)), 0o700),
			os.WriteFile(file(pid), fmt.Appendf(nil, "PID=%d", pid), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Dir(file(hung)), 0o700), unix.Mkfifo(file(hung), 0o600),
		os.Mkdir(filepath.Join(root, "1"), 0o700), os.Mkdir(filepath.Join(root, "self"), 0o700)); err != nil {
		t.Fatal(err)
	}
	r := &Reader{Root: root, Wait: time.Second}
	look := func() map[int]string {
		got := map[int]string{}
		r.Each(r.Processes(), func(pid int, environment []byte) { got[pid] = string(environment) })
		return got
	}
	check := func(got map[int]string, want int) {
		t.Helper()
		for pid, environment := range got {
			if environment != fmt.Sprintf("PID=%d", pid) {
				t.Errorf("process %d has %q", pid, environment)
			}
		}
		if len(got) != want {
			t.Errorf("%d environments of %d", len(got), want)
		}
	}
	check(look(), processes)
	r.Wait = time.Hour // nobody waits for the one that has not returned
	check(look(), processes)
	w, err := os.OpenFile(file(hung), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	wait.Until(t, "a reading that can end has ended", func() bool { return r.begin(hung) })
	r.end(hung)
	if err := errors.Join(os.Remove(file(hung)),
		os.WriteFile(file(hung), fmt.Appendf(nil, "PID=%d", hung), 0o600)); err != nil {
		t.Fatal(err)
	}
	check(look(), processes+1)
}
