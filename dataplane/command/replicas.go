package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// replicaCommands are the verbs about the volume's replicas.
func replicaCommands(g *globals) []*cobra.Command {
	return []*cobra.Command{addReplicaCommand(g), verifyReplicaCommand(g), listReplicasCommand(g), removeReplicaCommand(g),
		updateReplicaCommand(g), rebuildStatusCommand(g)}
}

// addReplicaCommand waits until the replica is rebuilt.
func addReplicaCommand(g *globals) *cobra.Command {
	restore := false
	c := &cobra.Command{Use: "add-replica ADDRESS", Aliases: []string{"add"},
		Short: "Admit a replica and wait until it is rebuilt", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if restore {
				return errors.New("--restore: backup and restore are not built yet")
			}
			return g.ask(cmd, 0, func(ctx context.Context, c enginev1.EngineClient) error {
				return enginev1.AddReplica(ctx, c, withScheme(args[0]))
			})
		}}
	c.Flags().BoolVar(&restore, "restore", false, "the volume is being restored")
	accept(c, addReplicaInert)
	return c
}

func verifyReplicaCommand(g *globals) *cobra.Command {
	c := &cobra.Command{Use: "verify-rebuild-replica ADDRESS", Aliases: []string{"verify-rebuild"},
		Short: "Check that a replica has been rebuilt",
		Args:  cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
				state, err := c.Get(ctx, &enginev1.GetRequest{})
				if err != nil {
					return err
				}
				// The engine verifies the content before it gives this mode.
				if r := state.Find(withScheme(args[0])); r.GetMode() != enginev1.Mode_MODE_RW {
					return &coded{codes.FailedPrecondition, fmt.Errorf("replica %s is not in mode RW (%s)",
						withScheme(args[0]), modeName(r.GetMode()))}
				}
				return nil
			})
		}}
	accept(c, []inert{{"replica-instance-name", anything}})
	return c
}

// modeName is a mode as clients know it; one that is not decided yet counts as being rebuilt.
func modeName(m enginev1.Mode) string {
	switch m {
	case enginev1.Mode_MODE_RW:
		return "RW"
	case enginev1.Mode_MODE_WO, enginev1.Mode_MODE_UNSPECIFIED:
		return "WO"
	}
	return "ERR"
}

func listReplicasCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "ls-replica", Aliases: []string{"ls"}, Short: "List replicas, modes and chains",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
				state, err := c.Get(ctx, &enginev1.GetRequest{})
				if err != nil {
					return err
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 1, ' ', 0)
				fmt.Fprintln(w, "ADDRESS\tMODE\tCHAIN")
				for _, r := range state.GetReplicas() {
					chain := ""
					if r.GetMode() == enginev1.Mode_MODE_RW {
						chain = "[" + strings.Join(chainOf(state), " ") + "]"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\n", r.GetAddress(), modeName(r.GetMode()), chain)
				}
				return w.Flush()
			})
		}}
}

// chainOf names the files that replicas in mode RW have in common, head first. The head's number is
// each replica's own.
func chainOf(s *enginev1.State) []string {
	files := []string{"volume-head"}
	for name, seen := s.GetSnapshots()["volume-head"].GetParent(), 0; name != "" && seen <= len(s.GetSnapshots()); seen++ {
		files = append(files, "volume-snap-"+name+".img")
		name = s.GetSnapshots()[name].GetParent()
	}
	return files
}

func removeReplicaCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "rm-replica ADDRESS", Aliases: []string{"rm"}, Short: "Drop a replica",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return g.dropReplica(cmd, args[0]) }}
}

func (g *globals) dropReplica(cmd *cobra.Command, address string) error {
	return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
		_, err := c.ReplicaRemove(ctx, &enginev1.ReplicaRemoveRequest{Address: withScheme(address)})
		return err
	})
}

// updateReplicaCommand can only drop a replica: a mode that promises data is the engine's to give.
func updateReplicaCommand(g *globals) *cobra.Command {
	mode := ""
	c := &cobra.Command{Use: "update-replica ADDRESS", Aliases: []string{"update"},
		Short: "Drop a replica (--mode ERR)", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if mode != "ERR" {
				return fmt.Errorf("replica %s cannot be made %q from outside: only ERR can be asked for; add the "+
					"replica to have it rebuilt", args[0], mode)
			}
			return g.dropReplica(cmd, args[0])
		}}
	c.Flags().StringVar(&mode, "mode", "", "ERR")
	return c
}

// rebuildOutput is one replica in the JSON of `replica-rebuild-status`.
type rebuildOutput struct {
	Error                  string   `json:"error"`
	IsRebuilding           bool     `json:"isRebuilding"`
	Progress               int32    `json:"progress"`
	State                  string   `json:"state"`
	FromReplicaAddress     string   `json:"fromReplicaAddress"`
	FromReplicaAddressList []string `json:"fromReplicaAddressList"`
}

func rebuildStatusCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "replica-rebuild-status", Aliases: []string{"rebuild-status"},
		Short: "Show the progress of rebuilds as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.show(cmd, func(s *enginev1.State) any {
				out := map[string]rebuildOutput{}
				for _, r := range s.GetReplicas() {
					b := r.GetRebuild()
					o := rebuildOutput{Error: b.GetError(), IsRebuilding: b.GetRunning(), Progress: b.GetProgress(),
						State:              b.GetState(),
						FromReplicaAddress: b.GetFromAddress(), FromReplicaAddressList: []string{}}
					if o.FromReplicaAddress != "" {
						o.FromReplicaAddressList = append(o.FromReplicaAddressList, o.FromReplicaAddress)
					}
					out[r.GetAddress()] = o
				}
				return out
			})
		}}
}
