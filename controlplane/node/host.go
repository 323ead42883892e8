package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/mountinfo"
)

// Host is the machine the agent runs on, seen through the mount of its root directory.
type Host struct {
	// Resolve turns a path as the Pod sees it into the one to open (hostpath.Resolve).
	Resolve func(path string) string
	// kernel is the folder that /proc and /sys are looked for in; empty for the root. It is the
	// machine's kernel, whatever folder the node has.
	kernel string
}

// diskConfig is the content of a disk's configuration file. Unknown keys of other versions are not
// kept, because the file is written only where there is none.
type diskConfig struct {
	DiskName   string `json:"diskName"`
	DiskUUID   string `json:"diskUUID"`
	DiskDriver string `json:"diskDriver"`
	State      string `json:"state"`
}

// maxDiskConfig bounds a configuration file; ours has about 100 bytes.
const maxDiskConfig = 64 << 10

func (h Host) open(path string) string { return h.Resolve(naming.InHostMount(path)) }

// mountTable is where this process's mounts are told; the host's disks are among them.
const mountTable = "/proc/self/mountinfo"

// refusesWrites says why the file system of a device takes no writes; empty if it does.
func (h Host) refusesWrites(device uint64) (why string, err error) {
	f, err := os.Open(h.Resolve(mountTable))
	if err != nil {
		return "", fmt.Errorf("table of mounts: %w", err)
	}
	defer f.Close()
	number := fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
	err = mountinfo.Each(f, func(m *mountinfo.Mount) {
		if m.Device == number && m.Refuses() != "" {
			why = m.Refuses()
		}
	})
	return why, err
}

// Look tells about the directory of a disk at a path of the host. With create it makes the
// directory first.
func (h Host) Look(path string, create bool) DiskFacts {
	real := h.open(path)
	if create {
		if err := os.MkdirAll(real, 0o755); err != nil {
			return DiskFacts{Problem: err.Error()}
		}
	}
	var f DiskFacts
	if err := h.statFilesystem(real, &f); err != nil {
		return DiskFacts{Problem: err.Error()}
	}
	text, err := readBounded(h.open(naming.DiskConfigPath(path)), maxDiskConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f
	case err != nil:
		return DiskFacts{Problem: err.Error()}
	}
	var c diskConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return DiskFacts{Problem: fmt.Sprintf("configuration file %s is not valid JSON: %v; %s",
			naming.DiskConfigPath(path), err, mendConfig)}
	}
	f.HasConfig, f.DiskUUID, f.DiskName = true, c.DiskUUID, c.DiskName
	return f
}

func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are expected", path, info.Size(), limit)
	}
	return os.ReadFile(path)
}

func (h Host) statFilesystem(dir string, f *DiskFacts) error {
	var info unix.Stat_t
	if err := unix.Stat(dir, &info); err != nil {
		return &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("%s is not a directory", dir)
	}
	var err error
	if f.ReadOnly, err = h.refusesWrites(info.Dev); err != nil {
		return err
	}
	f.Device = info.Dev
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("statfs %s: %w", dir, err)
	}
	unit := s.Frsize
	if unit == 0 {
		unit = s.Bsize
	}
	f.FilesystemID = strconv.FormatUint(uint64(uint32(s.Fsid.Val[0])), 16) +
		strconv.FormatUint(uint64(uint32(s.Fsid.Val[1])), 16)
	f.FilesystemType = filesystemName(int64(s.Type))
	f.Maximum = int64(s.Blocks) * unit
	f.Available = int64(s.Bavail) * unit
	return nil
}

// filesystemName gives the name under which clients know a file system. Extended file systems of
// all generations share one magic number, hence the name.
func filesystemName(magic int64) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext2/ext3"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	}
	return fmt.Sprintf("0x%x", magic)
}

// Prepare gives a new disk its configuration file with a fresh UUID, and the directory for
// replicas. The file appears whole or not at all, and survives a crash; one that is there already
// is left alone.
func (h Host) Prepare(path, diskName string) error {
	dir := h.open(path)
	if err := os.MkdirAll(filepath.Join(dir, naming.ReplicaDirectory), 0o755); err != nil {
		return fmt.Errorf("disk %s: %w", diskName, err)
	}
	text, err := json.Marshal(diskConfig{DiskName: diskName, DiskUUID: uuid.NewString()})
	if err != nil {
		return fmt.Errorf("disk %s: %w", diskName, err)
	}
	temporary, err := os.CreateTemp(dir, "."+naming.DiskConfigFile+"-*")
	if err != nil {
		return fmt.Errorf("disk %s: %w", diskName, err)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(text)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		// Link, unlike rename, does not replace a file somebody else has just made.
		err = os.Link(temporary.Name(), filepath.Join(dir, naming.DiskConfigFile))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("disk %s: %w", diskName, err)
	}
	return syncDirectory(dir)
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
