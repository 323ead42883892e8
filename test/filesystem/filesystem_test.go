package filesystem

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
)

const mib = 1 << 20

// deep adds what takes minutes.
var deep = flag.Bool("deep", false, "every file system, more faults, and fio")

// fileSystem is a kind of file system.
type fileSystem struct {
	name string
	size int64 // of the volume
	make []string
	// check finds mistakes in an unmounted one without changing it.
	check []string
}

var fileSystems = []fileSystem{
	{"ext4", 128 * mib, []string{"mkfs.ext4", "-q", "-F"}, []string{"e2fsck", "-f", "-n"}},
	{"xfs", 320 * mib, []string{"mkfs.xfs", "-q", "-f"}, []string{"xfs_repair", "-n"}}, // XFS refuses less than 300 MiB
}

// mounted is a volume with a file system in use.
type mounted struct {
	*rig.Volume
	t   *testing.T
	fs  fileSystem
	dir string
}

// mount makes a volume with n replicas and a file system, or skips where that one is not known.
func mount(t *testing.T, fs fileSystem, n int, engineFlags ...string) *mounted {
	t.Helper()
	needDevices(t)
	if _, err := exec.LookPath(fs.make[0]); err != nil {
		lack.Skip(t, err)
	}
	v, err := rig.Open(t, rig.Config{Replicas: n, Size: fs.size, Transport: "fuse-loop", EngineFlags: engineFlags})
	if err != nil {
		t.Fatal(err)
	}
	m := &mounted{Volume: v, t: t, fs: fs}
	m.StartEngine()
	m.command(append(fs.make, m.device())...)
	if m.dir, err = os.MkdirTemp(filepath.Join(run.Dir(), "mnt"), "v-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(m.dir, unix.MNT_DETACH) }) // where a failure left it
	m.remount()
	return m
}

// device is the volume's block device.
func (m *mounted) device() string { return filepath.Join(m.EngineHosts[0].Dir, "dev", m.Name) }

func (m *mounted) remount() {
	m.t.Helper()
	if err := unix.Mount(m.device(), m.dir, m.fs.name, 0, ""); err != nil {
		m.t.Fatalf("mount %s, %s: %v", m.device(), m.fs.name, err)
	}
}

func (m *mounted) command(args ...string) {
	m.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// end unmounts and checks the file system, stops everything, and compares the replicas.
func (m *mounted) end() {
	m.t.Helper()
	if err := powerdisk.Unmount(m.dir); err != nil {
		m.t.Fatal(err)
	}
	m.command(append(m.fs.check, m.device())...)
	m.StopEngine()
	var dirs []string
	for _, r := range m.Replicas {
		r.Stop()
		dirs = append(dirs, r.Dir)
	}
	rig.Identical(m.t, dirs...)
}

// lose kills a replica, waits until it is dropped, goes on for a while, and brings it back.
func (m *mounted) lose(i int, meanwhile func()) {
	m.t.Helper()
	all := len(m.Replicas)
	m.Replicas[i].Kill()
	m.Await("degraded", func(s *enginev1.State) bool { return rig.Modes(s)[enginev1.Mode_MODE_RW] == all-1 })
	meanwhile()
	m.Replicas[i].Start()
	m.Rebuild(m.Replicas[i])
}

func (m *mounted) snapshot(name string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := m.Control().SnapshotCreate(ctx,
		&enginev1.SnapshotCreateRequest{Name: name, UserCreated: true}); err != nil {
		m.t.Fatal(err)
	}
}

func each(t *testing.T, f func(t *testing.T, fs fileSystem)) {
	for i, fs := range fileSystems {
		t.Run(fs.name, func(t *testing.T) {
			if i > 0 && !*deep {
				lack.Later(t, "one file system is enough here; run with -deep for all")
			}
			f(t, fs)
		})
	}
}

// rounds is how many times a fault is repeated.
func rounds() int {
	if *deep {
		return 4
	}
	return 1
}

// TestEveryKindOfAccessUnderFaults exercises files in every way while replicas are lost and rebuilt
// and snapshots taken.
func TestEveryKindOfAccessUnderFaults(t *testing.T) {
	each(t, func(t *testing.T, fs fileSystem) {
		m := mount(t, fs, 3)
		seed := seeded.Key(t)
		if s, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
			seed = s
		}
		t.Logf("SEED=%d", seed)
		c := start(t, "exercise", m.dir, seed)
		c.awaitTotal(200)
		for i := range rounds() {
			m.lose(i%3, func() { m.snapshot(fmt.Sprintf("s%d", i)); c.awaitTotal(200) })
			c.awaitTotal(200)
		}
		c.finish()
		m.end()
		total, _, _ := c.heard()
		t.Logf("%d operations on %d files, %d replicas lost and rebuilt", total, files, rounds())
	})
}

// rebuildStale adds replicas again that the engine dropped when it was killed a moment after them.
func (m *mounted) rebuildStale() {
	m.t.Helper()
	s, err := m.State()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, r := range m.Replicas {
		if r.Mode(s) != enginev1.Mode_MODE_RW {
			r.Kill()
			r.Start() // as one that comes back, at another address
			m.Rebuild(r)
		}
	}
}

// TestSyncedFilesSurviveTheEndOfEverything kills engine and replicas at once while files are
// written and synced: those that were are there when the volume is started again, and the file
// system recovers.
func TestSyncedFilesSurviveTheEndOfEverything(t *testing.T) {
	each(t, func(t *testing.T, fs fileSystem) {
		m := mount(t, fs, 2)
		known := 0
		for i := range rounds() {
			dir := filepath.Join(m.dir, fmt.Sprint(i))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			c := start(t, "sync", dir, 0)
			c.await(func() bool { _, last, _ := c.heard(); return last >= 25 })
			m.KillAll()
			<-c.done
			_, last, _ := c.heard()
			if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			for _, r := range m.Replicas {
				r.Start()
			}
			m.StartEngine()
			m.rebuildStale()
			m.remount()
			for k := range last + 1 {
				got, err := os.ReadFile(filepath.Join(dir, numbered(k)))
				if err != nil || !bytes.Equal(got, content(k)) {
					t.Fatalf("file %d of %d that were synced: %d bytes, %v", k, last+1, len(got), err)
				}
			}
			known += last + 1
		}
		t.Logf("%d synced files found after %d ends of everything", known, rounds())
		m.end()
	})
}
