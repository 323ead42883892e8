// Command ankole-standalone runs a whole cluster in one process: the Kubernetes control plane,
// process nodes and the manager. See package cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/standalone/cluster"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "ankole-standalone:", err)
		if errors.Is(err, cluster.ErrConfig) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

func command() *cobra.Command {
	cfg := cluster.Defaults()
	cmd := &cobra.Command{
		Use:           "ankole-standalone",
		Short:         "Run a storage cluster on this machine: Kubernetes, nodes and manager in one process",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signals()
			defer stop()
			if cfg.ExitWithStdin {
				// Ends with the process: a read from a terminal or pipe cannot be called off.
				go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
			}
			return cluster.Run(ctx, cfg, os.Stdout)
		},
	}
	cfg.Flags(cmd.Flags())
	return cmd
}

// impatience is how long after the first signal another one counts as a second: senders that signal
// a whole process group often reach its members twice.
const impatience = time.Second

// signals returns a context that ends with the first SIGINT or SIGTERM. A later one ends the
// process at once, and the kernel its Pods.
func signals() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ch
		first := time.Now()
		cancel()
		for range ch {
			if time.Since(first) > impatience {
				fmt.Println("second signal: ending at once")
				os.Exit(1)
			}
		}
	}()
	return ctx, cancel
}
