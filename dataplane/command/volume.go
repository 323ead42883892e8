package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// volumeCommands are the verbs about the volume itself.
func volumeCommands(g *globals) []*cobra.Command {
	return []*cobra.Command{infoCommand(g), expandCommand(g), frontendCommand(g), unmapMarkCommand(g)}
}

// infoOutput is the JSON of `info`; the last key's spelling is what clients expect.
type infoOutput struct {
	Name                      string `json:"name"`
	Size                      int64  `json:"size"`
	ReplicaCount              int    `json:"replicaCount"`
	Endpoint                  string `json:"endpoint"`
	Frontend                  string `json:"frontend"`
	FrontendState             string `json:"frontendState"`
	IsExpanding               bool   `json:"isExpanding"`
	LastExpansionError        string `json:"lastExpansionError"`
	LastExpansionFailedAt     string `json:"lastExpansionFailedAt"`
	UnmapMarkSnapChainRemoved bool   `json:"unmapMarkSnapChainRemoved"`
	SnapshotMaxCount          int32  `json:"snapshotMaxCount"`
	SnapshotMaxSize           int64  `json:"SnapshotMaxSize"`
}

func infoCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "info", Short: "Show the volume as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.show(cmd, func(s *enginev1.State) any {
				return infoOutput{Name: s.GetVolumeName(), Size: s.GetSize(), ReplicaCount: len(s.GetReplicas()),
					Endpoint: s.GetEndpoint(),
					Frontend: s.GetFrontend(), FrontendState: s.GetFrontendState(), IsExpanding: s.GetExpanding(),
					LastExpansionError: s.GetLastExpansionError(), LastExpansionFailedAt: s.GetLastExpansionFailedAt(),
					UnmapMarkSnapChainRemoved: s.GetOptions().GetUnmapMarkSnapChainRemoved(),
					SnapshotMaxCount:          s.GetOptions().GetSnapshotMaxCount(),
					SnapshotMaxSize:           s.GetOptions().GetSnapshotMaxSize()}
			})
		}}
}

func expandCommand(g *globals) *cobra.Command {
	var to size
	c := &cobra.Command{Use: "expand", Short: "Make the volume larger", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
				_, err := c.Expand(ctx, &enginev1.ExpandRequest{Size: int64(to)})
				return err
			})
		}}
	c.Flags().Var(&to, "size", "new size in bytes, or with a binary unit")
	_ = c.MarkFlagRequired("size") // fails for unknown flags only
	return c
}

func frontendCommand(g *globals) *cobra.Command {
	return group("frontend", "Offer the volume, or end that",
		&cobra.Command{Use: "start NAME", Short: "Begin to offer the volume: tgt-blockdev or tgt-iscsi",
			Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
					_, err := c.FrontendStart(ctx, &enginev1.FrontendStartRequest{Frontend: args[0]})
					return err
				})
			}},
		&cobra.Command{Use: "shutdown", Short: "Stop offering the volume; the replicas stay connected", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
					_, err := c.FrontendShutdown(ctx, &enginev1.FrontendShutdownRequest{})
					return err
				})
			}})
}

func unmapMarkCommand(g *globals) *cobra.Command {
	var enable, disable bool
	c := &cobra.Command{Use: "unmap-mark-snap-chain-removed", Aliases: []string{"unmap-mark-snap"},
		Short: "Say whether a trim marks the snapshots it crosses as removed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if enable == disable {
				return errors.New("give either --enable or --disable")
			}
			return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
				_, err := c.OptionsSet(ctx, &enginev1.OptionsSetRequest{UnmapMarkSnapChainRemoved: &enable})
				return err
			})
		}}
	c.Flags().BoolVar(&enable, "enable", false, "mark them")
	c.Flags().BoolVar(&disable, "disable", false, "do not")
	return c
}
