package sim

import (
	"fmt"
	"path"
	"time"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/replica"
)

const (
	volumeUUID = "6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88"
	volumeName = "sim"
	// arenaBytes is the memory of a simulated process.
	arenaBytes = 64 << 20
)

var secret = make([]byte, 32)

// Volume is a volume under simulation.
type Volume struct {
	W        *World
	Size     int64
	Replicas []*Replica
	Witness  *Witness
	engine   *engine.Engine
	proc     *Process
	front    *Front
	state    engine.State
	starts   int
	arenas   []*loop.Arena
	// Dropped counts replicas dropped, Rebuilt rebuilds completed.
	Dropped, Rebuilt int
	// Log keeps the last events for a report.
	Log []string
}

// Replica is a replica on a node of its own.
type Replica struct {
	v     *Volume
	Name  string
	Disk  *Disk
	port  int
	proc  *Process
	chain *chain.Chain
	// Broken says why it cannot be started: its disk is beyond repair.
	Broken error
}

// NewVolume makes n replicas and starts them.
func NewVolume(w *World, n int, size int64) *Volume {
	v := &Volume{W: w, Size: size, Witness: &Witness{}}
	for i := range n {
		r := &Replica{v: v, Name: fmt.Sprintf("r%d", i), Disk: w.NewDisk()}
		v.Replicas = append(v.Replicas, r)
		r.Start()
	}
	return v
}

// Close gives memory back.
func (v *Volume) Close() {
	for _, r := range v.Replicas {
		r.Kill()
	}
	for _, a := range v.arenas {
		_ = a.Close() // the end of a simulation
	}
}

func (v *Volume) log(format string, args ...any) {
	line := fmt.Sprintf("%12s ", time.Duration(v.W.now)) + fmt.Sprintf(format, args...)
	v.W.note("%s;", line)
	if len(v.Log) > 200 {
		v.Log = v.Log[1:]
	}
	v.Log = append(v.Log, line)
}

func (v *Volume) arena() *loop.Arena {
	a := loop.NewArena(arenaBytes)
	v.arenas = append(v.arenas, a)
	return a
}

func (w *World) nonce() []byte {
	p := make([]byte, 16)
	for i := range p {
		p[i] = byte(w.Rand.Uint32())
	}
	return p
}

// rand makes the world a source of random bytes for stamps.
type worldRand struct{ w *World }

// Read implements io.Reader.
func (r worldRand) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.w.Rand.Uint32())
	}
	return len(p), nil
}

const dir = "/replicas/"

// Addr is the replica's control address; a new one after each start, as in a cluster.
func (r *Replica) Addr() string { return fmt.Sprintf("%s:%d", r.Name, r.port) }

// Alive reports whether the process runs.
func (r *Replica) Alive() bool { return r.proc != nil && r.proc.alive }

// Start starts the replica's process.
func (r *Replica) Start() {
	v := r.v
	uuid, _ := replica.ParseUUID(volumeUUID) // a constant
	opts := chain.Options{Size: v.Size, VolumeUUID: uuid, Rand: worldRand{v.W}}
	fs := r.Disk.FS
	_ = fs.Mkdir("/replicas") // may exist
	_ = fs.SyncDir("/")
	at := dir + r.Name
	spec := chain.Spec{Size: v.Size, VolumeUUID: uuid, Self: r.Name, Created: "2026-01-01T00:00:00Z"}
	if err := chain.Create(fs, at, spec, opts); err != nil {
		r.Broken = err
		v.log("%s cannot be created: %v", r.Name, err)
		return
	}
	c, err := chain.Open(fs, at, opts)
	if err != nil {
		r.Broken = err
		v.log("%s cannot be opened: %v", r.Name, err)
		return
	}
	r.chain = c
	r.port += 10
	arena := v.arena()
	p := v.W.Spawn(r.Name, arena, r.Disk)
	r.proc = p
	core, err := replica.New(replica.Config{Member: path.Base(at), VolumeName: volumeName, VolumeUUID: volumeUUID, Secret: secret,
		Chain: c, Listener: p.Listen(fmt.Sprintf("tcp:%s:%d", r.Name, r.port+1)), Arena: arena, Nonce: v.W.nonce,
		Recreate: func(old *chain.Chain, spec chain.Spec) (*chain.Chain, error) {
			if err := old.Close(); err != nil {
				return nil, err
			}
			if err := chain.CreateSkeleton(fs, at, spec, opts); err != nil {
				return nil, err
			}
			c, err := chain.Open(fs, at, opts)
			r.chain = c
			return c, err
		},
		Exit:  func(reason string) { v.log("%s exits: %s", r.Name, reason); r.Kill() },
		Event: func(name, text string) { v.log("%s %s: %s", r.Name, name, text) },
	})
	if err != nil {
		panic(err)
	}
	p.Run(core)
}

