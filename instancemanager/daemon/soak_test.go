package daemon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/client"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// usageVariable names the file into which the instance manager under test writes what it uses, at
// SIGUSR1.
const usageVariable = "ANKOLE_TEST_USAGE"

// usage is what an instance manager uses.
type usage struct {
	HeapBytes  uint64
	Goroutines int
	// The others are read from /proc.
	rssKB, files, threads int
}

func (u usage) String() string {
	return fmt.Sprintf("%5d kB heap, %6d kB resident, %3d goroutines, %3d descriptors, %2d threads", u.HeapBytes>>10,
		u.rssKB, u.Goroutines, u.files, u.threads)
}

// reportUsage runs in the instance manager.
func reportUsage() {
	path := os.Getenv(usageVariable)
	if path == "" {
		return
	}
	os.Unsetenv(usageVariable)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for range asked {
			debug.FreeOSMemory()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			text, err := json.Marshal(usage{HeapBytes: m.HeapAlloc, Goroutines: runtime.NumGoroutine()})
			if err == nil && os.WriteFile(path+".new", text, 0o600) == nil {
				_ = os.Rename(path+".new", path) // the test notices
			}
		}
	}()
}

// usage asks the instance manager.
func (p *program) usage(t *testing.T, path string) (u usage) {
	t.Helper()
	_ = os.Remove(path) // the first time there is none
	if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the instance manager tells what it uses", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(text, &u) == nil
	})
	proc := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			n, _ := strconv.Atoi(fields[1]) // 0 shows
			switch fields[0] {
			case "VmRSS:":
				u.rssKB = n
			case "Threads:":
				u.threads = n
			}
		}
	}
	files, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	u.files = len(files)
	return u
}

// soakCycles is how many processes are created and deleted; the slow tests set the variable.
func soakCycles(t *testing.T) int {
	if text := os.Getenv("ANKOLE_SOAK"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 50 {
			t.Fatalf("ANKOLE_SOAK=%q is no number from 50 on", text)
		}
		return n
	}
	return 100
}

// TestSoak creates and deletes processes of every fate, four at a time, in a range of ports that a
// single lost run would exhaust: memory, goroutines, descriptors, threads and files stay where they
// were after the first of them.
func TestSoak(t *testing.T) {
	lack.RealTime(t, "memory and descriptors are measured")
	dir := t.TempDir()
	path, logs := filepath.Join(dir, "usage"), filepath.Join(dir, "logs")
	p := launchWith(t, []string{"--logs-dir", logs, "--port-range", "10000-10049"}, usageVariable+"="+path)
	const workers, ports = 4, 5
	begun := 0
	cycles := func(n int) {
		var work sync.WaitGroup
		for w := range workers {
			work.Go(func() {
				for i := begun + w; i < begun+n; i += workers {
					p.cycle(t, i, ports)
				}
			})
		}
		work.Wait()
		begun += n
	}
	n := soakCycles(t)
	cycles(49)
	first := p.usage(t, path)
	t.Logf("after %4d: %s", begun, first)
	var last usage
	for range 4 {
		cycles(n / 4)
		last = p.usage(t, path)
		t.Logf("after %4d: %s", begun, last)
	}
	// Processes that were replaced end in their own time, and it takes two collections until
	// buffers in pools are free.
	wait.Until(t, "no process is left", func() bool { return len(p.instances(t)) == 0 })
	wait.Until(t, fmt.Sprintf("goroutines, descriptors and threads are what they were: %s", first),
		func() bool {
			last = p.usage(t, path)
			return last.Goroutines <= first.Goroutines+2 && last.files <= first.files+2 && last.threads <= first.threads+4
		})
	// 1 MiB is 1 kB for each of 1000; what is kept of a process alone is more than that.
	wait.Until(t, fmt.Sprintf("memory is what it was: %s", first), func() bool {
		last = p.usage(t, path)
		return last.HeapBytes <= first.HeapBytes+1<<20 && last.rssKB <= first.rssKB+32<<10
	})
	t.Logf("at the end: %s", last)
	files, err := os.ReadDir(logs)
	if err != nil || len(files) > 1000+workers {
		t.Errorf("%d log files, %v", len(files), err)
	}
	list, err := p.client.ProcessList(t.Context())
	if err != nil || len(list) != 0 {
		t.Errorf("left: %v %v", list, err)
	}
	wait.Until(t, "all ports are free", func() bool {
		_, err := p.client.ProcessCreate(t.Context(),
			&imrpc.ProcessSpec{Name: "all-ports", Binary: "/engine-binaries/missing/longhorn", PortCount: 50})
		if err != nil && !errors.Is(err, client.ErrExhausted) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// cycle is the life of one process, of the fate that its number gives it.
func (p *program) cycle(t *testing.T, i, ports int) {
	name := fmt.Sprintf("soak-r-%d", i)
	mode, args := instancetest.Serve, []string(nil)
	switch i % 7 {
	case 0:
		mode, args = instancetest.Exit, []string{"--status", "1"}
	case 1:
		mode = instancetest.Parent
	case 5:
		mode = instancetest.Stray
	}
	s := p.spec(t, name, mode, "0.0.0.0", ports, args...)
	if i%7 == 2 {
		s.Binary = "/engine-binaries/missing/longhorn"
	}
	if _, err := p.client.ProcessCreate(t.Context(), s); err != nil {
		t.Error(err)
		return
	}
	// Those of number 3 are deleted at once.
	if i%7 != 3 {
		wait.Until(t, name+" has started", func() bool {
			r, err := p.client.ProcessGet(t.Context(), name)
			return err != nil || r.GetStatus().GetState() != "starting"
		})
	}
	if i%7 == 4 {
		s.Binary = instancetest.NextEngine
		if _, err := p.client.ProcessReplace(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	if _, err := p.client.ProcessDelete(t.Context(), name, ""); err != nil {
		t.Error(err)
	}
	wait.Until(t, name+" is gone", func() bool {
		_, err := p.client.ProcessGet(t.Context(), name)
		return errors.Is(err, client.ErrNotFound)
	})
}
