package enginev1

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrNotRebuilt: the engine has given a rebuild up, for the reason that goes with it.
var ErrNotRebuilt = errors.New("replica was not rebuilt")

// AddReplica admits the replica at address, "tcp://ip:port", and returns when it is RW, or with
// ErrNotRebuilt. If ctx ends earlier, the rebuild goes on.
func AddReplica(ctx context.Context, c EngineClient, address string) error {
	if _, err := c.ReplicaAdd(ctx, &ReplicaAddRequest{Address: address}); err != nil {
		return err
	}
	return watchUntil(ctx, c, func(state *State) (bool, error) {
		switch r := state.Find(address); {
		case r == nil:
			return false, fmt.Errorf("%w: %s was removed meanwhile", ErrNotRebuilt, address)
		case r.GetMode() == Mode_MODE_ERR && !r.GetRebuild().GetRunning():
			return false, fmt.Errorf("%w: %s: %s", ErrNotRebuilt, address,
				strings.TrimSpace(r.GetError()+" "+r.GetRebuild().GetError()))
		default:
			return r.GetMode() == Mode_MODE_RW, nil
		}
	})
}

// Find returns the replica at address, nil if the engine has none.
func (s *State) Find(address string) *Replica {
	for _, r := range s.GetReplicas() {
		if r.GetAddress() == address {
			return r
		}
	}
	return nil
}
