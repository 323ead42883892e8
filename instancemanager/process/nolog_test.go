package process

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/wait"
)

// noLog has it that the log of a name cannot be made, as on a full disk or one that has become
// read-only, until it is called.
func noLog(t *testing.T, l *logs, name string) (restore func()) {
	t.Helper()
	if err := os.Symlink("missing/file", l.path(name)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(l.path(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStartWithoutALog: a process whose log cannot be made is started all the same, and its lines
// are in the Pod's output. When there can be a log again it has the lines from then on.
func TestStartWithoutALog(t *testing.T) {
	var output lockedBuffer
	m := newManager(t, func(c *Config) { c.Output = &output })
	restore := noLog(t, m.logs, "demo-e-0")
	if _, err := m.Create(spec(t, "demo-e-0", instancetest.Echo, 0)); err != nil {
		t.Fatal(err)
	}
	if p := await(t, m, "demo-e-0", Running, Error); p.State != Running {
		t.Fatalf("it is %s: %s", p.State, p.ErrorMsg)
	}
	wait.Until(t, "the Pod's output has it", func() bool {
		return strings.Contains(output.String(), "[demo-e-0] ready\n")
	})
	restore()
	if err := unix.Kill(pidOf(m, "demo-e-0"), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "there is a log", func() bool {
		_, err := os.Stat(m.logs.path("demo-e-0"))
		return err == nil && strings.Join(readLog(t, m, "demo-e-0"), ",") == "hangup"
	})
}

// TestFollowWithoutALog: who follows a log that cannot be made at the moment gets what there is
// from before, and then what comes when it can.
func TestFollowWithoutALog(t *testing.T) {
	l, err := newLogs(t.TempDir(), maxLogSize, &lockedBuffer{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.echo.Close()
	restore := noLog(t, l, "p")
	if err := os.WriteFile(l.path("p")+rotatedSuffix, []byte("before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := l.acquire("p")
	if err == nil {
		t.Fatal("there is a log")
	}
	var got collector
	ended := make(chan error, 1)
	go func() { ended <- l.read(t.Context(), "p", LogOptions{Follow: true}, got.line) }()
	wait.Until(t, "the line from before", func() bool { return got.text() == "before" })
	write := func(line string) {
		if err := f.writeLine(line); err != nil {
			t.Error(err)
		}
	}
	write("lost")
	restore()
	write("kept")
	wait.Until(t, "the line that came", func() bool { return got.text() == "before,kept" })
	write("and more")
	l.release(f)
	if err := <-ended; err != nil || got.text() != "before,kept,and more" {
		t.Errorf("%v: %s", err, got.text())
	}
	f, err = l.acquire("q")
	if err != nil {
		t.Fatal(err)
	}
	l.release(f)
	restore = noLog(t, l, "none")
	defer restore()
	if f, err = l.acquire("none"); err == nil {
		t.Error("there is a log")
	}
	l.release(f)
}

// TestFollowALogThatIsThereAgain: a log that could not be opened for writing, and was there to be
// read all the time, is read once by who follows it, and so is what was rotated away before.
func TestFollowALogThatIsThereAgain(t *testing.T) {
	for name, rotated := range map[string]string{"never rotated": "", "rotated before": "older\n"} {
		t.Run(name, func(t *testing.T) {
			l := testLogs(t, maxLogSize)
			restore := noLog(t, l, "p")
			f, err := l.acquire("p")
			if err == nil {
				t.Fatal("there is a log")
			}
			restore()
			write := func(path, text string) {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write(l.path("p"), "before\n")
			want := "before"
			if rotated != "" {
				write(l.path("p")+rotatedSuffix, rotated)
				want = "older,before"
			}
			var got collector
			ended := make(chan error, 1)
			go func() { ended <- l.read(t.Context(), "p", LogOptions{Follow: true}, got.line) }()
			wait.Until(t, "the line from before", func() bool { return got.text() == want })
			for _, line := range []string{"kept", "and more"} {
				if err := f.writeLine(line); err != nil {
					t.Error(err)
				}
			}
			l.release(f)
			if err := <-ended; err != nil || got.text() != want+",kept,and more" {
				t.Errorf("%v: %s", err, got.text())
			}
		})
	}
}
