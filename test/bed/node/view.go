package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Directories of the node's folder that stand for the machine's own.
const (
	varDir   = "var"
	imageDir = "lib/containerd" // below var
)

// makeView gives the node its own /proc, /var, /run and /dev/longhorn, and its disk at
// /var/lib/longhorn. Everything else is the machine's. Mounts of the machine still come and go
// here; mounts made here are seen by containers that ask for that, and never by the machine.
func makeView(cfg Config) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("mounts of the node: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("mounts of the node: %w", err)
	}
	own := filepath.Join(cfg.Dir, varDir)
	for _, d := range []string{"lib/kubelet", imageDir, "lib/longhorn", "log/pods", "log/containers", "tmp"} {
		if err := os.MkdirAll(filepath.Join(own, d), 0o755); err != nil {
			return fmt.Errorf("node's folder: %w", err)
		}
	}
	// Old programs know /run by its former name.
	if err := os.Symlink("/run", filepath.Join(own, "run")); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("node's folder: %w", err)
	}
	nodev := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"proc", "/proc", "proc", nodev | unix.MS_NOEXEC, ""},
		{own, "/var", "", unix.MS_BIND, ""},
		{"run", "/run", "tmpfs", nodev, "mode=755"},
		// Device nodes of volumes, which a reboot removes too.
		{"longhorn", "/dev/longhorn", "tmpfs", unix.MS_NOSUID, "mode=755"},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s of the node: %w", m.target, err)
		}
		// A new mount of the kinds above takes part in what its parent does; a bind of a slave does
		// not.
		if err := unix.Mount("", m.target, "", unix.MS_SHARED, ""); err != nil {
			return fmt.Errorf("share %s of the node: %w", m.target, err)
		}
	}
	return nil
}
