package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/cli/view"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// diskRow is a disk with the node that has it.
type diskRow struct {
	Node string `json:"node"`
	Name string `json:"name"`
	resource.DiskInfo
}

var diskKind = output.Kind[diskRow]{
	Name: "disk", Id: func(d diskRow) string { return d.Node + "/" + d.Name },
	None: "no disks; add one with: ankole disk add NODE NAME --path /srv/ankole",
	Columns: []output.Column[diskRow]{
		{Header: "NODE", Value: func(d diskRow) string { return d.Node }},
		{Header: "DISK", Value: func(d diskRow) string { return d.Name }},
		{Header: "PATH", Value: func(d diskRow) string { return d.Path }},
		{Header: "READY", Value: func(d diskRow) string { return view.ConditionText(d.Conditions["Ready"]) }},
		{Header: "SCHEDULABLE", Value: diskSchedulable},
		{Header: "REPLICAS", Right: true, Value: func(d diskRow) string { return strconv.Itoa(len(d.ScheduledReplica)) }},
		{Header: "SCHEDULED", Right: true, Value: func(d diskRow) string { return output.Size(d.StorageScheduled) },
			Number: func(d diskRow) float64 { return float64(d.StorageScheduled) }},
		{Header: "AVAILABLE", Right: true, Value: func(d diskRow) string { return output.Size(d.StorageAvailable) },
			Number: func(d diskRow) float64 { return float64(d.StorageAvailable) }},
		{Header: "SIZE", Right: true, Value: func(d diskRow) string { return output.Size(d.StorageMaximum) },
			Number: func(d diskRow) float64 { return float64(d.StorageMaximum) }},
		{Header: "RESERVED", Right: true, Value: func(d diskRow) string { return output.Size(d.StorageReserved) },
			Number: func(d diskRow) float64 { return float64(d.StorageReserved) }},
		{Header: "TAGS", Value: func(d diskRow) string { return strings.Join(d.Tags, ",") }},
		{Header: "UUID", Wide: true, Value: func(d diskRow) string { return d.DiskUUID }},
	},
}

// diskApp has the commands about the disks of nodes.
type diskApp struct{ *app }

func diskSchedulable(d diskRow) string {
	switch {
	case d.EvictionRequested:
		return "no (evicted)"
	case !d.AllowScheduling:
		return "no (disabled)"
	}
	return view.ConditionText(d.Conditions["Schedulable"])
}

func diskRows(nodes []resource.Node) []diskRow {
	var rows []diskRow
	for _, n := range nodes {
		for _, name := range output.SortedKeys(n.Disks) {
			rows = append(rows, diskRow{n.Name, name, n.Disks[name]})
		}
	}
	return rows
}

func (a diskApp) diskCommands() *cobra.Command {
	c := &cobra.Command{Use: "disk", Aliases: []string{"disks"},
		Short: "Look at the disks of storage nodes and change them"}
	c.AddCommand(a.diskList(), a.diskAdd(), a.diskRemove(), a.diskScheduling(), a.diskTag(), a.diskReserve(),
		a.diskEvict())
	return c
}

func (a diskApp) diskList() *cobra.Command {
	c := &cobra.Command{Use: "list [NODE…]", Aliases: []string{"ls"}, Short: "List the disks of nodes, or of all",
		ValidArgsFunction: a.completeNames(0, nodeNames)}
	s := output.AddSelection(c, diskKind)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		nodes, err := api.Nodes(cmd.Context())
		if err != nil {
			return err
		}
		if len(args) > 0 {
			for _, name := range args {
				if !slices.ContainsFunc(nodes, func(n view.NodeRow) bool { return n.Name == name }) {
					return &missing{"node", name}
				}
			}
			nodes = slices.DeleteFunc(nodes, func(n view.NodeRow) bool { return !slices.Contains(args, n.Name) })
		}
		return showSelected(a.app, diskKind, diskRows(nodes), s)
	}
	a.addOutput(c)
	return c
}

// diskUpdates is the wanted state of all disks of a node: what is changed is changed in it.
func diskUpdates(n *resource.Node) map[string]resource.DiskUpdate {
	out := map[string]resource.DiskUpdate{}
	for name, d := range n.Disks {
		out[name] = resource.DiskUpdate{Path: d.Path, DiskType: d.DiskType, DiskDriver: d.DiskDriver,
			AllowScheduling: d.AllowScheduling, EvictionRequested: d.EvictionRequested, StorageReserved: d.StorageReserved,
			Tags: d.Tags}
	}
	return out
}

// changeDisks changes disks of a node, all of them named. The API takes the whole set: a change
// that somebody else makes at the same moment may be lost.
func (a diskApp) changeDisks(ctx context.Context, node string, disks []string,
	change func(string, *resource.DiskUpdate) error) (*client.Client, error) {
	api, err := a.client()
	if err != nil {
		return nil, err
	}
	n, err := api.Node(ctx, node)
	if err != nil {
		return nil, named("node", node, err)
	}
	all := diskUpdates(n)
	for _, name := range disks {
		d, ok := all[name]
		if !ok {
			return nil, noDisk(node, name)
		}
		if err := change(name, &d); err != nil {
			return nil, err
		}
		all[name] = d
	}
	_, err = api.UpdateDisks(ctx, node, resource.DiskUpdateInput{Disks: all})
	return api, named("node", node, err)
}

