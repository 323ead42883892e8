package rig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Disk is a small file system of one replica. It is mounted nowhere: processes reach it through a
// descriptor of the test's, and the kernel takes it apart when the last of them is gone.
type Disk struct {
	fd    int
	image *os.File
}

// ErrNoDisk says why small file systems cannot be made here.
var ErrNoDisk = errors.New("no small file systems here")

// newDisk makes an ext4 file system in memory: how long a sync of the machine's disk takes is then
// nobody's business.
func newDisk(name string, size int64) (*Disk, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: they need root", ErrNoDisk)
	}
	m, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDisk, err)
	}
	f := os.NewFile(uintptr(m), name)
	if err := f.Truncate(size); err != nil {
		return nil, err
	}
	dev, err := attachLoop(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDisk, err)
	}
	defer dev.Close() // the mount keeps the device, and the device goes with it
	// No blocks for root: the replica runs as root, and full has to mean full. Blocks as large as
	// those of the file systems that replicas live on, though a small one would have smaller. On
	// the device, not on the file: for a file mkfs.ext4 asks every loop device that is mounted on
	// this machine whether it lies on it, and one whose engine another test has stopped does not
	// answer.
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096",
		dev.Name()).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: mkfs.ext4: %w: %s", ErrNoDisk, err, out)
	}
	fd, err := mountDetached(dev.Name())
	if err != nil {
		return nil, fmt.Errorf("%w: mount of %s: %w", ErrNoDisk, dev.Name(), err)
	}
	return &Disk{fd: fd, image: f}, nil
}

// loopTries bounds the race for a free loop device with everybody else on the machine.
const loopTries = 20

// attachLoop puts a loop device on f that goes away with its last user.
func attachLoop(f *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range loopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("free loop device: %w", err)
		}
		dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		cfg := unix.LoopConfig{Fd: uint32(f.Fd())}
		cfg.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		if err = unix.IoctlLoopConfigure(int(dev.Fd()), &cfg); err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach %s: %w", dev.Name(), err)
		}
	}
	return nil, errGaveUp
}

func mountDetached(dev string) (int, error) {
	fs, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "source", dev); err != nil {
		return -1, err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}

// Path is the root of the file system, for every process while the test lives.
func (d *Disk) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), d.fd) }

// fillerName is the file that takes the space.
const fillerName = "filler"

// Fill takes all space that is left but for keep bytes.
func (d *Disk) Fill(keep int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(d.fd, &st); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.Path(), fillerName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	free := int64(st.Bavail)*st.Bsize - keep
	block := bytes.Repeat([]byte{0xff}, 64<<10)
	for ; free > 0; free -= int64(len(block)) {
		if _, err := f.Write(block[:min(free, int64(len(block)))]); err != nil {
			if errors.Is(err, unix.ENOSPC) {
				break
			}
			return err
		}
	}
	if err := f.Sync(); err != nil && !errors.Is(err, unix.ENOSPC) {
		return err
	}
	return nil
}

// Free gives back what Fill took.
func (d *Disk) Free() error {
	err := os.Remove(filepath.Join(d.Path(), fillerName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// keep copies the file system's image to a file, for a look at it.
func (d *Disk) keep(path string) error {
	if d == nil {
		return nil
	}
	root, err := os.Open(d.Path()) // the descriptor of a mount is good for paths only
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Syncfs(int(root.Fd())), root.Close()); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.NewSectionReader(d.image, 0, 1<<62))
	return errors.Join(err, out.Close())
}

func (d *Disk) close() {
	if d == nil {
		return
	}
	unix.Close(d.fd)
	d.image.Close()
}
