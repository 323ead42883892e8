package sim

import (
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
)

// Node is a machine: a disk, a clock and a place in the network. What runs on it dies with its
// power.
type Node struct {
	w     *World
	Name  string
	Disk  *Disk
	index int
	// off is without power; boot counts how often it was switched on.
	off  bool
	boot byte
	// drift is how much faster its clock goes than the world's, in parts per thousand; epoch is
	// what it showed at the start.
	drift int64
	epoch clock.Ticks
	// ghosts are ends of connections that nobody has been told are gone: the node lost power.
	ghosts []*conn
}

// NewNode returns a machine with an empty disk.
func (w *World) NewNode(name string) *Node {
	n := &Node{w: w, Name: name, index: len(w.nodes)}
	n.Disk = &Disk{w: w, FS: newFS()}
	w.nodes = append(w.nodes, n)
	return n
}

// clock converts the world's time to the node's.
func (n *Node) clock(t clock.Ticks) clock.Ticks { return n.epoch + t + t/1000*clock.Ticks(n.drift) }

// until converts a time on the node's clock to the world's duration from now.
func (n *Node) until(t clock.Ticks) time.Duration {
	d := t - n.clock(n.w.now)
	return max(time.Microsecond, time.Duration(d-d/1000*clock.Ticks(n.drift)))
}

// Process is one core with its loop. Killing it drops everything it had outstanding.
type Process struct {
	w     *World
	Name  string
	id    uint64
	node  *Node
	core  loop.Core
	arena *loop.Arena
	alive bool
	// frozen counts what keeps the process from making steps: SIGSTOP, or a machine that stalls.
	frozen int

	in      []loop.Done
	spare   []loop.Done
	out     []loop.Op
	queued  bool // a step is in the event queue
	wakeSeq int
	conns   map[loop.Handle]*conn
	next    loop.Handle
	accepts []loop.Op // outstanding accepts
	pending []*conn   // connections nobody has accepted yet
	address string
	signals map[loop.Handle]*Signal
	disk    []*diskOp // in flight
	// timed: blocking calls take time at each change of the disk. fibers are those under way,
	// halted those that wait until the process is no longer frozen.
	timed          bool
	fibers, halted []*fiber
	// fuse counts how many more times blocking calls stop before blown is called; 0 or less: never.
	fuse  int
	blown func()
	// stopped, if there is one, is called when the core has stopped by itself. deaf: it makes no step
	// any more, whatever completes.
	stopped func()
	deaf    bool
	// changes is how many more writes, holes and syncs go to the disk before changing is called; 0 or
	// less: never.
	changes  int
	changing func()
	// keeps is how many buffers the core has from its beginning to its end.
	keeps int
	// answerDelay is how much longer the call being made takes to answer.
	answerDelay time.Duration
}

// firstConn keeps connection handles apart from file handles.
const firstConn = 1 << 20

// Spawn starts a process on a node; nil stands for one without a disk that has its own place in the
// network.
func (w *World) Spawn(name string, arena *loop.Arena, n *Node) *Process {
	if n == nil {
		n = w.NewNode("of-" + name)
	}
	w.spawned++
	return &Process{w: w, Name: name, id: w.spawned, arena: arena, node: n, alive: true, conns: map[loop.Handle]*conn{},
		next: firstConn, signals: map[loop.Handle]*Signal{}}
}

// Run gives the process its core and lets it make its first step.
func (p *Process) Run(c loop.Core) {
	p.core, p.keeps = c, p.arena.InUse()
	p.wake()
}

// Alive reports whether the process has not been killed.
func (p *Process) Alive() bool { return p.alive }

// Kill ends the process at once: its connections break, its disk operations may or may not have
// happened.
func (p *Process) Kill() { p.end((*conn).reset) }

// vanish ends the process as a loss of power does: nobody is told.
func (p *Process) vanish() {
	p.end(func(c *conn) {
		c.closed = true
		p.node.ghosts = append(p.node.ghosts, c)
	})
}

func (p *Process) end(each func(*conn)) {
	if !p.alive {
		return
	}
	p.alive = false
	p.w.note(p.id)
	p.settle()
	p.unwind()
	if p.w.listeners[p.address] == p {
		delete(p.w.listeners, p.address)
	}
	for _, c := range sorted(p.conns) {
		each(c)
	}
	for _, c := range p.pending {
		each(c)
	}
}

// Freeze stops the process where it is; Thaw lets it go on. What completes meanwhile waits.
func (p *Process) Freeze() { p.frozen++ }