func noDisk(node, name string) error {
	return fmt.Errorf("node %s has no disk %s; list its disks with: ankole disk list %s", node, name, node)
}

// completeDisks completes the name of a node, then those of its disks.
func (a diskApp) completeDisks() cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return a.completeNames(1, nodeNames)(cmd, args, prefix)
		}
		return a.completeNames(0, func(ctx context.Context, api *client.Client) ([]string, error) {
			n, err := api.Node(ctx, args[0])
			if err != nil {
				return nil, err
			}
			return output.SortedKeys(n.Disks), nil
		})(cmd, args, prefix)
	}
}

func (a diskApp) diskAdd() *cobra.Command {
	var path, reserved string
	var tags []string
	var idle bool
	c := &cobra.Command{Use: "add NODE DISK --path PATH", Short: "Have a directory of a node take replicas",
		Long: "Have a directory of a node take replicas. It must be on a file system of its own for its space to be counted once,\n" +
			"ext4 or XFS, and be there already.",
		Example: "  ankole disk add node-1 fast --path /mnt/nvme --tag ssd --reserve 10Gi",
		Args:    usage.Exactly("the node's name", "a name for the disk"), ValidArgsFunction: a.completeNames(1, nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if path == "" {
				return usage.Errorf("the path is missing; add for instance --path /srv/ankole")
			}
			d := resource.DiskUpdate{Path: path, DiskType: "filesystem", AllowScheduling: !idle, Tags: tags}
			if reserved != "" {
				n, err := output.ParseBytes(reserved)
				if err != nil {
					return err
				}
				d.StorageReserved = n
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			n, err := api.Node(cmd.Context(), args[0])
			if err != nil {
				return named("node", args[0], err)
			}
			all := diskUpdates(n)
			if old, ok := all[args[1]]; ok {
				return fmt.Errorf("node %s has a disk %s already, at %s; choose another name", args[0], args[1], old.Path)
			}
			all[args[1]] = d
			if _, err := api.UpdateDisks(cmd.Context(), args[0], resource.DiskUpdateInput{Disks: all}); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "disk %s added to node %s; see what is found there with: ankole disk list %s\n", args[1], args[0],
				args[0])
			return nil
		}}
	f := c.Flags()
	f.StringVar(&path, "path", "", "directory on the node")
	f.StringVar(&reserved, "reserve", "", "space that replicas leave free, for instance 10Gi")
	f.StringSliceVar(&tags, "tag", nil, "tag; may be repeated")
	f.BoolVar(&idle, "no-scheduling", false, "take no replicas yet")
	return c
}

func (a diskApp) diskRemove() *cobra.Command {
	c := &cobra.Command{Use: "remove NODE DISK…", Short: "Have a directory of a node not be used any more",
		Long: "Have a directory of a node not be used any more. The disk must hold no replicas: see ankole disk evict. What is in\n" +
			"the directory stays there.",
		Args: usage.AtLeast(2, "the node's name", "the disk's name"), ValidArgsFunction: a.completeDisks(),
		Aliases: []string{"rm"}}
	var y confirming
	y.addTo(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		n, err := api.Node(cmd.Context(), args[0])
		if err != nil {
			return named("node", args[0], err)
		}
		all := diskUpdates(n)
		var lines []string
		for _, name := range args[1:] {
			d, ok := n.Disks[name]
			switch {
			case !ok:
				return noDisk(args[0], name)
			case len(d.ScheduledReplica) > 0:
				return fmt.Errorf("disk %s of node %s holds %s; move them with: ankole disk evict %s %s", name, args[0],
					output.Count(len(d.ScheduledReplica), "replica"), args[0], name)
			case d.AllowScheduling:
				return fmt.Errorf("disk %s of node %s takes replicas; end that with: ankole disk scheduling off %s %s", name,
					args[0], args[0], name)
			}
			lines = append(lines, fmt.Sprintf("disk %s of node %s at %s", name, args[0], d.Path))
			delete(all, name)
		}
		if err := a.confirm(cmd.InOrStdin(), y, "Remove it?", lines...); err != nil {
			return err
		}
		if _, err := api.UpdateDisks(cmd.Context(), args[0], resource.DiskUpdateInput{Disks: all}); err != nil {
			return err
		}
		for _, name := range args[1:] {
			fmt.Fprintf(a.out, "disk %s of node %s removed; its directory is left as it is\n", name, args[0])
		}
		return nil
	}
	return c
}

func (a diskApp) diskScheduling() *cobra.Command {
	return &cobra.Command{Use: "scheduling on|off NODE DISK…",
		Short:             "Whether a disk takes new replicas; those on it stay",
		Args:              usage.AtLeast(3, "on or off", "the node's name", "the disk's name"),
		ValidArgsFunction: a.afterOnOff(a.completeDisks()),
		RunE: func(cmd *cobra.Command, args []string) error {
			on, err := onOff(args[0])
			if err != nil {
				return err
			}
			_, err = a.changeDisks(cmd.Context(), args[1], args[2:], func(name string, d *resource.DiskUpdate) error {
				if on && d.EvictionRequested {
					return fmt.Errorf("disk %s of node %s is being evicted; end that with: ankole disk evict --cancel %s %s", name,
						args[1], args[1], name)
				}
				d.AllowScheduling = on
				return nil
			})
			return a.told(err, args[2:], "disk %s of node "+args[1]+takes(on))
		}}
}

