package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// treeFolder and logName are what is on a mounted file system.
	treeFolder = "tree"
	logName    = "writer.log"
	// mountFlags keep what is on a volume from doing anything but lie there.
	mountFlags = unix.MS_NOATIME | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
)

// mounted is a volume with a mounted ext4 on it.
type mounted struct {
	device string
	dir    string
	at     bool
	log    *os.File
}

// newMounted checks that mounting is possible by mounting something harmless.
func newMounted(device string) (*mounted, error) {
	if _, err := findTool("mkfs.ext4"); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ankole-demo-")
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4k"); err != nil {
		return nil, errors.Join(fmt.Errorf("mounting is not possible here: %w", err), os.Remove(dir))
	}
	if err := unix.Unmount(dir, 0); err != nil {
		return nil, err
	}
	return &mounted{device: device, dir: dir}, nil
}

func (m *mounted) Describe() string { return "as a mounted ext4 on " + m.device }

func (m *mounted) Inspect(context.Context) (content, error) {
	d, err := openBlock(m.device)
	if err != nil {
		return contentForeign, err
	}
	head := aligned(chunk)
	_, err = d.ReadAt(head, 0)
	if err = errors.Join(err, d.Close()); err != nil {
		return contentForeign, fmt.Errorf("reading the beginning of %s: %w", m.device, err)
	}
	found := headContent(head)
	if found != contentPart {
		return found, nil
	}
	// A tree of the other way of using the volume is too large to miss and has no folder; it is
	// filled again.
	if err := m.mount(); err != nil {
		return contentPart, nil //nolint:nilerr // A broken file system of ours is made again.
	}
	complete, err := hasTree(filepath.Join(m.dir, treeFolder))
	if complete {
		return contentTree, err
	}
	return contentPart, err
}

func (m *mounted) mount() error {
	if m.at {
		return nil
	}
	if err := unix.Mount(m.device, m.dir, "ext4", mountFlags, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", m.device, err)
	}
	m.at = true
	return nil
}

func (m *mounted) unmount() error {
	if m.log != nil {
		_ = m.log.Close()
		m.log = nil
	}
	if !m.at {
		return nil
	}
	err := unix.Unmount(m.dir, 0)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(m.dir, unix.MNT_DETACH)
	}
	if err != nil {
		return fmt.Errorf("unmounting %s: %w", m.dir, err)
	}
	m.at = false
	return nil
}

func (m *mounted) Fill(ctx context.Context) (tree, error) {
	if err := m.unmount(); err != nil {
		return tree{}, err
	}
	if err := tool(ctx, "mkfs.ext4", "-q", "-F", "-L", label, m.device); err != nil {
		return tree{}, err
	}
	if err := m.mount(); err != nil {
		return tree{}, err
	}
	t, err := makeTree(filepath.Join(m.dir, treeFolder), true)
	if err != nil {
		return t, err
	}
	unix.Sync()
	return t, nil
}

// Verify mounts the file system anew, so that nothing comes from the page cache.
func (m *mounted) Verify(context.Context) (tree, error) {
	if err := m.unmount(); err != nil {
		return tree{}, err
	}
	if err := m.mount(); err != nil {
		return tree{}, err
	}
	return verifyTree(filepath.Join(m.dir, treeFolder))
}

func (m *mounted) Scratch() (area, int64, int64, error) {
	if err := m.mount(); err != nil {
		return nil, 0, 0, err
	}
	f, err := os.OpenFile(filepath.Join(m.dir, logName), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o644)
	if err != nil {
		return nil, 0, 0, err
	}
	m.log = f
	return blockDevice{f, scratchSize}, 0, scratchSize, nil
}

func (m *mounted) Close() error {
	return errors.Join(m.unmount(), os.Remove(m.dir))
}
