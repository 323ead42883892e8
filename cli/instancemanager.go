package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/view"
	"ankole.storage/rest/client"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

type managerRow = resource.InstanceManager

var managerKind = output.Kind[managerRow]{
	Name: "instance-manager", Id: func(m managerRow) string { return m.Name },
	None: "no instance managers; one comes up on each node that is ready",
	Columns: []output.Column[managerRow]{
		{Header: "NAME", Value: func(m managerRow) string { return m.Name }},
		{Header: "NODE", Value: func(m managerRow) string { return m.NodeID }},
		{Header: "STATE", Value: func(m managerRow) string { return m.CurrentState }},
		{Header: "ENGINES", Right: true, Value: func(m managerRow) string { return strconv.Itoa(len(m.InstanceEngines)) }},
		{Header: "REPLICAS", Right: true, Value: func(m managerRow) string { return strconv.Itoa(len(m.InstanceReplicas)) }},
		{Header: "IMAGE", Value: func(m managerRow) string { return m.Image }},
		{Header: "TYPE", Wide: true, Value: func(m managerRow) string { return m.ManagerType }},
		{Header: "NOTE", Value: managerNote},
	},
}

// managerNote is the first thing that is wrong with an instance manager.
func managerNote(m managerRow) string {
	for _, f := range findings.ManagerProblems(&m) {
		if m.CurrentState == "running" {
			return f.What
		}
	}
	return ""
}

func managerNames(ctx context.Context, c *client.Client) ([]string, error) {
	all, err := c.InstanceManagers(ctx)
	return namesOf(all, func(m managerRow) string { return m.Name }), err
}

func managerByName(ctx context.Context, c *client.Client, name string) (*managerRow, error) {
	all, err := c.InstanceManagers(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, &missing{"instance-manager", name}
}

func (a *app) instanceManagerCommands() *cobra.Command {
	c := &cobra.Command{Use: "instance-manager", Aliases: []string{"instance-managers", "im"},
		Short: "Look at the Pods that hold the processes of volumes"}
	c.AddCommand(listing(a, managerKind, "List instance managers",
		func(ctx context.Context, api *client.Client) ([]managerRow, error) { return api.InstanceManagers(ctx) }),
		getting(a, managerKind, "Show instance managers", "the instance manager's name", managerNames, managerByName),
		lookApp{a}.describing("an instance manager", "the instance manager's name", managerNames, describeManager))
	return c
}

// processRow is a process of an instance manager.
type processRow struct {
	kind string
	resource.InstanceProcess
}

var processColumns = []output.Column[processRow]{
	{Header: "PROCESS", Value: func(p processRow) string { return p.Spec.Name }},
	{Header: "KIND", Value: func(p processRow) string { return p.kind }},
	{Header: "STATE", Value: func(p processRow) string { return p.Status.State }},
	{Header: "PORTS", Value: func(p processRow) string {
		if p.Status.PortStart == 0 {
			return ""
		}
		return strconv.Itoa(int(p.Status.PortStart)) + "-" + strconv.Itoa(int(p.Status.PortEnd))
	}},
	{Header: "ERROR", Value: func(p processRow) string { return p.Status.ErrorMsg }},
}

func describeManager(ctx context.Context, api *client.Client, name string) (*described, error) {
	m, err := managerByName(ctx, api, name)
	if err != nil {
		return nil, err
	}
	return &described{Object: managerObject{InstanceManager: m}, WaitsFor: m.WaitsFor, of: "instance-manager/" + name,
		print: func(s *output.Sheet) {
			s.Pair("Manager", "%s", m.Name)
			s.Pair("Node", "%s", m.NodeID)
			s.Pair("State", "%s, type %s", output.OrUnknown(m.CurrentState), output.OrDash(m.ManagerType))
			s.Pair("Image", "%s", m.Image)
			s.WaitsFor()
			var rows []processRow
			for _, p := range output.SortedKeys(m.InstanceEngines) {
				rows = append(rows, processRow{"engine", m.InstanceEngines[p]})
			}
			for _, p := range output.SortedKeys(m.InstanceReplicas) {
				rows = append(rows, processRow{"replica", m.InstanceReplicas[p]})
			}
			output.SheetTable(s, "Processes", processColumns, rows)
			view.PrintConditions(s, "Conditions", m.Conditions)
		}}, nil
}
