package process

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/test/wait"
)

// A process of the node waits for a volume, so that its environment cannot be read: the instance
// manager that is to start the volume's engine starts all the same, and hears of the ends of its
// instances.
func TestStrayWhoseEnvironmentCannotBeRead(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	file := filepath.Join(proc, "1000000007", "environ")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), unix.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the Manager's end; the reading ends
		if f, err := os.OpenFile(file, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	})
	m := newManager(t, func(c *Config) { c.Owner, c.proc = "test-of-strays", proc })
	for range endedBuffer + 6 {
		m.strays.look("an instance")
	}
}

// A process that runs one program after another has no environment for moments, and does not
// outlive the instance that has left it behind.
func TestStrayDuringExec(t *testing.T) {
	script := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := newStrays(fmt.Sprint("test-of-strays-", os.Getpid()), "", slog.New(slog.DiscardHandler))
	defer s.close()
	for round := range 100 {
		uuid := fmt.Sprint(round)
		stray := exec.Command(script)
		stray.Env = append(os.Environ(), "PADDING="+strings.Repeat("x", 3000), string(s.mark(uuid)))
		if err := stray.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = stray.Wait() // it was killed, and perhaps collected, by others
			close(ended)
		}()
		s.look(uuid)
		select {
		case <-ended:
		case <-wait.Late():
			wait.RanOut(t, "the end of the process")
			_ = stray.Process.Kill()
			<-ended
			t.Fatalf("round %d: the process goes on after its instance has ended", round)
		}
	}
}
