package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"ankole.storage/cli/kube"
	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/cli/view"
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
	// EnvToken holds the bearer token, which is no flag's value: arguments are visible to other
	// users.
	EnvToken = "ANKOLE_TOKEN"
	// EnvTokenFile names a file with the token, where neither that nor a flag gives one.
	EnvTokenFile = "ANKOLE_TOKEN_FILE"
)

// completionTimeout bounds what a press of the tabulator key may cost.
const completionTimeout = 2 * time.Second

// app is what all commands share.
type app struct {
	out, err io.Writer
	server   string
	output   string
	// credentials are what flags say about the bearer token.
	credentials credentials
	// reach is what flags say about the way to the server.
	reach reach
	// plugin says that kubectl runs this program: "kubectl ankole".
	plugin bool
	// terminal says that err is a terminal, where progress can be drawn.
	terminal bool
	// dryRun is --dry-run: requests that change something are shown and not sent.
	dryRun bool
	// now is the time that ages are counted to.
	now func() time.Time
	// api is the client, made when it is asked for first.
	api *client.Client
}

// Main runs a command line and returns the exit status. SIGINT and SIGTERM end it.
func Main(args []string, in io.Reader, out, err io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := newApp(out, err)
	a.plugin = isPlugin(os.Args[0])
	return a.run(ctx, args, in)
}

func newApp(out, errOut io.Writer) *app {
	a := &app{out: out, err: errOut, now: time.Now}
	if f, ok := errOut.(*os.File); ok {
		a.terminal = term.IsTerminal(int(f.Fd()))
	}
	return a
}

