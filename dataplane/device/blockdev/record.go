package blockdev

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// record is what a file beside the node says of a volume's ublk device: the mark that the device
// has. It is written before the device is made, and removed after it. The lock on the file tells a
// device that is served, or waits for its next server, from one that is left.
type record struct {
	Mark uint64 `json:"mark"`
}

// maxRecord holds any record.
const maxRecord = 256

// newMark returns a mark that no other device has.
func newMark() uint64 {
	var p [8]byte
	_, _ = rand.Read(p[:]) // it never fails
	return binary.NativeEndian.Uint64(p[:])
}

func (d *Device) recordPath() string { return filepath.Join(d.cfg.DeviceDir, "."+d.cfg.Volume+".ublk") }

// recordedVolume is the volume of a record's name; any other name is its own.
func recordedVolume(name string) string {
	if volume, ok := strings.CutSuffix(name, ".ublk"); ok && strings.HasPrefix(volume, ".") {
		return volume[1:]
	}
	return name
}

// writeRecord makes the file of the record, which must not be there, and returns it locked.
func (d *Device) writeRecord(r record) (int, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Open(d.recordPath(), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, fmt.Errorf("make %s: %w", d.recordPath(), err)
	}
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		var n int
		if n, err = unix.Pwrite(fd, text, 0); err == nil && n != len(text) {
			err = unix.ENOSPC
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("write %s: %w", d.recordPath(), errors.Join(err, os.Remove(d.recordPath())))
	}
	return fd, nil
}

// readRecord reads an open record. One that is not whole is of a device that was not made.
func readRecord(fd int) (r record, ok bool) {
	p := make([]byte, maxRecord)
	n, err := unix.Pread(fd, p, 0)
	if err != nil {
		return r, false
	}
	return r, json.Unmarshal(p[:n], &r) == nil
}

// left is what the record of a volume leads to.
type left struct {
	// held: the device is served, or waits for its next server.
	held bool
	// numbers of the devices that have the record's mark: one, or none.
	numbers []uint32
}

// leftUblk looks for the record and for its device; nil: there is no record.
func (d *Device) leftUblk() (*left, error) {
	fd, err := unix.Open(d.recordPath(), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.recordPath(), err)
	}
	defer unix.Close(fd) // with the lock
	l := &left{}
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if l.held = errors.Is(err, unix.EWOULDBLOCK); !l.held && err != nil {
		return nil, fmt.Errorf("lock %s: %w", d.recordPath(), err)
	}
	r, ok := readRecord(fd)
	if !ok {
		return l, nil
	}
	l.numbers, err = markedUblk(r.Mark)
	return l, err
}

// markedUblk returns the numbers of devices that have a mark.
func markedUblk(mark uint64) ([]uint32, error) {
	all, err := ublkNumbers()
	if err != nil {
		return nil, err
	}
	var found []uint32
	for _, n := range all {
		info, err := ublkInfoOf(n)
		switch {
		case errors.Is(err, unix.ENODEV): // it has gone meanwhile
		case err != nil:
			return nil, fmt.Errorf("ublk device %d: %w", n, err)
		case info.mark == mark:
			found = append(found, n)
		}
	}
	return found, nil
}

// recoverUblk removes the device of a dead predecessor, its node, and the record. One that is
// served is not touched; whoever merely keeps it for its next server is not asked.
func (d *Device) recoverUblk(ctx context.Context) error {
	l, err := d.leftUblk()
	if err != nil || l == nil {
		return err
	}
	for _, n := range l.numbers {
		if err := awaitUnserved(ctx, d.cfg.Timeout, n); err != nil {
			return err
		}
		if err := ublkRemove(ctx, d.cfg.Timeout, n); err != nil {
			return err
		}
	}
	// The record is of this node: as long as it is there no other kind of device has one.
	var st unix.Stat_t
	if unix.Lstat(d.Path(), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && unix.Major(st.Rdev) != loopMajor {
		if err := ignoreMissing(os.Remove(d.Path())); err != nil {
			return err
		}
		if err := d.cfg.relink(); err != nil {
			return err
		}
	}
	return ignoreMissing(os.Remove(d.recordPath()))
}

// awaitUnserved waits until the kernel says that nobody serves a device: it notices the end of a
// server within seconds.
func awaitUnserved(ctx context.Context, most time.Duration, number uint32) error {
	late := time.After(most)
	for {
		info, err := ublkInfoOf(number)
		if errors.Is(err, unix.ENODEV) || err == nil && info.state != ublkLive {
			return nil
		}
		if err != nil {
			return fmt.Errorf("ublk device %d: %w", number, err)
		}
		select {
		case <-time.After(ublkRetry):
		case <-late:
			return fmt.Errorf("ublk device %d: %w; stop it first", number, ErrInUse)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
