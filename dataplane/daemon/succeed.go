package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/handover"
	"ankole.storage/host/hostpath"
)

// errTakenBack: the engine that has offered the volume takes it back.
var errTakenBack = errors.New("the engine that runs takes the volume back")

// refusalLook is how often an engine that prepares to serve looks whether the one that has offered
// the volume takes it back. Both need the replicas' directories then, and the one before has a
// right to them.
const refusalLook = 20 * time.Millisecond

// ErrNotTaken: the volume could not be taken over from the engine that runs; that one serves.
var ErrNotTaken = errors.New("engine: live upgrade")

// takeOver makes this process the volume's engine in the place of the one that runs. After an error
// it has touched nothing of the volume's users, and ends.
func (p *engineProcess) takeOver(ctx context.Context) error {
	if p.cfg.Handover == "" {
		return fmt.Errorf("%w: ANKOLE_HANDOVER is not set: this instance manager knows no live upgrade; detach the "+
			"volume to upgrade it", ErrNotTaken)
	}
	if err := p.begin(nil); err != nil {
		return err
	}
	members, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	c, err := handover.Dial(handover.Socket(hostpath.Resolve(p.cfg.Handover), p.cfg.Instance))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotTaken, err)
	}
	defer c.Close()
	// Whoever does not want it any more lets the engine that runs know at once.
	defer context.AfterFunc(ctx, c.Abort)()
	o, paused, err := p.askFor(c, members)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotTaken, err)
	}
	began := time.Now()
	p.front.mu.Lock()
	defer p.front.mu.Unlock()
	wanted, over := whileOffered(ctx, c)
	attach, err := p.succeed(wanted, o)
	over()
	if err != nil {
		// the replicas give their directories back
		p.end()
		// the end of the connection says it too
		_ = c.Send(handover.Message{Failed: &handover.Failed{Reason: err.Error()}}, time.Now().Add(sendWait))
		return fmt.Errorf("%w: %w", ErrNotTaken, err)
	}
	if err := p.take(c); err != nil {
		return fmt.Errorf("%w: %w", ErrNotTaken, err)
	}
	p.current().loop.Post(engine.Own{})
	p.cfg.Log.Info("volume is taken over", "since the offer", time.Since(began).String())
	if err := at("taken"); err != nil {
		return err
	}
	if err := attach(); err != nil {
		return err
	}
	p.upgradePause.Store(int64(time.Since(paused)))
	close(p.current().begun)
	return nil
}

// prepare waits until the replicas have been asked what they hold.
func (p *engineProcess) prepare(ctx context.Context) ([]string, error) {
	l := p.current()
	heard := make(chan []string, 1)
	l.loop.Post(engine.Prepare{Reply: func(members, missing []string) {
		for _, m := range missing {
			p.cfg.Log.Warn("replica is not ready to be taken over", "replica", m)
		}
		heard <- members
	}})
	select {
	case members := <-heard:
		return members, at("prepared")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.ctx.Done():
		return nil, context.Cause(l.ctx)
	}
}

// askFor asks the engine that runs for the volume. paused is when its users began to wait.
func (p *engineProcess) askFor(c *handover.Conn, members []string) (o *handover.Offer, paused time.Time, err error) {
	cfg := &p.cfg
	ask := &handover.Ask{MinVersion: handover.MinVersion, Version: handover.Version, VolumeName: cfg.VolumeName,
		VolumeUUID: cfg.VolumeUUID,
		Engine:     cfg.Instance, InstanceManager: cfg.InstanceManager, Members: members, Build: build()}
	if err := c.Send(handover.Message{Ask: ask}, time.Now().Add(sendWait)); err != nil {
		return nil, paused, err
	}
	if err := at("asked-for"); err != nil {
		return nil, paused, err
	}
	deadline := time.Now().Add(askWait + handover.DrainTime + handover.ReleaseTime)
	for {
		m, err := c.Receive(deadline)
		if paused.IsZero() && (m.Draining != nil || m.Offer != nil) {
			paused = time.Now()
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil, paused, errors.New("the engine that runs has ended")
		case err != nil:
			return nil, paused, fmt.Errorf("the engine that runs does not answer: %w", err)
		case m.Refused != nil:
			return nil, paused, fmt.Errorf("the engine that runs refuses: %s", m.Refused.Reason)
		case m.Offer != nil:
			return m.Offer, paused, nil
		case m.Draining == nil:
			return nil, paused, errors.New("the engine that runs has said something that is no answer")
		}
	}
}

// leftOf is the inverse of offer, as far as the core has use for it.
func leftOf(o *handover.Offer) engine.Left {
	p, c := &o.Options, &o.Counters
	return engine.Left{Epoch: o.Epoch, Size: o.Size, Purge: o.Purge, RebuildBudget: p.RebuildBudget,
		Options: engine.Options{SnapshotMaxCount: p.SnapshotMaxCount, SnapshotMaxSize: p.SnapshotMaxSize,
			UnmapMarkSnapChainRemoved: p.UnmapMarkSnapChainRemoved, RebuildConcurrency: p.RebuildConcurrency},
		Counters: engine.Counters{Reads: c.Reads, Writes: c.Writes, ReadBytes: c.ReadBytes, WriteBytes: c.WriteBytes,
			Flushes: c.Flushes, Discards: c.Discards, ReadNanos: c.ReadNanos, WriteNanos: c.WriteNanos}}
}

// whileOffered returns a context that ends when the engine at the other end of c takes back what it
// has offered, and nothing else is said before the function returned is called. The end of that
// engine is no reason: nobody else can have the volume then.
func whileOffered(ctx context.Context, c *handover.Conn) (offered context.Context, over func()) {
	offered, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		look := time.NewTicker(refusalLook)
		defer look.Stop()
		for {
			select {
			case <-offered.Done():
				return
			case <-look.C:
				if c.Heard() {
					cancel(errTakenBack)
				}
			}
		}
	}()
	return offered, func() {
		cancel(nil)
		<-done
	}
}

// succeed brings the core to where it could serve, and makes the frontend without beginning to.
func (p *engineProcess) succeed(ctx context.Context, o *handover.Offer) (attach func() error, err error) {
	if err := at("offered-to"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handover.TakeTime)
	defer cancel()
	p.current().goesOn = o.Export != nil
	if err := p.ask(ctx, func(reply func(error)) any {
		return engine.Succeed{Left: leftOf(o), Reply: reply}
	}); err != nil {
		return nil, err
	}
	p.current().offered = true
	attach = func() error { return nil }
	if o.Export != nil {
		if attach, err = p.importFrontend(o.Frontend, o.Export, o.Epoch); err != nil {
			return nil, err
		}
	}
	return attach, at("ready")
}

// take says the word that makes the volume this engine's. It is an error if the old one does not
// listen any more because it takes the volume back. If it has died instead nobody else can have the
// volume.
func (p *engineProcess) take(c *handover.Conn) error {
	v, _ := p.state.get()
	err := c.Send(handover.Message{Taken: &handover.Taken{Epoch: v.engine.Epoch}}, time.Now().Add(sendWait))
	if err == nil {
		return nil
	}
	m, rerr := c.Receive(time.Now().Add(sendWait))
	switch {
	case errors.Is(rerr, io.EOF):
		p.cfg.Log.Warn("the engine before has died after it had handed over")
		return nil
	case m.Refused != nil:
		return errors.New(m.Refused.Reason)
	}
	return errors.Join(err, rerr)
}
