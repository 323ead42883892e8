package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/rest/resource"
)

// nodeSetCPU changes what the instance manager of a node requests.
func (a *app) nodeSetCPU() *cobra.Command {
	return &cobra.Command{Use: "set-cpu NODE MILLICPU",
		Short: "Set the CPU request of a node's instance manager, in thousandths of a CPU; 0 follows the setting",
		Long: "Set the CPU request of a node's instance manager, in thousandths of a CPU. 0 means that it follows setting\n" +
			"guaranteed-instance-manager-cpu, a share of the node's CPU. A change reaches an instance manager when its last\n" +
			"engine and replica have stopped; until then condition SettingSynced of the instance manager names it.",
		Example:           "  ankole node set-cpu node-1 500m\n  ankole node set-cpu node-1 0",
		Args:              exactly("the node's name", "thousandths of a CPU"),
		ValidArgsFunction: a.completeNames(1, nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			millis, err := parseMillis(args[1])
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			n, err := api.Node(cmd.Context(), args[0])
			if err != nil {
				return named("node", args[0], err)
			}
			// Keys that are left out would count as their zero values.
			n, err = api.UpdateNode(cmd.Context(), n.Name, resource.NodeInput{AllowScheduling: n.AllowScheduling,
				EvictionRequested: n.EvictionRequested, Tags: n.Tags, InstanceManagerCPURequest: millis})
			if err != nil {
				return named("node", args[0], err)
			}
			request := fmt.Sprintf("%dm", n.InstanceManagerCPURequest)
			if n.InstanceManagerCPURequest == 0 {
				request = "the share of setting guaranteed-instance-manager-cpu"
			}
			fmt.Fprintf(a.out, "the instance manager of node %s requests %s, from when it has no engine and no replica running\n",
				n.Name, request)
			return nil
		}}
}

// listed leaves deprecated settings out of a list for people: nothing follows them.
func (a *app) listed(all []settingRow) []settingRow {
	if a.output != outputTable {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(s settingRow) bool {
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
