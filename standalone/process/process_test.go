package process

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ankole.storage/test/wait"
)

func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST_PARENT") != "" {
		parentRole()
	}
	os.Exit(m.Run())
}

// parentRole starts one child under a spawner, says its pid, and waits to be killed.
func parentRole() {
	p, err := NewSpawner().Start(shell("exec sleep 1000"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	for {
		_ = syscall.Pause() // not a select: without cgo that is ended as a deadlock
	}
}

func shell(script string) Spec {
	return Spec{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/",
		Marker: Marker("process-test", fmt.Sprint(os.Getpid()), script)}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func waitDone(t *testing.T, p *Process) Exit {
	t.Helper()
	wait.Receive(t, "the process ends", p.Done())
	return p.Exit()
}

func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(data), ") Z ")
}

func waitDead(t *testing.T, pid int) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("process %d ends", pid), func() bool { return !alive(pid) })
}

func TestExit(t *testing.T) {
	s := NewSpawner()
	defer s.Close()
	for _, tc := range []struct {
		script string
		code   int
		signal syscall.Signal
		out    string
	}{
		{"echo hello; echo oops >&2", 0, 0, "hello\noops\n"},
		{"exit 3", 3, 0, ""},
		{"kill -TERM $$", 143, syscall.SIGTERM, ""},
		{"kill -KILL $$", 137, syscall.SIGKILL, ""},
		{`echo "$ANKOLE_CONTAINER" | cut -d"|" -f1`, 0, 0, "process-test\n"},
	} {
		var out syncBuffer
		spec := shell(tc.script)
		spec.Stdout, spec.Stderr = &out, &out
		p, err := s.Start(spec)
		if err != nil {
			t.Fatal(err)
		}
		if e := waitDone(t, p); e.Code != tc.code || e.Signal != tc.signal || e.Time.IsZero() {
			t.Errorf("%s: exit %+v, want code %d signal %d", tc.script, e, tc.code, tc.signal)
		}
		if got := out.String(); len(got) != len(tc.out) { // two pipes: the order is open
			t.Errorf("%s: output %q, want %q", tc.script, got, tc.out)
		}
	}
}

func TestStartFails(t *testing.T) {
	s := NewSpawner()
	defer s.Close()
	if _, err := s.Start(Spec{Path: "/nonexistent/program", Args: []string{"x"}, Marker: "m|"}); err == nil ||
		!strings.Contains(err.Error(), "/nonexistent/program") {
		t.Errorf("error %v must name the program", err)
	}
}

// TestDescendantsEnd: a child in a session of its own, holding the output open, ends with the
// container.
func TestDescendantsEnd(t *testing.T) {
	s := NewSpawner()
	defer s.Close()
	r, w := io.Pipe()
	defer func() { _ = r.Close() }()
	spec := shell("setsid sleep 1000 & echo $!; read wait")
	in, feed := io.Pipe()
	spec.Stdin, spec.Stdout = in, w
	p, err := s.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanln(bufio.NewReader(r), &pid); err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Fatal("the child is not alive")
	}
	_ = feed.Close()
	waitDone(t, p)
	waitDead(t, pid)
}

// TestKillDuringExec: a process that runs one program after another has no environment for moments,
// and ends with its container all the same.
func TestKillDuringExec(t *testing.T) {
	s := NewSpawner()
	defer s.Close()
	script := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	spinning := 0
	defer func() {
		if t.Failed() && spinning != 0 {
			_ = syscall.Kill(spinning, syscall.SIGKILL)
		}
	}()
	for round := range 100 {
		var out syncBuffer
		spec := shell(fmt.Sprintf("setsid %s </dev/null >/dev/null 2>&1 & echo $!; : %d", script, round))
		spec.Stdout = &out
		p, err := s.Start(spec)
		if err != nil {
			t.Fatal(err)
		}
		waitDone(t, p)
		var pid int
		if _, err := fmt.Sscan(out.String(), &pid); err != nil {
			t.Fatalf("%q: %v", out.String(), err)
		}
		spinning = pid
		waitDead(t, pid)
	}
}

// TestKillMarked ends exactly what carries the prefix.
func TestKillMarked(t *testing.T) {
	s := NewSpawner()
	defer s.Close()
	unique := fmt.Sprint(os.Getpid())
	start := func(marker string) *Process {
		t.Helper()
		spec := shell("exec sleep 1000")
		spec.Marker = marker
		p, err := s.Start(spec)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	mine := start(Marker("km", unique, "node-1", "a"))
	sibling := start(Marker("km", unique, "node-10", "a"))
	waitListed := func(prefix string, want int) {
		t.Helper()
		// The environment shows only after exec.
		wait.Until(t, fmt.Sprintf("%d processes under %s", want, prefix), func() bool { return len(Marked(prefix)) == want })
	}
	waitListed(Marker("km", unique), 2)
	if n := KillMarked(Marker("km", unique, "node-1")); n == 0 {
		t.Error("nothing was killed")
	}
	if e := waitDone(t, mine); e.Signal != syscall.SIGKILL {
		t.Errorf("exit %+v", e)
	}
	if !alive(sibling.PID()) {
		t.Error("node-10 was taken for node-1")
	}
	sibling.Kill()
	waitDone(t, sibling)
	waitListed(Marker("km", unique), 0)
}

func TestMarkedRefusesLoosePrefix(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a prefix without its separator was accepted")
		}
	}()
	Marked("node-1")
}

// TestParentDeath: the child of a spawner dies with the process, even from SIGKILL.
func TestParentDeath(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROCESS_TEST_PARENT=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanln(bufio.NewReader(out), &pid); err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Fatal("the child is not alive")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	waitDead(t, pid)
}

// TestClose ends what still runs and refuses more.
func TestClose(t *testing.T) {
	s := NewSpawner()
	p, err := s.Start(shell("exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	waitDone(t, p)
	if _, err := s.Start(shell("true")); err == nil {
		t.Error("a closed spawner started a process")
	}
}

// TestCloseBesideStarts: what is started while the spawner is being closed is refused, or has ended
// when Close returns.
func TestCloseBesideStarts(t *testing.T) {
	for range 50 {
		s := NewSpawner()
		started := make(chan *Process)
		go func() {
			p, err := s.Start(shell("exec sleep 1000"))
			if err != nil {
				p = nil
			}
			started <- p
		}()
		s.Close()
		if p := <-started; p != nil {
			select {
			case <-p.Done():
			default:
				t.Error("it runs on after Close")
			}
		}
	}
}

// TestCloseOnAThreadThatStays: the thread that has started a process does not end with the spawner,
// as the first one of a program never does. The kernel sends no signal then.
func TestCloseOnAThreadThatStays(t *testing.T) {
	s := newSpawner()
	end := make(chan struct{})
	defer close(end)
	go func() {
		runtime.LockOSThread()
		s.run()
		<-end
	}()
	p, err := s.Start(shell("exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	waitDone(t, p)
}
