// Command manager is the control plane: node agent, admission webhooks and REST API on every node,
// and on the elected leader the controllers.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"ankole.storage/manager/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command.New().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(command.Status(err))
	}
}
