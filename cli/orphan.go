package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

type orphanRow = resource.Orphan

var orphanKind = output.Kind[orphanRow]{
	Name: "orphan", Id: func(o orphanRow) string { return o.Name },
	None: "no orphans: everything on the nodes belongs to an object",
	Columns: []output.Column[orphanRow]{
		{Header: "TYPE", Value: func(o orphanRow) string { return o.OrphanType }},
		{Header: "NODE", Value: func(o orphanRow) string { return o.NodeID }},
		{Header: "WHAT", Value: what},
		{Header: "WHERE", Value: where},
		{Header: "NAME", Value: func(o orphanRow) string { return o.Name }},
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
	one := func(ctx context.Context, api *client.Client, name string) (*orphanRow, error) {
		all, err := api.Orphans(ctx)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if all[i].Name == name {
				return &all[i], nil
			}
		}
		return nil, &missing{"orphan", name}
	}
	remove := &cobra.Command{Use: "delete NAME…",
		Short: "Remove orphans and what they stand for: a process is ended, a directory deleted",
		Args:  usage.AtLeast(1, "the orphan's name"), ValidArgsFunction: a.completeNames(0, orphanNames)}
	c.AddCommand(listing(a, orphanKind, "List orphans",
		func(ctx context.Context, api *client.Client) ([]orphanRow, error) { return api.Orphans(ctx) }),
		getting(a, orphanKind, "Show orphans", "the orphan's name", orphanNames, one),
		a.deleting(remove, 0, func(ctx context.Context, api *client.Client, t target) (string, error) {
			o, err := one(ctx, api, t.name)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("orphan %s: %s %s in %s of node %s", t.name, o.OrphanType, what(*o), where(*o), o.NodeID), nil
		}, func(ctx context.Context, api *client.Client, t target) (string, error) {
			return "orphan " + t.name + " is being removed", named("orphan", t.name, api.DeleteOrphan(ctx, t.name))
		}))
	return c
}
