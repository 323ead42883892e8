package powerdisk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Disk is a block device in memory. Its methods are called by one goroutine at a time.
type Disk struct {
	run    *Run
	name   string
	number int
	size   int64
	fuse   int
	wake   [2]int
	loop   int
	done   chan error // the server's end
	at     string     // where it is mounted, "" while it is not

	mu      sync.Mutex
	image   *Image
	journal *Journal
	broken  bool
}

// Options of a disk.
type Options struct {
	// Image is its content; the disk changes it.
	Image *Image
	// Journal, unless nil, gets what happens to it, under Number.
	Journal *Journal
	Number  int
	// Seed makes the order of answers repeatable as far as the kernel is.
	Seed uint64
}

// Open makes a disk. name is unique within the run.
func (r *Run) Open(name string, o Options) (*Disk, error) {
	d := &Disk{run: r, name: name, number: o.Number, size: o.Image.Size(), image: o.Image, journal: o.Journal, loop: -1,
		done: make(chan error, 1)}
	if err := os.MkdirAll(d.dir(), 0o700); err != nil {
		return nil, err
	}
	if err := unix.Pipe2(d.wake[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("powerdisk %s: %w", name, err)
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("powerdisk %s: /dev/fuse: %w", name, err)
	}
	d.fuse = fd
	opts := fmt.Sprintf("fd=%d,rootmode=40700,user_id=0,group_id=0,max_read=%d", fd, maxTransfer)
	if err := unix.Mount(r.label(name), d.dir(), "fuse.powerdisk", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		opts); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("powerdisk %s: mount: %w", name, err)
	}
	s := &server{d: d, fd: fd, wake: d.wake[0], buf: make([]byte, recvSize), rng: rand.New(rand.NewPCG(o.Seed, 77))}
	go func() { d.done <- s.run() }()
	if d.loop, err = attach(filepath.Join(d.dir(), fileName), r.label(name)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Disk) dir() string { return filepath.Join(d.run.dir, "fuse", d.name) }

// Path is the block device.
func (d *Disk) Path() string { return "/dev/loop" + strconv.Itoa(d.loop) }

// Snapshot returns the content as it is now.
func (d *Disk) Snapshot() *Image {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.image.Clone()
}

// FailSyncs makes every flush fail from now on, as a disk does that has lost what it was given.
func (d *Disk) FailSyncs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = true
}

// Exchange gives an unmounted disk another content, and another journal or none.
func (d *Disk) Exchange(m *Image, j *Journal) error {
	if m.Size() != d.size || d.at != "" {
		return fmt.Errorf("powerdisk %s: mounted at %q, or an image of %d instead of %d bytes", d.name, d.at, m.Size(),
			d.size)
	}
	d.mu.Lock()
	d.image, d.journal = m, j
	d.mu.Unlock()
	return d.forget()
}

// forget empties the kernel's cache of the device.
func (d *Disk) forget() error {
	fd, err := unix.Open(d.Path(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.IoctlSetInt(fd, unix.BLKFLSBUF, 0)
}

// Format makes a file system, "ext4" or "xfs".
func (d *Disk) Format(fs string) error {
	var c *exec.Cmd
	switch fs {
	case "ext4":
		c = exec.Command("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-E",
			"lazy_itable_init=0,lazy_journal_init=0", d.Path())
	case "xfs":
		c = exec.Command("mkfs.xfs", "-q", "-f", d.Path())
	default:
		return fmt.Errorf("powerdisk: no file system %q", fs)
	}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", c, err, out)
	}
	return nil
}

// Mount mounts the file system and returns where.
func (d *Disk) Mount(fs string) (string, error) {
	at := filepath.Join(d.run.dir, "mnt", d.name)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return "", err
	}
	opts := ""
	if fs == "xfs" {
		opts = "nouuid" // states of one disk are mounted beside each other
	}
	if err := unix.Mount(d.Path(), at, fs, 0, opts); err != nil {
		return "", fmt.Errorf("mount %s, %s: %w", d.Path(), fs, err)
	}
	d.at = at
	return at, nil
}

// Unmount unmounts it; everything in it must be closed.
func (d *Disk) Unmount() error {
	if d.at == "" {
		return nil
	}
	if err := Unmount(d.at); err != nil {
		return err
	}
	d.at = ""
	return nil
}

// Close takes the device away, with force where it is in use.
func (d *Disk) Close() error {
	var errs []error
	if err := d.Unmount(); err != nil {
		errs = append(errs, err, unix.Unmount(d.at, unix.MNT_DETACH))
	}
	if d.loop >= 0 {
		errs = append(errs, detach(d.loop))
	}
	errs = append(errs, unix.Unmount(d.dir(), unix.MNT_DETACH))
	_, err := unix.Write(d.wake[1], []byte{0})
	errs = append(errs, err, <-d.done)
	for _, fd := range []int{d.fuse, d.wake[0], d.wake[1]} {
		errs = append(errs, unix.Close(fd)) // the first ends what the kernel still waits for
	}
	return errors.Join(errs...)
}
