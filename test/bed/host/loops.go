package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ankole.storage/host/mountinfo"
)

// LoopsBelow lists the machine's loop devices whose files are in the folder: the disks of nodes.
func LoopsBelow(dir string) ([]string, error) {
	return loops(func(_, file string) bool { return strings.HasPrefix(file, dir+"/") })
}

// DeadLoops lists loop devices of volumes that no engine can serve any more. They are what a node
// leaves that was killed: its mounts end with it, and the kernel's loop devices do not. The file
// system of such a device is mounted nowhere, so its file seems to lie in the root directory, where
// there is none; engines make them for direct I/O. A device of a living node looks the same from
// here, but for the mount that some process of it sees. The devices themselves are not asked: one
// that waits for its engine does not answer.
func DeadLoops() ([]string, error) {
	served := map[string]bool{}
	if err := eachTable(func(table []mountinfo.Mount) { addServed(served, table) }); err != nil {
		return nil, fmt.Errorf("loop devices: %w", err)
	}
	return loops(func(device, file string) bool {
		_, err := os.Lstat(file)
		direct, _ := os.ReadFile("/sys/block/" + device + "/loop/dio")
		return filepath.Dir(file) == "/" && errors.Is(err, fs.ErrNotExist) && !strings.HasSuffix(file, " (deleted)") &&
			strings.TrimSpace(string(direct)) == "1" && !served[filepath.Base(file)]
	})
}

// eachTable calls f for the table of mounts of every process of the machine.
func eachTable(f func([]mountinfo.Mount)) error {
	tables, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		return err
	}
	for _, t := range tables {
		var unread error
		mounts, err := mountinfo.Table(func() (text []byte, _ error) {
			text, unread = os.ReadFile(t)
			return text, unread
		})
		if unread != nil {
			continue // the process has ended
		}
		if err != nil {
			return err
		}
		f(mounts)
	}
	return nil
}

// engineMount is the type of the file systems in which engines have their devices.
const engineMount = "fuse.ankole"

// addServed adds the files that the engines' file systems in a table of mounts hold: each has one,
// which is named as the directory on which it is mounted.
func addServed(served map[string]bool, table []mountinfo.Mount) {
	for _, m := range table {
		if m.Type == engineMount {
			served[filepath.Base(m.Target)] = true
		}
	}
}

// DetachLoop detaches a loop device; one in use goes when its last user closes it.
func DetachLoop(device string) error {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("detach %s: %w", device, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", device, err)
	}
	return nil
}

// loops lists the loop devices whose file is as wanted.
func loops(wanted func(device, file string) bool) ([]string, error) {
	entries, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("loop devices: %w", err)
	}
	var list []string
	for _, e := range entries {
		text, err := os.ReadFile(e)
		if err != nil {
			continue // it has none any more
		}
		device := strings.Split(e, "/")[3]
		if wanted(device, strings.TrimSpace(string(text))) {
			list = append(list, "/dev/"+device)
		}
	}
	return list, nil
}
