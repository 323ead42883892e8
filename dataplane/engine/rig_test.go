package engine_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/sim"
)

const volumeUUID = "6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88"

var secret = make([]byte, wire.SecretSize)

const (
	patience         = time.Minute
	replicaTimeout   = 8 * time.Second
	noReplicaTimeout = 30 * time.Second
)

// rig is a real engine core among fake replicas on simulated time.
type rig struct {
	t    testing.TB
	w    *sim.World
	size int64
	// uuid is that of a second volume in the world, offline: no frontend is attached.
	uuid    string
	nonces  int
	offline bool
	fakes   []*fake
	// real are addresses of replicas that are none.
	real    []string
	witness sim.Witness
	// onSwap is called when the witness is asked to take a record.
	onSwap func()
	proc   *sim.Process
	arena  *loop.Arena
	front  *front
	state  engine.State
	events []string
	// giving is the frontend if it is to be one that can be left to another engine.
	giving *giving
	// follow is the engine's Config.Follow.
	follow func(follows, epoch uint64) bool
	// local is the name of the replica on the engine's node, if there is one.
	local string
	// windows are those that the engine has made, nil where it gave one back; none: it can make none.
	windows [][]byte
	none    bool
	// shares makes them instead, for replicas of its world.
	shares *sim.Volume
	// log bounds the dirty log if it is to be another than usual.
	log engine.LogBounds
	// memory is the engine's; 0 means plenty.
	memory int
	// core, unless nil, wraps the engine's core.
	core func(loop.Core) loop.Core
}

func newRig(t testing.TB, replicas int, size int64) *rig {
	g := &rig{t: t, w: sim.NewWorld(1), size: size}
	for i := range replicas {
		g.fakes = append(g.fakes, newFake(g, string(rune('a'+i))))
	}
	return g
}

// start starts the engine and waits until it serves.
func (g *rig) start() *rig {
	g.t.Helper()
	g.launch()
	g.until("engine serves", func() bool { return g.state.Serving })
	return g
}

func (g *rig) launch() {
	if g.uuid == "" {
		g.uuid = volumeUUID
	}
	addrs := slices.Clone(g.real)
	for _, f := range g.fakes {
		addrs = append(addrs, f.addr())
	}
	g.run(g.config(addrs))
	if g.offline {
		return
	}
	var f frontend.Frontend = g.front
	if g.giving != nil {
		g.giving.front, f = g.front, g.giving
	}
	g.proc.Post(engine.AttachFrontend{Frontend: f, Reply: func(error) {}})
	if g.giving != nil {
		g.proc.Post(engine.FrontendKept{Kept: true})
	}
}

// succeed makes another engine with the fakes the present one, the successor of one that has left.
func (g *rig) succeed(left engine.Left) {
	g.t.Helper()
	var addrs []string
	for _, f := range g.fakes {
		addrs = append(addrs, f.addr())
	}
	c := g.config(addrs)
	c.Successor = true
	g.run(c)
	done := false
	g.proc.Post(engine.Prepare{Reply: func([]string, []string) { done = true }})
	g.until("the replicas are reached", func() bool { return done })
	g.proc.Post(engine.Succeed{Left: left})
}

// config is that of an engine with replicas at the given addresses.
func (g *rig) config(addrs []string) engine.Config {
	return engine.Config{VolumeName: "v", VolumeUUID: g.uuid, Instance: "e", InstanceManager: "im", Secret: secret,
		Size: g.size, Replicas: addrs, LocalHost: g.local, ReplicaTimeout: replicaTimeout, NoReplicaTimeout: noReplicaTimeout,
		Witness: heard{g}, Follow: g.follow, DirtyLog: g.log,
		NewWindow: g.newWindow,
		Nonce:     func() []byte { g.nonces++; return fmt.Appendf(nil, "%08d76543210", g.nonces) },
		Event:     func(e engine.Event) { g.events = append(g.events, fmt.Sprintf("%s %s %s", e.Name, e.Replica, e.Text)) }}
}

// heard is the rig's witness as the engine asks it.
type heard struct{ g *rig }

// Read implements engine.Witness.
func (h heard) Read() (quorum.WitnessRecord, error) { return h.g.witness.Read() }

// Swap implements engine.Witness.
func (h heard) Swap(expected, next quorum.WitnessRecord) (quorum.WitnessRecord, bool, error) {
	if h.g.onSwap != nil {
		h.g.onSwap()
	}
	return h.g.witness.Swap(expected, next)
}

