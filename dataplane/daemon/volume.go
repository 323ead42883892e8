package daemon

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/engine"
)

// SnapshotRevert implements enginev1.EngineServer.
func (s *service) SnapshotRevert(ctx context.Context, r *enginev1.SnapshotRevertRequest) (*enginev1.State, error) {
	return s.do(ctx, func(reply func(error)) any {
		return engine.Revert{Name: r.Name, Created: now(), Reply: reply}
	})
}

// Expand implements enginev1.EngineServer. A block device is told of its new size; if that fails the volume has it
// nevertheless, and the next attempt, with the same size, tells the device again.
func (s *service) Expand(ctx context.Context, r *enginev1.ExpandRequest) (*enginev1.State, error) {
	err := s.p.ask(ctx, func(reply func(error)) any { return engine.Expand{Size: r.Size, Created: now(), Reply: reply} })
	if err == nil {
		err = s.p.front.resize(ctx)
	}
	return s.answer(ctx, err)
}

// OptionsSet implements enginev1.EngineServer.
func (s *service) OptionsSet(ctx context.Context, r *enginev1.OptionsSetRequest) (*enginev1.State, error) {
	return s.do(ctx, func(reply func(error)) any {
		m := engine.SetOptions{SnapshotMaxSize: r.SnapshotMaxSize, UnmapMarkSnapChainRemoved: r.UnmapMarkSnapChainRemoved, Reply: reply}
		if r.SnapshotMaxCount != nil {
			n := int(*r.SnapshotMaxCount)
			m.SnapshotMaxCount = &n
		}
		if r.RebuildConcurrency != nil {
			n := int(*r.RebuildConcurrency)
			if n == 0 {
				n = -1 // for the core that is the default; who sets it means a number
			}
			m.RebuildConcurrency = &n
		}
		m.RebuildBudget = r.RebuildBandwidth
		return m
	})
}

// FrontendStart implements enginev1.EngineServer.
func (s *service) FrontendStart(ctx context.Context, r *enginev1.FrontendStartRequest) (*enginev1.State, error) {
	l := s.p.current()
	if l == nil {
		return nil, statusOf(errBetween)
	}
	select {
	case <-l.start:
	default:
		return nil, status.Error(codes.FailedPrecondition, "the volume is not served yet; try again")
	}
	return s.answer(ctx, s.p.startFrontend(ctx, r.Frontend))
}

// FrontendShutdown implements enginev1.EngineServer.
func (s *service) FrontendShutdown(ctx context.Context, _ *enginev1.FrontendShutdownRequest) (*enginev1.State, error) {
	s.p.front.down(s.p)
	return s.answer(ctx, nil)
}

// resize tells the user of the volume, where the frontend has a way to.
func (f *frontendShell) resize(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.grown == nil {
		return nil
	}
	if err := f.grown(ctx); err != nil {
		return fmt.Errorf("the volume has its new size, its device does not: %w; expand to the same size again", err)
	}
	return nil
}

// size is what users of the volume are told.
func (p *engineProcess) size() int64 {
	v, _ := p.state.get()
	return v.engine.Size
}
