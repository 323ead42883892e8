package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/handover"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/version"
)

// This file is the old engine's side of a live upgrade; succeed.go is the new one's,
// docs/design/upgrade.md has both.

const (
	// askWait bounds the wait for the first message on a connection.
	askWait = 5 * time.Second
	// sendWait bounds a message: the peer reads at once, or is given up.
	sendWait = 2 * time.Second
	// lingerTime is how long an engine that has handed over waits for the SIGHUP that tells it to
	// end. Until then the instance manager lists it, and its end would look like the volume's.
	lingerTime = time.Minute
	// lingerLook is how often it looks whether the engine that took over is still there: its end
	// while this one is listed is the end of the volume's engine, and whoever reads the list should
	// not wait for that until lingerTime is over.
	lingerLook = 200 * time.Millisecond
)

// errSuccessorEnded: this engine was told that the volume is taken, and the one that took it ended
// before this one was told to.
var errSuccessorEnded = errors.New("the engine that has taken the volume over has ended; start another one")

// asking is an engine that wants to take the volume over.
type asking struct {
	conn *handover.Conn
	ask  *handover.Ask
	done chan struct{} // closed when it was answered
}

// listen lets other engines ask for the volume until the function returned is called, behind
// supervise. Without it the volume works as well; it can only not be upgraded while it is attached.
func (p *engineProcess) listen() (stop func()) {
	if p.cfg.Handover == "" {
		return func() {}
	}
	l, err := handover.Listen(handover.Socket(hostpath.Resolve(p.cfg.Handover), p.cfg.Instance))
	if err != nil {
		p.cfg.Log.Warn("no live upgrade of this engine is possible", "error", err)
		return func() {}
	}
	r := &reception{p: p, open: map[*handover.Conn]struct{}{}, quit: make(chan struct{})}
	r.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it is closed
			}
			r.admit(c)
		}
	})
	return func() {
		end := l.Close
		if p.handedOver {
			end = l.Leave
		}
		if err := end(); err != nil {
			p.cfg.Log.Warn("socket for live upgrades is not removed", "error", err)
		}
		r.end()
	}
}

// maxAsking bounds connections of engines that ask for the volume: one does, and others are told
// so.
const maxAsking = 8

// reception receives the requests of engines that ask for the volume. One is judged at a time, the
// others are refused.
type reception struct {
	p    *engineProcess
	quit chan struct{}
	work sync.WaitGroup

	mu   sync.Mutex
	open map[*handover.Conn]struct{} // nil at the end
	busy bool
}

// admit receives the request of the engine at the other end of c.
func (r *reception) admit(c *handover.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil || len(r.open) >= maxAsking {
		c.Close()
		return
	}
	r.open[c] = struct{}{}
	r.work.Go(func() {
		r.receive(c)
		r.mu.Lock()
		delete(r.open, c)
		r.mu.Unlock()
		c.Close()
	})
}

// end closes the connections that are open, and waits for their goroutines.
func (r *reception) end() {
	close(r.quit)
	r.mu.Lock()
	for c := range r.open {
		c.Abort()
	}
	r.open = nil
	r.mu.Unlock()
	r.work.Wait()
}

// receive takes the first message of one engine and waits until it is answered.
func (r *reception) receive(c *handover.Conn) {
	m, err := c.Receive(time.Now().Add(askWait))
	if err != nil || m.Ask == nil {
		r.p.cfg.Log.Warn("somebody connected for a live upgrade and did not ask", "error", err)
		return
	}
	if !r.begin() {
		m := handover.Message{Refused: &handover.Refused{
			Reason: "another engine asks for the volume at the same time, or has taken it over; look at the volume again"}}
		_ = c.Send(m, time.Now().Add(sendWait)) // it may be gone
		return
	}
	a := asking{conn: c, ask: m.Ask, done: make(chan struct{})}
	select {
	case r.p.asks <- a:
		<-a.done
	case <-r.quit:
	}
	r.mu.Lock()
	r.busy = false
	r.mu.Unlock()
}

// begin reports whether nobody else is being judged.
func (r *reception) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy {
		return false
	}
	r.busy = true
	return true
}

// identityOf refuses engines that are not this one's successor.
func (p *engineProcess) identityOf(a *handover.Ask) error {
	c := &p.cfg
	switch {
	case a.VolumeUUID != c.VolumeUUID || a.Engine != c.Instance:
		return fmt.Errorf("engine %s of volume %s (%s) runs here, not %s of %s (%s)", c.Instance, c.VolumeName,
			c.VolumeUUID, a.Engine, a.VolumeName, a.VolumeUUID)
	case a.InstanceManager != c.InstanceManager:
		return fmt.Errorf("it runs in instance manager %q, this engine in %q", a.InstanceManager, c.InstanceManager)
	}
	return a.Speaks()
}

