// Package budget bounds what the backup workers of a node send to backup stores and read from them
// together.
//
// Workers are processes of their own, and none of them is above the others. What they share is a
// file with one number: the time until which the budget is spent. Who takes bytes moves that time
// on by what they cost, under a lock of the file, and waits until then. A worker that dies leaves
// what it had taken, which is one block for each of its goroutines at most.
//
// Pods of a node have the file in a folder of the node.
package budget

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/backup/object"
)

// FolderInPod is where Pods have the folder of their node for it.
const FolderInPod = "/host/var/lib/longhorn/backup-bandwidth"

const (
	// smallBytes is what costs its bytes and does not wait: locks are renewed in time, however long
	// others wait for blocks.
	smallBytes = 64 << 10
	// mostSpent bounds the time that is spent ahead. It is more than all workers of a node take at the
	// lowest rate, and a later time is none that they have written.
	mostSpent = 6 * time.Hour
)

// Budget is one worker's part of it. Its methods may be called concurrently.
type Budget struct {
	bytesPerSecond int64
	// boot tells the time of one start of the machine from that of another one.
	boot string
	now  func() time.Duration
	wait func(ctx context.Context, d time.Duration) error

	mu   sync.Mutex // a lock of a file does not keep goroutines apart
	file *os.File
}

// Folder returns the folder that the workers of a node share: FolderInPod, which resolve turns into
// the path to open, or where a Pod has none that for temporary files.
func Folder(resolve func(string) string) string {
	dir := resolve(FolderInPod)
	_ = os.Mkdir(dir, 0o700) // it is there, or a Pod has no folder of the node for it
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return dir
	}
	return os.TempDir()
}

// Open returns the budget of the workers that share a folder. nil,
// which bounds nothing, if bytesPerSecond is 0.
func Open(folder string, bytesPerSecond int64) (*Budget, error) {
	if bytesPerSecond <= 0 {
		return nil, nil
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("bandwidth of backups: %w", err)
	}
	name := filepath.Join(folder, "ankole-backup-bandwidth-"+strconv.Itoa(os.Geteuid()))
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("bandwidth of backups is limited, and cannot be shared on this node: %w", err)
	}
	return &Budget{bytesPerSecond: bytesPerSecond, boot: strings.TrimSpace(string(boot)), now: monotonic, wait: sleep,
		file: f}, nil
}

// Close closes the budget of this worker.
func (b *Budget) Close() error {
	if b == nil {
		return nil
	}
	return b.file.Close()
}

// monotonic is the time since the start of the machine, which all of its processes share.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every kernel has this clock
	}
	return time.Duration(t.Nano())
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// take waits until n bytes are paid for.
func (b *Budget) take(ctx context.Context, n int) error {
	d, err := b.spend(n)
	if err != nil {
		return fmt.Errorf("bandwidth of backups: %w", err)
	}
	if n < smallBytes {
		return nil
	}
	return b.wait(ctx, d)
}

// spend takes n bytes, and returns how long they are not paid for yet.
func (b *Budget) spend(n int) (time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fd := int(b.file.Fd())
	if err := retried(func() error { return unix.Flock(fd, unix.LOCK_EX) }); err != nil {
		return 0, err
	}
	defer func() { _ = unix.Flock(fd, unix.LOCK_UN) }() // the end of the process does it too
	now := b.now()
	until := b.read(now) + time.Duration(float64(n)/float64(b.bytesPerSecond)*float64(time.Second))
	_, err := b.file.WriteAt(fmt.Appendf(nil, "%s %020d\n", b.boot, until), 0)
	return until - now, err
}

func retried(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// read returns until when the budget is spent. What another start of the machine has written, or
// nobody, counts for nothing.
func (b *Budget) read(now time.Duration) time.Duration {
	data := make([]byte, len(b.boot)+22)
	if _, err := b.file.ReadAt(data, 0); err != nil {
		return now // it is new
	}
	number, ok := bytes.CutPrefix(data, []byte(b.boot+" "))
	until, err := strconv.ParseInt(strings.TrimSuffix(string(number), "\n"), 10, 64)
	if !ok || err != nil || time.Duration(until) > now+mostSpent {
		return now
	}
	return max(now, time.Duration(until))
}

// Limit returns the store with what is read and written of objects taken from the budget; the store
// itself for nil.
func (b *Budget) Limit(s object.Store) object.Store {
	if b == nil {
		return s
	}
	return &limited{s, b}
}

type limited struct {
	object.Store
	budget *Budget
}

// Get implements object.Store. How much it is is known behind it.
func (l *limited) Get(ctx context.Context, name string, buf []byte, limitBytes int64) ([]byte, error) {
	data, err := l.Store.Get(ctx, name, buf, limitBytes)
	if err != nil {
		return data, err
	}
	if err := l.budget.take(ctx, len(data)-len(buf)); err != nil {
		return buf, err
	}
	return data, nil
}

// Put implements object.Store.
func (l *limited) Put(ctx context.Context, name string, data []byte) error {
	if err := l.budget.take(ctx, len(data)); err != nil {
		return err
	}
	return l.Store.Put(ctx, name, data)
}

// Stage implements object.Store.
func (l *limited) Stage(ctx context.Context, name string, data []byte) error {
	if err := l.budget.take(ctx, len(data)); err != nil {
		return err
	}
	return l.Store.Stage(ctx, name, data)
}
