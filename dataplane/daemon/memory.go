package daemon

import (
	"log/slog"
	"os"
	"runtime/debug"

	"ankole.storage/dataplane/loop/posix"
)

// engineWorkers bounds an engine's file operations at a time: it has none, its data goes through
// sockets and devices. Every further one costs the memory of the runtime's per-processor caches.
const engineWorkers = 1

// loopVariable is the environment variable that has a replica do operations of files in a certain
// way (posix.FilesByRing, posix.FilesByPool).
const loopVariable = "ANKOLE_LOOP"

// replicaOptions are those of a replica's loop.
func replicaOptions(log *slog.Logger) posix.Options {
	o := memoryOptions(log, 0)
	o.Files = os.Getenv(loopVariable)
	return o
}

// engineOptions are those of an engine's loop, which has no files.
func engineOptions(log *slog.Logger) posix.Options {
	o := memoryOptions(log, engineWorkers)
	o.Files = posix.FilesByPool
	return o
}

// memoryOptions are those of a loop whose process has little memory when there is little to do.
func memoryOptions(log *slog.Logger, workers int) posix.Options {
	unmap := func() {
		if err := unmapProgram(); err != nil {
			log.Warn("an idle process keeps more of its program mapped than it uses", "error", err)
		}
	}
	return posix.Options{Workers: workers, OnRest: unmap, OnQuiet: func() {
		// What the collector still has of the load goes back to the system; what lies in pools
		// survives one collection.
		debug.FreeOSMemory()
		debug.FreeOSMemory()
		unmap()
	}}
}
