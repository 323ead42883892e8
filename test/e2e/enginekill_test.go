package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
	"ankole.storage/test/wait"
)

const (
	// f3Rounds is how often the engine is killed in each run of the tests; the slow ones do it more
	// often, see TestF3Rounds.
	f3Rounds = 3
	f3Size   = 128 * mib
	// slowPause is how long a pause must be for the longest one to be explained by what was logged
	// meanwhile.
	slowPause = time.Second
)

// scenarioF3: the engine process is killed under a file system with a verifying load. The device
// stays, nobody sees an error, I/O goes on with the next engine, and nothing acknowledged is lost.
func scenarioF3(t *testing.T, c *cluster) {
	pauses := c.killUnderLoad(t, "f3", "node-2", f3Rounds, c.killEngine)
	t.Logf("engine killed %d times: %s", f3Rounds, distribution(pauses))
}

func (c *cluster) killEngine(volume string) { c.kill("--engine-instance-name\x00" + volume + "-e-0") }

// TestF3Rounds is F3 again and again, on four volumes at once (give it -parallel 4),
// ANKOLE_F3_ROUNDS times in all.
func TestF3Rounds(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("ANKOLE_F3_ROUNDS"))
	if err != nil {
		lack.Later(t, "takes some minutes; set ANKOLE_F3_ROUNDS to the number of rounds, as the slow tests do")
	}
	const volumes = 4
	c := start(t)
	var mu sync.Mutex
	var all []time.Duration
	t.Run("volumes", func(t *testing.T) {
		for i := range volumes {
			t.Run(fmt.Sprintf("f3-%d", i), func(t *testing.T) {
				t.Parallel()
				own := *c
				own.t = t
				pauses := own.killUnderLoad(t, fmt.Sprintf("f3-%d", i), fmt.Sprintf("node-%d", 1+i%3), (rounds+i)/volumes,
					own.killEngine)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, pauses...)
			})
		}
	})
	t.Logf("engines killed %d times under file systems: %s", len(all), distribution(all))
}

// distribution describes pauses.
func distribution(pauses []time.Duration) string {
	if len(pauses) == 0 {
		return "no pauses"
	}
	s := slices.Sorted(slices.Values(pauses))
	at := func(percent int) time.Duration { return s[(len(s)-1)*percent/100].Round(time.Millisecond) }
	return fmt.Sprintf("I/O paused for %v at least, %v median, %v 90th percentile, %v 99th, %v at most", at(0), at(50),
		at(90), at(99), at(100))
}

// killUnderLoad makes a file system on a new volume attached to the node, and kills what the
// volume's engine cannot go on without again and again while fio writes and verifies and a prober
// notes how long its writes take. It returns the longest write of each round.
func (c *cluster) killUnderLoad(t *testing.T, volume, node string, rounds int,
	kill func(volume string)) (pauses []time.Duration) {
	c.create(volume, f3Size, 3)
	endpoint := c.attach(volume, node, 3)
	defer c.remove(volume)
	began := time.Now()
	defer func() {
		if t.Failed() {
			t.Log(c.trace(volume, began))
		}
	}()
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		lack.Skip(t, "only a block device outlives its engine, and this host offers none: the endpoint is ", endpoint)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", endpoint).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4 %s: %v: %s", endpoint, err, out)
	}
	at := filepath.Join(c.Info.Dir, "mnt-"+volume)
	unmount := mountDevice(t, endpoint, at)
	p := startProber(t, filepath.Join(at, "probe"))
	src := seeded.New(t, "F3: an engine that is killed costs a file system a pause and no error")
	src.Fresh()
	rng := src.Rand(uint64(len(volume)))
	longest := ""
	for round := range rounds {
		verified := verify(t, filepath.Join(at, "data"))
		p.await(t, 20+rng.IntN(100))
		p.takeLongest()
		before := c.engine(volume).Status.UUID
		killed := time.Now()
		kill(volume)
		p.await(t, 5)
		c.eventually("the control plane knows the next engine", func(context.Context) error {
			if s := c.engine(volume).Status; s.UUID == before || s.CurrentState != longhorn.InstanceStateRunning {
				return fmt.Errorf("engine is %s", s.CurrentState)
			}
			return nil
		})
		if err := <-verified; err != nil {
			t.Fatalf("round %d: %v", round+1, err)
		}
		pause := p.takeLongest()
		if pause > slowPause && (len(pauses) == 0 || pause > slices.Max(pauses)) {
			longest = fmt.Sprintf("round %d: I/O paused for %v:\n%s", round+1, pause, c.trace(volume, killed))
		}
		pauses = append(pauses, pause)
	}
	if longest != "" {
		t.Log(longest)
	}
	acknowledged := p.stop(t)
	unmount()
	c.awaitUsable(volume, node, 3)
	c.detach(volume)
	c.identical(volume, 3)
	other := map[string]string{"node-1": "node-2", "node-2": "node-3", "node-3": "node-1"}[node]
	endpoint = c.attach(volume, other, 3)
	if out, err := exec.Command("e2fsck", "-fn", endpoint).CombinedOutput(); err != nil {
		t.Errorf("e2fsck %s: %v: %s", endpoint, err, out)
	}
	unmount = mountDevice(t, endpoint, at)
	p.check(t, acknowledged)
	unmount()
	c.detach(volume)
	return pauses
}

func (c *cluster) engine(volume string) *longhorn.Engine {
	c.t.Helper()
	var e longhorn.Engine
	if err := c.kube.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: volume + "-e-0"},
		&e); err != nil {
		c.t.Fatal(err)
	}
	return &e
}

