package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/replica"
)

// Replica is a replica on a node of its own.
type Replica struct {
	v     *Volume
	Name  string
	Node  *Node
	Disk  *Disk // the node's
	port  int
	proc  *Process
	fs    *procFS // the process's
	chain *chain.Chain
	other bool // the second process on a directory
	// Broken says why the last start failed; it is tried again.
	Broken error
}

const replicaDir = "/replicas/"

// Addr is the replica's control address; a new one after each start, as in a cluster.
func (r *Replica) Addr() string { return fmt.Sprintf("%s:%d", r.Name, r.port) }

// Alive reports whether the process runs.
func (r *Replica) Alive() bool { return r.proc != nil && r.proc.alive }

// Ready reports whether the process runs and listens: it has opened its directory.
func (r *Replica) Ready() bool { return r.Alive() && r.proc.core != nil }

// still reports whether nothing works on the directory just now, so that others can look at it.
func (r *Replica) still() bool { return r.chain != nil && len(r.proc.fibers) == 0 }

// Process is the replica's process, nil before the first start.
func (r *Replica) Process() *Process { return r.proc }

// Chain is the open directory, nil while the process does not run.
func (r *Replica) Chain() *chain.Chain { return r.chain }

func (r *Replica) options() (chain.Options, chain.Spec) {
	uuid, _ := replica.ParseUUID(r.v.UUID) // one of the simulation
	image := r.v.Image.path()
	return chain.Options{Size: r.v.Size, VolumeUUID: uuid, Rand: worldRand{r.v.W}, Boot: chain.Boot{1 + r.Node.boot},
			BackingFile: image},
		chain.Spec{Size: r.v.Size, VolumeUUID: uuid, Self: r.Name, Created: created, BackingFile: image}
}

// created is when everything simulated was made.
const created = "2026-01-01T00:00:00Z"

func (r *Replica) open() (*chain.Chain, error) {
	fs := r.fs
	opts, spec := r.options()
	// Whatever was handed over last, however long ago: a directory must know what is still its own.
	opts.Map = func() []byte { return r.v.maps[r.Name] }
	_ = fs.Mkdir("/replicas") // may exist
	if err := fs.SyncDir("/"); err != nil {
		return nil, err
	}
	if err := chain.Create(fs, replicaDir+r.Name, spec, opts); err != nil {
		return nil, err
	}
	c, err := chain.Open(fs, replicaDir+r.Name, opts)
	if err == nil && c.MapTaken() {
		r.v.MapsTaken++
		if err := c.CheckMap(); errors.Is(err, chain.ErrCorrupt) {
			panic(fmt.Sprintf("%s: a block map was handed over that is not the directory's: %v", r.Name, err))
		}
	}
	return c, err
}

// Start starts the replica's process, which has opened its directory when Start returns.
func (r *Replica) Start() {
	r.spawn()
	r.opened(r.open())
}

// Begin starts the replica's process, which opens its directory while everything else goes on.
func (r *Replica) Begin() {
	var c *chain.Chain
	var err error
	r.spawn()
	r.proc.begin(func() { c, err = r.open() }, func() { r.opened(c, err) })
}

func (r *Replica) spawn() {
	r.port += 10
	r.proc = r.v.W.Spawn(r.Name, nil, r.Node)
	r.proc.timed = true
	r.fs = newProcFS(r.proc)
}

// opened goes on with a directory that was opened, or could not be.
func (r *Replica) opened(c *chain.Chain, err error) {
	v := r.v
	was := r.Broken
	r.chain, r.Broken = c, err
	if r.other && errors.Is(r.Broken, disk.ErrInUse) {
		r.Broken = nil // standby
	}
	if r.Broken != nil {
		if was == nil || was.Error() != r.Broken.Error() {
			v.log("%s cannot start: %v", r.Name, r.Broken)
		}
		r.Kill()
		return
	}
	p := r.proc
	arena := v.arena(v.Memory.Replica)
	p.arena = arena
	core, err := replica.New(replica.Config{Member: r.Name, VolumeName: v.Name, VolumeUUID: v.UUID, Secret: secret,
		Chain: r.chain, Directory: (*directory)(r), Listener: p.Listen(fmt.Sprintf("tcp:%s:%d", r.Name, r.port+1)),
		Arena: arena, Nonce: v.W.nonce, Unix: v.W.Unix, OpenWindow: v.openWindow, FreeWindow: v.freeWindow,
		Recreate: func(old *chain.Files, side *chain.Sidecars, shape chain.Shape) (*chain.Chain, error) {
			shape.BackingFile = v.Image.path()
			c, err := chain.Reshape(old, side, shape)
			r.chain = c
			return c, err
		},
		Exit: func(reason string) {
			v.log("%s exits: %s", r.Name, reason)
			v.W.After(0, func() { // the step it makes goes on, as that of a real process does
				if r.proc == p {
					r.Kill()
				}
			})
		},
		Event: func(name, text string) { v.log("%s %s: %s", r.Name, name, text) },
	})
	if err != nil {
		panic(err)
	}
	p.Run(core)
}

// Other returns a second replica process on the same directory, which is standby if the first one
// has it when it is started. It is not one of the volume's.
func (r *Replica) Other() *Replica {
	return &Replica{v: r.v, Name: r.Name, Node: r.Node, Disk: r.Disk, port: r.port + 5, other: true}
}

// directory is a replica's directory as replica.Directory. Nobody waits for a lock here.
type directory Replica

// Acquire implements replica.Directory.
func (d *directory) Acquire() (c *chain.Chain, err error) {
	d.chain, err = (*Replica)(d).open()
	return d.chain, err
}

// Release implements replica.Directory.
func (d *directory) Release(f *chain.Files, s *chain.Sidecars, m chain.Retired) error {
	d.chain = nil
	if d.v.Alone {
		m.Free()
		return errors.Join(f.Close(), s.Close())
	}
	return f.CloseFor(s, m, func(m io.WriterTo) error {
		if !d.proc.alive {
			return errDead
		}
		var b bytes.Buffer
		_, err := m.WriteTo(&b)
		if d.v.maps == nil {
			d.v.maps = map[string][]byte{}
		}
		d.v.maps[d.Name] = b.Bytes()
		return err
	})
}

// Inspect implements replica.Directory.
func (d *directory) Inspect() (chain.Info, error) {
	return chain.Inspect(d.fs, replicaDir+d.Name)
}

// Kill ends the replica's process at once.
func (r *Replica) Kill() {
	if r.Alive() {
		r.proc.Kill()
		r.abandon()
	}
}

// abandon gives back what a dead process held: its locks end with it, and nothing is written.
func (r *Replica) abandon() {
	if r.proc.arena != nil {
		r.v.spare = append(r.v.spare, r.proc.arena)
	}
	if r.chain != nil {
		_ = r.chain.Abandon() // nothing is written
		r.chain = nil
	}
	r.fs.release()
}
