package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxStack bounds how many layers of devices are looked at above a volume.
const maxStack = 16

// holder is a block device that stands on another one: of device-mapper, such as a logical volume
// of LVM, or of md. It has the device below for itself while it exists, used or not.
type holder struct {
	// name in the kernel, such as dm-3; label is what people call it, empty for none.
	name, label string
	number      uint64
	// mapped: it is one of device-mapper.
	mapped bool
}

func (h holder) String() string {
	if h.label == "" {
		return h.name
	}
	return h.name + " (" + h.label + ")"
}

// holders are the devices that stand on a device or on its partitions.
func (n *Server) holders(number uint64) (found []holder, err error) {
	dir := filepath.Join(n.sys, "dev/block", deviceText(number))
	places := []string{filepath.Join(dir, "holders")}
	parts, err := filepath.Glob(filepath.Join(dir, "*", "partition"))
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		places = append(places, filepath.Join(filepath.Dir(p), "holders"))
	}
	for _, place := range places {
		entries, err := os.ReadDir(place)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has gone meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			h, err := readHolder(filepath.Join(place, e.Name()))
			if errors.Is(err, os.ErrNotExist) {
				continue // the same
			}
			if err != nil {
				return nil, err
			}
			found = append(found, h)
		}
	}
	return found, nil
}

// readHolder reads what sysfs says of a device in its directory.
func readHolder(dir string) (h holder, err error) {
	h.name = filepath.Base(dir)
	text, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		return h, err
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(text), "%d:%d", &major, &minor); err != nil {
		return h, fmt.Errorf("number %q of device %s: %w", text, h.name, err)
	}
	h.number = unix.Mkdev(major, minor)
	if label, err := os.ReadFile(filepath.Join(dir, "dm/name")); err == nil {
		h.label, h.mapped = strings.TrimSpace(string(label)), true
	}
	return h, nil
}

// releaseMappings removes the devices of device-mapper above a device that nobody has open, those
// on top first: a node activates what it finds of LVM on a volume, or a Pod has left it active, and
// nobody else would deactivate it. The kernel refuses those that are open.
func (n *Server) releaseMappings(number uint64, depth int) error {
	above, err := n.holders(number)
	if err != nil || depth > maxStack {
		return err
	}
	for _, h := range above {
		if err := n.releaseMappings(h.number, depth+1); err != nil {
			return err
		}
		if !h.mapped {
			continue
		}
		switch err := n.unmap(h.number); {
		case err == nil:
			n.log.Info("a device that nobody has open is removed from a volume that leaves the node", "device", h.String())
		case !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENXIO): // the last: it has gone
			return fmt.Errorf("removing device %s: %w", h, err)
		}
	}
	return nil
}

// user says who has a device for itself.
func (n *Server) user(d device) (string, error) {
	others, err := d.others()
	if err != nil {
		return "", err
	}
	if len(others) > 0 {
		return "a file system on it is still mounted at " + others[0].Target, nil
	}
	above, err := n.holders(d.number)
	if err != nil {
		return "", err
	}
	if len(above) > 0 {
		var names []string
		for _, h := range above {
			names = append(names, h.String())
		}
		slices.Sort(names)
		return strings.Join(names, ", ") + " on this node is made of it and in use: deactivate it (LVM: vgchange -an)", nil
	}
	return "a file system on it is still mounted in another mount namespace: some container keeps it", nil
}

// dmRemove is DM_DEV_REMOVE: _IOWR(0xfd, 4, struct dm_ioctl).
const dmRemove = 0xc138fd04

// dmIoctl is struct dm_ioctl of the kernel.
type dmIoctl struct {
	version                      [3]uint32
	dataSize, dataStart, targets uint32
	open                         int32
	flags, event, _              uint32
	number                       uint64
	name                         [128]byte
	uuid                         [129]byte
	_                            [7]byte
}

// newIoctl is one without data.
func newIoctl() dmIoctl {
	m := dmIoctl{version: [3]uint32{4, 0, 0}}
	m.dataSize = uint32(unsafe.Sizeof(m))
	m.dataStart = m.dataSize
	return m
}

// removeMapping removes a device of device-mapper unless somebody has it open: EBUSY.
func removeMapping(number uint64) error {
	f, err := os.OpenFile("/dev/mapper/control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	m := newIoctl()
	m.number = number
	return ioctl(f, dmRemove, unsafe.Pointer(&m))
}