// handOver gives the volume to the engine that asks. taken: it has it, and this process ends.
// Otherwise this engine serves as before, perhaps after it has taken the volume back; an error says
// that it cannot.
func (p *engineProcess) handOver(ctx context.Context, a asking) (taken bool, err error) {
	defer close(a.done)
	log := p.cfg.Log.With("members", a.ask.Members, "build", a.ask.Build)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	p.front.mu.Lock()
	log.Info("live upgrade is asked for")
	left, name, err := p.leave(ctx, a)
	if left == nil {
		p.front.mu.Unlock()
		log.Info("live upgrade is refused", "reason", err)
		// it may be gone
		_ = a.conn.Send(handover.Message{Refused: &handover.Refused{Reason: err.Error()}}, time.Now().Add(sendWait))
		return false, p.hungUp(hangup)
	}
	p.end()
	if p.front.export != nil {
		p.front.export(left.Export)
	}
	p.front.forget()
	next := -1
	if err == nil {
		next, err = p.give(a.conn, left, name)
	}
	if err == nil {
		p.handedOver = true
		p.front.mu.Unlock()
		log.Info("volume is handed over")
		closeExport(left.Export)
		return true, p.linger(ctx, hangup, next)
	}
	log.Warn("live upgrade has failed: taking the volume back", "reason", err)
	p.front.given = left.Export
	err = p.takeBack(left, name)
	p.front.mu.Unlock()
	return false, errors.Join(err, p.hungUp(hangup))
}

// hungUp returns an error that ends the process, as SIGHUP does by default, if that signal came
// while it had a handler.
func (p *engineProcess) hungUp(hangup <-chan os.Signal) error {
	select {
	case <-hangup:
		return errors.New("engine: SIGHUP")
	default:
		return nil
	}
}

// leave has the core release the volume. left is nil if it did not, and the error says why; both
// mean that a replica did not release its directory.
func (p *engineProcess) leave(ctx context.Context, a asking) (left *engine.Left, name string, err error) {
	if err := p.identityOf(a.ask); err != nil {
		return nil, "", err
	}
	l := p.current()
	if err := l.mayBeOrdered(); err != nil {
		return nil, "", err // it would go without its frontend, for good
	}
	if p.front.lost != "" {
		return nil, "", fmt.Errorf("%w: the block device is being made anew; try again", engine.ErrBusy)
	}
	if p.front.stop != nil && p.front.export == nil {
		return nil, "",
			errors.New("the frontend that is up cannot be given to another process: detach the volume to upgrade it")
	}
	if err := at("asked"); err != nil {
		return nil, "", err
	}
	if a.conn.Gone() {
		return nil, "", errors.New("the new engine does not wait any more")
	}
	draining := make(chan struct{})
	type outcome struct {
		left *engine.Left
		err  error
	}
	done := make(chan outcome, 1)
	l.loop.Post(engine.HandOver{Members: a.ask.Members, Draining: func() {
		close(draining)
	}, ReleaseTime: handover.ReleaseTime,
		Reply: func(left *engine.Left, err error) { done <- outcome{left, err} }})
	over := time.NewTimer(handover.PassingTime)
	defer over.Stop()
	tooLong := "it has not ended within " + handover.PassingTime.String() + "; try again when it has"
	for {
		select {
		case o := <-done:
			return o.left, p.front.name, o.err
		case <-draining:
			draining = nil
			over.Reset(handover.DrainTime)
			tooLong = "requests under way were not answered within " + handover.DrainTime.String() + "; try again"
			_ = a.conn.Send(handover.Message{Draining: &handover.Draining{}}, time.Now().Add(sendWait)) // Offer will tell
		case <-over.C:
			l.loop.Post(engine.Stay{Reason: tooLong})
		case <-ctx.Done():
			l.loop.Post(engine.Stay{Reason: "the engine is asked to end"})
			ctx = context.WithoutCancel(ctx)
		case <-l.ended:
			select {
			case o := <-done:
				return o.left, p.front.name, o.err
			default:
				return nil, "", fmt.Errorf("the engine has ended: %w", l.outcome())
			}
		}
	}
}

// give offers the volume, and returns the process that has taken it, for the caller to close. After
// an error nobody has, and never will.
func (p *engineProcess) give(c *handover.Conn, left *engine.Left, name string) (pidfd int, err error) {
	if err := at("left"); err != nil {
		return -1, err
	}
	pidfd, pid, err := c.Peer()
	if err != nil {
		return -1, fmt.Errorf("the new engine's process: %w", err)
	}
	if err := p.offerTo(c, pidfd, pid, offer(left, name)); err != nil {
		unix.Close(pidfd)
		return -1, err
	}
	return pidfd, nil
}

