package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/replica"
)

const (
	volumeUUID = "6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88"
	volumeName = "sim"
)

// Memory is how much simulated processes have for their buffers, in bytes.
type Memory struct{ Engine, Replica int }

var (
	// plentyOfMemory is more than anybody asks for here, leastMemory the least that they can work
	// with.
	plentyOfMemory = Memory{64 << 20, 64 << 20}
	leastMemory    = Memory{engine.MinArena, replica.MinArena}
)

var secret = make([]byte, 32)

// Volume is a volume under simulation: its machines and processes, and what a control plane does
// for it.
type Volume struct {
	W    *World
	Size int64
	// Image is what it stands on.
	Image Image
	// Identity is what the volume is called; Offline: engines are started without a frontend.
	Identity
	Offline  bool
	Timeouts Timeouts
	// Log bounds the engines' dirty logs; the zero value means the default.
	Log engine.LogBounds
	// Memory of the processes that are started from now on.
	Memory Memory
	// ReplaceAfter is how long an engine may be out of the control plane's reach before another is
	// started elsewhere.
	ReplaceAfter time.Duration
	// Bug is a mistake made on purpose.
	Bug Bug
	// Keeps: the block device of an engine that is killed goes on in the next one on its node, if that
	// may be. devices are those of the nodes; Adopted counts requests that were sent again, Ended
	// devices that could not go on.
	Keeps bool
	// Shares: engines share memory with replicas on their nodes. Shared counts sessions that do.
	Shares         bool
	Shared         int
	devices        map[*Node]*device
	Adopted, Ended int
	// Alone: no process waits for a directory that another one closes, as in everything but a live
	// upgrade.
	Alone bool
	// Trust is whose data a person goes on with, for engines that are started from now on.
	Trust []string
	// Nodes are the machines of the replicas and one more.
	Nodes    []*Node
	Replicas []*Replica
	Witness  *Witness
	// Engines are those that live; the last one started is Current.
	Engines []*EngineProcess
	Current *EngineProcess
	// Others are second processes on directories, for as long as they live; upgrade is the live
	// upgrade under way.
	Others  []*Replica
	upgrade *upgrade
	// Serves is called when an engine begins to serve after those before it, Gone when one has ended.
	// served is the newest epoch that was served.
	Serves, Gone func(e *EngineProcess)
	served       uint64
	// Scrubbed is called when a scrub has ended, Rebuilds before a replica is rebuilt.
	Scrubbed func(e *EngineProcess, s *engine.Scrubbing)
	Rebuilds func()
	starts   int
	arenas   []*loop.Arena
	// spare arenas belonged to processes that are dead.
	spare []*loop.Arena
	// Dropped counts replicas dropped, Rebuilt rebuilds completed, Repaired changes of a chain that
	// a start made the same. Unequal those rebuilds that ended in other content than their
	// source's.
	Dropped, Rebuilt, Repaired, Unequal int
	// Followed counts snapshots that the target of a rebuild has taken too.
	Followed int
	// Ends of replicas that were asked to end.
	Ends Ends
	// LogUse counts how often dirty logs were too small.
	LogUse engine.LogUse
	// maps are the block maps that were handed over last, by replica; MapsTaken counts those that
	// were used.
	maps      map[string][]byte
	MapsTaken int
	// lines keeps the last events for a report.
	lines []Line
	// cut tells since when a node is out of the control plane's reach.
	cut map[*Node]clock.Ticks
}

// Timeouts of an engine.
type Timeouts struct {
	// Those of engine.Config.
	Replica, NoReplica, Lease time.Duration
}

// Line is one line of a history.
type Line struct {
	At   clock.Ticks
	Text string
}

// String is the line for people.
func (l Line) String() string { return fmt.Sprintf("%14s %s", time.Duration(l.At), l.Text) }

// maxLog bounds what is kept of a history.
const maxLog = 400

// EngineProcess is an engine, its frontend and what it tells of itself.
type EngineProcess struct {
	*Process
	core  *engine.Engine
	front *Front
	state engine.State
	// order is what it was made for.
	order int
	// served: it has begun to serve.
	served bool
}

// Identity names a volume.
type Identity struct{ Name, UUID string }

// NewVolume makes n replicas, each on a node of its own, and starts them.
func NewVolume(w *World, n int, size int64) *Volume {
	return NewVolumeOf(w, Identity{volumeName, volumeUUID}, "", n, size)
}

