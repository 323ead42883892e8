package process

import (
	"bytes"
	"strings"
	"syscall"

	"ankole.storage/host/environ"
)

// killPasses bounds the search for processes that fork while they are being killed. Each pass kills
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
			break
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
func Marked(prefix string) (pids []int) {
	if !strings.HasSuffix(prefix, "|") {
		panic("process: a marker prefix ends with the separator, or it would match siblings: " + prefix)
	}
	want := []byte(MarkerVariable + "=" + prefix)
	environments.Each(environments.Processes(), func(pid int, env []byte) {
		if hasVariable(env, want) {
			pids = append(pids, pid)
		}
	})
	return pids
}

// environments leaves out processes whose environment cannot be read at the moment, since they wait
// for a volume: they are taken for none of ours.
var environments environ.Reader

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
