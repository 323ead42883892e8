package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/lack"
)

// readOnlyFileSystem: a file system on a volume meets an error and refuses to write. The Engine
// object and the metrics say so, while nothing is wrong with the volume.
func readOnlyFileSystem(t *testing.T, c *cluster) {
	c.create("readonly", 64*mib, 2)
	endpoint := c.attach("readonly", "node-3", 2)
	defer c.remove("readonly")
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		lack.Skip(t, "there is no block device here to make a file system on: the endpoint is ", endpoint)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-e", "remount-ro", endpoint).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4 %s: %v: %s", endpoint, err, out)
	}
	at := filepath.Join(c.Info.Dir, "mnt-readonly")
	unmount := mountDevice(t, endpoint, at)
	defer unmount()
	var st unix.Stat_t
	if err := unix.Stat(endpoint, &st); err != nil {
		t.Fatal(err)
	}
	disk, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
	if err != nil {
		t.Fatal(err)
	}
	// The kernel's own way to try this.
	err = os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(disk), "trigger_fs_error"), []byte("a test\n"), 0)
	if errors.Is(err, os.ErrNotExist) {
		lack.Skip(t, fmt.Sprintf("this kernel cannot make a file system fail: %v", err))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Fatalf("writing to a file system after an error: %v", err)
	}
	c.eventually("the Engine object tells of it", func(context.Context) error {
		conditions := c.engine("readonly").Status.Conditions
		if !longhorn.IsConditionTrue(conditions, longhorn.EngineConditionFilesystemReadOnly) {
			return fmt.Errorf("conditions %+v", conditions)
		}
		return nil
	})
	c.eventually("the metrics tell of it", func(ctx context.Context) error {
		controllers, err := c.addresses(ctx, naming.AppController)
		if err != nil {
			return err
		}
		for _, address := range controllers {
			found, err := c.samples(ctx, address, "longhorn_volume_file_system_read_only", "readonly")
			if err != nil || len(found) > 0 {
				return err
			}
		}
		return errors.New("no such line")
	})
}
