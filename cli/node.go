package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/cli/view"
	"ankole.storage/rest/client"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

func (a *app) nodeCommands() *cobra.Command {
	c := &cobra.Command{Use: "node", Aliases: []string{"nodes"}, Short: "Look at storage nodes and change them"}
	one := func(ctx context.Context, api *client.Client, name string) (*view.NodeRow, error) {
		n, err := api.Node(ctx, name)
		return n, named("node", name, err)
	}
	c.AddCommand(listing(a, view.NodeKind, "List nodes and their disks",
		func(ctx context.Context, api *client.Client) ([]view.NodeRow, error) { return api.Nodes(ctx) }),
		getting(a, view.NodeKind, "Show nodes", "the node's name", nodeNames, one),
		lookApp{a}.describing("a node", "the node's name", nodeNames, describeNode),
		a.nodeScheduling(), a.nodeTag(), a.nodeEvict(), a.nodeDelete(), a.nodeSetCPU())
	return c
}

// nodeInput is what is wanted of a node as it is: keys that are left out would count as their zero
// values.
func nodeInput(n *resource.Node) resource.NodeInput {
	return resource.NodeInput{AllowScheduling: n.AllowScheduling, EvictionRequested: n.EvictionRequested, Tags: n.Tags,
		InstanceManagerCPURequest: n.InstanceManagerCPURequest}
}

// changeNode changes what is wanted of a node.
func changeNode(ctx context.Context, api *client.Client, name string,
	change func(*resource.NodeInput) error) (*resource.Node, error) {
	n, err := api.Node(ctx, name)
	if err != nil {
		return nil, named("node", name, err)
	}
	in := nodeInput(n)
	if err := change(&in); err != nil {
		return nil, err
	}
	n, err = api.UpdateNode(ctx, name, in)
	return n, named("node", name, err)
}

func (a *app) nodeScheduling() *cobra.Command {
	return &cobra.Command{Use: "scheduling on|off NODE…", Short: "Whether a node takes new replicas; those on it stay",
		Example:           "  ankole node scheduling off node-1 node-2",
		Args:              usage.AtLeast(2, "on or off", "the node's name"),
		ValidArgsFunction: a.afterOnOff(a.completeNames(0, nodeNames)),
		RunE: func(cmd *cobra.Command, args []string) error {
			on, err := onOff(args[0])
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.each(args[1:], func(name string) error {
				_, err := changeNode(cmd.Context(), api, name, func(in *resource.NodeInput) error {
					if on && in.EvictionRequested {
						return fmt.Errorf("node %s is being evicted; end that with: ankole node evict --cancel %s", name, name)
					}
					in.AllowScheduling = on
					return nil
				})
				return a.told(err, []string{name}, "node %s"+takes(on))
			})
		}}
}

func (a *app) nodeTag() *cobra.Command {
	var f tagFlags
	c := &cobra.Command{Use: "tag NODE… [--add TAG] [--remove TAG]",
		Short: "Change the tags of nodes, by which volumes choose them",
		Args:  usage.AtLeast(1, "the node's name"), ValidArgsFunction: a.completeNames(0, nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.each(args, func(name string) error {
				n, err := changeNode(cmd.Context(), api, name, func(in *resource.NodeInput) error {
					in.Tags = f.over(in.Tags)
					return nil
				})
				if err == nil {
					fmt.Fprintf(a.out, "node %s has tags %s\n", name, output.OrDash(strings.Join(n.Tags, ",")))
				}
				return err
			})
		}}
	f.addTo(c)
	return c
}

func (a *app) nodeEvict() *cobra.Command {
	var cancel bool
	var w waiting
	c := &cobra.Command{Use: "evict NODE…", Short: "Move all replicas of nodes to other ones",
		Long: "Move all replicas of nodes to other ones. The nodes take no new replicas from then on; with --cancel the eviction\n" +
			"ends, and ankole node scheduling on has them take replicas again. A replica leaves when its copy elsewhere is whole.",
		Example: "  ankole node evict node-1 --timeout 2h",
		Args:    usage.AtLeast(1, "the node's name"), ValidArgsFunction: a.completeNames(0, nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			text := "node %s is being evicted"
			if cancel {
				text = "node %s is not evicted any more"
			}
			var under []string
			err = a.each(args, func(name string) error {
				_, err := changeNode(cmd.Context(), api, name, func(in *resource.NodeInput) error {
					in.EvictionRequested, in.AllowScheduling = !cancel, in.AllowScheduling && cancel
					return nil
				})
				if err != nil {
					return err
				}
				under = append(under, name)
				if cancel || !w.wait {
					return a.told(nil, []string{name}, text)
				}
				return nil
			})
			if cancel || !w.wait || len(under) == 0 {
				return err
			}
			waited := a.awaitEmpty(cmd.Context(), api, under, nil, w.timeout)
			return errors.Join(err, a.told(waited, under, "node %s holds no replicas"))
		}}
	c.Flags().BoolVar(&cancel, "cancel", false, "end the eviction")
	w.addTo(c)
	return c
}

// evictionEvery is the pause between two looks at nodes that are being emptied.
const evictionEvery = 500 * time.Millisecond