func (p *engineProcess) offerTo(c *handover.Conn, pidfd, pid int, o *handover.Offer) error {
	deadline := time.Now().Add(handover.TakeTime)
	err := c.Send(handover.Message{Offer: o}, deadline)
	if err == nil {
		err = at("offered")
	}
	if err == nil {
		if err = takenFrom(c, deadline); err == nil {
			return nil
		}
	}
	// It must not take it any more. What it said before this is heard.
	if derr := c.CloseRead(); derr != nil {
		err = errors.Join(err, derr)
	}
	if last := takenFrom(c, time.Now().Add(sendWait)); last == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// It may hang with sessions that keep the replicas' directories.
		p.cfg.Log.Warn("the new engine does not take the volume: it is killed", "process", pid)
		if kerr := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); kerr != nil {
			err = errors.Join(err, kerr)
		}
	}
	// it may be gone
	_ = c.Send(handover.Message{Refused: &handover.Refused{Reason: "the volume is taken back"}}, time.Now().Add(sendWait))
	return err
}

// takenFrom waits for Taken.
func takenFrom(c *handover.Conn, deadline time.Time) error {
	m, err := c.Receive(deadline)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the new engine has ended")
	case err != nil:
		return fmt.Errorf("no word that the volume is taken: %w", err)
	case m.Taken != nil:
		return nil
	case m.Failed != nil:
		return errors.New(m.Failed.Reason)
	}
	return errors.New("the new engine has said something else than that the volume is taken")
}

func offer(left *engine.Left, name string) *handover.Offer {
	o, c := &left.Options, &left.Counters
	return &handover.Offer{Epoch: left.Epoch, Generation: left.Record.Generation, Members: left.Record.Members,
		Size: left.Size,
		Options: handover.Options{SnapshotMaxCount: o.SnapshotMaxCount, SnapshotMaxSize: o.SnapshotMaxSize,
			UnmapMarkSnapChainRemoved: o.UnmapMarkSnapChainRemoved, RebuildBudget: left.RebuildBudget,
			RebuildConcurrency: o.RebuildConcurrency},
		Counters: handover.Counters{Reads: c.Reads, Writes: c.Writes, ReadBytes: c.ReadBytes, WriteBytes: c.WriteBytes,
			Flushes:  c.Flushes,
			Discards: c.Discards, ReadNanos: c.ReadNanos, WriteNanos: c.WriteNanos},
		Purge: left.Purge, Frontend: name, Export: left.Export}
}

// takeBack begins a new life with the replicas that were released, and offers the frontend again
// when it serves.
func (p *engineProcess) takeBack(left *engine.Left, name string) error {
	if err := p.begin(left); err != nil {
		return err
	}
	p.current().offer = func(context.Context) error { return p.offerExport(name, left) }
	return nil
}

// offerExport brings up a frontend that was given away, here or by another process.
func (p *engineProcess) offerExport(name string, left *engine.Left) error {
	p.front.mu.Lock()
	defer p.front.mu.Unlock()
	if left.Export == nil {
		return nil
	}
	if err := at("taken-back"); err != nil {
		return err
	}
	attach, err := p.importFrontend(name, left.Export, left.Epoch)
	if err != nil {
		p.front.given = nil
		p.withdraw(left.Export)
		return err
	}
	return attach()
}

// linger keeps the process, which owns nothing any more, until it is told to end. It is an error if
// its successor ends first.
func (p *engineProcess) linger(ctx context.Context, hangup <-chan os.Signal, next int) error {
	defer unix.Close(next)
	p.srv.stop()
	t := time.NewTimer(lingerTime)
	defer t.Stop()
	look := time.NewTicker(lingerLook)
	defer look.Stop()
	for {
		select {
		case <-hangup:
			return nil
		case <-t.C:
			return nil
		case <-ctx.Done():
			return nil
		case <-look.C:
			// A descriptor of a process can be read when it has ended.
			fds := []unix.PollFd{{Fd: int32(next), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, 0); err == nil && n > 0 {
				return errSuccessorEnded
			}
		}
	}
}

// closeExport closes this process's descriptors of a frontend that another one has.
func closeExport(x *frontend.Export) {
	if x == nil {
		return
	}
	for _, d := range x.Descriptors {
		unix.Close(d.FD)
	}
}

// build names this program.
func build() string { return version.Version + " " + version.GitCommit }
