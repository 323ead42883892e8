// Package sim runs the whole data path in one goroutine on simulated time, disks and network, decided by one seed.
//
// The cores are the real ones: engine, replica, quorum, wire and chain. Only the loop below them is different: a heap of
// events stands for time, memory disks that can lose what was not synced stand for disks, byte queues for connections.
// Clients write and read at random while processes are killed and nodes lose power; a checker knows what each read may
// return. The same seed gives the same history, so a violation is a command that anyone can repeat.
package sim

import (
	"container/heap"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"ankole.storage/clock"
	"ankole.storage/dataplane/loop"
)

// World is simulated time and everything in it.
type World struct {
	Rand  *rand.Rand
	now   clock.Ticks
	queue events
	seq   uint64
	trace hash.Hash64
	// Steps counts core steps, for reports.
	Steps int

	listeners map[string]*Process
}

// NewWorld returns an empty world.
func NewWorld(seed uint64) *World {
	return &World{Rand: rand.New(rand.NewPCG(seed, 0x616e6b6f6c65)), trace: fnv.New64a(), listeners: map[string]*Process{}}
}

type event struct {
	at  clock.Ticks
	seq uint64
	fn  func()
}

type events []event

// Len implements heap.Interface.
func (q events) Len() int { return len(q) }

// Less implements heap.Interface: equal times keep the order in which they were made.
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || (q[i].at == q[j].at && q[i].seq < q[j].seq)
}

// Swap implements heap.Interface.
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *events) Push(x any) { *q = append(*q, x.(event)) }

// Pop implements heap.Interface.
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// After calls fn when d has passed.
func (w *World) After(d time.Duration, fn func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now.Add(d), w.seq, fn})
}

// Now is the simulated time.
func (w *World) Now() clock.Ticks { return w.now }

// Hash identifies the history so far.
func (w *World) Hash() uint64 { return w.trace.Sum64() }

func (w *World) note(format string, args ...any) { fmt.Fprintf(w.trace, format, args...) }

// Between returns a random duration.
func (w *World) Between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.Rand.Int64N(int64(b-a)+1))
}

// Until runs events until cond holds. It reports false when nothing is left to happen, or when limit has passed.
func (w *World) Until(limit time.Duration, cond func() bool) bool {
	end := w.now.Add(limit)
	for !cond() {
		if len(w.queue) == 0 || w.queue[0].at > end {
			return false
		}
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.fn()
	}
	return true
}

// Process is one core with its loop. Killing it drops everything it had outstanding.
type Process struct {
	w     *World
	Name  string
	core  loop.Core
	arena *loop.Arena
	disk  *Disk
	alive bool

	in      []loop.Done
	queued  bool // a step is in the event queue
	wakeSeq int
	conns   map[loop.Handle]*conn
	next    loop.Handle
	accepts []loop.Op // outstanding accepts
	pending []*conn   // connections nobody has accepted yet
	address string
	signals map[loop.Handle]*Signal
}

// firstConn keeps connection handles apart from file handles.
const firstConn = 1 << 20

// Spawn starts a core. d may be nil.
func (w *World) Spawn(name string, arena *loop.Arena, d *Disk) *Process {
	return &Process{w: w, Name: name, arena: arena, disk: d, alive: true, conns: map[loop.Handle]*conn{}, next: firstConn,
		signals: map[loop.Handle]*Signal{}}
}

// Run gives the process its core and lets it make its first step.
func (p *Process) Run(c loop.Core) {
	p.core = c
	p.wake()
}

// Alive reports whether the process has not been killed.
func (p *Process) Alive() bool { return p.alive }

// Kill ends the process at once: its connections break, its disk operations may or may not have happened.
func (p *Process) Kill() {
	if !p.alive {
		return
	}
	p.alive = false
	p.w.note("kill %s;", p.Name)
	if p.w.listeners[p.address] == p {
		delete(p.w.listeners, p.address)
	}
	for _, c := range sorted(p.conns) {
		c.reset()
	}
	for _, c := range p.pending {
		c.reset()
	}
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
	if !p.alive || p.core == nil {
		return
	}
	in := p.in
	p.in = nil
	for i := range in {
		p.w.note("%s %d %d %d %d;", p.Name, p.w.now, in[i].Kind, in[i].Tag, in[i].N)
	}
	var out []loop.Op
	p.w.Steps++
	wake := p.core.Step(p.w.now, in, &out)
	for i := range out {
		p.submit(&out[i])
	}
	if wake != clock.Never {
		p.wakeSeq++
		seq := p.wakeSeq
		p.w.After(max(time.Microsecond, wake.Sub(p.w.now)), func() {
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
		p.disk.submit(p, o)
	case loop.Call:
		p.w.After(p.w.Between(20*time.Microsecond, 500*time.Microsecond), func() {
			if p.alive {
				p.done(loop.Done{Kind: loop.Call, Tag: o.Tag, Value: o.Fn()})
			}
		})
	case loop.Accept:
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

// Signal is a handle whose Recv completes when somebody raises it: how simulated clients reach a frontend.
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
