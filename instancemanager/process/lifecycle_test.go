package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

func TestRefusals(t *testing.T) {
	m := newManager(t, func(c *Config) { c.Ports = PortRange{10000, 10011} })
	p, err := m.Create(spec(t, "demo-r-1", instancetest.Serve, 10))
	if err != nil || p.Ports != (PortRange{10000, 10009}) {
		t.Fatal(p, err)
	}
	if _, err := m.Create(spec(t, "demo-r-1", instancetest.Serve, 1)); !errors.Is(err, ErrExists) {
		t.Errorf("name twice: %v", err)
	}
	if _, err := m.Create(spec(t, "demo-r-2", instancetest.Serve, 10)); !errors.Is(err, ErrNoPorts) ||
		!strings.Contains(err.Error(), "cannot allocate 10 ports") {
		t.Errorf("port range exhausted: %v", err)
	}
	if _, err := m.Get("demo-r-2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a refused process is listed: %v", err)
	}
	if _, err := m.Delete("demo-r-3", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("delete of an unknown process: %v", err)
	}
	if _, err := m.Delete("demo-r-1", "another"); !errors.Is(err, ErrNotFound) {
		t.Errorf("delete with another UUID: %v", err)
	}
	if p := await(t, m, "demo-r-1", Running); p.UUID == "" {
		t.Error("no UUID")
	}
	// Two ports are left, and small runs fit.
	if p, err := m.Create(spec(t, "demo-e-0", instancetest.Serve, 1)); err != nil || p.Ports.Start != 10010 {
		t.Errorf("%v %v", p, err)
	}
}

// TestListed checks what a client sees of a process: the arguments with ports, but never its
// environment.
func TestListed(t *testing.T) {
	m := newManager(t, nil)
	if _, err := m.Create(spec(t, "demo-r-1", instancetest.Serve, 2, "--count", "3")); err != nil {
		t.Fatal(err)
	}
	p := await(t, m, "demo-r-1", Running)
	want := []string{instancetest.Serve, "--count", "3", "--listen", m.cfg.PodIP + ":10000"}
	if !slices.Equal(p.Spec.Args, want) {
		t.Errorf("arguments %q, want %q", p.Spec.Args, want)
	}
	if p.Spec.Environment != nil {
		t.Error("the environment is given back")
	}
	list, revision := m.List()
	if len(list) != 1 || list[0].UUID != p.UUID || revision != p.Revision || revision == 0 {
		t.Errorf("list %+v at revision %d", list, revision)
	}
}

// TestThreadOfCallerEnds: the parent death signal belongs to the thread that forked, so an instance
// must not be started from the thread of whoever calls Create.
func TestThreadOfCallerEnds(t *testing.T) {
	m := newManager(t, nil)
	thread := make(chan int, 1)
	onThread := func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if _, err := m.Create(spec(t, "demo-r-1", instancetest.Serve, 1)); err != nil {
			t.Error(err)
		}
		await(t, m, "demo-r-1", Running)
		thread <- unix.Gettid()
	}
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The main thread never ends. It is taken now, so this gets another one.
			go onThread()
			<-t.Context().Done()
			return
		}
		onThread()
	}()
	task := fmt.Sprintf("/proc/self/task/%d", <-thread)
	wait.Until(t, "the thread has ended", func() bool {
		_, err := os.Stat(task)
		return errors.Is(err, os.ErrNotExist)
	})
	watch := m.Watch()
	defer watch.Cancel()
	if _, err := m.Delete("demo-r-1", ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []State{Stopping, Stopped} {
		if event := next(t, watch); event.State != want {
			t.Errorf("%s (%s), want %s", event.State, event.ErrorMsg, want)
		}
	}
}

// TestGroupDies: an instance's own children do not outlive it, not even one that has left the
// process group; those of others live on.
func TestGroupDies(t *testing.T) {
	for _, mode := range []string{instancetest.Parent, instancetest.Stray} {
		t.Run(mode, func(t *testing.T) {
			m := newManager(t, func(c *Config) { c.Owner = uuid.NewString() })
			children := map[string]int{}
			for _, name := range []string{"demo-e-0", "other-e-0"} {
				if _, err := m.Create(spec(t, name, mode, 1)); err != nil {
					t.Fatal(err)
				}
				await(t, m, name, Running)
				children[name] = childOf(t, m, name)
			}
			if _, err := m.Delete("demo-e-0", ""); err != nil {
				t.Fatal(err)
			}
			awaitGone(t, m, "demo-e-0")
			wait.Until(t, "the child is dead", func() bool { return !instancetest.Alive(children["demo-e-0"]) })
			if !instancetest.Alive(children["other-e-0"]) {
				t.Error("the child of another instance is dead")
			}
		})
	}
}

