// Command instance-manager starts, watches and stops the engine and replica processes of a node.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"ankole.storage/instancemanager/daemon"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// A second signal ends the program at once; the kernel then kills the instances.
	context.AfterFunc(ctx, stop)
	os.Exit(daemon.Main(ctx))
}