// told prints a line for every name, or returns the error.
func (a *app) told(err error, names []string, format string) error {
	if err != nil {
		return err
	}
	for _, name := range names {
		fmt.Fprintf(a.out, format+"\n", name)
	}
	return nil
}

func takes(on bool) string {
	if on {
		return " takes new replicas"
	}
	return " takes no new replicas"
}

// onOff reads the word of a command that turns something on or off.
func onOff(word string) (bool, error) {
	switch word {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return false, usage.Errorf("%q is neither on nor off", word)
}

// afterOnOff completes on or off, then what the other completion says.
func (a *app) afterOnOff(rest cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return []string{"on", "off"}, cobra.ShellCompDirectiveNoFileComp
		}
		return rest(cmd, args[1:], prefix)
	}
}

// tagFlags are those of commands that change tags.
type tagFlags struct{ add, remove []string }

func (f *tagFlags) addTo(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.add, "add", nil, "tag to add; may be repeated")
	c.Flags().StringSliceVar(&f.remove, "remove", nil, "tag to take away; may be repeated")
}

func (f *tagFlags) check() error {
	if len(f.add)+len(f.remove) == 0 {
		return usage.Errorf("nothing to change; add for instance --add ssd")
	}
	return nil
}

// over returns tags with the changes made.
func (f *tagFlags) over(tags []string) []string {
	out := []string{}
	for _, t := range slices.Concat(tags, f.add) {
		if !slices.Contains(f.remove, t) && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

func (a diskApp) diskTag() *cobra.Command {
	var f tagFlags
	c := &cobra.Command{Use: "tag NODE DISK… [--add TAG] [--remove TAG]",
		Short: "Change the tags of disks, by which volumes choose them",
		Args:  usage.AtLeast(2, "the node's name", "the disk's name"), ValidArgsFunction: a.completeDisks(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			tags := map[string][]string{}
			_, err := a.changeDisks(cmd.Context(), args[0], args[1:], func(name string, d *resource.DiskUpdate) error {
				d.Tags = f.over(d.Tags)
				tags[name] = d.Tags
				return nil
			})
			if err != nil {
				return err
			}
			for _, name := range args[1:] {
				fmt.Fprintf(a.out, "disk %s of node %s has tags %s\n", name, args[0], output.OrDash(strings.Join(tags[name], ",")))
			}
			return nil
		}}
	f.addTo(c)
	return c
}

func (a diskApp) diskReserve() *cobra.Command {
	return &cobra.Command{Use: "reserve NODE DISK SIZE", Short: "Set the space of a disk that replicas leave free",
		Example:           "  ankole disk reserve node-1 disk-1 10Gi",
		Args:              usage.Exactly("the node's name", "the disk's name", "the size"),
		ValidArgsFunction: a.completeDisks(),
		RunE: func(cmd *cobra.Command, args []string) error {
			n := int64(0)
			var err error
			if args[2] != "0" {
				if n, err = output.ParseBytes(args[2]); err != nil {
					return err
				}
			}
			_, err = a.changeDisks(cmd.Context(), args[0], args[1:2], func(_ string, d *resource.DiskUpdate) error {
				d.StorageReserved = n
				return nil
			})
			return a.told(err, args[1:2], "disk %s of node "+args[0]+" leaves "+output.Size(n)+" free")
		}}
}

func (a diskApp) diskEvict() *cobra.Command {
	var cancel bool
	var w waiting
	c := &cobra.Command{Use: "evict NODE DISK…", Short: "Move all replicas of disks to other ones",
		Long: "Move all replicas of disks to other ones. The disks take no new replicas from then on; with --cancel the eviction\n" +
			"ends, and ankole disk scheduling on has them take replicas again. A replica leaves when its copy elsewhere is whole.",
		Args: usage.AtLeast(2, "the node's name", "the disk's name"), ValidArgsFunction: a.completeDisks(),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.changeDisks(cmd.Context(), args[0], args[1:], func(_ string, d *resource.DiskUpdate) error {
				d.EvictionRequested, d.AllowScheduling = !cancel, d.AllowScheduling && cancel
				return nil
			})
			if err != nil || cancel || !w.wait {
				text := "disk %s of node " + args[0] + " is being evicted"
				if cancel {
					text = "disk %s of node " + args[0] + " is not evicted any more"
				}
				return a.told(err, args[1:], text)
			}
			err = a.awaitEmpty(cmd.Context(), api, args[:1], args[1:], w.timeout)
			return a.told(err, args[1:], "disk %s of node "+args[0]+" holds no replicas")
		}}
	c.Flags().BoolVar(&cancel, "cancel", false, "end the eviction")
	w.addTo(c)
	return c
}
