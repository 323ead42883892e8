package engineclient

import (
	"context"
	"maps"
	"slices"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// SnapshotClone implements EngineClient: the source's engine gives out one snapshot for one volume,
// the target's engine reads it.
func (d calls) SnapshotClone(ctx context.Context, t, source Target, snapshot string) error {
	state, err := call(ctx, d, t, "get state",
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.Get(ctx, &enginev1.GetRequest{})
		})
	if err != nil {
		return err
	}
	grant, err := call(ctx, d, source, "give out snapshot "+snapshot,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.CloneGrant, error) {
			return c.CloneSource(ctx, &enginev1.CloneSourceRequest{Snapshot: snapshot, ForVolumeUuid: state.GetVolumeUuid()})
		})
	if err != nil {
		return err
	}
	_, err = call(ctx, d, t, "clone snapshot "+snapshot+" of volume "+source.Volume,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.SnapshotClone(ctx, &enginev1.SnapshotCloneRequest{From: grant})
		})
	return err
}

// SnapshotCloneStatus implements EngineClient.
func (d calls) SnapshotCloneStatus(ctx context.Context, t Target) (Clone, error) {
	s, err := call(ctx, d, t, "get the progress of a clone",
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.Get(ctx, &enginev1.GetRequest{})
		})
	return cloneFrom(s.GetClone()), err
}

func cloneFrom(c *enginev1.Clone) Clone {
	return Clone{Running: c.GetRunning(), Percent: int(min(max(c.GetProgress(), 0), 100)), State: c.GetState(),
		Error: c.GetError(), From: plain(c.GetFromAddress()), Snapshot: c.GetSnapshot(), Interrupted: c.GetInterrupted()}
}

// printedClone is one replica in what `snapshots clone-status` prints.
type printedClone struct {
	IsCloning          bool   `json:"isCloning"`
	Error              string `json:"error"`
	Progress           int    `json:"progress"`
	State              string `json:"state"`
	FromReplicaAddress string `json:"fromReplicaAddress"`
	SnapshotName       string `json:"snapshotName"`
	Interrupted        bool   `json:"interrupted"`
}

// SnapshotClone implements EngineClient. The verb ends when the clone does.
func (b *Binary) SnapshotClone(ctx context.Context, t, source Target, snapshot string) error {
	verb := []string{"snapshots", "clone", "--snapshot-name=" + snapshot, "--from-controller-address=" + source.Address,
		"--from-volume-name=" + source.Volume, "--from-controller-instance-name=" + source.Engine}
	return b.begin(ctx, t, "clone snapshot "+snapshot+" of volume "+source.Volume, verb,
		func(ctx context.Context) (shown bool, err error) {
			c, err := b.SnapshotCloneStatus(ctx, t)
			return c.Snapshot == snapshot && (c.Running || c.State == "complete"), err
		})
}

// SnapshotCloneStatus implements EngineClient. Replicas that take part say the same.
func (b *Binary) SnapshotCloneStatus(ctx context.Context, t Target) (Clone, error) {
	printed, err := read[map[string]printedClone](ctx, b, t, "snapshots", "clone-status")
	for _, address := range slices.Sorted(maps.Keys(printed)) {
		if p := printed[address]; p.State != "" {
			return Clone{Running: p.IsCloning, Percent: min(max(p.Progress, 0), 100), State: p.State, Error: p.Error,
				From: plain(p.FromReplicaAddress), Snapshot: p.SnapshotName, Interrupted: p.Interrupted}, err
		}
	}
	return Clone{}, err
}

// SnapshotClone implements EngineClient. Both engines have to be within reach of one way: the
// binary speaks to the source directly.
func (r *Router) SnapshotClone(ctx context.Context, t, source Target, snapshot string) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	other, err := r.choose(source)
	if err != nil {
		return err
	}
	if other == r.fallback {
		c = other
	}
	return c.SnapshotClone(ctx, t, source, snapshot)
}

// SnapshotCloneStatus implements EngineClient.
func (r *Router) SnapshotCloneStatus(ctx context.Context, t Target) (Clone, error) {
	c, err := r.choose(t)
	if err != nil {
		return Clone{}, err
	}
	return c.SnapshotCloneStatus(ctx, t)
}