// awaitEmpty waits until nodes hold no replicas, or only the named disks of them, and shows how
// many are left.
func (a *app) awaitEmpty(ctx context.Context, api *client.Client, nodes, disks []string, timeout time.Duration) error {
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	what, most, left := strings.Join(nodes, ", "), 0, 0
	return poll(ctx, timeout, evictionEvery, func(ctx context.Context) (bool, error) {
		all, err := api.Nodes(ctx)
		if err != nil {
			return false, err
		}
		left = 0
		for _, d := range diskRows(all) {
			if slices.Contains(nodes, d.Node) && (disks == nil || slices.Contains(disks, d.Name)) {
				left += len(d.ScheduledReplica)
			}
		}
		if left == 0 {
			return true, nil
		}
		most = max(most, left)
		line.Set((most-left)*100/most, "node %s: %s left", what, output.Count(left, "replica"))
		return false, nil
	}, func() error {
		return fmt.Errorf("node %s still holds %s after %s; the eviction goes on, see why they stay with: "+
			"ankole node describe %s", what, output.Count(left, "replica"), timeout, nodes[0])
	})
}

func (a *app) nodeDelete() *cobra.Command {
	c := &cobra.Command{Use: "delete NAME…", Short: "Forget nodes that are gone from Kubernetes and hold nothing",
		Args: usage.AtLeast(1, "the node's name"), ValidArgsFunction: a.completeNames(0, nodeNames)}
	return a.deleting(c, 0, func(ctx context.Context, api *client.Client, t target) (string, error) {
		n, err := api.Node(ctx, t.name)
		if err != nil {
			return "", named("node", t.name, err)
		}
		return fmt.Sprintf("node %s, ready: %s, with %s", t.name, view.ConditionText(n.Conditions["Ready"]),
			output.Count(findings.ReplicasOn(n), "replica")), nil
	}, func(ctx context.Context, api *client.Client, t target) (string, error) {
		return "node " + t.name + " deleted", named("node", t.name, api.DeleteNode(ctx, t.name))
	})
}

// managerCPU are the requests of a node's instance managers, and the settings that they follow, by
// their type. Types engine and replica are those of older versions.
var managerCPU = map[string]struct {
	setting string
	of      func(*resource.Node) int
	set     func(*resource.NodeInput, int)
}{
	"aio": {"guaranteed-instance-manager-cpu", func(n *resource.Node) int { return n.InstanceManagerCPURequest },
		func(in *resource.NodeInput, millis int) { in.InstanceManagerCPURequest = millis }},
	"engine": {"guaranteed-engine-manager-cpu", func(n *resource.Node) int { return n.EngineManagerCPURequest },
		func(in *resource.NodeInput, millis int) { in.EngineManagerCPURequest = &millis }},
	"replica": {"guaranteed-replica-manager-cpu", func(n *resource.Node) int { return n.ReplicaManagerCPURequest },
		func(in *resource.NodeInput, millis int) { in.ReplicaManagerCPURequest = &millis }},
}

// nodeSetCPU changes what the instance manager of a node requests.
func (a *app) nodeSetCPU() *cobra.Command {
	kind := "aio"
	c := &cobra.Command{Use: "set-cpu NODE MILLICPU",
		Short: "Set the CPU request of a node's instance manager, in thousandths of a CPU; 0 follows the setting",
		Long: "Set the CPU request of a node's instance manager, in thousandths of a CPU. 0 means that it follows setting\n" +
			"guaranteed-instance-manager-cpu, a share of the node's CPU. A change reaches an instance manager when its last\n" +
			"engine and replica have stopped; until then condition SettingSynced of the instance manager names it. With --type\n" +
			"engine or replica it is that of the instance managers of older versions, which have one for engines and one for\n" +
			"replicas, and follow guaranteed-engine-manager-cpu and guaranteed-replica-manager-cpu.",
		Example: "  ankole node set-cpu node-1 500m\n  ankole node set-cpu node-1 0\n" +
			"  ankole node set-cpu node-1 200 --type engine",
		Args:              usage.Exactly("the node's name", "thousandths of a CPU"),
		ValidArgsFunction: a.completeNames(1, nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, known := managerCPU[kind]
			if !known {
				return usage.Errorf("--type %q is none of %s", kind, strings.Join(output.SortedKeys(managerCPU), ", "))
			}
			millis, err := parseMillis(args[1])
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			n, err := changeNode(cmd.Context(), api, args[0], func(in *resource.NodeInput) error {
				request.set(in, millis)
				return nil
			})
			if err != nil {
				return err
			}
			wants := fmt.Sprintf("%dm", request.of(n))
			if request.of(n) == 0 {
				wants = "the share of setting " + request.setting
			}
			manager := "instance manager"
			if kind != "aio" {
				manager += " of type " + kind
			}
			fmt.Fprintf(a.out, "the %s of node %s requests %s, from when it has no engine and no replica running\n", manager,
				n.Name, wants)
			return nil
		}}
	c.Flags().StringVar(&kind, "type", kind, "type of the instance manager: aio, or engine or replica of older versions")
	return c
}

// listed leaves deprecated settings out of a list for people: nothing follows them.
func (a *app) listed(all []view.SettingRow) []view.SettingRow {
	if a.output != output.Plain {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(s view.SettingRow) bool {
		return s.Definition.ValueType == "deprecated"
	})
}

var errMillis = errors.New("want thousandths of a CPU, a whole number such as 500 or 500m; 0 follows the setting")

// parseMillis reads thousandths of a CPU, with or without Kubernetes' suffix.
func parseMillis(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "m"))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("CPU request %q: %w", text, errMillis)
	}
	return n, nil
}
