package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"ankole.storage/rest/client"
)

func (a *app) replicaCommands() *cobra.Command {
	c := &cobra.Command{Use: "replica", Aliases: []string{"replicas"},
		Short: "Look at the copies of volumes, also without a cluster"}
	get := getting(a, replicaKind, "Show replicas", "the replica's name", allReplicaNames,
		func(ctx context.Context, api *client.Client, name string) (*replicaRow, error) {
			r, _, err := replicaByName(ctx, api, name)
			return r, err
		})
	inspect, hash, export, check := replicaFileCommands(a.out, a.err, a.terminal)
	a.noDryRun(export)
	c.AddCommand(a.replicaList(), get, a.describing("a replica", "the replica's name", allReplicaNames, describeReplica),
		a.replicaLogs(), a.replicaDelete(), inspect, hash, export, check)
	return c
}

// allReplicas lists the replicas of all volumes.
func allReplicas(ctx context.Context, api *client.Client) ([]replicaRow, error) {
	volumes, err := api.Volumes(ctx)
	return replicaRows(volumes), err
}

func replicaRows(volumes []volumeRow) []replicaRow {
	var rows []replicaRow
	for _, v := range volumes {
		for _, r := range v.Replicas {
			rows = append(rows, replicaRow{v.Name, r})
		}
	}
	return rows
}

func allReplicaNames(ctx context.Context, api *client.Client) ([]string, error) {
	all, err := allReplicas(ctx, api)
	return namesOf(all, func(r replicaRow) string { return r.Name }), err
}

func (a *app) replicaList() *cobra.Command {
	c := &cobra.Command{Use: "list [VOLUME…]", Aliases: []string{"ls"}, Short: "List the replicas of volumes, or of all",
		Example:           "  ankole replica list --filter node=node-1 --sort volume",
		ValidArgsFunction: a.completeNames(0, volumeNames)}
	s := addSelection(c, replicaKind)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		if len(args) == 0 {
			rows, err := allReplicas(cmd.Context(), api)
			if err != nil {
				return err
			}
			return showSelected(a, replicaKind, rows, s)
		}
		var volumes []volumeRow
		err = a.each(args, func(name string) error {
			v, err := api.Volume(cmd.Context(), name)
			if err == nil {
				volumes = append(volumes, *v)
			}
			return named("volume", name, err)
		})
		if len(volumes) == 0 {
			return err
		}
		return errors.Join(showSelected(a, replicaKind, replicaRows(volumes), s), err)
	}
	a.addOutput(c)
	return c
}

func (a *app) settingCommands() *cobra.Command {
	c := &cobra.Command{Use: "setting", Aliases: []string{"settings"}, Short: "Read and change settings of the cluster"}
	list := listing(a, settingKind, "List settings", func(ctx context.Context, api *client.Client) ([]settingRow, error) {
		all, err := api.Settings(ctx)
		return a.listed(all), err
	})
	get := getting(a, settingKind, "Show settings", "the setting's name", settingNames,
		func(ctx context.Context, api *client.Client, name string) (*settingRow, error) {
			s, err := api.Setting(ctx, name)
			return s, settingError(err)
		})
	set := &cobra.Command{Use: "set NAME VALUE", Short: "Change a setting",
		Args:              exactly("the setting's name", "the value"),
		Example:           "  ankole setting set default-replica-count 2",
		ValidArgsFunction: a.completeNames(1, settingNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			s, err := api.SetSetting(cmd.Context(), args[0], args[1])
			if err != nil {
				return settingError(err)
			}
			if a.output != outputTable {
				return show(a, settingKind, []settingRow{*s}, true)
			}
			fmt.Fprintf(a.out, "setting %s is now %s\n", s.Name, orDash(s.Value))
			return nil
		}}
	a.addOutput(set)
	c.AddCommand(list, get, set)
	return c
}
