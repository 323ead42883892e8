// Command csi is the CSI driver: it makes volumes for claims of Kubernetes and brings them into the
// Pods of its node.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"ankole.storage/csi"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := csi.Command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "csi:", err)
		os.Exit(1)
	}
}
