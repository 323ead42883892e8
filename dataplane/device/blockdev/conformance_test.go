package blockdev_test

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/journal"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/frontendtest"
	"ankole.storage/dataplane/frontend/fuseloop"
	"ankole.storage/test/lack"
)

// transport is a block device, used through direct I/O.
type transport struct {
	cfg     blockdev.Config
	dev     *blockdev.Device
	exposed bool
	clients []*client
	// journal is where requests are received, nil: nowhere.
	journal *journal.Journal
	// apart: the mount is lost as soon as the device is there.
	apart bool
}

func newTransport(t *testing.T) *transport {
	needDevices(t)
	return &transport{cfg: blockdev.Config{Volume: "vol", RunDir: t.TempDir(),
		DeviceDir: filepath.Join(t.TempDir(), "dev")}}
}

// needDevices skips a test where block devices cannot be made, and says why.
func needDevices(t *testing.T) {
	t.Helper()
	if err := blockdev.Available(); err != nil {
		lack.Skip(t, err)
	}
}

func (tr *transport) Frontend(t *testing.T, env frontendtest.Env) frontend.Frontend {
	var err error
	if tr.dev, err = blockdev.Open(t.Context(), tr.cfg); err != nil {
		t.Fatal(err)
	}
	f, err := fuseloop.New(fuseloop.Config{
		Owner: env.Owner, Arena: env.Arena, Device: tr.dev.Handle(), File: tr.cfg.Volume, Size: env.Size, Journal: tr.journal,
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (tr *transport) Open(t *testing.T) frontendtest.Client {
	if !tr.exposed {
		if err := tr.dev.Expose(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tr.apart {
			if err := tr.dev.LoseMount(); err != nil {
				t.Fatal(err)
			}
		}
		tr.exposed = true
	}
	f, err := os.OpenFile(tr.dev.Path(), os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{File: f}
	tr.clients = append(tr.clients, c)
	return c
}

func (tr *transport) Withdraw(t *testing.T) {
	tr.closeClients()
	if err := tr.dev.Withdraw(t.Context()); err != nil && t.Context().Err() == nil {
		t.Error(err)
	}
}

func (tr *transport) closeClients() {
	for _, c := range tr.clients {
		c.File.Close()
	}
}

func (tr *transport) Grow(t *testing.T, size int64) {
	if err := tr.dev.Resize(t.Context(), size); err != nil {
		t.Fatal(err)
	}
}

func (tr *transport) Down(t *testing.T) {
	tr.closeClients()
	if err := tr.dev.Close(background(), true); err != nil {
		t.Error(err)
	}
	nothingLeft(t, tr.cfg)
}

func (tr *transport) Caps() frontendtest.Caps {
	return frontendtest.Caps{NoSpace: true, Depth: 64, GrowsOpen: true}
}

// client uses a block device.
type client struct{ *os.File }

func (c *client) Flush() error { return unix.Fsync(int(c.Fd())) }

func (c *client) Trim(off, n int64) error {
	arg := [2]uint64{uint64(off), uint64(n)}
	_, _, e := unix.Syscall(unix.SYS_IOCTL, c.Fd(), unix.BLKDISCARD, uintptr(unsafe.Pointer(&arg)))
	if e != 0 {
		return e
	}
	return nil
}

func (c *client) WriteZeroes(off, n int64) error {
	return unix.Fallocate(int(c.Fd()), unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

func TestConformance(t *testing.T) {
	needDevices(t)
	frontendtest.Run(t, func(t *testing.T) frontendtest.Transport { return newTransport(t) })
}

// TestConformanceWithoutItsMount is the same for a device that has outlived the container in which
// its file system was mounted.
func TestConformanceWithoutItsMount(t *testing.T) {
	needDevices(t)
	frontendtest.Run(t, func(t *testing.T) frontendtest.Transport {
		tr := newTransport(t)
		tr.apart = true
		return tr
	})
}

// TestConformanceWithJournal is the same for a device that a successor may take over.
func TestConformanceWithJournal(t *testing.T) {
	needDevices(t)
	frontendtest.Run(t, func(t *testing.T) frontendtest.Transport {
		tr := newTransport(t)
		tr.journal = newJournal(t)
		return tr
	})
}

func newJournal(t *testing.T) *journal.Journal {
	t.Helper()
	j, err := journal.Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.CloseFD() })
	return j
}