// childOf reads the number of an instance's child, which lives, from its log.
func childOf(t *testing.T, m *Manager, name string) (child int) {
	t.Helper()
	wait.Until(t, "the instance names its child", func() bool {
		lines := readLog(t, m, name)
		if len(lines) == 0 {
			return false
		}
		var err error
		child, err = strconv.Atoi(strings.TrimPrefix(lines[0], "child "))
		return err == nil
	})
	if !instancetest.Alive(child) {
		t.Fatal("the child does not live")
	}
	return child
}

// TestEnvironment: an instance gets the variables of its spec and those of the instance manager,
// the latter last.
func TestEnvironment(t *testing.T) {
	m := newManager(t, func(c *Config) { c.Environment = []string{"ANKOLE_WITNESS=unix:/run/w.sock", "POD_NAME=im"} })
	s := spec(t, "demo-e-0", instancetest.Env, 0)
	s.Environment["ANKOLE_VOLUME_SECRET"] = "0123"
	s.Order = "9b1c/7"
	if _, err := m.Create(s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ANKOLE_WITNESS=unix:/run/w.sock", "POD_NAME=im", "ANKOLE_VOLUME_SECRET=0123",
		"ANKOLE_ORDER=9b1c/7", "PATH=" + os.Getenv("PATH")} {
		wait.Until(t, want, func() bool { return slices.Contains(readLog(t, m, "demo-e-0"), want) })
	}
}

