package daemon

import (
	"context"
	"fmt"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/engine"
)

// SnapshotRevert implements enginev1.EngineServer.
func (s *service) SnapshotRevert(ctx context.Context, r *enginev1.SnapshotRevertRequest) (*enginev1.State, error) {
	return s.do(ctx, func(reply func(error)) any {
		return engine.Revert{Name: r.Name, Created: now(), Reply: reply}
	})
}

// Expand implements enginev1.EngineServer. A block device is told of its new size; if that fails
// the volume has it nevertheless, and the next attempt, with the same size, tells the device again.
// A caller who leaves changes nothing.
func (s *service) Expand(ctx context.Context, r *enginev1.ExpandRequest) (*enginev1.State, error) {
	ctx = context.WithoutCancel(ctx)
	err := s.p.ask(ctx, func(reply func(error)) any { return engine.Expand{Size: r.Size, Created: now(), Reply: reply} })
	if err == nil {
		err = at("grown")
	}
	if err == nil {
		err = s.p.front.resize(ctx, r.Size)
	}
	return s.answer(ctx, err)
}

// OptionsSet implements enginev1.EngineServer.
func (s *service) OptionsSet(ctx context.Context, r *enginev1.OptionsSetRequest) (*enginev1.State, error) {
	return s.do(ctx, func(reply func(error)) any {
		m := engine.SetOptions{SnapshotMaxSize: r.SnapshotMaxSize,
			UnmapMarkSnapChainRemoved: r.UnmapMarkSnapChainRemoved, Reply: reply}
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

// FrontendStart implements enginev1.EngineServer. A caller who leaves changes nothing: the frontend
// comes up, or does not, as a whole.
func (s *service) FrontendStart(ctx context.Context, r *enginev1.FrontendStartRequest) (*enginev1.State, error) {
	ctx = context.WithoutCancel(ctx)
	return s.answer(ctx, s.order(func() error { return s.p.startFrontend(ctx, r.Frontend) }))
}

// FrontendShutdown implements enginev1.EngineServer.
func (s *service) FrontendShutdown(ctx context.Context, _ *enginev1.FrontendShutdownRequest) (*enginev1.State, error) {
	return s.answer(ctx, s.order(func() error {
		s.p.front.takeDown(s.p)
		return nil
	}))
}

// order carries out an order about the frontend. It may have waited while the engine was about to
// leave, so what it concerns is looked up with the lock held.
func (s *service) order(do func() error) error {
	s.p.front.mu.Lock()
	defer s.p.front.mu.Unlock()
	if s.p.front.over {
		return fmt.Errorf("%w: the engine is ending", engine.ErrState)
	}
	if err := s.p.current().mayBeOrdered(); err != nil {
		return err
	}
	return do()
}

// resize tells the user of the volume its size in bytes, where the frontend has a way to.
func (f *frontendShell) resize(ctx context.Context, size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.grown == nil {
		return nil
	}
	if err := f.grown(ctx, size); err != nil {
		return fmt.Errorf("the volume has its new size, its device does not: %w; expand to the same size again", err)
	}
	return nil
}

// size is what users of the volume are told.
func (p *engineProcess) size() int64 {
	v, _ := p.state.get()
	return v.engine.Size
}
