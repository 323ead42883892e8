package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/wait"
)

// replacing starts an engine and a replacement for it that is on its way to take the volume over
// and does not come to it. The result of Replace comes on the channel.
func replacing(t *testing.T, m *Manager) <-chan error {
	t.Helper()
	if _, err := m.Create(spec(t, "demo-e-0", instancetest.Serve, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "demo-e-0", Running)
	s := spec(t, "demo-e-0", instancetest.Echo, 1, "--upgrade")
	s.Binary = newBinary(t)
	result := make(chan error, 1)
	go func() {
		_, err := m.Replace(context.Background(), s, "SIGHUP")
		result <- err
	}()
	wait.Until(t, "the replacement can be signalled", func() bool {
		return strings.Contains(logOf(t, m, "demo-e-0"), "ready\n")
	})
	return result
}

func logOf(t *testing.T, m *Manager, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.cfg.LogsDir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDeleteBesideAReplacement: an engine is deleted for good while a replacement takes the volume
// over from it. Both end, the replacement politely, since it may have the volume's device and must
// take it down. The name is free, and what is kept of the device is given up, when the last of the
// two has ended: until then it can be given to the keeper again.
func TestDeleteBesideAReplacement(t *testing.T) {
	var m *Manager
	var gone []string
	m = newManager(t, func(c *Config) {
		c.ReplaceTimeout = instancetest.Deadline
		// the lock is held
		c.Gone = func(name string) { gone = append(gone, fmt.Sprint(name, ", processes left: ", len(m.all))) }
	})
	result := replacing(t, m)
	m.mu.Lock()
	old := m.listed["demo-e-0"]
	pid := old.next.child.cmd.Process.Pid
	m.mu.Unlock()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil { // so that it ends last
		t.Fatal(err)
	}
	if _, err := m.DeleteLast("demo-e-0", ""); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the old one has ended", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return old.ended
	})
	if _, err := m.Get("demo-e-0"); err != nil {
		t.Errorf("the name is free beside the replacement: %v", err)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, ErrExists) {
		t.Errorf("the replacement: %v", err)
	}
	awaitGone(t, m, "demo-e-0")
	m.mu.Lock()
	defer m.mu.Unlock()
	if got := strings.Join(gone, "; "); got != "demo-e-0, processes left: 0" {
		t.Errorf("gone: %q", got)
	}
	if !strings.Contains(logOf(t, m, "demo-e-0"), "interrupt\n") {
		t.Errorf("the replacement was killed, it said: %q", logOf(t, m, "demo-e-0"))
	}
}

// TestOneReplacementAtATime: a second replacement would take the volume over from the first one,
// which is then put into the list although it has nothing any more.
func TestOneReplacementAtATime(t *testing.T) {
	m := newManager(t, func(c *Config) { c.ReplaceTimeout = instancetest.Deadline })
	first := replacing(t, m)
	s := spec(t, "demo-e-0", instancetest.Serve, 1, "--upgrade")
	s.Binary = newBinary(t)
	if _, err := m.Replace(context.Background(), s, "SIGHUP"); !errors.Is(err, ErrExists) ||
		!strings.Contains(err.Error(), "being replaced") {
		t.Errorf("the second replacement: %v", err)
	}
	if _, err := m.Delete("demo-e-0", ""); err != nil {
		t.Fatal(err)
	}
	<-first
	awaitGone(t, m, "demo-e-0")
}

// TestCloseBesideAReplacement: the Pod stops while a volume passes from one engine to the next.
// Either may have its device, so both get the time that engines get to take it down.
func TestCloseBesideAReplacement(t *testing.T) {
	var m *Manager
	var first <-chan error
	logs := t.TempDir()
	t.Run("closed at its end", func(t *testing.T) {
		m = newManager(t, func(c *Config) { c.ReplaceTimeout, c.LogsDir = instancetest.Deadline, logs })
		first = replacing(t, m)
	})
	if err := <-first; !errors.Is(err, ErrClosed) {
		t.Errorf("the replacement: %v", err)
	}
	if !strings.Contains(logOf(t, m, "demo-e-0"), "interrupt\n") {
		t.Errorf("the replacement was killed, it said: %q", logOf(t, m, "demo-e-0"))
	}
}
