package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/cli/offline"
	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/cli/view"
	"ankole.storage/rest/client"
)

func (a *app) replicaCommands() *cobra.Command {
	c := &cobra.Command{Use: "replica", Aliases: []string{"replicas"},
		Short: "Look at the copies of volumes, also without a cluster"}
	get := getting(a, view.ReplicaKind, "Show replicas", "the replica's name", allReplicaNames,
		func(ctx context.Context, api *client.Client, name string) (*view.ReplicaRow, error) {
			r, _, err := replicaByName(ctx, api, name)
			return r, err
		})
	inspect, hash, export, check := offline.Commands(a.out, a.err, a.terminal)
	a.noDryRun(export)
	c.AddCommand(a.replicaList(), get,
		lookApp{a}.describing("a replica", "the replica's name", allReplicaNames, describeReplica),
		a.replicaLogs(), repairApp{a}.replicaDelete(), inspect, hash, export, check)
	return c
}

// allReplicas lists the replicas of all volumes.
func allReplicas(ctx context.Context, api *client.Client) ([]view.ReplicaRow, error) {
	volumes, err := api.Volumes(ctx)
	return replicaRows(volumes), err
}

func replicaRows(volumes []view.VolumeRow) []view.ReplicaRow {
	var rows []view.ReplicaRow
	for _, v := range volumes {
		for _, r := range v.Replicas {
			rows = append(rows, view.ReplicaRow{Volume: v.Name, Replica: r})
		}
	}
	return rows
}

func allReplicaNames(ctx context.Context, api *client.Client) ([]string, error) {
	all, err := allReplicas(ctx, api)
	return namesOf(all, func(r view.ReplicaRow) string { return r.Name }), err
}

func (a *app) replicaList() *cobra.Command {
	c := &cobra.Command{Use: "list [VOLUME…]", Aliases: []string{"ls"}, Short: "List the replicas of volumes, or of all",
		Example:           "  ankole replica list --filter node=node-1 --sort volume",
		ValidArgsFunction: a.completeNames(0, volumeNames)}
	s := output.AddSelection(c, view.ReplicaKind)
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
			return showSelected(a, view.ReplicaKind, rows, s)
		}
		var volumes []view.VolumeRow
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
		return errors.Join(showSelected(a, view.ReplicaKind, replicaRows(volumes), s), err)
	}
	a.addOutput(c)
	return c
}

func (a *app) settingCommands() *cobra.Command {
	c := &cobra.Command{Use: "setting", Aliases: []string{"settings"}, Short: "Read and change settings of the cluster"}
	list := listing(a, view.SettingKind, "List settings",
		func(ctx context.Context, api *client.Client) ([]view.SettingRow, error) {
			all, err := api.Settings(ctx)
			return a.listed(all), err
		})
	get := getting(a, view.SettingKind, "Show settings", "the setting's name", settingNames,
		func(ctx context.Context, api *client.Client, name string) (*view.SettingRow, error) {
			s, err := api.Setting(ctx, name)
			return s, settingError(err)
		})
	set := &cobra.Command{Use: "set NAME VALUE", Short: "Change a setting",
		Args:              usage.Exactly("the setting's name", "the value"),
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
			if a.output != output.Plain {
				return show(a, view.SettingKind, []view.SettingRow{*s}, true)
			}
			fmt.Fprintf(a.out, "setting %s is now %s\n", s.Name, output.OrDash(s.Value))
			return nil
		}}
	a.addOutput(set)
	c.AddCommand(list, get, set)
	return c
}

// settingError adds where to look for the names and values of settings.
func settingError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "is not supported"):
		return fmt.Errorf("%w; list settings with: ankole setting list", err)
	case strings.Contains(text, "with invalid value"), strings.Contains(text, "is read-only"):
		return fmt.Errorf("%w; see what each setting takes with: ankole setting list -o wide", err)
	}
	return err
}
