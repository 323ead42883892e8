package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/journal"
	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/dataplane/device/kept"
	"ankole.storage/dataplane/engine"
)

// This file takes the block device of the engine before over to this one, be that killed or gone in
// a live upgrade, if package kept says that it goes on.

// keptState is what the instance manager keeps of a block device, as JSON beside the descriptors.
type keptState struct {
	blockdev.Kept
	kept.Owners
}

func (k *keptState) encode() json.RawMessage {
	p, err := json.Marshal(k)
	if err != nil {
		panic(err) // numbers and a name can be encoded
	}
	return p
}

// deviceOwner is what the keeper is told of this engine.
func (p *engineProcess) deviceOwner() keeper.Owner {
	return keeper.Owner{Volume: p.cfg.VolumeName, Engine: p.cfg.Instance, Wait: p.cfg.DeviceWait}
}

// keptDevice is a block device that the instance manager has kept, and that belongs to this process
// now.
type keptDevice struct {
	held  *keeper.Held
	state keptState
	fds   []int
}

// drop ends the device: with the last descriptor its I/O fails.
func (k *keptDevice) drop() error {
	err := k.held.Drop()
	closeAll(k.fds)
	return err
}

// follow implements engine.Config.Follow.
func (l *life) follow(follows, epoch uint64) (continues bool) {
	l.follows = follows
	if l.p.cfg.Keeper == "" {
		return false
	}
	taken, err := l.p.takeKept(l.ctx, epoch, follows)
	if err != nil {
		// The record that comes next would end the device for good. The engine ends before it, and
		// another one can try again. The core hears of nothing before its loop has ended.
		l.fatal(fmt.Errorf("engine: a block device is kept that cannot be taken over now; start it again: %w", err))
		<-l.ended
	}
	if taken {
		l.epochs = l.p.keptEpochs()
	}
	return taken
}

// takeKept takes over the device of the engine before, if it can go on here, and ends it if
// it cannot. An error says that neither was done: the device is as it was. epoch is the one under
// which it is served from now on; it must have been served under one of follows last. A device of
// another instance manager of the node is waited for until ctx ends.
func (p *engineProcess) takeKept(ctx context.Context, epoch uint64, follows ...uint64) (taken bool, err error) {
	held, state, fds, err := p.takeFromKeeper(ctx)
	switch {
	case errors.Is(err, keeper.ErrNone):
		return false, nil
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		// Nobody listens there any more, so that no engine will ever take a device over.
		p.cfg.Log.Warn("the instance manager does not keep block devices", "error", err)
		return false, nil
	case err != nil:
		return false, err
	}
	k := &keptDevice{held: held, fds: fds}
	if err = k.judge(&p.cfg, state, follows); err != nil {
		p.cfg.Log.Warn("kept block device ends, whoever has it open gets errors", "reason", errors.Join(err, k.drop()))
		return false, nil
	}
	k.state.Identify()
	k.state.Add(epoch, follows...)
	if err := held.Keep(k.state.encode(), fds...); err != nil {
		closeAll(fds)
		return false, errors.Join(err, held.Leave())
	}
	p.mu.Lock()
	p.kept = k
	why := p.noKept
	p.mu.Unlock()
	if why != "" { // this process has come to its end meanwhile
		p.dropKept(why)
		return false, nil
	}
	return true, nil
}

// keptEpochs are the epochs of the device that was taken over and is not up yet, nil if none is.
func (p *engineProcess) keptEpochs() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept == nil {
		return nil
	}
	return slices.Clone(p.kept.state.Epochs)
}

// takeFromKeeper takes the device that the keeper has. Where another instance manager of the node
// has it, which was told to end, the wait for that follows it: however long its engines take to
// end, they have served last. It is bounded by the time for which the device is kept without an
// engine.
func (p *engineProcess) takeFromKeeper(ctx context.Context) (held *keeper.Held, state json.RawMessage, fds []int,
	err error) {
	until := time.Now().Add(cmp.Or(p.cfg.DeviceWait, keeper.OrphanWait))
	for told := false; ; told = true {
		held, state, fds, err = keeper.Take(p.cfg.Keeper, p.deviceOwner())
		if !errors.Is(err, keeper.ErrOwned) || ctx.Err() != nil || p.mayNotKeep() || time.Now().After(until) {
			return held, state, fds, err
		}
		if !told {
			p.cfg.Log.Info("the block device is waited for: another instance manager of the node has it still")
		}
	}
}

