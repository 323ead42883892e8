package crash

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// deviceVolume is a volume that is to be offered as a block device, on a host with a keeper.
func deviceVolume(t *testing.T) (*rig.Volume, *rig.Host) {
	if err := blockdev.Available(); err != nil {
		lack.Skip(t, "no block devices here:", err)
	}
	t.Parallel()
	v, err := rig.Open(t, rig.Config{Replicas: 2, Size: 32 * mib, Transport: "fuse-loop", Keep: true,
		EngineFlags: engineFlags})
	if err != nil {
		t.Fatal(err)
	}
	return v, v.EngineHosts[0]
}

// underLoad returns the volume's device in use, and what ends that.
func underLoad(t *testing.T, v *rig.Volume) (w *rig.Load, end func()) {
	t.Helper()
	d, err := v.Engine().Target()
	if err != nil {
		t.Fatal(err)
	}
	w = rig.StartLoad(t, d, v.Size, 1)
	w.AwaitMore(t, 50)
	return w, func() {
		t.Helper()
		w.AwaitMore(t, 50)
		w.Finish()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		v.StopEngine()
	}
}

// TestDeviceIsKeptLater: the instance manager cannot keep a device when it is made. It is asked
// again, and when it can, the device outlives its engine.
func TestDeviceIsKeptLater(t *testing.T) {
	v, h := deviceVolume(t)
	socket := filepath.Join(h.Dir, "devices.sock")
	if err := os.Rename(socket, socket+".away"); err != nil {
		t.Fatal(err)
	}
	v.StartEngine()
	_, end := underLoad(t, v)
	if err := os.Rename(socket+".away", socket); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the device is kept", func() bool { return h.DeviceOwned(v.Name) })
	v.KillEngine()
	v.StartEngine()
	end()
}

// TestDeviceThatCannotBeLookedAt: the next engine cannot look at the device of the one that was
// killed, since somebody has its lock at the moment. It ends, and leaves the device to the one
// after it.
func TestDeviceThatCannotBeLookedAt(t *testing.T) {
	v, h := deviceVolume(t)
	v.StartEngine()
	_, end := underLoad(t, v)
	lock, err := os.Open(filepath.Join(blockdev.RunDirOf(h.Devices()), "fuse", v.Name+".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	v.KillEngine()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	v.SpawnEngine()
	if code, log := v.EngineExit(); code == 0 {
		t.Errorf("the engine has ended with 0\n%s", log)
	}
	lock.Close()
	v.StartEngine()
	end()
}
