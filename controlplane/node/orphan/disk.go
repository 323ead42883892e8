package orphan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/controlplane/node/directory"
	"ankole.storage/controlplane/object/naming"
)

const (
	// restBefore is how long the entries of a directory have been as they are before it is reported.
	restBefore = time.Minute
	// maxFile bounds the files read here, in bytes: a disk's configuration and a replica's
	// volume.meta, which have some hundred bytes each.
	maxFile = 64 << 10
	// metaFile says of a directory that it is a replica's.
	metaFile = "volume.meta"
	// listAtOnce is how many names of a directory are read at once.
	listAtOnce = 1000
)

// place is a disk of this node as its Node object has it.
type place struct{ Disk, Path, UUID string }

// openReplicas opens the folder of replicas of the disk at a real path. The disk has to be the one
// with the UUID, and what is opened stays on it, whatever is mounted or linked there later. The
// error is fs.ErrNotExist where the disk has no such folder.
func openReplicas(real, uuid string) (*os.Root, error) {
	disk, err := os.OpenRoot(real)
	if err != nil {
		return nil, fmt.Errorf("open disk: %w", withoutNotExist(err))
	}
	defer disk.Close()
	var config struct {
		DiskUUID string `json:"diskUUID"`
	}
	if err := readJSON(disk, naming.DiskConfigFile, &config); err != nil {
		return nil, fmt.Errorf("identify disk %s: %w", uuid, withoutNotExist(err))
	}
	if uuid == "" || config.DiskUUID != uuid {
		return nil, fmt.Errorf("at %s is disk %q, not %q", real, config.DiskUUID, uuid)
	}
	if err := directory.Is(disk, naming.ReplicaDirectory); err != nil {
		return nil, err
	}
	replicas, err := disk.OpenRoot(naming.ReplicaDirectory)
	if err != nil {
		return nil, fmt.Errorf("open folder of replicas: %w", err)
	}
	return replicas, nil
}

// withoutNotExist keeps a missing disk from being taken for a missing directory on it.
func withoutNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New(err.Error())
	}
	return err
}

// readJSON reads a regular file; it neither waits for the writer of a pipe nor follows a link.
func readJSON(root *os.Root, name string, into any) error {
	before, err := root.Lstat(name)
	if err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || !os.SameFile(before, info) || info.Size() > maxFile {
		return fmt.Errorf("%s is not a regular file of at most %d bytes", f.Name(), maxFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// validName says whether a name is one of a replica's directory, and no path.
func validName(name string) bool {
	return filepath.Base(name) == name && naming.IsReplicaDataDirectory(name)
}

// looksStray says whether a directory is a replica's that nobody has just changed.
func looksStray(now time.Time, replicas *os.Root, name string) bool {
	info, err := replicas.Lstat(name)
	if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < restBefore {
		return false
	}
	var meta struct{ Size int64 }
	return readJSON(replicas, filepath.Join(name, metaFile), &meta) == nil && meta.Size > 0
}

// eachName calls visit with the names in a directory.
func eachName(root *os.Root, visit func(name string)) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(listAtOnce)
		for _, name := range names {
			visit(name)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// exists says whether the directory of a replica is on a disk.
func exists(real, uuid, name string) (bool, error) {
	replicas, err := openReplicas(real, uuid)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer replicas.Close()
	err = directory.Is(replicas, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// inUse says whether a process has the directory open as a replica's.
func inUse(replicas *os.Root, name string) bool {
	dir, err := directory.Hold(replicas, name)
	if err != nil {
		return true
	}
	return dir.Close() != nil
}

// remove deletes a replica's directory from the disk with the UUID, unless a process uses it.
func remove(real, uuid, name string) error {
	if !validName(name) {
		return fmt.Errorf("%q is not the name of a replica directory", name)
	}
	replicas, err := openReplicas(real, uuid)
	if err != nil {
		return err
	}
	defer replicas.Close()
	dir, err := directory.Hold(replicas, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	same, err := sameDevice(replicas, dir)
	if err != nil {
		return err
	}
	if !same {
		return fmt.Errorf("%s is on another file system than the disk", dir.Name())
	}
	if err := replicas.RemoveAll(name); err != nil {
		return err
	}
	parent, err := replicas.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// sameDevice says whether dir, opened in root by one name, is root's own entry of its file system.
func sameDevice(root *os.Root, dir *os.File) (bool, error) {
	parent, err := root.Open(".")
	if err != nil {
		return false, err
	}
	defer parent.Close()
	var above, here unix.Stat_t
	err = errors.Join(unix.Fstat(int(parent.Fd()), &above), unix.Fstat(int(dir.Fd()), &here))
	return err == nil && above.Dev == here.Dev, err
}
