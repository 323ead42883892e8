package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/backup"
	"ankole.storage/backup/budget"
	"ankole.storage/backup/format"
	"ankole.storage/backup/target"
	"ankole.storage/backup/worker"
)

// nodeFolder names the environment variable that stands for budget.FolderInPod in workers of tests;
// without it they are in no Pod.
const nodeFolder = "ANKOLE_TEST_NODE_FOLDER"

// inPod resolves paths for a worker of a test.
func inPod(path string) string {
	if path == budget.FolderInPod {
		return os.Getenv(nodeFolder)
	}
	return path
}

// TestMain plays the worker where a test has started it as one.
func TestMain(m *testing.M) {
	if os.Getenv("ANKOLE_TEST_WORKER") == "" {
		if err := os.Setenv("ANKOLE_TEST_WORKER", "1"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	if err := Main(context.Background(), inPod); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const volumeBytes = 8 << 20

// memory is a volume in memory, with snapshots of which each is all of it.
type memory struct {
	mu      sync.Mutex
	data    []byte
	changed map[string][]backup.Extent
	read    int64
	fails   error
	// waits is closed when a read has begun, which waits until its context ends.
	waits chan struct{}
	// reads is called before the first read.
	reads func()
}

func newMemory() *memory {
	m := &memory{data: make([]byte, volumeBytes),
		changed: map[string][]backup.Extent{"": {{Offset: 0, Length: volumeBytes}}}}
	for i := range m.data {
		m.data[i] = byte(i ^ i>>8 ^ i>>16 ^ i>>21*37)
	}
	return m
}

// Changed implements Volume.
func (m *memory) Changed(_ context.Context, since backup.Base, offset int64) ([]backup.Extent, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, ok := m.changed[since.Snapshot]
	if !ok {
		return nil, 0, backup.ErrNoBase
	}
	i := slices.IndexFunc(all, func(e backup.Extent) bool { return e.Offset >= offset })
	if i < 0 {
		return nil, -1, nil
	}
	if i == len(all)-1 {
		return all[i:], -1, nil
	}
	return all[i : i+1], all[i+1].Offset, nil // a page of one
}

// ReadAt implements worker.Volume.
func (m *memory) ReadAt(ctx context.Context, p []byte, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waits != nil {
		close(m.waits)
		m.waits = nil
		<-ctx.Done()
		return ctx.Err()
	}
	if m.reads != nil {
		m.reads()
		m.reads = nil
	}
	m.read += int64(copy(p, m.data[offset:]))
	return m.fails
}

// WriteAt implements Volume.
func (m *memory) WriteAt(_ context.Context, p []byte, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(m.data[offset:], p)
	return m.fails
}

// ZeroAt implements Volume.
func (m *memory) ZeroAt(_ context.Context, offset, length int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.data[offset : offset+length])
	return m.fails
}

// job is one for the store in a directory, or at a URL with the credentials of the environment.
func job(place string, v worker.Volume) worker.Job {
	if !strings.Contains(place, "://") {
		place = "vfs://" + place
	}
	return worker.Job{Command: []string{"/proc/self/exe"}, Volume: v,
		Order: worker.Order{Target: place, Credentials: target.Environ(os.Environ())}}
}

func create(t *testing.T, dir string, v *memory, name, snapshot string) ([]byte, error) {
	t.Helper()
	return worker.Run(t.Context(), creating(dir, v, name, snapshot))
}

func creating(dir string, v *memory, name, snapshot string) worker.Job {
	j := job(dir, v)
	j.Order.Do, j.Order.SizeBytes = worker.Create, volumeBytes
	j.Order.Create = backup.CreateOptions{Volume: "vol", Backup: name, Snapshot: snapshot,
		SnapshotCreated: time.Unix(1e9, 0)}
	return j
}

func restore(t *testing.T, dir, name string, report func(context.Context, worker.Report) error) (*memory, error) {
	t.Helper()
	m := &memory{data: make([]byte, volumeBytes)}
	j := job(dir, m)
	j.Report, j.Order.Do = report, worker.Restore
	j.Order.Restore = backup.RestoreOptions{Volume: "vol", Backup: name}
	_, err := worker.Run(t.Context(), j)
	return m, err
}

// A worker process backs up, backs up what has changed and restores, and tells how far it is.
func TestWorker(t *testing.T) {
	t.Parallel()
	dir, v := t.TempDir(), newMemory()
	if _, err := create(t, dir, v, "first", "s1"); err != nil {
		t.Fatal(err)
	}
	if v.read != volumeBytes {
		t.Errorf("%d bytes were read of %d", v.read, volumeBytes)
	}
	first := bytes.Clone(v.data)
	v.data[5<<20] ^= 1
	v.read, v.changed["s1"] = 0, []backup.Extent{{Offset: 5 << 20, Length: 4096}, {Offset: 5<<20 + 8192, Length: 4096}}
	result, err := create(t, dir, v, "second", "s2")
	if err != nil || v.read != format.DefaultBlockBytes {
		t.Fatalf("%d bytes were read: %v", v.read, err)
	}
	var made worker.Created
	if err := json.Unmarshal(result, &made); err != nil || !made.Incremental {
		t.Errorf("%s: %v", result, err)
	}
	for name, want := range map[string][]byte{"first": first, "second": v.data} {
		var last worker.Report
		got, err := restore(t, dir, name, func(_ context.Context, r worker.Report) error { last = r; return nil })
		if err != nil || !bytes.Equal(got.data, want) {
			t.Errorf("%s is restored otherwise, or not: %v", name, err)
		}
		if !last.Begun || last.Restoring.SizeBytes != volumeBytes {
			t.Errorf("told at last: %+v", last)
		}
	}
}

// What a worker says keeps its meaning.
func TestErrorsOfAWorker(t *testing.T) {
	t.Parallel()
	dir, v := t.TempDir(), newMemory()
	if _, err := create(t, dir, v, "first", "s1"); err != nil {
		t.Fatal(err)
	}
	if _, err := create(t, dir, v, "first", "s2"); !errors.Is(err, backup.ErrExists) {
		t.Errorf("another one of the name: %v", err)
	}
	if _, err := restore(t, dir, "none", nil); !errors.Is(err, backup.ErrNotFound) ||
		!strings.Contains(err.Error(), "cannot find") {
		t.Errorf("one that is not there: %v", err)
	}
	refusal := errors.New("the volume is not empty")
	_, err := restore(t, dir, "first", func(context.Context, worker.Report) error { return refusal })
	if !errors.Is(err, refusal) {
		t.Errorf("refused: %v", err)
	}
	v.fails = errors.New("the disk is broken")
	if _, err := create(t, dir, v, "third", "s3"); err == nil || !strings.Contains(err.Error(), "the disk is broken") {
		t.Errorf("reading fails: %v", err)
	}
	blocks, err := filepath.Glob(filepath.Join(dir, "backupstore/volumes/*/*/vol/blocks/*/*/*.blk"))
	if err != nil || len(blocks) != 4 {
		t.Fatal(blocks, err)
	}
	if err := os.Truncate(blocks[1], 100); err != nil {
		t.Fatal(err)
	}
	var d *backup.DamageError
	if _, err := restore(t, dir, "first", nil); !errors.As(err, &d) || len(d.Damage) != 1 || d.Damage[0].Missing {
		t.Errorf("a block is damaged: %v", err)
	}
	j := job(filepath.Join(dir, "nowhere"), v)
	j.Order.Do = worker.List
	if _, err := worker.Run(t.Context(), j); err == nil || !strings.Contains(err.Error(), "mount its file system") {
		t.Errorf("no directory: %v", err)
	}
	j.Command = []string{"/bin/false"}
	if _, err := worker.Run(t.Context(), j); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("a worker that dies: %v", err)
	}
}

// A volume that does not answer holds nobody who ends the work.
func TestWorkerIsEnded(t *testing.T) {
	t.Parallel()
	dir, v := t.TempDir(), newMemory()
	waits := make(chan struct{})
	v.waits = waits
	j := job(dir, v)
	j.Order.Do, j.Order.SizeBytes = worker.Create, volumeBytes
	j.Order.Create = backup.CreateOptions{Volume: "vol", Backup: "first", Snapshot: "s1"}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-waits
		cancel()
	}()
	if _, err := worker.Run(ctx, j); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestBrowse(t *testing.T) {
	t.Parallel()
	dir, v := t.TempDir(), newMemory()
	if _, err := create(t, dir, v, "first", "s1"); err != nil {
		t.Fatal(err)
	}
	do := func(o worker.Order) string {
		t.Helper()
		o.Target = "vfs://" + dir
		j := job(dir, nil)
		j.Order = o
		out, err := worker.Run(t.Context(), j)
		if err != nil {
			return err.Error()
		}
		return string(out)
	}
	for _, c := range []struct {
		order worker.Order
		says  []string
	}{
		{worker.Order{Do: worker.List}, []string{`{"vol":{"Name":"","Size":"0"`, `"Backups":{"first":{"Name":"","URL":""`}},
		{worker.Order{Do: worker.List, Volume: "vol"}, []string{`"first"`}},
		{worker.Order{Do: worker.List, VolumeOnly: true}, []string{`"Messages":{},"BackingImageName"`}},
		{worker.Order{Do: worker.List, Volume: "none"}, []string{`"error":"cannot find backupstore/volumes/`}},
		{worker.Order{Do: worker.List, Volume: "../x"}, []string{"name"}},
		{worker.Order{Do: worker.Inspect, Volume: "vol", Backup: "first"}, []string{`"Name":"first","URL":"vfs://` + dir +
			`?backup=first\u0026volume=vol","SnapshotName":"s1"`, `"Size":"8388608"`, `"VolumeSize":"8388608"`,
			`"backup-block-size":"2097152"`, `"CompressionMethod":"lz4"`, `"IsIncremental":false`}},
		{worker.Order{Do: worker.InspectOf, Volume: "vol"}, []string{`"Name":"vol","Size":"8388608"`, `"LastBackupName":"first"`,
			`"DataStored":"8388608"`, `"DataEngine":"v1"`, `"StorageClassname":""`}},
		{worker.Order{Do: worker.Head, Volume: "vol", Backup: "first"}, []string{`{"ModificationTime":"20`}},
		{worker.Order{Do: worker.Head, Volume: "vol", Backup: "none"}, []string{"cannot find"}},
		{worker.Order{Do: worker.Inspect, Volume: "vol", Backup: "none"}, []string{"cannot find backup none"}},
		{worker.Order{Do: "dance"}, []string{"does not know"}},
		{worker.Order{Do: worker.Delete, Volume: "vol", Backup: "first"}, []string{"4"}},
		{worker.Order{Do: worker.Delete, Volume: "vol", Backup: "first"}, []string{"deleting backup first", "cannot find "}},
		{worker.Order{Do: worker.DeleteVolume, Volume: "vol"}, []string{"null"}},
		{worker.Order{Do: worker.List}, []string{"{}"}},
	} {
		out := do(c.order)
		for _, s := range c.says {
			if !strings.Contains(out, s) {
				t.Errorf("%+v: %s\nwant %s", c.order, out, s)
			}
		}
	}
}

// hanging makes the record of the volume a pipe that nobody writes to: who opens it waits.
func hanging(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(dir, format.VolumeRecord("vol"))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A store that does not answer costs its worker, and if that cannot be ended no second one.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hanging(t, dir)
	inspect := job(dir, nil)
	inspect.Order.Do, inspect.Order.Volume, inspect.Order.GiveUp = worker.InspectOf, "vol", 2*time.Second
	if _, err := worker.Run(t.Context(), inspect); !errors.Is(err, worker.ErrGivenUp) {
		t.Fatal(err)
	}
	list := listing(dir)
	if _, err := worker.Run(t.Context(), list); err != nil {
		t.Errorf("the worker has ended, and nobody else gets in: %v", err)
	}

	var left *os.Process
	inspect.Kill = func(p *os.Process) error { left = p; return nil } // as the kernel does where it waits itself
	_, err := worker.Run(t.Context(), inspect)
	if !errors.Is(err, worker.ErrGivenUp) || left == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("process %d cannot be ended", left.Pid)) {
		t.Fatal(err)
	}
	beside := func(j worker.Job) {
		t.Helper()
		_, err := worker.Run(t.Context(), j)
		if !errors.Is(err, worker.ErrHeld) || !strings.Contains(err.Error(), fmt.Sprintf("process %d ", left.Pid)) {
			t.Errorf("beside a worker that hangs: %v", err)
		}
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { beside(list) })
	}
	wg.Wait()
	orders := make(chan int, 100) // of as many backups
	for range 4 {
		wg.Go(func() {
			for n := range orders {
				j := job(dir, newMemory())
				j.Order.Do, j.Order.SizeBytes, j.Order.GiveUp = worker.Create, volumeBytes, 100*time.Millisecond
				j.Order.Create = backup.CreateOptions{Volume: "vol-" + strconv.Itoa(n), Backup: "first", Snapshot: "s1"}
				beside(j)
			}
		})
	}
	for n := range cap(orders) {
		orders <- n
	}
	close(orders)
	wg.Wait()
	if _, err := worker.Run(t.Context(), listing(t.TempDir())); err != nil {
		t.Errorf("another target: %v", err)
	}
	if err := left.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Run(t.Context(), list); err != nil {
		t.Errorf("after its end: %v", err)
	}
	j := job(dir, newMemory())
	j.Order.Do, j.Order.SizeBytes = worker.Create, volumeBytes
	j.Order.Create = backup.CreateOptions{Volume: "vol-0", Backup: "first", Snapshot: "s1"}
	if _, err := worker.Run(t.Context(), j); err != nil {
		t.Errorf("a backup after its end: %v", err)
	}
}

// listing lists a store.
func listing(dir string) worker.Job {
	j := job(dir, nil)
	j.Order.Do, j.Order.GiveUp = worker.List, 5*time.Second
	return j
}