// NewVolumeOf makes a volume of another identity; its nodes' names begin with prefix.
func NewVolumeOf(w *World, id Identity, prefix string, n int, size int64) *Volume {
	return NewVolumeOn(w, Image{}, id, prefix, n, size)
}

// NewVolumeOn makes it on an image.
func NewVolumeOn(w *World, i Image, id Identity, prefix string, n int, size int64) *Volume {
	v := newVolume(w, id, prefix, n, size)
	v.Image = i
	v.begin()
	return v
}

// newVolume makes a volume whose replicas do not run yet.
func newVolume(w *World, id Identity, prefix string, n int, size int64) *Volume {
	v := &Volume{W: w, Size: size, Identity: id, Memory: plentyOfMemory,
		Timeouts: Timeouts{Replica: 8 * time.Second, NoReplica: 30 * time.Second}, ReplaceAfter: time.Second,
		Witness: &Witness{w: w, cut: map[*Node]int{}}, cut: map[*Node]clock.Ticks{}, devices: map[*Node]*device{}}
	for i := range n {
		node := w.NewNode(fmt.Sprintf("%sr%d", prefix, i))
		v.Nodes = append(v.Nodes, node)
		r := &Replica{v: v, Name: node.Name, Node: node, Disk: node.Disk}
		v.Replicas = append(v.Replicas, r)
	}
	v.Nodes = append(v.Nodes, w.NewNode(prefix+"x"))
	return v
}

// begin starts the replicas.
func (v *Volume) begin() {
	for _, r := range v.Replicas {
		v.Image.store(r.Disk.FS)
		r.Start()
	}
}

// Close gives memory back.
func (v *Volume) Close() {
	for _, r := range v.all() {
		r.Kill()
	}
	for _, a := range v.arenas {
		idleArenas.put(a)
	}
	v.arenas = nil // closed once more, a volume must not give them to two others
}

// all are the replicas' processes, those of a live upgrade too.
func (v *Volume) all() []*Replica {
	all := slices.Concat(v.Replicas, v.Others)
	if v.upgrade != nil {
		all = append(all, v.upgrade.next...)
	}
	return slices.DeleteFunc(all, func(r *Replica) bool { return r == nil || !r.Alive() })
}

func (v *Volume) log(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	v.W.note(uint64(v.W.now))
	v.W.noteString(text)
	if len(v.lines) >= maxLog {
		v.lines = append(v.lines[:0], v.lines[maxLog/2:]...)
	}
	v.lines = append(v.lines, Line{v.W.now, text})
}

// History is what happened lately, a line each.
func (v *Volume) History() string {
	var b strings.Builder
	for _, l := range v.lines {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}

// arena returns an arena for a new process: mapping memory anew for each would take longer than all
// it does.
func (v *Volume) arena(budget int) *loop.Arena {
	if i := slices.IndexFunc(v.spare, func(a *loop.Arena) bool { return a.Budget() == budget }); i >= 0 {
		a := v.spare[i]
		v.spare = slices.Delete(v.spare, i, i+1)
		a.Reset()
		return a
	}
	a := idleArenas.take(budget)
	v.arenas = append(v.arenas, a)
	return a
}

// nonce makes random bytes for a handshake.
func (w *World) nonce() []byte {
	p := make([]byte, 16)
	_, _ = worldRand{w}.Read(p)
	return p
}

// worldRand makes the world a source of random bytes for stamps.
type worldRand struct{ w *World }

// Read implements io.Reader.
func (r worldRand) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.w.Rand.Uint32())
	}
	return len(p), nil
}

// StartEngine starts an engine on a node with every replica that is known to run.
func (v *Volume) StartEngine(node *Node) {
	if v.upgrade != nil {
		v.upgrade.fails("another engine is started")
	}
	var addrs []string
	for _, r := range v.Replicas {
		if r.Ready() {
			addrs = append(addrs, r.Addr())
		}
	}
	var e *EngineProcess
	e = v.newEngine(node, addrs, func(c *engine.Config) {
		if v.Keeps {
			c.Follow = func(follows, epoch uint64) bool { return v.follow(e, follows, epoch) }
		}
	})
	v.Current, v.Witness.order = e, e.order
	v.Engines = append(v.Engines, e)
	if v.Offline {
		e.Run(e.core)
		return
	}
	e.front = newFront(e.Process, e.arena)
	e.Run(e.core)
	if !v.Keeps {
		e.attach()
	}
}

