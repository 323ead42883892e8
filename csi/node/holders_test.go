package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
)

// stack is a sysfs with devices that stand on each other. The kernel of a test machine may have no
// device-mapper; the lowest one's hold on the volume is a file that is open exclusively.
type stack struct {
	*bed
	removed []string
	open    string // what somebody has open
}

func (s *stack) dir(number uint64) string {
	return filepath.Join(s.sys, "dev/block", deviceText(number))
}

// put puts a device on another one, or with a partition on that one's partition.
func (s *stack) put(on uint64, partition, name string, number uint64, label string) {
	s.Helper()
	place := s.dir(on)
	if partition != "" {
		place = filepath.Join(place, partition)
		s.must(os.MkdirAll(place, 0o700), os.WriteFile(filepath.Join(place, "partition"), []byte("1\n"), 0o600))
	}
	s.must(os.MkdirAll(filepath.Join(place, "holders"), 0o700), os.MkdirAll(filepath.Join(s.dir(number), "dm"), 0o700),
		os.WriteFile(filepath.Join(s.dir(number), "dev"), fmt.Appendf(nil, "%s\n", deviceText(number)), 0o600),
		os.Symlink(s.dir(number), filepath.Join(place, "holders", name)))
	if label != "" {
		s.must(os.WriteFile(filepath.Join(s.dir(number), "dm/name"), []byte(label+"\n"), 0o600))
	} else {
		s.must(os.Remove(filepath.Join(s.dir(number), "dm")))
	}
}

// TestUnstageUnderADevice: a volume of which another device is made does not leave the node while
// somebody has that open, and is told of what it is. What nobody has open is removed.
func TestUnstageUnderADevice(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	c := csitest.Capability("", csitest.Once)
	b.must(b.stage(c), b.publish(1, c, false), b.unpublish(1))
	s := &stack{bed: b}
	b.sys = t.TempDir()
	d, err := lookup(b.volume)
	b.must(err)
	hold, err := claim(b.loop)
	b.must(err)
	defer hold.Close()
	pool, lv := unix.Mkdev(253, 0), unix.Mkdev(253, 1)
	s.put(d.number, "", "dm-0", pool, "vg-pool")
	s.put(pool, "", "dm-1", lv, "vg-data")
	names := map[uint64]string{pool: "vg-pool", lv: "vg-data"}
	s.open = "vg-data"
	b.unmap = func(number uint64) error {
		above, err := b.holders(number)
		if err != nil || len(above) > 0 || names[number] == s.open {
			return unix.EBUSY
		}
		s.removed = append(s.removed, names[number])
		if number == pool {
			hold.Close()
			return os.Remove(filepath.Join(s.dir(d.number), "holders/dm-0"))
		}
		return os.Remove(filepath.Join(s.dir(pool), "holders/dm-1"))
	}
	for range 2 {
		err = b.unstage()
		csitest.Wants(t, err, codes.Internal)
		csitest.Says(t, err, "dm-0 (vg-pool)", "deactivate")
	}
	if len(s.removed) != 0 {
		t.Errorf("removed under its user: %v", s.removed)
	}
	s.open = ""
	b.must(b.unstage(), b.unstage())
	if want := []string{"vg-data", "vg-pool"}; !slices.Equal(s.removed, want) {
		t.Errorf("removed %v, want %v", s.removed, want)
	}
}

// TestUnstageWhilePublished: a block volume does not leave the node while a Pod has it. What the
// kubelet has bound for itself does not count.
func TestUnstageWhilePublished(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	c := csitest.Capability("", csitest.Once)
	b.must(b.stage(c), b.publish(1, c, false))
	own := filepath.Join(b.dir, "volumeDevices/pv-1/dev/pod-1")
	b.must(os.MkdirAll(filepath.Dir(own), 0o700), os.WriteFile(own, nil, 0o600))
	b.command("mount", "--bind", b.target(1), own)
	err := b.unstage()
	csitest.Wants(t, err, codes.Internal)
	csitest.Says(t, err, b.target(1))
	b.content("", 1, "still there")
	b.must(b.unpublish(1), b.unstage())
	b.command("umount", own)
}

// TestHolders: those on partitions count, and what is not of device-mapper is left alone.
func TestHolders(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	s := &stack{bed: b}
	b.sys = t.TempDir()
	b.unmap = func(number uint64) error { t.Errorf("%s is removed", deviceText(number)); return nil }
	d, err := lookup(b.volume)
	b.must(err)
	if above, err := b.holders(d.number); err != nil || len(above) != 0 {
		t.Errorf("nothing stands on it, yet: %v, %v", above, err)
	}
	s.put(d.number, "loop0p1", "md0", unix.Mkdev(9, 0), "")
	hold, err := claim(b.loop)
	b.must(err)
	defer hold.Close()
	err = b.unstage()
	csitest.Wants(t, err, codes.Internal)
	csitest.Says(t, err, "md0 on this node")
	hold.Close()
	b.must(b.unstage())
	s.sys = "/sys" // of the kernel: a loop device has an entry, and nothing stands on it
	if above, err := b.holders(d.number); err != nil || len(above) != 0 {
		t.Errorf("%v, %v", above, err)
	}
}

// TestIoctlIsTheKernels: the layout of what the kernel is given, by the size that the number of
// the call has in it and the offsets of linux/dm-ioctl.h.
func TestIoctlIsTheKernels(t *testing.T) {
	var m dmIoctl
	if size := unsafe.Sizeof(m); size != dmRemove>>16&0x3fff {
		t.Errorf("%d bytes, the call has %d", size, dmRemove>>16&0x3fff)
	}
	for name, at := range map[string][2]uintptr{"data_size": {unsafe.Offsetof(m.dataSize), 12},
		"data_start": {unsafe.Offsetof(m.dataStart), 16}, "dev": {unsafe.Offsetof(m.number), 40},
		"flags": {unsafe.Offsetof(m.flags), 28},
		"name":  {unsafe.Offsetof(m.name), 48}, "uuid": {unsafe.Offsetof(m.uuid), 176}} {
		if at[0] != at[1] {
			t.Errorf("%s is at %d, want %d", name, at[0], at[1])
		}
	}
}
