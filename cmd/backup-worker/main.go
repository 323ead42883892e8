// Command backup-worker touches a backup store for an engine, or for the command line of the engine
// program, which start it.
package main

import (
	"context"
	"fmt"
	"os"

	"ankole.storage/backup/worker"
	"ankole.storage/backup/worker/work"
	"ankole.storage/host/hostpath"
)

func main() {
	f := os.NewFile(worker.Descriptor, "parent")
	if _, err := f.Stat(); err != nil {
		fmt.Fprintln(os.Stderr, "backup-worker: engines and their command line start this program; its parent is missing")
		os.Exit(1)
	}
	if err := work.Main(context.Background(), f, hostpath.Resolve); err != nil {
		fmt.Fprintln(os.Stderr, "backup-worker:", err)
		os.Exit(1)
	}
}
