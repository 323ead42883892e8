package upgrade_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/test/rig"
)

// depth is how many requests are under way at once.
const depth = 16

// load is a program that writes and verifies what it has written, until it is stopped.
type load interface {
	// stop ends it and returns when its requests were completed, in order. It fails the test if
	// there was any error.
	stop() []time.Time
	// ended is closed when it has ended by itself, which is wrong.
	ended() <-chan struct{}
	// name is for the table.
	name() string
}

// startLoad runs fio, or if it is not there, or lacks what the endpoint needs, a writer of our own.
func startLoad(t *testing.T, dir, endpoint string) load {
	t.Helper()
	f := rig.StartFio(t, dir, endpoint, fmt.Sprint("--iodepth=", depth), fmt.Sprint("--size=", volumeSize/2),
		"--verify_backlog=512", "--write_lat_log="+filepath.Join(dir, "fio"), "--log_unix_epoch=1")
	if f == nil {
		return startOwn(t, endpoint)
	}
	return &fio{t: t, dir: dir, Fio: f}
}

// fio is a load that logs when each of its requests was completed.
type fio struct {
	*rig.Fio
	t   *testing.T
	dir string
}

func (f *fio) name() string           { return "fio" }
func (f *fio) ended() <-chan struct{} { return f.Ended() }

func (f *fio) stop() []time.Time {
	f.t.Helper()
	r := f.Stop()
	f.t.Logf("fio has written %d and verified %d blocks", r.Written, r.Verified)
	return f.completions()
}

// completions reads the log of latencies: a line for each request, with the time of its completion
// in milliseconds first.
func (f *fio) completions() []time.Time {
	names, err := filepath.Glob(filepath.Join(f.dir, "fio_lat.*.log"))
	if err != nil || len(names) == 0 {
		f.t.Fatalf("fio has written no log: %v", err)
	}
	var all []time.Time
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			f.t.Fatal(err)
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			first, _, _ := strings.Cut(lines.Text(), ",")
			ms, err := strconv.ParseInt(first, 10, 64)
			if err != nil {
				f.t.Fatalf("%s: %v", name, err)
			}
			all = append(all, time.UnixMilli(ms))
		}
		file.Close()
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// device is what the load of our own uses.
type device interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Close() error
}

// own is a load without fio: each worker writes blocks of its own and reads them back.
type own struct {
	t      *testing.T
	cancel context.CancelFunc
	work   sync.WaitGroup
	failed chan struct{}

	mu    sync.Mutex
	times []time.Time
	err   error
}

func startOwn(t *testing.T, endpoint string) load {
	t.Helper()
	d, err := openDevice(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o := &own{t: t, cancel: cancel, failed: make(chan struct{})}
	for w := range depth {
		o.work.Go(func() {
			if err := o.run(ctx, d, w); err != nil {
				o.mu.Lock()
				if o.err == nil {
					o.err = err
					close(o.failed)
				}
				o.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() { cancel(); d.Close(); o.work.Wait() })
	return o
}

func openDevice(endpoint string) (device, error) {
	if !strings.HasPrefix(endpoint, "nbd+unix:") {
		return os.OpenFile(endpoint, os.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	return nbdclient.Dial(context.Background(), "unix:"+u.Query().Get("socket"),
		nbdclient.Options{Export: strings.Trim(u.Path, "/")})
}

const blockSize = 4096

func (o *own) run(ctx context.Context, d device, worker int) error {
	p, q := page(), page()
	for n := uint64(0); ctx.Err() == nil; n++ {
		off := (int64(n*7919%1024)*depth + int64(worker)) * blockSize
		for i := range p {
			p[i] = byte(uint64(i)*n + uint64(worker) + n>>8)
		}
		if _, err := d.WriteAt(p, off); err != nil {
			return fmt.Errorf("write at %d: %w", off, err)
		}
		o.completed()
		if _, err := d.ReadAt(q, off); err != nil {
			return fmt.Errorf("read at %d: %w", off, err)
		}
		o.completed()
		if !bytes.Equal(p, q) {
			return fmt.Errorf("block at %d is not what was written", off)
		}
	}
	return nil
}

// page returns a block that begins at a page, as direct I/O wants it.
func page() []byte {
	b := make([]byte, 2*blockSize)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (blockSize - 1)
	return b[skip : skip+blockSize : skip+blockSize]
}

func (o *own) completed() {
	now := time.Now()
	o.mu.Lock()
	o.times = append(o.times, now)
	o.mu.Unlock()
}

func (o *own) name() string           { return "own client" }
func (o *own) ended() <-chan struct{} { return o.failed }

func (o *own) stop() []time.Time {
	o.t.Helper()
	o.cancel()
	o.work.Wait()
	if o.err != nil && !errors.Is(o.err, context.Canceled) {
		o.t.Fatal(o.err)
	}
	return o.times
}