// mayNotKeep tells whether this process has come to its end.
func (p *engineProcess) mayNotKeep() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.noKept != ""
}

// judge reads the state of a kept device, and tells why it cannot go on here, nil if it can.
func (k *keptDevice) judge(cfg *EngineConfig, state json.RawMessage, follows []uint64) error {
	if err := json.Unmarshal(state, &k.state); err != nil {
		return err
	}
	var err error
	for _, f := range follows {
		if err = k.state.ContinuedBy(cfg.VolumeUUID, f); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	if cfg.Frontend != FrontendBlockdev {
		return errors.New("the volume is attached without a frontend")
	}
	return nil
}

// hasKept tells whether a device was taken over that is not up yet.
func (p *engineProcess) hasKept() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept != nil
}

func (p *engineProcess) takeOutKept() *keptDevice {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kept
	p.kept = nil
	return k
}

// dropKept ends a device that was taken over and does not go on after all, before the volume is
// used in another way.
func (p *engineProcess) dropKept(why string) {
	k := p.takeOutKept()
	if k == nil {
		return
	}
	p.cfg.Log.Warn("kept block device ends, whoever has it open gets errors", "reason", why, "error", k.drop())
	if l := p.current(); l != nil {
		l.loop.Post(engine.Discontinue{})
	}
}

// endKept is dropKept at the end of the engine: a device that is being taken over just then, by a
// worker of the loop, ends as soon as it is here.
func (p *engineProcess) endKept(why string) {
	p.mu.Lock()
	p.noKept = why
	p.mu.Unlock()
	p.dropKept(why)
}

// adoptKept goes on with the device that was taken over, nil if there is none or it is not what it
// was. An error says that this could not be found out: the device stays for the next engine.
func (p *engineProcess) adoptKept(ctx context.Context, cfg blockdev.Config) (*fuseDevice, error) {
	k := p.takeOutKept()
	if k == nil {
		return nil, nil
	}
	dev := &fuseDevice{held: k.held, epochs: k.state.Epochs}
	err := dev.adopt(ctx, p, cfg, k)
	switch {
	case err == nil:
		p.cfg.Log.Info("block device of the engine before is taken over", "device", dev.Path())
		return dev, nil
	case passes(err):
		return nil, fmt.Errorf("engine: a block device is kept that cannot be taken over now; start it again: %w",
			errors.Join(err, k.held.Leave()))
	}
	p.cfg.Log.Warn("kept block device cannot be taken over, making a new one", "error", errors.Join(err, k.held.Drop()))
	return nil, nil
}

// passes tells whether an error says nothing about a device, but only that this process cannot look
// at it at the moment.
func passes(err error) bool {
	return slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, blockdev.ErrInUse,
		context.DeadlineExceeded, context.Canceled},
		func(e error) bool { return errors.Is(err, e) })
}

// adopt makes the device of what was kept. The descriptors are its own, or closed.
func (d *fuseDevice) adopt(ctx context.Context, p *engineProcess, cfg blockdev.Config, k *keptDevice) (err error) {
	if k.state.Ublk != nil {
		closeAll(k.fds[1:])
		d.hostDevice, err = blockdev.AdoptUblk(ctx, cfg, k.state.Kept, k.fds[0])
		return err
	}
	if len(k.fds) < 2 {
		closeAll(k.fds)
		return errors.New("it was kept without a journal of its requests")
	}
	if d.journal, err = journal.Open(k.fds[1]); err != nil {
		closeAll(k.fds)
		return err
	}
	if d.hostDevice, err = blockdev.Adopt(ctx, cfg, k.state.Kept, k.fds[0]); err != nil {
		return errors.Join(err, d.journal.Discard())
	}
	p.front.journal = d.journal
	return nil
}

// epoch is this engine's.
func (p *engineProcess) epoch() uint64 {
	v, _ := p.state.get()
	return v.engine.Epoch
}
