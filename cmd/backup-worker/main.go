// Command backup-worker touches a backup store for an engine, or for the command line of the engine
// program, which start it.
package main

import (
	"context"
	"fmt"
	"os"

	"ankole.storage/backup/worker/work"
	"ankole.storage/host/hostpath"
)

func main() {
	if err := work.Main(context.Background(), hostpath.Resolve); err != nil {
		fmt.Fprintln(os.Stderr, "backup-worker:", err)
		os.Exit(1)
	}
}
