package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// killPasses bounds the hunt for processes that fork while they are being killed. Each pass kills
// all that existed when it began, so only a fork bomb outlives a few.
const killPasses = 20

// Marker joins the parts of a marker.
func Marker(parts ...string) string { return strings.Join(parts, "|") + "|" }

// KillMarked sends SIGKILL to every process whose marker begins with prefix, until none is found,
// and returns how many it found. The calling process itself is never killed.
func KillMarked(prefix string) int {
	total := 0
	for range killPasses {
		pids := Marked(prefix)
		if len(pids) == 0 {
			return total
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		total += len(pids)
	}
	return total
}

// Marked lists the processes whose marker begins with prefix. A process that has ended but is not
// yet reaped has no environment any more and is not listed.
func Marked(prefix string) []int {
	if !strings.HasSuffix(prefix, "|") {
		panic("process: a marker prefix ends with the separator, or it would match siblings: " + prefix)
	}
	want := []byte(MarkerVariable + "=" + prefix)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	self := os.Getpid()
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == self {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && hasVariable(env, want) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// hasVariable looks for a variable at the start of one of the NUL-separated strings.
func hasVariable(env, want []byte) bool {
	for len(env) > 0 {
		i := bytes.IndexByte(env, 0)
		if bytes.HasPrefix(env, want) {
			return true
		}
		if i < 0 {
			return false
		}
		env = env[i+1:]
	}
	return false
}
