package proxy

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
	"ankole.storage/test/lack"
)

// TestRemount: ext4 on a volume's block device that has become read-only is made writable again; a
// mount that is read-only on purpose stays so, and a file system that has found errors is refused.
func TestRemount(t *testing.T) {
	if err := blockdev.Available(); err != nil {
		lack.Skip(t, "no block devices here: ", err)
	}
	n := start(t, "fuse-loop")
	n.volume("fs", 64*mib, 1)
	device := filepath.Join(n.dir, "dev/fs")
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", device).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	staged, pod := filepath.Join(n.dir, "staged"), filepath.Join(n.dir, "pod")
	mount := func(from, to, kind string, flags uintptr, data string) {
		t.Helper()
		_ = os.Mkdir(to, 0o700) // it may be there
		if err := unix.Mount(from, to, kind, flags, data); err != nil {
			t.Fatalf("mount %s at %s: %v", from, to, err)
		}
	}
	mount(device, staged, "ext4", unix.MS_NOSUID, "errors=remount-ro")
	t.Cleanup(func() { _ = unix.Unmount(staged, unix.MNT_DETACH) }) // before the device goes
	mount(staged, pod, "", unix.MS_BIND, "")
	t.Cleanup(func() { _ = unix.Unmount(pod, unix.MNT_DETACH) })
	mount("", pod, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	write := func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600) }
	remount := func() error {
		_, err := n.out.call(context.Background(), "RemountReadOnlyVolume", `{"volume_name": "fs"}`)
		return err
	}
	if err := remount(); err != nil || write(staged) != nil {
		t.Fatalf("nothing to do: %v", err)
	}

	mount("", staged, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID, "")
	if err := write(staged); !errors.Is(err, unix.EROFS) {
		t.Fatalf("it is not read-only: %v", err)
	}
	if err := remount(); err != nil {
		t.Fatal(err)
	}
	if err := write(staged); err != nil {
		t.Errorf("after: %v", err)
	}
	if err := write(pod); !errors.Is(err, unix.EROFS) {
		t.Errorf("the Pod's read-only mount: %v", err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(staged, &s); err != nil || s.Flags&unix.ST_NOSUID == 0 {
		t.Errorf("nosuid is gone: %#x %v", s.Flags, err)
	}

	loop := loopOf(t, device)
	if err := os.WriteFile(filepath.Join("/sys/fs/ext4", loop, "trigger_fs_error"), []byte("test"), 0); err != nil {
		t.Logf("errors cannot be injected here: %v", err)
		return
	}
	if err := write(staged); !errors.Is(err, unix.EROFS) {
		t.Fatalf("an error does not make it read-only: %v", err)
	}
	if err := remount(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "check it") {
		t.Errorf("after errors: %v", err)
	}
}

// loopOf is the name of the loop device behind a device node.
func loopOf(t *testing.T, device string) string {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(device, &s); err != nil {
		t.Fatal(err)
	}
	name, err := os.Readlink(filepath.Join("/sys/dev/block",
		strings.Join([]string{itoa(unix.Major(s.Rdev)), itoa(unix.Minor(s.Rdev))}, ":")))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(name)
}
