package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) replicaCommands() *cobra.Command {
	c := &cobra.Command{Use: "replica", Aliases: []string{"replicas"},
		Short: "Look at the copies of volumes, also without a cluster"}
	list := &cobra.Command{Use: "list [VOLUME]", Aliases: []string{"ls"},
		Short: "List the replicas of a volume, or of all", Args: atMost(1),
		ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			var volumes []volumeRow
			if len(args) > 0 {
				v, err := api.Volume(cmd.Context(), args[0])
				if err != nil {
					return named("volume", args[0], err)
				}
				volumes = []volumeRow{*v}
			} else if volumes, err = api.Volumes(cmd.Context()); err != nil {
				return err
			}
			var rows []replicaRow
			for _, v := range volumes {
				for _, r := range v.Replicas {
					rows = append(rows, replicaRow{v.Name, r})
				}
			}
			return show(a, replicaKind, rows, false)
		}}
	a.addOutput(list)
	c.AddCommand(list, a.replicaLogs(), a.replicaDelete(), a.replicaInspect(), a.replicaHash(), a.replicaExport(),
		a.replicaCheck())
	return c
}

func (a *app) nodeCommands() *cobra.Command {
	c := &cobra.Command{Use: "node", Aliases: []string{"nodes"}, Short: "Look at storage nodes and change them"}
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List nodes and their disks", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			all, err := api.Nodes(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, nodeKind, all, false)
		}}
	get := &cobra.Command{Use: "get NAME", Short: "Show one node", Args: exactly("the node's name"),
		ValidArgsFunction: a.completeNames(1, nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			n, err := api.Node(cmd.Context(), args[0])
			if err != nil {
				return named("node", args[0], err)
			}
			return show(a, nodeKind, []nodeRow{*n}, true)
		}}
	a.addOutput(list)
	a.addOutput(get)
	c.AddCommand(list, get, a.nodeSetCPU())
	return c
}

func (a *app) settingCommands() *cobra.Command {
	c := &cobra.Command{Use: "setting", Aliases: []string{"settings"}, Short: "Read and change settings of the cluster"}
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List settings", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			all, err := api.Settings(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, settingKind, a.listed(all), false)
		}}
	get := &cobra.Command{Use: "get NAME", Short: "Show one setting", Args: exactly("the setting's name"),
		ValidArgsFunction: a.completeNames(1, settingNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			s, err := api.Setting(cmd.Context(), args[0])
			if err != nil {
				return settingError(err)
			}
			return show(a, settingKind, []settingRow{*s}, true)
		}}
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
	for _, one := range []*cobra.Command{list, get, set} {
		a.addOutput(one)
		c.AddCommand(one)
	}
	return c
}
