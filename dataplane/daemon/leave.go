package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/engine"
	"ankole.storage/host/patience"
	"ankole.storage/host/version"
)

// This file is the old engine's side of a live upgrade; succeed.go is the successor's,
// docs/design/upgrade.md has both.

// Bounds of an engine that leaves. Together with what a successor needs to prepare itself they are
// less than the time after which an instance manager kills a replacement that does not run.
var (
	// passingTime is how long it waits, beside the user's requests, for something that is over soon: a
	// snapshot, an expansion, the piece of a purge. What takes longer is for whoever wants the upgrade
	// to wait for.
	passingTime = patience.Of(3 * time.Second)
	// drainTime bounds the end of the requests that it has taken in. A disk that is slower than
	// that is no reason to make its user wait longer: the upgrade is refused and can be tried
	// again.
	drainTime = patience.Of(2 * time.Second)
	// releaseTime bounds giving up the directories.
	releaseTime = patience.Of(5 * time.Second)
)

// Leave implements enginev1.EngineServer.
func (s *service) Leave(ctx context.Context, r *enginev1.LeaveRequest) (*enginev1.LeaveResponse, error) {
	a, err := s.p.leave(ctx, r)
	if err != nil {
		return nil, statusOf(err)
	}
	return a, nil
}

// leave has the engine leave the volume to a successor. After an error it serves as before.
func (p *engineProcess) leave(ctx context.Context, r *enginev1.LeaveRequest) (*enginev1.LeaveResponse, error) {
	log := p.cfg.Log.With("members", r.Members, "build", r.Build)
	p.front.mu.Lock()
	defer p.front.mu.Unlock()
	log.Info("live upgrade is asked for")
	left, began, err := p.leaveCore(ctx, r)
	if left == nil {
		log.Info("live upgrade is refused", "reason", err)
		return nil, err
	}
	if err != nil {
		log.Warn("not every replica has given its directory up", "error", err)
	}
	_ = at("left") // nobody can refuse any more
	if err := p.front.leave(); err != nil {
		log.Warn("block device is not left in order; it is with the end of this process", "error", err)
	}
	close(p.left)
	log.Info("the engine has left", "users wait since", time.Since(began).String())
	_ = at("leaving")
	return &enginev1.LeaveResponse{PauseNanos: int64(time.Since(began)), Purge: left.Purge}, nil
}

// mayLeave tells why the volume cannot be left to the one who asks, nil if it can. front.mu is
// held.
func (p *engineProcess) mayLeave(r *enginev1.LeaveRequest) error {
	c := &p.cfg
	switch {
	case c.StandInFor != "":
		return errStandIn
	case r.VolumeUuid != c.VolumeUUID || r.InstanceManager != c.InstanceManager:
		return fmt.Errorf("%w: volume %s in instance manager %q runs here, not %s in %q", engine.ErrState, c.VolumeUUID,
			c.InstanceManager, r.VolumeUuid, r.InstanceManager)
	case p.front.over:
		return fmt.Errorf("%w: the engine is ending", engine.ErrState)
	}
	if err := p.current().mayBeOrdered(); err != nil {
		return err // it would go without its frontend, for good
	}
	switch d := p.front.device; {
	case p.front.lost != "":
		return fmt.Errorf("%w: the block device is being made anew; try again", engine.ErrBusy)
	case p.front.stop == nil: // it has no users
	case d == nil:
		return fmt.Errorf("%w: the volume is offered on an NBD socket, whose clients would lose their connections: detach the "+
			"volume to upgrade it", engine.ErrState)
	case d.held == nil && (c.Keeper == "" || d.journal == nil && !d.isUblk()):
		return fmt.Errorf("%w: the block device cannot be kept here for another engine, which takes an instance manager that "+
			"keeps devices and Linux 4.20: detach the volume to upgrade it", engine.ErrState)
	case d.held == nil:
		return fmt.Errorf("%w: the instance manager does not keep the block device yet; try again", engine.ErrBusy)
	}
	return nil
}

// leaveCore has the core leave, if it can; began is when users began to wait. left is nil if it
// stays, and the error says why; both mean that a replica did not release its directory.
func (p *engineProcess) leaveCore(ctx context.Context, r *enginev1.LeaveRequest) (left *engine.Left, began time.Time,
	err error) {
	if err := p.mayLeave(r); err != nil {
		return nil, began, err
	}
	if err := at("asked"); err != nil {
		return nil, began, err
	}
	if d, ok := ctx.Deadline(); ok && time.Now().After(d) { // this process has stood still
		return nil, began, fmt.Errorf("%w: the successor does not wait any more", engine.ErrState)
	}
	l := p.current()
	type outcome struct {
		left *engine.Left
		err  error
	}
	draining, done := make(chan time.Time, 1), make(chan outcome, 1)
	l.loop.Post(engine.Leave{Members: r.Members, Draining: func() { draining <- time.Now() }, ReleaseTime: releaseTime,
		Reply: func(left *engine.Left, err error) { done <- outcome{left, err} }})
	over := time.NewTimer(passingTime)
	defer over.Stop()
	tooLong := "it has not ended within " + passingTime.String() + "; try again when it has"
	for {
		select {
		case o := <-done:
			return o.left, began, o.err
		case began = <-draining:
			over.Reset(drainTime)
			tooLong = "requests under way were not answered within " + drainTime.String() + "; try again"
		case <-over.C:
			l.loop.Post(engine.Stay{Reason: tooLong})
		case <-ctx.Done():
			l.loop.Post(engine.Stay{Reason: "the successor does not wait any more"})
			ctx = context.WithoutCancel(ctx)
		case <-l.ended:
			select {
			case o := <-done:
				return o.left, began, o.err
			default:
				return nil, began, fmt.Errorf("%w: the engine has ended", engine.ErrState)
			}
		}
	}
}

// leave parts with the frontend, which goes on in the next engine: the device is the keeper's. The
// lock is held.
func (f *frontendShell) leave() (err error) {
	f.over = true
	if d := f.device; d != nil {
		err = errors.Join(d.Leave(), d.held.Leave())
	}
	f.forget()
	return err
}

// hasLeft tells whether the engine has left the volume to a successor. It waits for one that is
// about to.
func (p *engineProcess) hasLeft() bool {
	p.front.mu.Lock()
	defer p.front.mu.Unlock()
	select {
	case <-p.left:
		return true
	default:
		return false
	}
}

// build names this program.
func build() string { return version.Version + " " + version.GitCommit }
