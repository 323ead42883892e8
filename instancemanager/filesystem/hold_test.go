package filesystem

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// helpersAre has a shell script in the place of helpers until the test ends. started tells how many
// were.
func helpersAre(t *testing.T, script string) (started func() int) {
	t.Helper()
	dir := t.TempDir()
	list := filepath.Join(dir, "list")
	ours := program
	t.Cleanup(func() { program = ours })
	program = filepath.Join(dir, "helper")
	text := fmt.Sprintf("#!/bin/sh\necho >> %s\n%s\n", list, script)
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() int {
		text, err := os.ReadFile(list)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
}

// Work of one kind on a volume that does not end holds nobody but its own volume, and no work of
// another kind.
func TestOneAtATime(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	helpersAre(t, `case "$1" in *hangs*) read x < `+fifo+`; esac; echo '{"Bytes":7}'`)
	var n Node
	for what, do := range map[string]func(volume string) error{"remount": n.Remount, "trim": func(volume string) error {
		_, err := n.Trim(volume)
		return err
	}} {
		first := make(chan error, 1)
		go func() { first <- do("hangs") }()
		end, err := os.OpenFile(fifo, os.O_WRONLY, 0) // it is open when the helper has it open
		if err != nil {
			t.Fatal(err)
		}
		if err := do("hangs"); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: at the same time: %v", what, err)
		}
		for range 20 { // one after the other is not at once
			if err := do("other"); err != nil {
				t.Errorf("%s of another volume: %v", what, err)
			}
		}
		end.Close()
		if err := <-first; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The mark of a frozen file system stays where something may be frozen still: the kernel has not
// thawed it, or the helper has ended before it could. What else fails has frozen nothing, or was
// thawed.
func TestMarkAfterAFreezeThatFailed(t *testing.T) {
	d := newDisk(t, "failed")
	stuck := &report{}
	stuck.set(fmt.Errorf("thaw: %w", errThaw))
	last, err := json.Marshal(stuck)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, script string
		stays        bool
	}{
		{"sync failed", `echo '{"Error":"sync: input/output error"}'`, false},
		{"thaw failed", `echo '{"Quiet":true}'; echo '` + string(last) + "'", true},
		{"ended early", `echo '{"Quiet":true}'`, true},
		{"did nothing", "", true},
	} {
		helpersAre(t, row.script)
		d.q.Quiesce(t.Context(), d.volume, true)()
		if d.marked() != row.stays {
			t.Errorf("%s: marked %v", row.name, d.marked())
		}
		_ = os.Remove(d.q.markOf(d.volume))
	}
	program = filepath.Join(t.TempDir(), "none")
	d.q.Quiesce(t.Context(), d.volume, true)()
	if d.marked() {
		t.Error("no helper was there, and the mark stays")
	}
}

// Where a node holds nothing of a volume, and where nothing is mounted that could be thawed, no
// helper is started.
func TestNoHelperForNothing(t *testing.T) {
	d := newDisk(t, "idle")
	started := helpersAre(t, "echo '{}'")
	d.q.Quiesce(t.Context(), "nobody-has-this-volume", true)()
	d.leaveMark(d.volume)
	d.recovered(d.q, d.volume)
	if n := started(); n != 0 || !d.marked() || d.said.Len() > 0 {
		t.Errorf("%d helpers, marked %v: %s", n, d.marked(), d.said)
	}
	d.mount()
	d.recovered(d.q, d.volume)
	if n := started(); n != 1 {
		t.Errorf("%d helpers for a file system that may be frozen", n)
	}
}