// run runs a command line and returns the exit status.
func (a *app) run(ctx context.Context, args []string, in io.Reader) int {
	root, errOut := a.root(), a.err
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(a.out)
	root.SetErr(errOut)
	which, err := root.ExecuteContextC(ctx)
	a.reach.close()
	var mistyped *usage.Error
	switch {
	case err == nil, errors.Is(err, client.ErrDryRun):
		return exitOK
	case errors.As(err, &mistyped):
		fmt.Fprintf(errOut, "error: %s\nusage: %s\nhelp: %s --help\n", a.spelled(err.Error()), which.UseLine(),
			which.CommandPath())
		return exitUsage
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(errOut, "interrupted")
		return exitError
	}
	fmt.Fprintf(errOut, "error: %s\n", a.spelled(a.explain(err).Error()))
	return exitError
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "ankole",
		Short: "Replicated block storage for Kubernetes",
		Long: `Replicated block storage for Kubernetes.

The command talks to a cluster's API: ` + client.DefaultServer + ` unless --server or ` + EnvServer + ` say otherwise.
Where a Kubernetes token is needed, it is that of --token-file, of --kubeconfig, in ` + EnvToken + `,
or in the file that ` + EnvTokenFile + ` names.
With --port-forward it goes through the Kubernetes API server instead, with the user's kubeconfig; so it does
by itself as kubectl plugin: put it on the PATH as kubectl-ankole, and type kubectl ankole.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	if a.plugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl ankole"}
	}
	f := root.PersistentFlags()
	a.addServerFlags(f)
	f.BoolVar(&a.dryRun, "dry-run", false, "show the requests that would change something, and send none of them")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return &usage.Error{Err: err}
	})
	a.addCommands(root)
	rejectUnknownSubcommands(root)
	return root
}

// addCommands adds the commands in the groups in which help lists them.
func (a *app) addCommands(root *cobra.Command) {
	backups, images := backupApp{a}, imageApp{a}
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"look", "The cluster as a whole:", []*cobra.Command{lookApp{a}.statusCommand(), lookApp{a}.eventCommands()}},
		{"volumes", "Volumes and what belongs to them:", []*cobra.Command{a.volumeCommands(),
			snapshotApp{a}.snapshotCommands(),
			backups.backupCommands(), backups.backupTargetCommands(), backups.standbyCommands(), images.backingImageCommands(),
			images.imageBackupCommands(), jobApp{a}.recurringJobCommands(), a.replicaCommands(), a.engineCommands()}},
		{"machines", "Nodes and what runs on them:", []*cobra.Command{a.nodeCommands(), diskApp{a}.diskCommands(),
			a.instanceManagerCommands(), engineApp{a}.engineImageCommands(), a.orphanCommands(), a.settingCommands()}},
		{"local", "On this machine:", []*cobra.Command{a.standaloneCommand(), a.demoCommand(), a.versionCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("local")
	root.SetCompletionCommandGroupID("local")
}

// nearest is what to say to words of which the first is no command.
func nearest(c *cobra.Command, words []string) string {
	if near := c.SuggestionsFor(words[0]); len(near) > 0 {
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	if !c.HasParent() {
		if with := kindsWith(c, words[0]); len(with) > 0 {
			kind := "volume"
			for _, sub := range with {
				if len(words) > 1 && (sub.Name() == words[1] || slices.Contains(sub.Aliases, words[1])) {
					kind = sub.Name()
				}
			}
			return fmt.Sprintf("; the kind of object comes first, for instance: %s %s %s", c.Name(), kind, words[0])
		}
	}
	return fmt.Sprintf("; list its commands with: %s --help", c.CommandPath())
}

// kindsWith are the kinds of objects that have a command of a name. People who know kubectl begin
// with what is to be done, as in "get volumes".
func kindsWith(root *cobra.Command, verb string) []*cobra.Command {
	var with []*cobra.Command
	for _, sub := range root.Commands() {
		if slices.ContainsFunc(sub.Commands(), func(c *cobra.Command) bool { return c.Name() == verb }) {
			with = append(with, sub)
		}
	}
	return with
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
			return usage.Errorf("%q has no command %q%s", c.CommandPath(), args[0], nearest(c, args))
		}
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	for _, sub := range c.Commands() {
		rejectUnknownSubcommands(sub)
	}
}

// showRequest is what a dry run prints of a request.
func (a *app) showRequest(method, path string, body []byte) {
	fmt.Fprintf(a.out, "would send: %s %s %s\n", method, path, output.OrDash(string(body)))
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
	var reaching *kube.Error
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%s: %w; name the authorities of the server with --ca-file", a.server, unknown)
	case errors.As(err, &reaching):
		return reaching
	case errors.Is(err, client.ErrUnreachable):
		if a.reach.tunnel != nil {
			return fmt.Errorf("no answer from the managers through %s: %w; try again, or look at them with: "+
				"kubectl -n %s get pods", a.reach.tunnel.Where(), err, a.reach.namespace)
		}
		var op *net.OpError
		if errors.As(err, &op) {
			err = op
		}
		return fmt.Errorf(
			"no answer from %s (%w)\nstart a cluster with: ankole standalone, or name another one with --server or %s",
			a.server, err, EnvServer)
	case client.IsUnauthenticated(err):
		return fmt.Errorf("%w\nsend a token: set %s or %s, or give --token-file or --kubeconfig; make one with: "+
			"kubectl -n longhorn-system create token ACCOUNT; a standalone cluster has one in its folder, file rest-token",
			err, EnvToken, EnvTokenFile)
	}
	return err
}

// completeNames completes the first max arguments of a command with names of the cluster; 0 means
// any number, each name once.
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
			if strings.HasPrefix(n, prefix) && (max > 0 || !slices.Contains(args, n)) {
				out = append(out, n)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func volumeNames(ctx context.Context, c *client.Client) ([]string, error) {
	all, err := c.Volumes(ctx)
	return namesOf(all, func(v view.VolumeRow) string { return v.Name }), err
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
	return namesOf(all, func(n view.NodeRow) string { return n.Name }), err
}

func settingNames(ctx context.Context, c *client.Client) ([]string, error) {
	all, err := c.Settings(ctx)
	return namesOf(all, func(s view.SettingRow) string { return s.Name }), err
}

func namesOf[T any](all []T, name func(T) string) []string {
	var out []string
	for _, one := range all {
		out = append(out, name(one))
	}
	return out
}
