package blockdev_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
)

// TestRecordThatIsLeft: of a ublk device that is not there any more, as after a boot where the
// folder of nodes is on a disk, record and node are removed, unless somebody holds the record. That
// needs no driver.
func TestRecordThatIsLeft(t *testing.T) {
	needDevices(t)
	for _, tt := range []struct{ name, content string }{{"whole", `{"mark":4711}`}, {"torn", `{"mar`}, {"empty", ""}} {
		for _, held := range []bool{false, true} {
			name := tt.name
			if held {
				name += ", held"
			}
			t.Run(name, func(t *testing.T) {
				cfg := ublkConfig(t)
				if err := os.MkdirAll(cfg.DeviceDir, 0o755); err != nil {
					t.Fatal(err)
				}
				record := filepath.Join(cfg.DeviceDir, "."+cfg.Volume+".ublk")
				if err := os.WriteFile(record, []byte(tt.content), 0o600); err != nil {
					t.Fatal(err)
				}
				node := filepath.Join(cfg.DeviceDir, cfg.Volume)
				if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(259, 4711))); err != nil {
					t.Fatal(err)
				}
				if held {
					f, err := os.Open(record)
					if err == nil {
						err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
					}
					if err != nil {
						t.Fatal(err)
					}
					defer f.Close()
				}
				if err := blockdev.RemoveAllDead(t.Context(), cfg.DeviceDir, nil); err != nil {
					t.Error(err)
				}
				if err := blockdev.RemoveLeft(t.Context(), cfg); err != nil {
					t.Error(err)
				}
				for _, path := range []string{record, node} {
					if _, err := os.Lstat(path); (err == nil) != held {
						t.Errorf("%s: %v", path, err)
					}
				}
			})
		}
	}
}

// TestRecordAlone: a server was killed before it had a node, in a container whose folder of locks
// has gone with it.
func TestRecordAlone(t *testing.T) {
	needDevices(t)
	cfg := ublkConfig(t)
	if err := os.MkdirAll(cfg.DeviceDir, 0o755); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(cfg.DeviceDir, "."+cfg.Volume+".ublk")
	if err := os.WriteFile(record, []byte(`{"mark":4711}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := blockdev.RemoveAllDead(t.Context(), cfg.DeviceDir, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(record); err == nil {
		t.Error("the record is left")
	}
}

// TestOpenAfterUblk: a record that is left, and its node, are not in the way of a device by FUSE
// and loop.
func TestOpenAfterUblk(t *testing.T) {
	needDevices(t)
	cfg := ublkConfig(t)
	if err := os.MkdirAll(cfg.DeviceDir, 0o755); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(cfg.DeviceDir, "."+cfg.Volume+".ublk")
	if err := os.WriteFile(record, []byte(`{"mark":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(cfg.DeviceDir, cfg.Volume)
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(259, 4711))); err != nil {
		t.Fatal(err)
	}
	d, err := blockdev.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(background(), false); err != nil {
		t.Error(err)
	}
	nothingLeft(t, cfg)
	if _, err := os.Lstat(record); err == nil {
		t.Error("the record is left")
	}
}
