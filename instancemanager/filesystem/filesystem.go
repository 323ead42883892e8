// Package filesystem works on the file systems that are mounted from volumes on this node.
//
// The mounts are the host's: the kubelet makes them, outside the instance manager's Pod. They are
// found in the list of mounts of the host's first process and used by a thread that has gone into
// its mount namespace.
//
// The kernel does not end work on a file system while its volume answers no requests, and nobody
// can kill what waits for it. So it is done by a process of its own, a helper (helper.go), there is
// one per volume and purpose at most, and whoever has asked for the work may leave, or end. A
// helper has none of the descriptors of this process, and the thread that works none but the first
// three: they would keep block devices that wait here for their next engine.
package filesystem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ankole.storage/host/barethread"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/mountinfo"
)

// Errors for errors.Is.
var (
	// ErrNotMounted: the volume is not mounted here.
	ErrNotMounted = errors.New("not mounted on this node")
	// ErrCovered: something else is mounted on top of it.
	ErrCovered = errors.New("covered by another mount")
	// ErrRefused: the kernel does not do it.
	ErrRefused = errors.New("refused by the kernel")
	// ErrInvalid: that is no name of a volume.
	ErrInvalid = errors.New("invalid volume name")
	// ErrBusy: it is done already, for somebody else.
	ErrBusy = errors.New("under way already")
)

const (
	// hostProcess is where a Pod sees the host's first process. A process node's Pods share the
	// machine's mounts.
	hostProcess = "/host/proc/1"
	ownProcess  = "/proc/self"
	// mountsOf is the link below it that names a process's mount namespace.
	mountsOf = "ns/mnt"
	// maxName bounds a name: it becomes a file name.
	maxName = 255
)

// Where a volume's block devices are: its own, and the decrypted one on top of it.
const (
	ownDirectory    = "/dev/longhorn/"
	mapperDirectory = "/dev/mapper/"
)

// devicesBy has a directory for each block device, by its numbers. Tests have another one.
var devicesBy = "/sys/dev/block/"

// Node does what this package does, for everybody in this process.
type Node struct {
	*Quiescer
	remounts, trims busyVolumes
}

func checkName(volume string) error {
	if volume == "" || len(volume) > maxName || strings.ContainsAny(volume, "/\x00") || volume == "." || volume == ".." {
		return fmt.Errorf("%w %.64q", ErrInvalid, volume)
	}
	return nil
}

// apart tells whether a process has mounts that the host does not see and that end with it, as in a
// container. Who may not know what the host's mount namespace is, as on a process node, has it.
func apart(host, own string) bool {
	theirs, err := os.Readlink(filepath.Join(host, mountsOf))
	ours, ownErr := os.Readlink(filepath.Join(own, mountsOf))
	return err == nil && (ownErr != nil || ours != theirs)
}

// host is the process whose mounts are looked at.
func host() string {
	if process := hostpath.Resolve(hostProcess); apart(process, ownProcess) {
		return process
	}
	return ownProcess
}

// Of returns the mounts of a volume's file systems; none is no error. former are those from a block
// device that the volume had before: one that has ended stays under its mounts, and nothing makes
// them work again.
type Of func(volume string) (own, former []mountinfo.Mount)

// Mounts looks at the host's list of mounts once.
func Mounts() (Of, error) { return mountsIn(host()) }

func mountsIn(process string) (Of, error) {
	all, err := mountinfo.Table(func() ([]byte, error) { return os.ReadFile(filepath.Join(process, "mountinfo")) })
	if err != nil {
		return nil, fmt.Errorf("list of mounts: %w", err)
	}
	sources := make([]string, len(all))
	for i := range all {
		sources[i] = sourceOf(&all[i])
	}
	return func(volume string) (own, former []mountinfo.Mount) {
		var wanted []string
		for _, d := range devicesOf(volume) {
			wanted = append(wanted, d.numbers)
		}
		plain, mapped := hostpath.Resolve(ownDirectory+volume), hostpath.Resolve(mapperDirectory+volume)
		for i := range all {
			m := &all[i]
			switch {
			case slices.Contains(wanted, m.Device) || slices.Contains(wanted, sources[i]):
				own = append(own, *m)
			case anonymous(m):
			case m.Source == plain || m.Source == mapped && stoodOn(volume, m.Device):
				former = append(former, *m)
			}
		}
		return own, former
	}, nil
}

