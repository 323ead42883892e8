package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
)

// scenarioF6: a volume with a file system grows while files are written to it and a replica is
// lost, and again while nobody uses it; the files are what they were, and the file system takes the
// new room. What cannot be is refused, and changes nothing.
func scenarioF6(t *testing.T, c *cluster) {
	c.create("f6", 320*mib, 3) // XFS refuses less than 300 MiB
	defer c.remove("f6")
	endpoint := c.attach("f6", "node-1", 3)
	if !strings.HasPrefix(endpoint, "/") {
		lack.Skip(t, "no block device here for a file system: the endpoint is "+endpoint)
	}
	if out, err := exec.Command("mkfs.xfs", "-q", "-f", endpoint).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.xfs %s: %v: %s", endpoint, err, out)
	}
	victim := c.directoryOn("f6", "node-2")
	files := mountFiles(t, c, endpoint)
	files.awaitMore(c, 20)
	c.expand("f6", "448Mi")
	c.kill(victim)
	c.awaitSize("f6", 448*mib)
	if out, err := exec.Command("xfs_growfs", files.at).CombinedOutput(); err != nil {
		t.Fatalf("xfs_growfs %s: %v: %s", files.at, err, out)
	}
	files.awaitMore(c, 20)
	if room := files.room(t); room < 360*mib {
		t.Errorf("the file system has %d bytes after the volume has 448 MiB", room)
	}
	c.awaitUsable("f6", "node-1", 3)
	files.finish(t)
	c.detach("f6")
	c.identical("f6", 3)

	c.expand("f6", "512Mi")
	c.awaitSize("f6", 512*mib)
	c.eventually("f6 is detached again", func(context.Context) error {
		if v := c.volume("f6"); v.State != "detached" {
			return fmt.Errorf("state %s", v.State)
		}
		return nil
	})
	for what, size := range map[string]string{"no room": "15Ti", "failed to parse": "large"} {
		_, err := c.rest.ExpandVolume(context.Background(), "f6", size)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("expansion to %s: %v, want %q", size, err, what)
		}
	}
	if _, err := c.rest.CancelExpansion(context.Background(), "f6"); err == nil ||
		!strings.Contains(err.Error(), "not started") {
		t.Errorf("cancelling nothing: %v", err)
	}
	endpoint = c.attach("f6", "node-3", 3)
	if size := deviceSize(t, endpoint); size != 512*mib {
		t.Errorf("the device has %d bytes", size)
	}
	files.mount(t, endpoint)
	files.verify(t)
	files.unmount(t)
	c.detach("f6")
	c.identical("f6", 3)
}

// expand asks for a larger size.
func (c *cluster) expand(name, size string) {
	c.t.Helper()
	if _, err := c.rest.ExpandVolume(context.Background(), name, size); err != nil {
		c.t.Fatalf("expand %s to %s: %v", name, size, err)
	}
}

// awaitSize waits until volume and engine have a size.
func (c *cluster) awaitSize(name string, bytes int64) {
	c.t.Helper()
	want := strconv.FormatInt(bytes, 10)
	c.eventually(name+" has "+want+" bytes", func(context.Context) error {
		v := c.volume(name)
		if v.Size != want || len(v.Controllers) != 1 || v.Controllers[0].Size != want || v.Controllers[0].IsExpanding {
			return fmt.Errorf("volume %s, controllers %+v", v.Size, v.Controllers)
		}
		return nil
	})
}

func deviceSize(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// files writes one file after the other to a mounted file system, each durably; the newest are
// kept.
type files struct {
	at      string
	written atomic.Int64
	stop    chan struct{}
	done    chan error
}

const (
	fileSize  = 64 << 10
	filesKept = 50
)

// mountFiles mounts a device and begins to write files.
func mountFiles(t *testing.T, c *cluster, device string) *files {
	t.Helper()
	f := &files{at: filepath.Join(c.Info.Dir, "files-"+filepath.Base(device)), stop: make(chan struct{}),
		done: make(chan error, 1)}
	if err := os.MkdirAll(f.at, 0o700); err != nil {
		t.Fatal(err)
	}
	f.mount(t, device)
	go func() { f.done <- f.write() }()
	t.Cleanup(func() {
		f.end()
		if err := powerdisk.Unmount(f.at); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("unmount %s: %v", f.at, err)
		}
	})
	return f
}

func (f *files) mount(t *testing.T, device string) {
	t.Helper()
	if err := unix.Mount(device, f.at, "xfs", 0, ""); err != nil {
		t.Fatalf("mount %s: %v", device, err)
	}
}

func (f *files) unmount(t *testing.T) {
	t.Helper()
	if err := powerdisk.Unmount(f.at); err != nil {
		t.Fatal(err)
	}
}

func (f *files) path(i int64) string { return filepath.Join(f.at, strconv.FormatInt(i, 10)) }

func fileContent(i int64) []byte {
	p := make([]byte, fileSize)
	r := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), byte(i >> 16)})
	_, _ = r.Read(p) // never fails
	return p
}

func (f *files) write() error {
	for i := int64(0); ; i++ {
		select {
		case <-f.stop:
			return nil
		default:
		}
		out, err := os.OpenFile(f.path(i), os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o600)
		if err != nil {
			return err
		}
		_, err = out.Write(fileContent(i))
		if err = errors.Join(err, out.Close()); err != nil {
			return err
		}
		f.written.Store(i + 1)
		if err := os.Remove(f.path(i - filesKept)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// awaitMore waits for n files more.
func (f *files) awaitMore(c *cluster, n int64) {
	c.t.Helper()
	until := f.written.Load() + n
	c.eventually("more files", func(context.Context) error {
		select {
		case err := <-f.done:
			c.t.Fatalf("writing files ended: %v", err)
		default:
		}
		if have := f.written.Load(); have < until {
			return fmt.Errorf("%d of %d", have, until)
		}
		return nil
	})
}

// room is the size of the file system in bytes.
func (f *files) room(t *testing.T) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(f.at, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize
}

// end stops the writer.
func (f *files) end() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
}

// finish ends the writing, checks what was written, and unmounts.
func (f *files) finish(t *testing.T) {
	t.Helper()
	f.end()
	if err := <-f.done; err != nil {
		t.Fatalf("writing files: %v", err)
	}
	f.verify(t)
	f.unmount(t)
}

// verify checks the files that were kept.
func (f *files) verify(t *testing.T) {
	t.Helper()
	n := f.written.Load()
	for i := max(0, n-filesKept+1); i < n; i++ {
		p, err := os.ReadFile(f.path(i))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p, fileContent(i)) {
			t.Fatalf("file %d of %d is not what was written", i, n)
		}
	}
}
