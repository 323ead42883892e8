package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/device/blockdev"
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

// TestSnapshotOfAMountedVolume: what was written to the file system on a volume is in a snapshot
// that is taken right afterwards, whichever service takes it; where it is asked for, the file
// system is frozen meanwhile, and not any more when the answer is there. A trim gives space back.
func TestSnapshotOfAMountedVolume(t *testing.T) {
	if err := blockdev.Available(); err != nil {
		lack.Skip(t, "no block devices here: ", err)
	}
	n := start(t, "fuse-loop")
	v := n.volume("mounted", 64*mib, 1)
	device, at := filepath.Join(n.dir, "dev/mounted"), filepath.Join(n.dir, "mounted")
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", device).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := errors.Join(os.Mkdir(at, 0o700), unix.Mount(device, at, "ext4", 0, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // before the device goes
	e := enginev1.NewEngineClient(n.conn)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "engine-address", v.engine, "volume-name", v.name,
		"instance-name", v.engineName())
	for _, step := range []struct {
		name string
		take func(name string) error
	}{
		{"stream", func(name string) error {
			_, err := e.SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: name})
			return err
		}},
		{"stream-frozen", func(name string) error {
			_, err := e.SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: name, FreezeFilesystem: true})
			return err
		}},
		{"call", func(name string) error {
			_, err := n.out.call(t.Context(), "VolumeSnapshot", v.request(fmt.Sprintf(`"snapshot_volume": {"name": %q}`, name)))
			return err
		}},
		{"call-frozen", func(name string) error {
			_, err := n.out.call(t.Context(), "VolumeSnapshot", v.request(fmt.Sprintf(
				`"snapshot_volume": {"name": %q, "freezeFilesystem": true}`, name)))
			return err
		}},
	} {
		content := bytes.Repeat([]byte("written before "+step.name+"; "), 1000)
		if err := os.WriteFile(filepath.Join(at, step.name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := step.take(step.name); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		layer, err := os.ReadFile(filepath.Join(v.directory(0), "volume-snap-"+step.name+".img"))
		if err != nil || !bytes.Contains(layer, content[:4000]) {
			t.Errorf("%s: what was written before it is not in it (%v)", step.name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(at, "afterwards"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if log, err := os.ReadFile(filepath.Join(n.dir, "im.log")); err != nil || bytes.Contains(log, []byte("still holds")) {
		t.Errorf("the instance manager has complained (%v): %s", err, log)
	}
	if marks, err := os.ReadDir(filepath.Join(n.dir, "root/frozen")); err != nil || len(marks) > 0 {
		t.Errorf("%d file systems are marked as frozen; %v", len(marks), err)
	}
	answer, err := e.FilesystemTrim(ctx, &enginev1.FilesystemTrimRequest{})
	if err != nil || answer.GetBytes() < 32*mib {
		t.Errorf("a trim of an almost empty file system of 64 MiB: %d bytes, %v", answer.GetBytes(), err)
	}
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := e.FilesystemTrim(ctx, &enginev1.FilesystemTrimRequest{}); status.Code(err) != codes.NotFound {
		t.Errorf("a trim of what is not mounted: %v", err)
	}
}
