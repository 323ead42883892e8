package blockdev_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/frontendtest"
	"ankole.storage/dataplane/frontend/ublk"
	"ankole.storage/test/lack"
)

// ublkTransport is a ublk device, used through direct I/O.
type ublkTransport struct {
	cfg     blockdev.Config
	dev     *blockdev.Ublk
	exposed bool
	resizes bool
	ended   bool
	clients []*client
}

// needUblk skips a test where ublk devices cannot be made, and says why.
func needUblk(t *testing.T) (resizes bool) {
	t.Helper()
	resizes, err := blockdev.UblkAvailable()
	if err != nil {
		lack.Skip(t, err)
	}
	return resizes
}

func ublkConfig(t *testing.T) blockdev.Config {
	return blockdev.Config{Volume: "vol", RunDir: t.TempDir(), DeviceDir: filepath.Join(t.TempDir(), "dev")}
}

func (tr *ublkTransport) Frontend(t *testing.T, env frontendtest.Env) frontend.Frontend {
	var err error
	if tr.dev, err = blockdev.OpenUblk(t.Context(), tr.cfg, env.Size); err != nil {
		t.Fatal(err)
	}
	f, err := ublk.New(ublk.Config{Owner: env.Owner, Arena: env.Arena, Device: tr.dev.Handle(), Queues: tr.dev.Queues(),
		Depth: tr.dev.Depth(), Size: env.Size, Asked: tr.dev.Asked})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (tr *ublkTransport) Open(t *testing.T) frontendtest.Client {
	if !tr.exposed {
		if err := tr.dev.Expose(t.Context()); err != nil {
			t.Fatal(err)
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

func (tr *ublkTransport) Withdraw(t *testing.T) {
	tr.closeClients()
	if err := tr.dev.Withdraw(t.Context()); err != nil && t.Context().Err() == nil {
		t.Error(err)
	}
}

func (tr *ublkTransport) closeClients() {
	for _, c := range tr.clients {
		c.File.Close()
	}
}

func (tr *ublkTransport) Grow(t *testing.T, size int64) {
	if !tr.resizes {
		if err := tr.dev.Resize(t.Context(), size); err == nil || !strings.Contains(err.Error(), "Linux 6.16") {
			t.Errorf("growth on a kernel that has no command for it: %v", err)
		}
		lack.Unfit(t, "this kernel cannot change the size of a ublk device in use")
	}
	if err := tr.dev.Resize(t.Context(), size); err != nil {
		t.Fatal(err)
	}
}

func (tr *ublkTransport) Down(t *testing.T) {
	tr.closeClients()
	if !tr.ended {
		tr.End(t)
	}
	noUblkLeft(t, tr.cfg)
}

// End ends the device, whatever waits for it.
func (tr *ublkTransport) End(t *testing.T) {
	tr.ended = true
	if err := tr.dev.Close(background(), true); err != nil {
		t.Error(err)
	}
}

func (tr *ublkTransport) Caps() frontendtest.Caps {
	return frontendtest.Caps{NoSpace: true, Depth: 64, GrowsOpen: tr.resizes}
}

// noUblkLeft checks that there is no ublk device, and nothing of cfg.
func noUblkLeft(t *testing.T, cfg blockdev.Config) {
	t.Helper()
	nothingLeft(t, cfg)
	if devices, _ := filepath.Glob("/sys/class/ublk-char/ublkc*"); len(devices) > 0 {
		t.Errorf("%v are left", devices)
	}
	if files, _ := filepath.Glob(filepath.Join(cfg.DeviceDir, ".*")); len(files) > 0 {
		t.Errorf("%v are left", files)
	}
}

func TestUblkConformance(t *testing.T) {
	resizes := needUblk(t)
	frontendtest.Run(t, func(t *testing.T) frontendtest.Transport {
		return &ublkTransport{cfg: ublkConfig(t), resizes: resizes}
	})
}

// TestUblkFUA: a durable write comes as one, whatever the kernel sends behind it for its user.
func TestUblkFUA(t *testing.T) {
	needUblk(t)
	var durable atomic.Int64
	tr := &ublkTransport{cfg: ublkConfig(t)}
	frontendtest.Up(t, tr, 1<<20, func(v *frontendtest.Device) {
		v.Log = func(r *frontend.Request) {
			if r.Kind == block.Write && r.FUA {
				durable.Add(1)
			}
		}
	})
	c := tr.Open(t).(*client)
	for _, tt := range []struct {
		flags int
		want  int64
	}{{0, 0}, {unix.RWF_DSYNC, 1}} {
		if _, err := unix.Pwritev2(int(c.Fd()), [][]byte{page(4096)}, 8192, tt.flags); err != nil {
			t.Fatal(err)
		}
		if n := durable.Load(); n != tt.want {
			t.Errorf("flags %#x: %d durable writes, not %d", tt.flags, n, tt.want)
		}
	}
}
