package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupRoot is where the machine mounts its control groups: one hierarchy (version 2), or a folder
// per hierarchy (version 1).
const cgroupRoot = "/sys/fs/cgroup"

// controllers of version 2 that a kubelet wants.
const controllers = "+cpuset +cpu +io +memory +pids"

// killWait bounds the wait for processes that were killed.
const killWait = 20 * time.Second

// unified reports whether the machine has version 2 only.
func unified() bool {
	var s unix.Statfs_t
	return unix.Statfs(cgroupRoot, &s) == nil && s.Type == unix.CGROUP2_SUPER_MAGIC
}

// hierarchies lists the folders below which a control group has to be made.
func hierarchies() ([]string, error) {
	if unified() {
		return []string{cgroupRoot}, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, fmt.Errorf("control groups: %w", err)
	}
	var list []string
	for _, e := range entries {
		dir := filepath.Join(cgroupRoot, e.Name())
		var s unix.Statfs_t
		if e.IsDir() && unix.Statfs(dir, &s) == nil && (s.Type == unix.CGROUP_SUPER_MAGIC ||
			s.Type == unix.CGROUP2_SUPER_MAGIC) {
			list = append(list, dir)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("control groups: nothing is mounted below %s", cgroupRoot)
	}
	return list, nil
}

// MakeCgroup makes a control group in all hierarchies, with the parents that it lacks.
func MakeCgroup(path string) error {
	list, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range list {
		at := h
		for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			if unified() {
				// What a controller is missing for shows at the kubelet, which names it.
				_ = os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte(controllers), 0)
			}
			parent := at
			at = filepath.Join(at, part)
			if err := os.MkdirAll(at, 0o755); err != nil {
				return fmt.Errorf("make control group: %w", err)
			}
			if err := inheritCPUs(parent, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// inheritCPUs fills what version 1 leaves empty in a new group: the CPUs and memory nodes, without
// which no process may enter.
func inheritCPUs(parent, group string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		have, err := os.ReadFile(filepath.Join(group, name))
		if errors.Is(err, fs.ErrNotExist) || len(strings.TrimSpace(string(have))) > 0 || unified() {
			continue
		}
		theirs, err := os.ReadFile(filepath.Join(parent, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(group, name), theirs, 0)
		}
		if err != nil {
			return fmt.Errorf("control group %s: %w", group, err)
		}
	}
	return nil
}

// EnterCgroup moves a process into a control group, in all hierarchies.
func EnterCgroup(path string, pid int) error {
	list, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range list {
		file := filepath.Join(h, path, "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("enter control group: %w", err)
		}
	}
	return nil
}

// below lists the groups of path, the deepest first.
func below(path string) ([]string, error) {
	list, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var groups []string
	for _, h := range list {
		_ = filepath.WalkDir(filepath.Join(h, path), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, p)
			}
			return nil // groups come and go
		})
	}
	slices.Reverse(groups)
	return groups, nil
}

// Processes lists the processes in a control group and below it.
func Processes(path string) ([]int, error) {
	groups, err := below(path)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, g := range groups {
		text, _ := os.ReadFile(filepath.Join(g, "cgroup.procs"))
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// RemoveCgroup kills what is in a control group and below it, and removes them all.
func RemoveCgroup(path string) error {
	deadline := time.Now().Add(killWait)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pids, err := Processes(path)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // one that is gone is what is wanted
		}
		groups, err := below(path)
		if err != nil {
			return err
		}
		var left error
		for _, g := range groups {
			if err := os.Remove(g); err != nil && !errors.Is(err, fs.ErrNotExist) {
				left = err
			}
		}
		if left == nil && len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove control group %s (processes %v): %w", path, pids, left)
		}
		<-tick.C
	}
}

// Cgroups lists a control group and those below it, in all hierarchies.
func Cgroups(path string) ([]string, error) { return below(path) }