func (e *EngineProcess) attach() {
	e.Post(engine.AttachFrontend{Frontend: e.front, Reply: func(error) {}})
}

// newEngine makes an engine's process that does nothing yet.
func (v *Volume) newEngine(node *Node, addrs []string, change func(c *engine.Config)) *EngineProcess {
	v.starts++
	arena := v.arena(v.Memory.Engine)
	name := fmt.Sprintf("e%d", v.starts)
	e := &EngineProcess{Process: v.W.Spawn(name, arena, node), order: v.starts}
	c := engine.Config{VolumeName: v.Name, VolumeUUID: v.UUID, Instance: name,
		InstanceManager: "im-" + node.Name, Secret: secret, Size: v.Size, Replicas: addrs, Trust: v.Trust,
		ReplicaTimeout: v.Timeouts.Replica, NoReplicaTimeout: v.Timeouts.NoReplica, Lease: v.lease(), DirtyLog: v.Log,
		Arena: arena, LocalHost: v.localTo(node), NewWindow: v.NewWindow,
		Witness: &witnessCalls{v.Witness, e}, Nonce: v.W.nonce,
		OnState: func(s engine.State) { v.changed(e, s) },
		Event:   func(ev engine.Event) { v.event(name, ev) },
	}
	change(&c)
	e.core = engine.New(c)
	v.log("%s starts on %s with %v", name, node.Name, addrs)
	return e
}

// lease is what the next engine is told.
func (v *Volume) lease() time.Duration {
	if v.Bug == bugUnequalLeases && v.starts%2 == 1 {
		return time.Hour
	}
	return v.Timeouts.Lease
}

func (v *Volume) changed(e *EngineProcess, s engine.State) {
	was := e.state.Scrub
	v.LogUse.Shrinks += s.Log.Shrinks - e.state.Log.Shrinks
	v.LogUse.Waits += s.Log.Waits - e.state.Log.Waits
	e.state = s
	if v.Scrubbed != nil && was != nil && was.Running && s.Scrub != nil && !s.Scrub.Running {
		v.Scrubbed(e, s.Scrub)
	}
	if s.Serving && !e.served {
		e.served = true
		if v.Keeps && e.front != nil && e == v.Current {
			v.offer(e)
		}
		v.serves(e)
		if u := v.upgrade; u != nil && e == u.new {
			u.taken()
		}
	}
}

// serves tells that an engine begins to serve. One that was cut off during its start may find only
// after another has followed it that it has all the answers it waited for: it acknowledges nothing,
// and ends nothing of what its successor was asked.
func (v *Volume) serves(e *EngineProcess) {
	if e.state.Epoch < v.served {
		return
	}
	if v.served = e.state.Epoch; v.Serves != nil {
		v.Serves(e)
	}
}

func (v *Volume) event(name string, e engine.Event) {
	switch e.Name {
	case "replica-dropped":
		v.Dropped++
	case "unfinished-change":
		v.Repaired++
	case "rebuilding":
		if v.Rebuilds != nil {
			v.Rebuilds()
		}
	case "rebuilt":
		v.Rebuilt++
	case "snapshot-followed":
		v.Followed++
	case "rebuild-differs":
		v.Unequal++
	}
	v.log("%s %s %s: %s", name, e.Name, e.Replica, e.Text)
}

// KillEngine ends an engine's process at once.
func (v *Volume) KillEngine(e *EngineProcess) {
	if e == nil || !e.Alive() {
		return
	}
	e.Kill()
	v.gone(e)
}

func (v *Volume) gone(e *EngineProcess) {
	v.spare = append(v.spare, e.arena)
	v.orphan(e)
	v.Engines = slices.DeleteFunc(v.Engines, func(o *EngineProcess) bool { return o == e })
	if v.upgrade != nil {
		v.upgrade.gone(e)
	}
	if v.Gone != nil {
		v.Gone(e)
	}
}

// PowerOff takes a node's power, and with it everything that runs there.
func (v *Volume) PowerOff(n *Node) {
	var processes []*Process
	var engines []*EngineProcess
	for _, e := range v.Engines {
		if e.node == n && e.alive {
			engines = append(engines, e)
			processes = append(processes, e.Process)
		}
	}
	for _, r := range v.all() {
		if r.Node == n {
			processes = append(processes, r.proc)
			defer r.abandon()
		}
	}
	n.PowerOff(processes...)
	for _, e := range engines {
		v.gone(e)
	}
	delete(v.devices, n) // of an engine that had died before
}
