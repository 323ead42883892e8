package daemon

import (
	"errors"
	"fmt"
	"time"

	"ankole.storage/dataplane/chain"
	"ankole.storage/disk"
)

const (
	// acquireWait bounds the wait for the lock of a directory that another process is about to give up: longer than closing
	// one takes, shorter than the engine waits for an answer.
	acquireWait = 3 * time.Second
	// acquirePoll is how often it is tried: the lock cannot be waited for with a bound, and users wait meanwhile.
	acquirePoll = time.Millisecond
)

// directory keeps hold of the open chain while the core replaces it, and passes it to another process and back. It implements
// replica.Directory.
type directory struct {
	fs   disk.Meta
	dir  string
	opts chain.Options
	// chain is nil in a standby.
	chain *chain.Chain
	// warm: the directory was read once already.
	warm bool
	quit <-chan struct{}
}

// recreate is replica.Config.Recreate.
func (d *directory) recreate(old *chain.Chain, shape chain.Shape) (*chain.Chain, error) {
	shape.BackingFile = d.opts.BackingFile
	c, err := chain.Reshape(old, shape)
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
		c, err := chain.Open(d.fs, d.dir, d.opts)
		if err == nil {
			d.chain = c
			_ = at("acquired") // too late to refuse
			return c, nil
		}
		if !errors.Is(err, disk.ErrInUse) {
			return nil, err
		}
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
func (d *directory) Release(c *chain.Chain) error {
	if err := at("releasing"); err != nil {
		return err
	}
	d.chain = nil
	return c.Close()
}

// Inspect implements replica.Directory. The first time it reads what Acquire will read, so that it is in the kernel's memory.
func (d *directory) Inspect() (chain.Info, error) {
	if !d.warm {
		d.warm = true
		opts := d.opts
		opts.ReadOnly = true
		// It is in use: a file may vanish while it is read, which says nothing about what Acquire will find.
		if c, err := chain.Open(d.fs, d.dir, opts); err == nil {
			_ = c.Abandon() // nothing was written
		}
	}
	return chain.Inspect(d.fs, d.dir)
}

// close ends the use of the directory. After a disk failure nothing more is written to it.
func (d *directory) close(failed bool) error {
	switch {
	case d.chain == nil:
		return nil
	case failed:
		return d.chain.Abandon()
	}
	return d.chain.Close()
}