// mountDevice mounts an ext4; the function it returns takes it off, and so does the end of the
// test.
func mountDevice(t *testing.T, device, at string) (unmount func()) {
	t.Helper()
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(device, at, "ext4", 0, ""); err != nil {
		t.Fatalf("mount %s: %v", device, err)
	}
	mounted := true
	t.Cleanup(func() {
		if mounted {
			_ = unix.Unmount(at, unix.MNT_DETACH) // the test has failed already
		}
	})
	return func() {
		t.Helper()
		mounted = false
		if err := powerdisk.Unmount(at); err != nil {
			_ = unix.Unmount(at, unix.MNT_DETACH)
			t.Error(err)
		}
	}
}

// verify has fio write a file, a few seconds long, and read it back; without fio nothing is
// verified but the prober's writes.
func verify(t *testing.T, file string) <-chan error {
	ended := make(chan error, 1)
	fio, err := exec.LookPath("fio")
	if err != nil {
		lack.Less(t, "there is no fio here; only the prober writes")
		ended <- nil
		return ended
	}
	cmd := exec.CommandContext(t.Context(), fio, "--name=f3", "--filename="+file, "--size=24M", "--rw=randwrite",
		"--bsrange=4k-64k", "--direct=1",
		"--ioengine=libaio", "--iodepth=16", "--rate=,8M", "--verify=crc32c", "--verify_fatal=1",
		"--verify_state_save=0", "--fsync=64", "--thread=0")
	go func() {
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("fio: %w\n%s", err, out)
		}
		ended <- err
	}()
	return ended
}

// prober writes pages to a file, each durable before the next, and notes how long each takes.
type prober struct {
	path string
	file *os.File
	work sync.WaitGroup
	end  chan struct{}

	mu      sync.Mutex
	changed *sync.Cond
	writes  uint64
	longest time.Duration
	began   time.Time // of the write under way
	err     error
}

// proberPages is how many pages are written in turn.
const proberPages = 64

const proberPage = 4096

func startProber(t *testing.T, path string) *prober {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_DIRECT|unix.O_DSYNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p := &prober{path: path, file: f, end: make(chan struct{})}
	p.changed = sync.NewCond(&p.mu)
	// Anonymous memory is aligned to pages, which direct I/O wants.
	page, err := unix.Mmap(-1, 0, proberPage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	p.work.Go(func() {
		defer func() { _ = unix.Munmap(page) }() // it is ours
		p.run(page)
	})
	return p
}

func (p *prober) run(page []byte) {
	for n := uint64(1); ; n++ {
		select {
		case <-p.end:
			return
		default:
		}
		fillPage(page, n)
		p.mu.Lock()
		p.began = time.Now()
		p.mu.Unlock()
		_, err := p.file.WriteAt(page, int64(n%proberPages)*proberPage)
		p.mu.Lock()
		p.longest = max(p.longest, time.Since(p.began))
		if err != nil {
			p.err = err
		} else {
			p.writes = n
		}
		p.changed.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// fillPage fills a page with its number.
func fillPage(page []byte, n uint64) {
	for i := 0; i < len(page); i += 8 {
		binary.LittleEndian.PutUint64(page[i:], n)
	}
}

var errLate = errors.New("the writes do not go on")

// await waits for more writes.
func (p *prober) await(t *testing.T, more int) {
	t.Helper()
	late := time.AfterFunc(longest, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err == nil {
			p.err = errLate
		}
		p.changed.Broadcast()
	})
	defer late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for goal := p.writes + uint64(more); p.writes < goal && p.err == nil; {
		p.changed.Wait()
	}
	if errors.Is(p.err, errLate) {
		wait.RanOut(t, p.err.Error())
		t.Fatal(p.err)
	}
	if p.err != nil {
		rig.Final(t, fmt.Errorf("the prober: %w", p.err))
	}
}

// takeLongest returns the longest write since it was called last.
func (p *prober) takeLongest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest := p.longest
	p.longest = 0
	return longest
}

// stop ends the prober and returns how many writes were acknowledged.
func (p *prober) stop(t *testing.T) uint64 {
	t.Helper()
	close(p.end)
	p.work.Wait()
	if err := errors.Join(p.err, p.file.Close()); err != nil {
		t.Fatalf("the prober: %v", err)
	}
	return p.writes
}

// check reads the pages back.
func (p *prober) check(t *testing.T, acknowledged uint64) {
	t.Helper()
	got, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, proberPage)
	for n := acknowledged; n > 0 && n > acknowledged-min(acknowledged, proberPages); n-- {
		fillPage(want, n)
		off := int(n%proberPages) * proberPage
		if len(got) < off+proberPage || !bytes.Equal(got[off:off+proberPage], want) {
			t.Errorf("write %d of %d was acknowledged and is lost", n, acknowledged)
			return
		}
	}
}

// trace is what instance managers, engine and managers have logged about the volume since a moment:
// what a pause was spent on.
func (c *cluster) trace(volume string, since time.Time) string {
	var lines []string
	_ = filepath.WalkDir(c.Info.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".log") {
			return nil // what is gone says nothing
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for line := range strings.Lines(string(text[max(0, len(text)-256<<10):])) {
			_, stamp, ok := strings.Cut(line, "time=")
			// Instance managers repeat what instances have logged.
			if !ok || strings.Contains(line, "stdout F [") ||
				!strings.Contains(line, volume) && !strings.Contains(path, volume+"-e-0") {
				continue
			}
			stamp, _, _ = strings.Cut(stamp, " ")
			if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil &&
				at.After(since.Add(-100*time.Millisecond)) {
				lines = append(lines, fmt.Sprintf("%+7.3f s %s: %.300s", at.Sub(since).Seconds(), filepath.Base(path),
					strings.TrimSpace(line)))
			}
		}
		return nil
	})
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}
