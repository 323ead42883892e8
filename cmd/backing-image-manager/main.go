// Command backing-image-manager keeps the files of backing images on one disk (daemon), or makes
// one of them (data-source).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"ankole.storage/dataplane/backingimage/daemon"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// A second signal ends the program at once; what it was making is removed by the next one.
	context.AfterFunc(ctx, stop)
	os.Exit(daemon.Main(ctx))
}