func readLog(t *testing.T, m *Manager, name string) []string {
	t.Helper()
	var lines []string
	err := m.Log(context.Background(), name, LogOptions{}, func(line string) error {
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestBinaryIsResolved: the path of the Pod is reported, the one behind it is executed.
func TestBinaryIsResolved(t *testing.T) {
	m := newManager(t, func(c *Config) {
		c.Resolve = func(path string) string {
			if path == "/engine-binaries/x/longhorn" {
				return instancetest.Binary(t)
			}
			return path + ".elsewhere"
		}
	})
	s := spec(t, "demo-e-0", instancetest.Serve, 1)
	s.Binary = "/engine-binaries/x/longhorn"
	if _, err := m.Create(s); err != nil {
		t.Fatal(err)
	}
	if p := await(t, m, "demo-e-0", Running, Error); p.State != Running || p.Spec.Binary != s.Binary {
		t.Errorf("%+v", p)
	}
	p, err := m.Create(Spec{Name: "demo-e-1", Binary: "/engine-binaries/y/longhorn"})
	if err != nil || p.ErrorMsg != "start /engine-binaries/y/longhorn: no such file or directory" {
		t.Errorf("%q %v", p.ErrorMsg, err)
	}
}

// TestDeleteAgain: when the polite signal was ignored and the SIGKILL is still far away, the
// process stays in state stopping, and another Delete changes nothing, but for an earlier time.
func TestDeleteAgain(t *testing.T) {
	m := newManager(t, nil)
	if _, err := m.Create(spec(t, "demo-r-1", instancetest.Stubborn, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "demo-r-1", Running)
	for range 2 * maxStopRequests {
		if p, err := m.Delete("demo-r-1", ""); err != nil || p.State != Stopping {
			t.Fatalf("%v %v", p.State, err)
		}
	}
	if _, err := m.Create(spec(t, "demo-r-1", instancetest.Serve, 1)); !errors.Is(err, ErrExists) {
		t.Errorf("create while the old one is stopping: %v", err)
	}
	m.cfg.StopTimeout = time.Millisecond
	wait.Until(t, "it is killed, and gone", func() bool {
		_, err := m.Delete("demo-r-1", "")
		return errors.Is(err, ErrNotFound)
	})
}

// TestDeleteAgainAndAgain: clients that ask more often than the stop timeout, two of them say, do
// not keep alive what ignores the signal.
func TestDeleteAgainAndAgain(t *testing.T) {
	m := newManager(t, func(c *Config) { c.StopTimeout = 200 * time.Millisecond })
	if _, err := m.Create(spec(t, "demo-e-1", instancetest.Stubborn, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "demo-e-1", Running)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	wait.Until(t, "it is killed, and gone", func() bool {
		<-again.C
		_, err := m.Delete("demo-e-1", "")
		return errors.Is(err, ErrNotFound)
	})
}

// TestSlowWatcher is cut off; the others see everything.
func TestSlowWatcher(t *testing.T) {
	m := newManager(t, nil)
	slow, quick := m.Watch(), m.Watch()
	defer quick.Cancel()
	var seen int
	for i := 0; i*2 <= subscriberBuffer; i++ {
		// Each round is three changes: starting, error, deleted.
		if _, err := m.Create(Spec{Name: "x-r-1", Binary: "/missing"}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Delete("x-r-1", ""); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			next(t, quick)
			seen++
		}
	}
	select {
	case <-slow.Slow:
	default:
		t.Fatalf("not cut off after %d changes", seen)
	}
	select {
	case <-quick.Slow:
		t.Fatal("the quick one was cut off too")
	default:
	}
	slow.Cancel() // harmless
}

// TestCycles: 200 create and delete cycles, in parallel and one after the other, leave no port,
// descriptor, goroutine or thread behind.
func TestCycles(t *testing.T) {
	lack.RealTime(t, "goroutines and descriptors are counted")
	m := newManager(t, nil)
	cycle := func(name string) {
		if _, err := m.Create(spec(t, name, instancetest.Serve, 2)); err != nil {
			t.Error(err)
			return
		}
		await(t, m, name, Running)
		if _, err := m.Delete(name, ""); err != nil {
			t.Error(err)
		}
		awaitGone(t, m, name)
	}
	cycle("warm-r-up")
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := range 50 {
				cycle(fmt.Sprintf("v%d-r-%d", w, i))
			}
		})
	}
	workers.Wait()
	if m.ports.inUse != 0 || len(m.all) != 0 || len(m.logs.open) != 0 {
		t.Errorf("left: %d ports, %d processes, %d logs", m.ports.inUse, len(m.all), len(m.logs.open))
	}
	wait.Until(t, "goroutines and descriptors are back at what they were", func() bool {
		return runtime.NumGoroutine() <= goroutines && openFiles(t) <= files
	})
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestConcurrentUse throws creates, deletes and replacements of few names at each other; nothing is
// left behind.
func TestConcurrentUse(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other")
	if out, err := exec.Command("cp", instancetest.Binary(t), other).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m := newManager(t, func(c *Config) { c.Ports = PortRange{10000, 10007} })
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := range 12 {
				s := spec(t, fmt.Sprintf("v-r-%d", (w+i)%3), instancetest.Serve, 2)
				var err error
				switch (w + i) % 4 {
				case 0, 1:
					_, err = m.Create(s)
				case 2:
					s.Binary = other
					_, err = m.Replace(context.Background(), s, "SIGHUP")
				case 3:
					_, err = m.Delete(s.Name, "")
				}
				if err != nil && !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotFound) &&
					!errors.Is(err, ErrNoPorts) && !errors.Is(err, ErrNotReady) {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	list, _ := m.List()
	for _, p := range list {
		if _, err := m.Delete(p.Spec.Name, p.UUID); err != nil {
			t.Error(err)
		}
	}
	wait.Until(t, "no port is taken", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.ports.inUse == 0 && len(m.all) == 0
	})
}

// TestGone: who keeps something for the successor of a process is told when there will be none,
// once, after the process has ended.
func TestGone(t *testing.T) {
	gone := make(chan string, 10)
	m := newManager(t, func(c *Config) { c.Gone = func(name string) { gone <- name } })
	for name, mode := range map[string]string{"followed-e-0": instancetest.Serve, "last-e-0": instancetest.Serve,
		"ended-e-0": instancetest.Exit} {
		ports := 1
		if mode == instancetest.Exit {
			ports = 0
		}
		if _, err := m.Create(spec(t, name, mode, ports)); err != nil {
			t.Fatal(err)
		}
		await(t, m, name, Running, Stopped)
	}
	await(t, m, "ended-e-0", Stopped)
	if _, err := m.Delete("followed-e-0", ""); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, m, "followed-e-0")
	for _, name := range []string{"last-e-0", "ended-e-0"} {
		if p, err := m.DeleteLast(name, ""); err != nil {
			t.Fatal(err)
		} else if p.Deleted == (name == "last-e-0") {
			t.Errorf("%s: %+v", name, p)
		}
		awaitGone(t, m, name)
		if got := <-gone; got != name {
			t.Errorf("%s is gone, not %s", got, name)
		}
	}
	if len(gone) > 0 {
		t.Errorf("%s is gone too", <-gone)
	}
}

// TestGoneOfOneNotListed: a process that has ended and left the list may have left something for
// the next one, which does not come after all. An order for what is kept alone ends no process of
// that name that has come meanwhile, and takes nothing from it.
func TestGoneOfOneNotListed(t *testing.T) {
	gone := make(chan string, 10)
	m := newManager(t, func(c *Config) { c.Gone = func(name string) { gone <- name } })
	if _, err := m.DeleteLast("left-e-0", "none"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := m.DeleteLast("../left-e-0", "none"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := m.Create(spec(t, "present-e-0", instancetest.Serve, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "present-e-0", Running)
	if _, err := m.DeleteLast("present-e-0", "none"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if p, err := m.Get("present-e-0"); err != nil || p.State != Running {
		t.Errorf("%+v, %v", p, err)
	}
	var names []string
	for len(gone) > 0 {
		names = append(names, <-gone)
	}
	if !slices.Equal(names, []string{"left-e-0"}) {
		t.Errorf("gone: %q", names)
	}
}
