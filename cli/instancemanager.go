package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

type managerRow = resource.InstanceManager

var managerKind = kind[managerRow]{
	name: "instance-manager", id: func(m managerRow) string { return m.Name },
	none: "no instance managers; one comes up on each node that is ready",
	columns: []column[managerRow]{
		{header: "NAME", value: func(m managerRow) string { return m.Name }},
		{header: "NODE", value: func(m managerRow) string { return m.NodeID }},
		{header: "STATE", value: func(m managerRow) string { return m.CurrentState }},
		{header: "ENGINES", right: true, value: func(m managerRow) string { return strconv.Itoa(len(m.InstanceEngines)) }},
		{header: "REPLICAS", right: true, value: func(m managerRow) string { return strconv.Itoa(len(m.InstanceReplicas)) }},
		{header: "IMAGE", value: func(m managerRow) string { return m.Image }},
		{header: "TYPE", wide: true, value: func(m managerRow) string { return m.ManagerType }},
		{header: "NOTE", value: managerNote},
	},
}

// managerNote is the first thing that is wrong with an instance manager.
func managerNote(m managerRow) string {
	for _, f := range managerProblems(&m) {
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
		a.describing("an instance manager", "the instance manager's name", managerNames, describeManager))
	return c
}

// processRow is a process of an instance manager.
type processRow struct {
	kind string
	resource.InstanceProcess
}

var processColumns = []column[processRow]{
	{header: "PROCESS", value: func(p processRow) string { return p.Spec.Name }},
	{header: "KIND", value: func(p processRow) string { return p.kind }},
	{header: "STATE", value: func(p processRow) string { return p.Status.State }},
	{header: "PORTS", value: func(p processRow) string {
		if p.Status.PortStart == 0 {
			return ""
		}
		return strconv.Itoa(int(p.Status.PortStart)) + "-" + strconv.Itoa(int(p.Status.PortEnd))
	}},
	{header: "ERROR", value: func(p processRow) string { return p.Status.ErrorMsg }},
}

func describeManager(ctx context.Context, api *client.Client, name string) (*described, error) {
	m, err := managerByName(ctx, api, name)
	if err != nil {
		return nil, err
	}
	return &described{Object: m, WaitsFor: waits(managerProblems(m)), of: "instance-manager/" + name,
		print: func(s *sheet) {
			s.pair("Manager", "%s", m.Name)
			s.pair("Node", "%s", m.NodeID)
			s.pair("State", "%s, type %s", orUnknown(m.CurrentState), orDash(m.ManagerType))
			s.pair("Image", "%s", m.Image)
			s.waitsFor()
			var rows []processRow
			for _, p := range sortedKeys(m.InstanceEngines) {
				rows = append(rows, processRow{"engine", m.InstanceEngines[p]})
			}
			for _, p := range sortedKeys(m.InstanceReplicas) {
				rows = append(rows, processRow{"replica", m.InstanceReplicas[p]})
			}
			sheetTable(s, "Processes", processColumns, rows)
			printConditions(s, "Conditions", m.Conditions)
		}}, nil
}
