package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
)

func (a *app) engineCommands() *cobra.Command {
	c := &cobra.Command{Use: "engine", Aliases: []string{"engines"}, Short: "Look at the processes that serve volumes"}
	logs := a.logs("logs VOLUME|ENGINE", "Print what the engine of a volume has logged",
		"the name of the volume or engine", engineOf)
	logs.ValidArgsFunction = a.completeNames(1, volumeNames)
	c.AddCommand(logs)
	return c
}

func (a *app) replicaLogs() *cobra.Command {
	return a.logs("logs REPLICA", "Print what a replica has logged", "the replica's name",
		func(_ context.Context, _ *client.Client, name string) (string, error) { return name, nil })
}

// logs is a command that prints the log of the instance that resolve finds.
func (a *app) logs(use, short, argument string,
	resolve func(context.Context, *client.Client, string) (string, error)) *cobra.Command {
	var o client.LogOptions
	c := &cobra.Command{Use: use, Short: short, Args: usage.Exactly(argument),
		Long: short + `.

The log of a name goes on when its process is started again, so it also tells of earlier ones. It stays on the node after the
process has ended: with --node it can be read when the volume is detached, or deleted.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("tail") && o.Tail < 1 {
				return usage.Errorf("--tail %d: want a number of lines from 1 on", o.Tail)
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			name, err := resolve(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			err = api.InstanceLog(cmd.Context(), name, o, a.out)
			if o.Follow && cmd.Context().Err() != nil {
				return nil // Interrupting is how following ends.
			}
			return err
		}}
	c.Flags().BoolVarP(&o.Follow, "follow", "f", false, "go on until the process ends")
	c.Flags().Int64Var(&o.Tail, "tail", 0, "begin with the last so many lines (default all)")
	c.Flags().StringVar(&o.Node, "node", "", "node where the process ran (default where it is now)")
	_ = c.RegisterFlagCompletionFunc("node", a.completeNames(0, nodeNames))
	return c
}

// engineOf finds the engine of a volume; a name that is no volume's is taken for an engine's.
func engineOf(ctx context.Context, api *client.Client, name string) (string, error) {
	v, err := api.Volume(ctx, name)
	if client.IsNotFound(err) {
		return name, nil
	}
	if err != nil {
		return "", err
	}
	for _, e := range v.Controllers {
		if e.HostID != "" {
			return e.Name, nil
		}
	}
	if len(v.Controllers) == 0 {
		return "", fmt.Errorf("volume %s has no engine yet; look again with: ankole volume get %[1]s", name)
	}
	return v.Controllers[0].Name, nil
}
