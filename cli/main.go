package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// Exit statuses.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// Environment variables.
const (
	// EnvServer names the server when --server is not given.
	EnvServer = "ANKOLE_SERVER"
	// EnvToken holds the bearer token, which has no flag: arguments are visible to other users.
	EnvToken = "ANKOLE_TOKEN"
)

// completionTimeout bounds what a press of the tabulator key may cost.
const completionTimeout = 2 * time.Second

// app is what all commands share.
type app struct {
	out, err io.Writer
	server   string
	output   string
	// terminal says that err is a terminal, where progress can be drawn.
	terminal bool
}

// usageError is a command that was not understood.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// Main runs a command line and returns the exit status. SIGINT and SIGTERM end it.
func Main(args []string, in io.Reader, out, err io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, args, in, out, err)
}

func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{out: out, err: errOut}
	if f, ok := errOut.(*os.File); ok {
		a.terminal = term.IsTerminal(int(f.Fd()))
	}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	which, err := root.ExecuteContextC(ctx)
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(errOut, "error: %v\nusage: %s\nhelp: %s --help\n", err, which.UseLine(), which.CommandPath())
		return exitUsage
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(errOut, "interrupted")
		return exitError
	}
	fmt.Fprintf(errOut, "error: %v\n", a.explain(err))
	return exitError
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "ankole",
		Short: "Replicated block storage for Kubernetes",
		Long: `Replicated block storage for Kubernetes.

The command talks to a cluster's API: ` + client.DefaultServer + ` unless --server or ` + EnvServer + ` say otherwise.
` + EnvToken + ` holds the bearer token where one is needed.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	server := os.Getenv(EnvServer)
	if server == "" {
		server = client.DefaultServer
	}
	root.PersistentFlags().StringVar(&a.server, "server", server, "address of the API")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return &usageError{err}
	})
	root.AddCommand(a.volumeCommands(), a.snapshotCommands(), a.engineCommands(), a.replicaCommands(), a.nodeCommands(),
		a.settingCommands(), a.orphanCommands(), a.standaloneCommand(),
		a.demoCommand(), a.versionCommand())
	rejectUnknownSubcommands(root)
	return root
}

// rejectUnknownSubcommands makes groups of commands refuse a subcommand they do not have, which
// cobra otherwise answers with help and success.
func rejectUnknownSubcommands(c *cobra.Command) {
	if c.HasSubCommands() && c.Run == nil && c.RunE == nil {
		c.SuggestionsMinimumDistance = 2
		c.Args = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := ""
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				hint = "; did you mean " + strings.Join(near, " or ") + "?"
			}
			return usagef("%q has no command %q%s", c.CommandPath(), args[0], hint)
		}
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	for _, sub := range c.Commands() {
		rejectUnknownSubcommands(sub)
	}
}

// exactly is the argument rule of commands that take a fixed number of arguments, given by name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usagef("%s is missing", names[len(args)])
		}
		if len(args) > len(names) {
			return usagef("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// atMost is the argument rule of commands whose arguments are optional.
func atMost(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("unexpected argument %q", args[n])
		}
		return nil
	}
}

// client returns a client of the server asked for.
func (a *app) client() (*client.Client, error) {
	c, err := client.New(a.server, os.Getenv(EnvToken))
	if err != nil {
		return nil, &usageError{err}
	}
	return c, nil
}

// missing is an object that does not exist, with the command that lists those that do.
type missing struct{ kind, name string }

func (m *missing) Error() string {
	return fmt.Sprintf("%s %s not found; list %ss with: ankole %s list", m.kind, m.name, m.kind, m.kind)
}

// named gives an error about one object the words a person needs.
func named(kind, name string, err error) error {
	if client.IsNotFound(err) {
		return &missing{kind, name}
	}
	return err
}

// explain adds the next step to errors that have one for every command.
func (a *app) explain(err error) error {
	switch {
	case errors.Is(err, client.ErrUnreachable):
		var op *net.OpError
		if errors.As(err, &op) {
			err = op
		}
		return fmt.Errorf(
			"no answer from %s (%w)\nstart a cluster with: ankole standalone, or name another one with --server or %s",
			a.server, err, EnvServer)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("timed out: %w; raise --timeout, or look again with: ankole volume list", err)
	}
	return err
}

// completeNames completes the first arguments of a command with names of the cluster.
func (a *app) completeNames(max int, names func(context.Context, *client.Client) ([]string,
	error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if max > 0 && len(args) >= max {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := a.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		all, err := names(ctx, c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []string
		for _, n := range all {
			if strings.HasPrefix(n, prefix) {
				out = append(out, n)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func volumeNames(ctx context.Context, c *client.Client) ([]string, error) {
	all, err := c.Volumes(ctx)
	return namesOf(all, func(v volumeRow) string { return v.Name }), err
}

// replicaNames gives the names of a volume's replicas.
func replicaNames(volume string) func(context.Context, *client.Client) ([]string, error) {
	return func(ctx context.Context, c *client.Client) ([]string, error) {
		v, err := c.Volume(ctx, volume)
		if err != nil {
			return nil, err
		}
		return namesOf(v.Replicas, func(r resource.Replica) string { return r.Name }), nil
	}
}

func nodeNames(ctx context.Context, c *client.Client) ([]string, error) {
	all, err := c.Nodes(ctx)
	return namesOf(all, func(n nodeRow) string { return n.Name }), err
}

func settingNames(ctx context.Context, c *client.Client) ([]string, error) {
	all, err := c.Settings(ctx)
	return namesOf(all, func(s settingRow) string { return s.Name }), err
}

func namesOf[T any](all []T, name func(T) string) []string {
	var out []string
	for _, one := range all {
		out = append(out, name(one))
	}
	return out
}
