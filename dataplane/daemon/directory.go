package daemon

import (
	"errors"
	"fmt"
	"time"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/standby"
	"ankole.storage/host/hostpath"
)

const (
	// acquireWait bounds the wait for the lock of a directory that another process is about to give
	// up: longer than closing one takes, shorter than the engine waits for an answer.
	acquireWait = 3 * time.Second
	// acquirePoll is how often it is tried: the lock cannot be waited for with a bound, and users
	// wait meanwhile.
	acquirePoll = time.Millisecond
)

// directory keeps hold of the open chain while the core replaces it, and passes it to another
// process and back. It implements replica.Directory.
type directory struct {
	fs   disk.Meta
	dir  string
	opts chain.Options
	// chain is nil in a standby.
	chain *chain.Chain
	// warm: the directory was read once already.
	warm bool
	quit <-chan struct{}
	// hold has the lock outlive the process for as long as operations of its loop are in flight.
	hold func(loop.Handle) error
	// listener is where others wait for the directory while this process has it, waiter where it
	// waits itself. Either may be nil: then the next process builds its block map from the files.
	listener *standby.Listener
	waiter   *standby.Waiter
}

// heldBy has hold keep the lock of the directory, now and whenever it is acquired.
func (d *directory) heldBy(hold func(loop.Handle) error) error {
	d.hold = hold
	if d.chain == nil {
		return nil
	}
	return hold(loop.Handle(d.chain.LockHandle()))
}

// listen lets other processes wait for the directory, which this one has.
func (d *directory) listen() {
	l, err := standby.Listen(d.path())
	if err != nil {
		d.opts.Log.Warn("a live upgrade will take longer: no process can wait for the block map", "directory", d.dir,
			"error", err)
		return
	}
	d.listener = l
}

// path is where the directory is for this process.
func (d *directory) path() string { return hostpath.Resolve(d.dir) }

// wait connects to the process that has the directory, again where the connection is of no use any
// more: if it has ended, or, with fresh, if it brought something before that process had the
// directory back.
func (d *directory) wait(fresh bool) {
	if d.waiter != nil {
		switch d.waiter.State() {
		case standby.Idle:
			return
		case standby.Given:
			if !fresh {
				return
			}
		}
		d.waiter.Close()
		d.waiter = nil
	}
	if w, err := standby.Dial(d.path()); err == nil { // an older program does not listen
		d.waiter = w
	}
}

// open opens the directory, with the block map of the process before if it has left one.
func (d *directory) open() (*chain.Chain, error) {
	opts, free := d.opts, func() {}
	defer func() { free() }()
	opts.Map = func() []byte {
		if d.waiter == nil {
			return nil
		}
		data, done, err := d.waiter.Take()
		if err != nil {
			d.opts.Log.Warn("block map is not taken over", "directory", d.dir, "error", err)
		}
		if done != nil {
			free = done
		}
		return data
	}
	return chain.Open(d.fs, d.dir, opts)
}

// recreate is replica.Config.Recreate.
func (d *directory) recreate(old *chain.Files, side *chain.Sidecars, shape chain.Shape) (*chain.Chain, error) {
	shape.BackingFile = d.opts.BackingFile
	c, err := chain.Reshape(old, side, shape)
	d.chain = c
	return c, err
}

// Acquire implements replica.Directory.
func (d *directory) Acquire() (*chain.Chain, error) {
	tick := time.NewTicker(acquirePoll)
	defer tick.Stop()
	deadline := time.NewTimer(acquireWait)
	defer deadline.Stop()
	if err := at("acquiring"); err != nil {
		return nil, err
	}
	for {
		c, err := d.open()
		if err == nil {
			if err := d.hold(loop.Handle(c.LockHandle())); err != nil {
				return nil, errors.Join(err, c.Abandon())
			}
			d.chain = c
			d.endWait()
			d.listen()
			_ = at("acquired") // too late to refuse
			return c, nil
		}
		if !errors.Is(err, disk.ErrInUse) {
			return nil, err
		}
		d.wait(false)
		select {
		case <-tick.C:
		case <-deadline.C:
			return nil, fmt.Errorf("the process that has it did not give it up within %s: %w", acquireWait, err)
		case <-d.quit:
			return nil, err
		}
	}
}

// Release implements replica.Directory.
func (d *directory) Release(f *chain.Files, s *chain.Sidecars, m chain.Retired) error {
	defer m.Free()
	if err := at("releasing"); err != nil {
		return err
	}
	d.chain = nil
	if d.listener == nil {
		return errors.Join(f.Close(), s.Close())
	}
	waiting := d.listener.Waiting()
	defer waiting.Close()
	d.unlisten() // as long as the lock is held
	if len(waiting) == 0 {
		return errors.Join(f.Close(), s.Close())
	}
	return f.CloseFor(s, m, waiting.Give)
}

func (d *directory) unlisten() {
	if d.listener == nil {
		return
	}
	if err := d.listener.Close(); err != nil {
		d.opts.Log.Warn("socket is not removed", "directory", d.dir, "error", err)
	}
	d.listener = nil
}

func (d *directory) endWait() {
	if d.waiter != nil {
		d.waiter.Close()
		d.waiter = nil
	}
}

// Inspect implements replica.Directory. It begins to wait for the block map; where none will come
// it reads once what Acquire will read, so that it is in the kernel's memory. Not where one will:
// that look takes seconds on a busy disk.
func (d *directory) Inspect() (chain.Info, error) {
	d.wait(true)
	if d.waiter == nil && !d.warm {
		d.warm = true
		opts := d.opts
		opts.ReadOnly = true
		// It is in use: a file may vanish while it is read, which says nothing about what Acquire
		// will find.
		if c, err := chain.Open(d.fs, d.dir, opts); err == nil {
			_ = c.Abandon() // nothing was written
		}
	}
	return chain.Inspect(d.fs, d.dir)
}

// close ends the use of the directory. It is closed as cleanly stopped if no core has used it: a
// core does that itself (replica.End), and one that has not may have had requests under way. What
// they left in the head is found by the next open.
func (d *directory) close(unused bool) error {
	d.endWait()
	if d.chain == nil {
		return nil
	}
	d.unlisten()
	if unused {
		return d.chain.Close()
	}
	return d.chain.Abandon()
}