// stoodOn tells whether a block device is made of one that was the volume's. A logical volume of
// the host may have the volume's name too.
func stoodOn(volume, upper string) bool {
	return below(upper, "loop/backing_file", func(file string) bool {
		return filepath.Base(strings.TrimSuffix(file, " (deleted)")) == volume
	})
}

// mounts returns the mounts of a volume's file systems.
func mounts(process, volume string) ([]mountinfo.Mount, error) {
	own, _, err := allMounts(process, volume)
	return own, err
}

// allMounts returns those from a device that the volume had before too.
func allMounts(process, volume string) (own, former []mountinfo.Mount, err error) {
	if err := checkName(volume); err != nil {
		return nil, nil, err
	}
	of, err := mountsIn(process)
	if err != nil {
		return nil, nil, err
	}
	own, former = of(volume)
	return own, former, nil
}

// withoutNumbers are the types of file systems that stand on block devices and have numbers of
// their own, "0:45", in the list of mounts. Their source tells the device. That of other types is a
// text that anybody who mounts can choose.
var withoutNumbers = []string{"btrfs", "bcachefs"}

// anonymous tells whether a mount's numbers are not those of a device.
func anonymous(m *mountinfo.Mount) bool { return strings.HasPrefix(m.Device, "0:") }

// sourceOf returns the numbers of the block device that such a file system stands on, else nothing.
func sourceOf(m *mountinfo.Mount) string {
	if !anonymous(m) || !slices.Contains(withoutNumbers, m.Type) || !strings.HasPrefix(m.Source, "/dev/") {
		return ""
	}
	return numbersOf(hostpath.Resolve(m.Source))
}

// device is a block device: the path to open, and "major:minor".
type device struct{ path, numbers string }

// devicesOf are the volume's block devices that are there: its own, and the one on top of it. A
// device of that name that stands on another one is not the volume's, but a logical volume of the
// host, say.
func devicesOf(volume string) []device {
	own := device{path: hostpath.Resolve(ownDirectory + volume)}
	if own.numbers = numbersOf(own.path); own.numbers == "" {
		return nil
	}
	mapped := device{path: hostpath.Resolve(mapperDirectory + volume)}
	if mapped.numbers = numbersOf(mapped.path); mapped.numbers == "" || !standsOn(mapped.numbers, own.numbers) {
		return []device{own}
	}
	return []device{own, mapped}
}

// numbersOf returns "major:minor" of a block device, or nothing if it is none.
func numbersOf(path string) string {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	return fmt.Sprintf("%d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev))
}

// standsOn tells whether one block device is made of another one.
func standsOn(upper, lower string) bool {
	return below(upper, "dev", func(numbers string) bool { return numbers == lower })
}

// below tells whether an attribute of one of the block devices that another one is made of is as
// wanted.
func below(upper, attribute string, wanted func(text string) bool) bool {
	files, err := filepath.Glob(devicesBy + upper + "/slaves/*/" + attribute)
	return err == nil && slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && wanted(strings.TrimSpace(string(text)))
	})
}

// best are the mounts through which a volume's file system can be changed, in the order in which
// they are tried: the writable ones if there are any, since some are read-only because a Pod wants
// it so; the oldest first, which is the one that the kubelet stages.
func best(volume string, list []mountinfo.Mount) ([]mountinfo.Mount, error) {
	if len(list) == 0 {
		return nil, fmt.Errorf("volume %s is %w", volume, ErrNotMounted)
	}
	writable := slices.DeleteFunc(slices.Clone(list), func(m mountinfo.Mount) bool { return m.ReadOnly() })
	if len(writable) > 0 {
		list = writable
	}
	return slices.SortedFunc(slices.Values(list), func(a, b mountinfo.Mount) int { return a.ID - b.ID }), nil
}

// inNamespaceOf runs f in the mount namespace of a process, on a thread of its own: f may do what
// barethread.Run allows.
func inNamespaceOf(process string, f func() error) error {
	return barethread.Run(func() error {
		if process != ownProcess {
			if err := enter(process); err != nil {
				return fmt.Errorf("mount namespace of the host: %w", err)
			}
		}
		return f()
	})
}

// enter moves the thread to the namespace, where it stays.
func enter(process string) error {
	namespace, err := unix.Open(filepath.Join(process, mountsOf), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(namespace)
	// A thread that shares its working directory with others may not leave its namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	return unix.Setns(namespace, unix.CLONE_NEWNS)
}
