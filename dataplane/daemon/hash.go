package daemon

import (
	"context"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/engine"
)

// SnapshotHash implements enginev1.EngineServer.
func (s *service) SnapshotHash(ctx context.Context, r *enginev1.SnapshotHashRequest) (*enginev1.SnapshotHashState,
	error) {
	err := s.p.ask(ctx, func(reply func(error)) any {
		return engine.HashSnapshot{Name: r.Name, Rehash: r.Rehash, At: now(), Reply: reply}
	})
	if err != nil {
		return nil, statusOf(err)
	}
	return s.hashState(ctx, r.Name)
}

// SnapshotHashStatus implements enginev1.EngineServer.
func (s *service) SnapshotHashStatus(ctx context.Context,
	r *enginev1.SnapshotHashStatusRequest) (*enginev1.SnapshotHashState, error) {
	return s.hashState(ctx, r.Name)
}

// SnapshotHashCancel implements enginev1.EngineServer.
func (s *service) SnapshotHashCancel(ctx context.Context,
	r *enginev1.SnapshotHashCancelRequest) (*enginev1.SnapshotHashState, error) {
	err := s.p.ask(ctx, func(reply func(error)) any { return engine.CancelHash{Name: r.Name, Reply: reply} })
	if err != nil {
		return nil, statusOf(err)
	}
	return s.hashState(ctx, r.Name)
}

// SnapshotHashLockState implements enginev1.EngineServer.
func (s *service) SnapshotHashLockState(ctx context.Context,
	_ *enginev1.SnapshotHashLockStateRequest) (*enginev1.SnapshotHashLockStateResponse, error) {
	out := &enginev1.SnapshotHashLockStateResponse{LockedByAddress: map[string]bool{}}
	err := s.p.ask(ctx, func(reply func(error)) any {
		return engine.HashLocks{Reply: func(locked map[string]bool, err error) {
			for addr, l := range locked {
				out.LockedByAddress["tcp://"+addr] = l
			}
			reply(err)
		}}
	})
	if err != nil {
		return nil, statusOf(err)
	}
	return out, nil
}

// hashState asks the core what is known of a snapshot's checksum.
func (s *service) hashState(ctx context.Context, name string) (*enginev1.SnapshotHashState, error) {
	var m *enginev1.SnapshotHashState
	err := s.p.ask(ctx, func(reply func(error)) any {
		return engine.AskHash{Name: name, Reply: func(h engine.Hashing, err error) {
			if err == nil {
				m = hashMessage(&h)
			}
			reply(err)
		}}
	})
	if err != nil {
		return nil, statusOf(err)
	}
	return m, nil
}

// hashMessage turns a checksum of a single snapshot into its wire form.
func hashMessage(h *engine.Hashing) *enginev1.SnapshotHashState {
	m := &enginev1.SnapshotHashState{Name: h.Snapshot, Rehash: h.Rehash, Running: h.Running,
		ByAddress: map[string]*enginev1.ReplicaHash{}}
	for addr, r := range h.Replicas {
		m.ByAddress["tcp://"+addr] = &enginev1.ReplicaHash{State: r.State, Progress: int32(r.Progress), Checksum: r.Checksum,
			Error: r.Error, SilentlyCorrupted: r.Corrupted, Repaired: int32(r.Repaired)}
	}
	return m
}