// run makes an engine the present one, with a frontend that is not attached.
func (g *rig) run(c engine.Config) {
	arena := loop.NewArena(cmp.Or(g.memory, 128<<20))
	g.t.Cleanup(func() { _ = arena.Close() })
	proc := g.w.Spawn("engine", arena, nil)
	g.arena, g.proc, c.Arena = arena, proc, arena
	c.OnState = func(s engine.State) {
		if g.proc == proc {
			g.state = s
		}
	}
	core := loop.Core(engine.New(c))
	if g.core != nil {
		core = g.core(core)
	}
	proc.Run(core)
	g.front = &front{arena: arena, open: map[uint64]*call{}, tag: loop.Tag(engine.OwnerFrontend, 1)}
	g.front.signal, g.front.handle = proc.NewSignal()
}

func (g *rig) until(what string, cond func() bool) {
	g.t.Helper()
	if !g.w.Until(patience, cond) {
		g.t.Fatalf("%s: did not happen\nstate %+v\nevents:\n  %s", what, g.state, strings.Join(g.events, "\n  "))
	}
}

// pass lets time pass and checks that cond does not come about meanwhile.
func (g *rig) never(what string, d time.Duration, cond func() bool) {
	g.t.Helper()
	if g.w.Until(d, cond) {
		g.t.Fatalf("%s\nevents:\n  %s", what, strings.Join(g.events, "\n  "))
	}
}

func (g *rig) modes() string {
	var out []string
	for _, r := range g.state.Replicas {
		out = append(out, r.Member+"="+r.Mode.String())
	}
	return strings.Join(out, " ")
}

func (g *rig) expectModes(want string) {
	g.t.Helper()
	if got := g.modes(); got != want {
		g.t.Fatalf("replicas are %s, want %s\nevents:\n  %s", got, want, strings.Join(g.events, "\n  "))
	}
}

// call is one request of the volume's user.
type call struct {
	req  frontend.Request
	data []byte
	done bool
	code block.Code
}

func (g *rig) begin(kind block.Kind, off, n int64, data []byte) *call {
	c := &call{req: frontend.Request{Kind: kind, Off: off, Len: n}, data: data}
	g.front.queue = append(g.front.queue, c)
	g.front.signal.Raise()
	return c
}

func (g *rig) write(off int64, fill byte, n int) *call {
	p := make([]byte, n)
	for i := range p {
		p[i] = fill
	}
	return g.begin(block.Write, off, int64(n), p)
}

func (g *rig) finish(c *call) block.Code {
	g.t.Helper()
	g.until(c.req.Kind.String()+" answered", func() bool { return c.done })
	return c.code
}

func (g *rig) read(off, n int64) (*call, block.Code) {
	g.t.Helper()
	c := g.begin(block.Read, off, n, make([]byte, n))
	return c, g.finish(c)
}

// front is a frontend whose user is the test.
type front struct {
	arena  *loop.Arena
	signal *sim.Signal
	handle loop.Handle
	tag    uint64
	queue  []*call
	open   map[uint64]*call
	next   uint64
	stop   bool
}

func (f *front) Start(out *[]loop.Op) {
	*out = append(*out, loop.Op{Kind: loop.Recv, Handle: f.handle, Tag: f.tag})
}

func (f *front) Handle(_ clock.Ticks, _ *loop.Done, reqs *[]frontend.Request, out *[]loop.Op) {
	f.Resume(reqs, out)
	if !f.stop {
		f.Start(out)
	}
}

// Resume implements frontend.Resumer: calls wait for memory in their order.
func (f *front) Resume(reqs *[]frontend.Request, _ *[]loop.Op) {
	for len(f.queue) > 0 {
		c := f.queue[0]
		if c.data != nil {
			b, ok := f.arena.Get(len(c.data))
			if !ok {
				return
			}
			c.req.Buf = b
			copy(f.arena.Bytes(b), c.data)
		}
		f.next++
		c.req.ID = f.next
		f.open[f.next] = c
		*reqs = append(*reqs, c.req)
		f.queue = f.queue[1:]
	}
}

func (f *front) Complete(id uint64, code block.Code, _ *[]loop.Op) {
	c := f.open[id]
	if c == nil {
		panic("completed twice")
	}
	delete(f.open, id)
	if c.data != nil {
		if c.req.Kind == block.Read {
			copy(c.data, f.arena.Bytes(c.req.Buf))
		}
		f.arena.Release(c.req.Buf)
	}
	c.done, c.code = true, code
	if len(f.queue) > 0 {
		f.signal.Raise()
	}
}

func (f *front) SetSize(int64, *[]loop.Op) {}
func (f *front) Stop(*[]loop.Op)           { f.stop = true }
func (f *front) Stopped() bool             { return f.stop }
