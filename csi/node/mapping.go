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
	"k8s.io/apimachinery/pkg/util/wait"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/hostpath"
)

// luksUUID begins the UUID of a device of device-mapper that cryptsetup has made for LUKS.
const luksUUID = "CRYPT-LUKS"

// mapping is a device of device-mapper that has the name of a volume.
type mapping struct {
	volume string
	number uint64
	// luks: cryptsetup has made it.
	luks bool
	// on are the devices that it stands on, and files what the loop devices among them are backed by.
	on    []uint64
	files []string
}

// standsOn: the mapping is that of the volume as it is.
func (m *mapping) standsOn(own device) bool { return m.luks && slices.Contains(m.on, own.number) }

// former: it stands on a device that the volume had before. The backing file of a volume's device
// has the volume's name; the one of a device of the host that happens to have it has not.
func (m *mapping) former() bool {
	return m.luks && len(m.files) == len(m.on) && !slices.ContainsFunc(m.files, func(file string) bool {
		return filepath.Base(strings.TrimSuffix(file, " (deleted)")) != m.volume
	})
}

// mapping finds the device of device-mapper that has the name of a volume; nil: there is none.
func (n *Server) mapping(volume string) (*mapping, error) {
	names, err := filepath.Glob(filepath.Join(n.sys, "block/*/dm/name"))
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) || strings.TrimSpace(string(text)) != volume {
			continue // the first two: it has gone meanwhile
		}
		if err != nil {
			return nil, err
		}
		return readMapping(volume, filepath.Dir(filepath.Dir(file)))
	}
	return nil, nil
}

// readMapping reads what sysfs says of one in its directory.
func readMapping(volume, dir string) (*mapping, error) {
	h, err := readHolder(dir)
	if err != nil {
		return nil, err
	}
	m := &mapping{volume: volume, number: h.number}
	uuid, err := os.ReadFile(filepath.Join(dir, "dm/uuid"))
	if err != nil {
		return nil, err
	}
	m.luks = strings.HasPrefix(string(uuid), luksUUID)
	below, err := filepath.Glob(filepath.Join(dir, "slaves/*"))
	if err != nil {
		return nil, err
	}
	for _, slave := range below {
		s, err := readHolder(slave)
		if err != nil {
			return nil, err
		}
		m.on = append(m.on, s.number)
		if file, err := os.ReadFile(filepath.Join(slave, "loop/backing_file")); err == nil {
			m.files = append(m.files, strings.TrimSpace(string(file)))
		}
	}
	return m, nil
}

// device is the mapper device. Whoever names devices may be a moment late.
func (m *mapping) device() (d device, err error) {
	d = device{path: hostpath.Resolve(naming.MappedDevicePath(m.volume)), mapped: true}
	// What it returns says no more than err does.
	_ = wait.ExponentialBackoff(busy, func() (bool, error) {
		var st unix.Stat_t
		err = unix.Stat(d.path, &st)
		if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != m.number) {
			err = fmt.Errorf("it is not device %s", deviceText(m.number))
		}
		d.number, d.in = st.Rdev, st.Dev
		return err == nil, nil
	})
	if err != nil {
		err = fmt.Errorf("mapper device %s: %w", d.shown(), err)
	}
	return d, err
}

// current finds the volume's own device and the one that its users have: the mapper device of an
// encrypted volume that is open, else its own.
func (n *Server) current(volume string) (own, used device, err error) {
	if own, err = lookup(volume); err != nil {
		return own, own, err
	}
	m, err := n.mapping(volume)
	if err != nil || m == nil || !m.standsOn(own) {
		return own, own, err
	}
	used, err = m.device()
	return own, used, err
}

// Numbers of calls and flags of linux/dm-ioctl.h.
const (
	dmRename         = 0xc138fd05 // _IOWR(0xfd, 5, struct dm_ioctl)
	dmDeferredRemove = 1 << 17
)

// setAside renames a device of device-mapper that somebody has open, so that its name is free, and
// has the kernel remove it when its last user has gone.
func setAside(name string, number uint64) error {
	f, err := os.OpenFile("/dev/mapper/control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var r struct {
		dmIoctl
		name [128]byte // the new one, where dataStart says
	}
	r.dmIoctl = newIoctl()
	r.dataSize = uint32(unsafe.Sizeof(r))
	copy(r.dmIoctl.name[:], name)
	copy(r.name[:], fmt.Sprintf("%s-former-%d-%d", name, unix.Major(number), unix.Minor(number)))
	if err := ioctl(f, dmRename, unsafe.Pointer(&r)); err != nil {
		return fmt.Errorf("renaming: %w", err)
	}
	m := newIoctl()
	m.number, m.flags = number, dmDeferredRemove
	if err := ioctl(f, dmRemove, unsafe.Pointer(&m)); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("removing: %w", err)
	}
	return nil
}