// Kill ends the replica's process at once.
func (r *Replica) Kill() {
	if !r.Alive() {
		return
	}
	r.proc.Kill()
	if r.chain != nil {
		_ = r.chain.Abandon() // the lock ends with the process; nothing is written
		r.chain = nil
	}
}

// StartEngine starts an engine with every replica that runs.
func (v *Volume) StartEngine() {
	v.starts++
	arena := v.arena()
	name := fmt.Sprintf("e%d", v.starts)
	v.proc = v.W.Spawn(name, arena, nil)
	v.state = engine.State{}
	var addrs []string
	for _, r := range v.Replicas {
		if r.Alive() {
			addrs = append(addrs, r.Addr())
		}
	}
	p := v.proc
	v.engine = engine.New(engine.Config{VolumeName: volumeName, VolumeUUID: volumeUUID, Instance: name, InstanceManager: "im", Secret: secret,
		Size: v.Size, Replicas: addrs, ReplicaTimeout: 8 * time.Second, NoReplicaTimeout: 30 * time.Second, Arena: arena,
		Witness: v.Witness, Nonce: v.W.nonce,
		OnState: func(s engine.State) {
			if v.proc == p {
				v.state = s
			}
		},
		Event: func(e engine.Event) {
			switch e.Name {
			case "replica-dropped":
				v.Dropped++
			case "rebuilt":
				v.Rebuilt++
			}
			v.log("%s %s %s: %s", name, e.Name, e.Replica, e.Text)
		},
	})
	v.log("%s starts with %v", name, addrs)
	p.Run(v.engine)
	v.front = newFront(p, arena)
	p.Post(engine.AttachFrontend{Frontend: v.front, Reply: func(error) {}})
}

// KillEngine ends the engine's process at once.
func (v *Volume) KillEngine() {
	if v.proc != nil {
		v.proc.Kill()
	}
}

// Witness is a witness that always answers.
type Witness struct {
	record quorum.WitnessRecord
	// Down makes it answer nobody.
	Down bool
}

// Read implements engine.Witness.
func (w *Witness) Read() (quorum.WitnessRecord, error) {
	if w.Down {
		return quorum.WitnessRecord{}, fmt.Errorf("witness is down")
	}
	return w.record, nil
}

// Swap implements engine.Witness.
func (w *Witness) Swap(expected, next quorum.WitnessRecord) (quorum.WitnessRecord, bool, error) {
	if w.Down {
		return quorum.WitnessRecord{}, false, fmt.Errorf("witness is down")
	}
	same := expected.Epoch == w.record.Epoch && expected.Record.Equal(w.record.Record)
	if same {
		w.record = next
	}
	return w.record, same, nil
}

// Heal does what the control plane would: it starts dead replicas, adds those the engine has dropped, and starts an engine
// where none runs. It makes at most one change.
func (v *Volume) Heal() {
	for _, r := range v.Replicas {
		if !r.Alive() && r.Broken == nil {
			r.Start()
			return
		}
	}
	if !v.proc.Alive() || v.state.Fatal {
		v.KillEngine()
		v.StartEngine()
		return
	}
	if !v.state.Serving {
		return
	}
	busy := false
	modes := map[string]engine.Mode{}
	for _, x := range v.state.Replicas {
		modes[x.Address] = x.Mode
		busy = busy || x.Mode == engine.WO || (x.Mode == engine.Unknown && x.Rebuild != nil)
	}
	for _, r := range v.Replicas {
		if m := modes[r.Addr()]; r.Alive() && !busy && m != engine.RW {
			v.proc.Post(engine.AddReplica{Address: r.Addr(), Reply: func(error) {}})
			return
		}
	}
}

// Healthy reports that every replica that can is RW.
func (v *Volume) Healthy() bool {
	if v.proc == nil || !v.proc.Alive() || !v.state.Serving {
		return false
	}
	rw := map[string]bool{}
	for _, x := range v.state.Replicas {
		rw[x.Address] = x.Mode == engine.RW
	}
	for _, r := range v.Replicas {
		if r.Broken == nil && !rw[r.Addr()] {
			return false
		}
	}
	return true
}
