package command

import (
	"context"

	"github.com/spf13/cobra"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

func snapshotHashCommand(g *globals) *cobra.Command {
	rehash := false
	c := &cobra.Command{Use: "hash NAME", Short: "Begin to compute the checksum of a snapshot on every replica",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
				_, err := c.SnapshotHash(ctx, &enginev1.SnapshotHashRequest{Name: args[0], Rehash: rehash})
				return err
			})
		}}
	c.Flags().BoolVar(&rehash, "rehash", false, "read the files even where their checksums still hold")
	return c
}

func snapshotHashCancelCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "hash-cancel NAME", Short: "End the computation of a snapshot's checksum",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
				_, err := c.SnapshotHashCancel(ctx, &enginev1.SnapshotHashCancelRequest{Name: args[0]})
				return err
			})
		}}
}

// hashOutput is one replica in the JSON of `hash-status`.
type hashOutput struct {
	State             string `json:"state"`
	Checksum          string `json:"checksum"`
	Error             string `json:"error"`
	SilentlyCorrupted bool   `json:"silentlyCorrupted"`
}

func snapshotHashStatusCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "hash-status NAME", Short: "Show the checksums of a snapshot as JSON",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
				s, err := c.SnapshotHashStatus(ctx, &enginev1.SnapshotHashStatusRequest{Name: args[0]})
				if err != nil {
					return err
				}
				out := map[string]hashOutput{}
				for address, r := range s.GetByAddress() {
					out[address] = hashOutput{State: r.GetState(), Checksum: r.GetChecksum(), Error: r.GetError(),
						SilentlyCorrupted: r.GetSilentlyCorrupted()}
				}
				return printJSON(cmd.OutOrStdout(), out)
			})
		}}
}
