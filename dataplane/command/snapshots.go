package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// headName is the head among the snapshots; it is none, so `ls` leaves it out.
const headName = "volume-head"

// snapshotCommands are the verbs below `snapshots`.
func snapshotCommands(g *globals) *cobra.Command {
	list := snapshotListCommand(g)
	c := &cobra.Command{Use: "snapshots", Aliases: []string{"snapshot"},
		Short: "Take, list, revert to and remove snapshots", Args: cobra.NoArgs, RunE: list.RunE}
	c.AddCommand(list, snapshotCreateCommand(g), snapshotRevertCommand(g), snapshotRemoveCommand(g),
		snapshotPurgeCommand(g),
		snapshotPurgeStatusCommand(g), snapshotCloneCommand(g), snapshotCloneStatusCommand(g), snapshotInfoCommand(g),
		snapshotHashCommand(g), snapshotHashStatusCommand(g), snapshotHashCancelCommand(g))
	return c
}

func snapshotCreateCommand(g *globals) *cobra.Command {
	var pairs []string
	c := &cobra.Command{Use: "create [NAME]", Short: "Take a snapshot and print its name", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := labels(pairs)
			if err != nil {
				return err
			}
			r := &enginev1.SnapshotCreateRequest{Labels: l, UserCreated: true}
			if len(args) > 0 {
				r.Name = args[0]
			}
			return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
				s, err := c.SnapshotCreate(ctx, r)
				if err == nil {
					fmt.Fprintln(cmd.OutOrStdout(), s.GetName())
				}
				return err
			})
		}}
	c.Flags().StringArrayVar(&pairs, "label", nil, "key=value; may be repeated")
	accept(c, []inert{{name: "freeze-fs"}})
	return c
}

func snapshotRevertCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "revert NAME",
		Short: "Make the volume what it was at a snapshot; the frontend must be down", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
				_, err := c.SnapshotRevert(ctx, &enginev1.SnapshotRevertRequest{Name: args[0]})
				return err
			})
		}}
}

func snapshotListCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "ls", Short: "List the names of snapshots", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
				state, err := c.Get(ctx, &enginev1.GetRequest{})
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), "ID")
				for _, name := range slices.Sorted(maps.Keys(state.GetSnapshots())) {
					if name != headName {
						fmt.Fprintln(cmd.OutOrStdout(), name)
					}
				}
				return nil
			})
		}}
}

// snapshotRemoveCommand tries every name, so that one that is gone already does not keep the
// others.
func snapshotRemoveCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "rm NAME…", Short: "Mark snapshots as removed; a purge gives their space back",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, name := range args {
				errs = append(errs, g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
					_, err := c.SnapshotRemove(ctx, &enginev1.SnapshotRemoveRequest{Name: name})
					return err
				}))
			}
			return errors.Join(errs...)
		}}
}

func snapshotPurgeCommand(g *globals) *cobra.Command {
	skip := false
	c := &cobra.Command{Use: "purge", Short: "Begin to give back the space of removed snapshots", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
				_, err := c.SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{SkipIfInProgress: skip})
				return err
			})
		}}
	c.Flags().BoolVar(&skip, "skip-if-in-progress", false, "a purge under way already is no error")
	return c
}

// purgeOutput is one replica in the JSON of `purge-status`.
type purgeOutput struct {
	Error     string `json:"error"`
	IsPurging bool   `json:"isPurging"`
	Progress  int32  `json:"progress"`
	State     string `json:"state"`
}

func snapshotPurgeStatusCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "purge-status", Short: "Show the progress of purges as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.show(cmd, func(s *enginev1.State) any {
				out := map[string]purgeOutput{}
				for _, r := range s.GetReplicas() {
					p := r.GetPurge()
					out[r.GetAddress()] = purgeOutput{Error: p.GetError(), IsPurging: p.GetRunning(),
						Progress: p.GetProgress(), State: p.GetState()}
				}
				return out
			})
		}}
}

// snapshotOutput is one snapshot in the JSON of `info`.
type snapshotOutput struct {
	Name        string            `json:"name"`
	Parent      string            `json:"parent"`
	Children    map[string]bool   `json:"children"`
	Removed     bool              `json:"removed"`
	UserCreated bool              `json:"usercreated"`
	Created     string            `json:"created"`
	Size        string            `json:"size"`
	Labels      map[string]string `json:"labels"`
}

func snapshotInfoCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "info", Short: "Show all snapshots and the head as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.show(cmd, func(s *enginev1.State) any {
				out := map[string]snapshotOutput{}
				for name, p := range s.GetSnapshots() {
					o := snapshotOutput{Name: p.GetName(), Parent: p.GetParent(), Children: p.GetChildren(), Removed: p.GetRemoved(),
						UserCreated: p.GetUserCreated(), Created: p.GetCreated(), Size: strconv.FormatInt(p.GetSize(), 10),
						Labels: p.GetLabels()}
					if o.Children == nil {
						o.Children = map[string]bool{}
					}
					if o.Labels == nil {
						o.Labels = map[string]string{}
					}
					out[name] = o
				}
				return out
			})
		}}
}
