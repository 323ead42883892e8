package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

type orphanRow = resource.Orphan

var orphanKind = kind[orphanRow]{
	name: "orphan", id: func(o orphanRow) string { return o.Name },
	none: "no orphans: everything on the nodes belongs to an object",
	columns: []column[orphanRow]{
		{header: "TYPE", value: func(o orphanRow) string { return o.OrphanType }},
		{header: "NODE", value: func(o orphanRow) string { return o.NodeID }},
		{header: "WHAT", value: what},
		{header: "WHERE", value: where},
		{header: "NAME", value: func(o orphanRow) string { return o.Name }},
	},
}

// what is the directory or the process that an orphan stands for.
func what(o orphanRow) string {
	if name := o.Parameters["DataName"]; name != "" {
		return name
	}
	return o.Parameters["InstanceName"]
}

// where is the disk, or the instance manager.
func where(o orphanRow) string {
	if path := o.Parameters["DiskPath"]; path != "" {
		return path
	}
	return o.Parameters["InstanceManager"]
}

func orphanNames(ctx context.Context, c *client.Client) ([]string, error) {
	all, err := c.Orphans(ctx)
	return namesOf(all, func(o orphanRow) string { return o.Name }), err
}

func (a *app) orphanCommands() *cobra.Command {
	c := &cobra.Command{Use: "orphan", Aliases: []string{"orphans"},
		Short: "Look at what is on the nodes and belongs to no object, and remove it"}
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List orphans", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			all, err := api.Orphans(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, orphanKind, all, false)
		}}
	a.addOutput(list)
	remove := &cobra.Command{Use: "delete NAME", Aliases: []string{"rm"},
		Short:             "Remove an orphan and what it stands for: a process is ended, a directory deleted",
		Args:              exactly("the orphan's name"),
		ValidArgsFunction: a.completeNames(1, orphanNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if err := api.DeleteOrphan(cmd.Context(), args[0]); err != nil {
				return named("orphan", args[0], err)
			}
			fmt.Fprintf(a.out, "orphan %s is being removed\n", args[0])
			return nil
		}}
	c.AddCommand(list, remove)
	return c
}
