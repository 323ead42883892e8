package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/metadata"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// snapshotCloneCommand waits until the volume holds the snapshot of the other one.
func snapshotCloneCommand(g *globals) *cobra.Command {
	var snapshot, address string
	source := *g
	backing := false
	c := &cobra.Command{Use: "clone",
		Short: "Fill this empty volume with a snapshot of another volume and wait until it is complete", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case snapshot == "" || address == "":
				return errors.New("clone: --snapshot-name and --from-controller-address are needed")
			case backing:
				return errors.New("clone: backing images are not supported")
			}
			source.url = address
			return g.ask(cmd, 0, func(ctx context.Context, to enginev1.EngineClient) error {
				return enginev1.CloneSnapshot(ctx, to, func(ctx context.Context,
					volumeUUID string) (grant *enginev1.CloneGrant, err error) {
					conn, err := source.dial()
					if err != nil {
						return nil, err
					}
					defer conn.Close()
					ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(ctx, source.identity()), askTimeout)
					defer cancel()
					return enginev1.NewEngineClient(conn).CloneSource(ctx,
						&enginev1.CloneSourceRequest{Snapshot: snapshot, ForVolumeUuid: volumeUUID})
				})
			})
		}}
	f := c.Flags()
	f.StringVar(&snapshot, "snapshot-name", "", "the snapshot to clone")
	f.StringVar(&address, "from-controller-address", "", "the other volume's engine, ip:port")
	f.StringVar(&source.volume, "from-volume-name", "", "the other volume; its engine refuses if it is another one's")
	f.StringVar(&source.instance, "from-controller-instance-name", "", "the other volume's engine instance")
	f.BoolVar(&backing, "export-backing-image-if-exist", false, "not supported")
	accept(c, cloneInert)
	return c
}

// cloneOutput is one replica in the JSON of `clone-status`.
type cloneOutput struct {
	IsCloning          bool   `json:"isCloning"`
	Error              string `json:"error"`
	Progress           int32  `json:"progress"`
	State              string `json:"state"`
	FromReplicaAddress string `json:"fromReplicaAddress"`
	SnapshotName       string `json:"snapshotName"`
	Interrupted        bool   `json:"interrupted,omitempty"`
}

func snapshotCloneStatusCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "clone-status", Short: "Show the progress of the clone into this volume as JSON",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.show(cmd, func(s *enginev1.State) any {
				out := map[string]cloneOutput{}
				for _, r := range s.GetReplicas() {
					c := s.GetClone()
					if r.GetMode() == enginev1.Mode_MODE_ERR {
						c = nil // it has no part in it
					}
					out[r.GetAddress()] = cloneOutput{IsCloning: c.GetRunning(), Error: c.GetError(),
						Progress: c.GetProgress(), State: c.GetState(),
						FromReplicaAddress: c.GetFromAddress(), SnapshotName: c.GetSnapshot(), Interrupted: c.GetInterrupted()}
				}
				return out
			})
		}}
}
