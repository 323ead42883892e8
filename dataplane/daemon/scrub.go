package daemon

import (
	"context"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/engine"
)

// ScrubStart implements enginev1.EngineServer.
func (s *service) ScrubStart(ctx context.Context, r *enginev1.ScrubStartRequest) (*enginev1.State, error) {
	return s.do(ctx, func(reply func(error)) any {
		return engine.Scrub{Snapshot: r.Snapshot, Mode: engine.ScrubMode(r.Mode), BytesPerSecond: r.BytesPerSecond,
			At: now(), Reply: reply}
	})
}

// ScrubCancel implements enginev1.EngineServer.
func (s *service) ScrubCancel(ctx context.Context, _ *enginev1.ScrubCancelRequest) (*enginev1.State, error) {
	return s.do(ctx, func(reply func(error)) any { return engine.CancelScrub{Reply: reply} })
}

// scrubMessage turns the progress of a scrub into its wire form.
func scrubMessage(s *engine.Scrubbing) *enginev1.Scrub {
	if s == nil {
		return nil
	}
	m := &enginev1.Scrub{Running: s.Running, State: s.State, Error: s.Error, Mode: string(s.Mode), Snapshot: s.Snapshot,
		SnapshotsDone: int32(s.Done), SnapshotsTotal: int32(s.Total), ComparedBytes: s.Compared,
		Repaired: int32(s.Repaired), Unrepaired: int32(s.Unrepaired), Checksums: map[string]*enginev1.Checksums{}}
	for _, f := range s.Findings {
		m.Findings = append(m.Findings, &enginev1.Finding{Address: "tcp://" + f.Replica, Snapshot: f.Snapshot,
			Offset: f.Off, Length: f.Len,
			Repaired: f.Repaired, Text: f.Text})
	}
	for name, sums := range s.Checksums {
		c := &enginev1.Checksums{ByAddress: map[string]string{}}
		for addr, sum := range sums {
			c.ByAddress["tcp://"+addr] = sum
		}
		m.Checksums[name] = c
	}
	return m
}
