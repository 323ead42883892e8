package offline

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/disk"
)

// maxShownCommand keeps a process's command line from filling an error message.
const maxShownCommand = 120

// hold takes the directory's lock, shared, so that several tools may look but no replica may start.
// It creates nothing and works on read-only mounts.
func hold(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: there is no directory %s", disk.ErrNotFound, dir)
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no directory; name the directory that holds volume.meta", dir)
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%w: %s is open in %s; nothing was touched. Detach the volume or stop that process first",
			disk.ErrInUse, dir, lockHolder(f))
	}
	if err == nil {
		err = refuseWriters(dir)
	}
	if err != nil {
		_ = f.Close() // opened for reading only
		return nil, err
	}
	return f, nil
}

// lockHolder names the process that holds the lock of f, as far as the kernel tells: the one that
// took it may be in another process namespace.
func lockHolder(f *os.File) string {
	var st unix.Stat_t
	locks, err := os.Open("/proc/locks")
	if err != nil || unix.Fstat(int(f.Fd()), &st) != nil {
		return "another process"
	}
	defer locks.Close()
	device := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		// "1: FLOCK  ADVISORY  WRITE 1234 fd:00:5678 0 EOF"
		field := strings.Fields(lines.Text())
		if len(field) < 6 || field[1] != "FLOCK" || field[5] != device {
			continue
		}
		if pid, err := strconv.Atoi(field[4]); err == nil && pid > 0 {
			return process(pid)
		}
	}
	return "another process (the kernel does not say which; perhaps in another container)"
}

// process names a process for a message.
func process(pid int) string {
	name := fmt.Sprintf("process %d", pid)
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(command) == 0 {
		return name
	}
	text := strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " "))
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxShownCommand {
		text = text[:maxShownCommand] + "…"
	}
	return name + " (" + text + ")"
}

// fileID tells files apart whatever name and mount namespace they are seen through.
type fileID struct{ dev, inode uint64 }

func identify(path string) (fileID, bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return fileID{}, false
	}
	return fileID{uint64(st.Dev), st.Ino}, true
}

// refuseWriters looks for processes that have an image open for writing: reference engines take no
// lock. It sees only the processes that the caller may look into, all of them as root.
func refuseWriters(dir string) error {
	images, _ := filepath.Glob(filepath.Join(globEscape(dir), "*.img")) // the pattern is well formed
	mine := map[fileID]string{}
	for _, name := range images {
		if id, ok := identify(name); ok {
			mine[id] = filepath.Base(name)
		}
	}
	handles, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	self := fmt.Sprintf("/proc/%d/", os.Getpid())
	for _, h := range handles {
		id, ok := identify(h)
		name := mine[id]
		if !ok || name == "" || strings.HasPrefix(h, self) || !writes(h) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(h, "/")[2])
		if err != nil {
			continue
		}
		return fmt.Errorf(
			"%w: %s has %s of %s open for writing; nothing was touched. Detach the volume or stop that process first",
			disk.ErrInUse, process(pid), name, dir)
	}
	return nil
}

// globEscape keeps the characters of a path from being taken for a pattern.
func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// writes tells whether a descriptor below /proc is open for writing.
func writes(fd string) bool {
	info, err := os.ReadFile(strings.Replace(fd, "/fd/", "/fdinfo/", 1))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(info)) {
		if text, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(text), 8, 64)
			return err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY
		}
	}
	return false
}
