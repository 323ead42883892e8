// Package remount makes a volume's file system writable again where it is mounted.
//
// A file system that cannot write for a while, because its volume had no replica left or no space,
// makes itself read-only and stays so after the volume has recovered. Mounting it writable again
// spares its users a restart. The mounts are the host's: the kubelet makes them, outside the
// instance manager's Pod. They are found in the list of mounts of the host's first process and
// changed by a thread that has gone into its mount namespace.
//
// Two things can be read-only, a mount and the file system below it. A file system has many mounts:
// the one that the kubelet stages and one for each Pod, of which some are read-only because the Pod
// wants it so. Those stay. If one mount is writable, the file system is made writable through it;
// if none is, through the oldest one, which is the staged one, and that with it.
package remount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ankole.storage/barethread"
	"ankole.storage/hostpath"
)

// Errors for errors.Is.
var (
	// ErrNotMounted: the volume is not mounted here.
	ErrNotMounted = errors.New("not mounted on this node")
	// ErrRefused: the kernel does not let it be writable.
	ErrRefused = errors.New("cannot be made writable")
	// ErrInvalid: that is no name of a volume.
	ErrInvalid = errors.New("invalid volume name")
)

const (
	// hostProcess is where a Pod sees the host's first process. A process node's Pods share the
	// machine's mounts.
	hostProcess = "/host/proc/1"
	ownProcess  = "/proc/self"
	// maxName bounds a name: it becomes a file name.
	maxName = 255
)

// devices are the paths of a volume's block device: itself, and the decrypted one on top of it.
var devices = []string{"/dev/longhorn/", "/dev/mapper/"}

// Volume makes the mounted file system of a volume writable. It blocks as long as the volume's I/O
// does. One that is writable already stays as it is.
func Volume(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return fmt.Errorf("%w %.64q", ErrInvalid, name)
	}
	process := hostpath.Resolve(hostProcess)
	if _, err := os.Stat(process); err != nil {
		process = ownProcess
	}
	m, change, err := look(process, name)
	if err != nil || !change {
		return err
	}
	if err := inNamespaceOf(process, func() error { return m.writable(name) }); err != nil {
		return err
	}
	// The kernel may have agreed and changed nothing.
	if m, change, err = look(process, name); err == nil && change {
		err = m.refused(name, errors.New("it stays read-only"))
	}
	return err
}

// look finds the mount through which the volume's file system can be made writable, and tells
// whether it has to be.
func look(process, name string) (m mount, change bool, err error) {
	text, err := os.ReadFile(filepath.Join(process, "mountinfo"))
	if err != nil {
		return m, false, fmt.Errorf("list of mounts: %w", err)
	}
	list, err := parse(string(text))
	if err != nil {
		return m, false, err
	}
	return choose(name, ofDevices(list, numbers(name)))
}

// numbers are the device numbers of the volume's block devices that are there.
func numbers(name string) (out []string) {
	for _, dir := range devices {
		var s unix.Stat_t
		if unix.Stat(hostpath.Resolve(dir+name), &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFBLK {
			out = append(out, fmt.Sprintf("%d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev)))
		}
	}
	return out
}

// mount is one line of a mountinfo file.
type mount struct {
	id     int
	device string // "major:minor"
	target string
	// options are the mount's, super the file system's.
	options, super []string
}

func (m *mount) readOnly() bool { return slices.Contains(m.options, "ro") }

// superReadOnly: ext4 of recent kernels says emergency_ro after errors, and keeps
// that.
func (m *mount) superReadOnly() bool {
	return slices.Contains(m.super, "ro") || slices.Contains(m.super, "emergency_ro")
}

// parse reads a mountinfo file: see proc_pid_mountinfo(5).
func parse(text string) (list []mount, err error) {
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, rest := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(fields) < 6 || len(rest) < 3 {
			return nil, fmt.Errorf("list of mounts: cannot read the line %.200q", line)
		}
		m := mount{device: fields[2], target: unescape(fields[4]), options: strings.Split(fields[5], ","),
			super: strings.Split(rest[2], ",")}
		if m.id, err = strconv.Atoi(fields[0]); err != nil {
			return nil, fmt.Errorf("list of mounts: cannot read the line %.200q", line)
		}
		list = append(list, m)
	}
	return list, nil
}

// unescape turns the kernel's \ooo for blanks back.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func ofDevices(list []mount, numbers []string) []mount {
	return slices.DeleteFunc(list, func(m mount) bool { return !slices.Contains(numbers, m.device) })
}

// choose says through which mount, and whether anything is to be done.
func choose(name string, list []mount) (m mount, change bool, err error) {
	if len(list) == 0 {
		return m, false, fmt.Errorf("volume %s is %w", name, ErrNotMounted)
	}
	slices.SortFunc(list, func(a, b mount) int { return a.id - b.id })
	m = list[0]
	if i := slices.IndexFunc(list, func(m mount) bool { return !m.readOnly() }); i >= 0 {
		m = list[i]
	}
	return m, m.readOnly() || m.superReadOnly(), nil
}

// kept are the options, of a mount and of a file system, that mounting again would take away. A
// file system mounted with sync has answered a write when it is on stable storage, and the users
// of the volume may rely on that.
var kept = map[string]uintptr{"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	"nosymfollow": unix.MS_NOSYMFOLLOW, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC,
	"mand": unix.MS_MANDLOCK, "lazytime": unix.MS_LAZYTIME}

// writable mounts again, with the other options of the mount and of the file system. The file
// system keeps options of its own kind, which are not flags of the system call.
func (m *mount) writable(name string) error {
	flags := uintptr(unix.MS_REMOUNT)
	for _, o := range slices.Concat(m.options, m.super) {
		flags |= kept[o]
	}
	if err := unix.Mount("", m.target, "", flags, ""); err != nil {
		return m.refused(name, err)
	}
	return nil
}

func (m *mount) refused(name string, err error) error {
	return fmt.Errorf(
		"volume %s: its file system at %s %w: %w; if it has found errors, stop its users, check it and mount it again",
		name, m.target, ErrRefused, err)
}

// inNamespaceOf runs f in the mount namespace of a process, on a thread of its own. That has none
// of this process's descriptors, since mounting waits for the volume's requests: were the process
// killed meanwhile, the thread would keep the block devices that wait here for their next engine.
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
	namespace, err := unix.Open(filepath.Join(process, "ns", "mnt"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
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
