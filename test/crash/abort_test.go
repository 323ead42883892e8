package crash

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/test/wait"
)

// TestAbortedConnection: the kernel ends a block device under an engine that serves, since an
// administrator has aborted the connection. Whoever had it open gets errors; the engine makes it
// anew, with all that was written, and it is kept again.
func TestAbortedConnection(t *testing.T) {
	v, h := deviceVolume(t)
	v.StartEngine()
	node := filepath.Join(h.Devices(), v.Name)
	content := make([]byte, 1<<20)
	for i := range content {
		content[i] = byte(i>>12) + 1
	}
	got := make([]byte, len(content))
	for range 2 {
		device := deviceID(t, v)
		d, err := v.Engine().Target()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.WriteAt(content, 0); err != nil {
			t.Fatal(err)
		}
		if err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		// It ends the connection although the file system is in use, and says that it is.
		if err := unix.Unmount(mountOf(node), unix.MNT_FORCE); err != nil && !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
		wait.Until(t, "the old device fails", func() bool { _, err := d.ReadAt(got[:4096], 0); return err != nil })
		_ = d.Close()
		wait.Until(t, "another device works", func() bool {
			d, err := v.Engine().Target()
			if err != nil {
				return false
			}
			_, err = d.ReadAt(got, 0)
			return errors.Join(err, d.Close()) == nil
		})
		if !bytes.Equal(got, content) {
			t.Error("the new device reads something else")
		}
		if now := deviceID(t, v); now == device || now == "" {
			t.Errorf("the new device is told as the former one: %q, before %q", now, device)
		}
	}
	d, err := v.Engine().Target()
	if err != nil {
		t.Fatal(err)
	}
	clear(content)
	if _, err := d.WriteAt(content, 0); errors.Join(err, d.Close()) != nil {
		t.Fatal(err)
	}
	_, end := underLoad(t, v)
	v.KillEngine()
	v.StartEngine()
	end()
}

// mountOf is where the file system behind a device is mounted.
func mountOf(node string) string {
	return filepath.Join(blockdev.RunDirOf(filepath.Dir(node)), "fuse", filepath.Base(node))
}