// Thaw ends Freeze.
func (p *Process) Thaw() {
	if p.frozen--; p.frozen == 0 {
		halted := p.halted
		p.halted = nil
		for _, f := range halted {
			f.goOn()
		}
	}
	p.wake()
}

// Listen makes the process accept connections to address; the handle is for Accept.
func (p *Process) Listen(address string) loop.Handle {
	p.address = address
	p.w.listeners[address] = p
	return 1
}

// Post implements loop.Poster.
func (p *Process) Post(v any) { p.done(loop.Done{Kind: loop.Posted, Value: v}) }

// done hands a completion to the core.
func (p *Process) done(d loop.Done) {
	if !p.alive {
		return
	}
	p.in = append(p.in, d)
	p.wake()
}

func (p *Process) wake() {
	if p.queued {
		return
	}
	p.queued = true
	p.w.After(time.Microsecond, p.step)
}

func (p *Process) step() {
	p.queued = false
	if !p.alive || p.core == nil || p.frozen > 0 || p.deaf {
		return
	}
	in := p.in
	p.in = p.spare[:0]
	p.w.note(p.id)
	p.w.note(uint64(p.w.now))
	for i := range in {
		p.w.note(uint64(in[i].Kind)<<32 | uint64(uint32(in[i].N)))
		p.w.note(in[i].Tag)
	}
	p.out = p.out[:0]
	p.w.Steps++
	wake := p.core.Step(p.node.clock(p.w.now), in, &p.out)
	clear(in)
	p.spare = in
	for i := range p.out {
		p.submit(&p.out[i])
	}
	if s, ok := p.core.(interface{ Stopped() bool }); ok && p.stopped != nil && s.Stopped() {
		p.stopped()
		return
	}
	if wake != clock.Never && p.alive {
		p.wakeSeq++
		seq := p.wakeSeq
		p.w.After(p.node.until(wake), func() {
			if p.wakeSeq == seq {
				p.wake()
			}
		})
	}
}

func (p *Process) submit(op *loop.Op) {
	o := *op
	switch o.Kind {
	case loop.FileRead, loop.FileWrite, loop.FileSync, loop.FilePunch:
		p.node.Disk.submit(p, o)
		if o.Kind != loop.FileRead {
			if p.changes--; p.changes == 0 {
				p.w.After(0, p.changing)
			}
		}
	case loop.Call:
		p.call(o)
	case loop.Accept:
		if len(p.accepts) > 0 {
			panic("sim: a second accept while one is outstanding") // as the production loop does
		}
		p.accepts = append(p.accepts, o)
		p.matchAccepts()
	case loop.Connect:
		p.connect(o)
	case loop.Recv:
		if s := p.signals[o.Handle]; s != nil {
			s.recv(p, o)
			return
		}
		p.conns[o.Handle].recv(o)
	case loop.Send:
		p.conns[o.Handle].send(o)
	case loop.Close:
		p.closeHandle(o)
	default:
		panic("sim: cannot submit " + o.Kind.String())
	}
}

// call makes a blocking call. What it did stays done if the process dies before it has the answer.
func (p *Process) call(o loop.Op) {
	p.w.After(p.w.Between(20*time.Microsecond, 500*time.Microsecond), func() {
		if !p.alive {
			return
		}
		if p.timed {
			var v any
			p.begin(func() { v = o.Fn() }, func() { p.done(loop.Done{Kind: loop.Call, Tag: o.Tag, Value: v}) })
			return
		}
		p.answerDelay = 0
		v := o.Fn()
		answer := func() { p.done(loop.Done{Kind: loop.Call, Tag: o.Tag, Value: v}) }
		if p.answerDelay == 0 {
			answer()
			return
		}
		p.w.After(p.answerDelay, answer)
	})
}

// Signal is a handle whose Recv completes when somebody raises it: how simulated clients reach a
// frontend.
type Signal struct {
	raised bool
	op     *loop.Op
	p      *Process
}

// NewSignal returns a signal of the process and its handle.
func (p *Process) NewSignal() (*Signal, loop.Handle) {
	p.next++
	s := &Signal{}
	p.signals[p.next] = s
	return s, p.next
}

func (s *Signal) recv(p *Process, o loop.Op) {
	s.p, s.op = p, &o
	s.fire()
}

// Raise completes the outstanding or the next Recv.
func (s *Signal) Raise() {
	s.raised = true
	s.fire()
}

func (s *Signal) fire() {
	if s.op == nil || !s.raised {
		return
	}
	o := s.op
	s.op, s.raised = nil, false
	s.p.done(loop.Done{Kind: loop.Recv, Handle: o.Handle, Tag: o.Tag, N: 1})
}
