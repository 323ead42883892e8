package enginev1

import (
	"context"
	"errors"
	"fmt"
)

// ErrNotCloned: the engine has given a clone up, for the reason that goes with it. Asked for the
// same again it goes on.
var ErrNotCloned = errors.New("volume was not cloned")

// CloneSnapshot fills the volume of engine c with what grant, called with that volume's UUID, gives
// out: what the source volume's engine answers to CloneSource. It returns when the clone is
// complete, or with ErrNotCloned. If ctx ends earlier, the clone goes on.
func CloneSnapshot(ctx context.Context, c EngineClient,
	grant func(ctx context.Context, forVolumeUUID string) (*CloneGrant, error)) error {
	state, err := c.Get(ctx, &GetRequest{})
	if err != nil {
		return err
	}
	from, err := grant(ctx, state.GetVolumeUuid())
	if err != nil {
		return fmt.Errorf("source of the clone: %w", err)
	}
	if _, err := c.SnapshotClone(ctx, &SnapshotCloneRequest{From: from}); err != nil {
		return err
	}
	return watchUntil(ctx, c, func(state *State) (bool, error) {
		clone := state.GetClone()
		if !clone.GetRunning() && clone.GetState() != "complete" {
			return false, fmt.Errorf("%w: snapshot %s of volume %s: %s", ErrNotCloned, from.GetSnapshot(),
				from.GetVolumeName(), clone.GetError())
		}
		return !clone.GetRunning(), nil
	})
}
