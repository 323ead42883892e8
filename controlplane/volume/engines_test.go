package volume_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/engineclient"
	"ankole.storage/controlplane/instance"
	"ankole.storage/controlplane/replica"
)

// engineModel is a running engine: the membership protocol without its messages. An engine starts
// with the highest record it hears, needs half of that record's members, drops whom it loses, and
// admits others only by copying everything.
type engineModel struct {
	w        *world
	proc     *proc
	uid      string
	replicas []engineclient.Replica
	members  []string
	gen      int64
	observe  func(engineclient.State)
}

// Create implements instance.Processes.
func (w *world) Create(_ context.Context, im *v1beta2.InstanceManager, p instance.Process) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	node := im.Spec.NodeID
	if w.down[node] || im.Status.CurrentState != v1beta2.InstanceManagerStateRunning {
		return fmt.Errorf("instance manager %s does not answer", im.Name)
	}
	key := im.Name + "/" + p.Name
	if w.procs[key] != nil {
		return nil
	}
	w.nextID++
	pr := &proc{
		im: im.Name, name: p.Name, node: node, state: v1beta2.InstanceStateRunning, uuid: fmt.Sprintf("run-%d", w.nextID),
		port: 10000 + 10*(w.nextID%3), env: p.Environment, args: p.Args, // ports repeat soon, as they do in a real range
	}
	for w.portTaken(pr) {
		pr.port += 10
	}
	w.procs[key] = pr
	if len(p.Environment["ANKOLE_VOLUME_SECRET"]) != 64 || p.Environment["ANKOLE_VOLUME_UUID"] != "uid-v" {
		w.t.Fatalf("process %s has environment %v", p.Name, p.Environment)
	}
	if slices.Contains(p.Args, "controller") {
		w.startEngine(pr)
	} else {
		w.startReplica(pr)
	}
	return nil
}

func (w *world) portTaken(pr *proc) bool {
	for _, o := range w.procs {
		if o != pr && o.node == pr.node && o.port == pr.port {
			return true
		}
	}
	return false
}

// Delete implements instance.Processes.
func (w *world) Delete(_ context.Context, im *v1beta2.InstanceManager, name, uuid string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down[im.Spec.NodeID] {
		return fmt.Errorf("instance manager %s does not answer", im.Name)
	}
	if p := w.procs[im.Name+"/"+name]; p != nil && uuid != "" && p.uuid != uuid {
		return nil
	}
	w.end(im.Name+"/"+name, "")
	return nil
}

// DeleteLast implements instance.Processes.
func (w *world) DeleteLast(ctx context.Context, im *v1beta2.InstanceManager, name string) error {
	return w.Delete(ctx, im, name, "")
}

// end lets a process end: with an error it stays listed, without one it is gone.
func (w *world) end(key, why string) {
	p := w.procs[key]
	if p == nil {
		return
	}
	delete(w.engines, w.address(p))
	if why == "" {
		delete(w.procs, key)
	} else {
		p.state, p.err = v1beta2.InstanceStateError, why
	}
	w.detect()
}

func (w *world) address(p *proc) string { return fmt.Sprintf("10.0.0.%s:%d", p.node[1:], p.port) }

func arg(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

func dirOf(p *proc) string { return filepath.Base(arg(p.args, "replica")) }

func (w *world) startReplica(p *proc) {
	dir := dirOf(p)
	if arg(p.args, "replica") != "/host/data/replicas/"+dir {
		w.t.Fatalf("replica process started on %q", arg(p.args, "replica"))
	}
	if w.disks[dir] == nil {
		w.disks[dir] = &copyOf{node: p.node}
	}
	if w.disks[dir].node != p.node {
		w.t.Fatalf("directory %s is on %s, its process on %s", dir, w.disks[dir].node, p.node)
	}
	must(w.t, os.MkdirAll(w.path(p.node, dir), 0o700))
}

// replicaAt finds the live replica process at an address that can be reached from a node.
func (w *world) replicaAt(address, from string) *proc {
	for _, p := range w.procs {
		if p.state == v1beta2.InstanceStateRunning && w.address(p) == address && !slices.Contains(p.args, "controller") &&
			(p.node == from || (!w.down[p.node] && !w.down[from])) {
			return p
		}
	}
	return nil
}

// startEngine plays the start: hear the replicas, find the newest record, take who belongs to it.
func (w *world) startEngine(p *proc) {
	var e v1beta2.Engine
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: p.name}, &e))
	m := &engineModel{w: w, proc: p, uid: replica.VolumeUID(&e)}
	var gen int64
	var members []string
	if r := e.Status.Membership; r != nil {
		gen, members = r.Generation, r.Members
	}
	heard := map[string]string{} // directory → address
	var addresses []string
	for i, a := range p.args {
		if a != "--replica" {
			continue
		}
		address := strings.TrimPrefix(p.args[i+1], "tcp://")
		addresses = append(addresses, address)
		if r := w.replicaAt(address, p.node); r != nil {
			heard[dirOf(r)] = address
			if d := w.disks[dirOf(r)]; d.generation > gen {
				gen, members = d.generation, d.members
			}
		}
	}
	if gen == 0 {
		members = slices.Sorted(maps.Keys(heard)) // the first start ever
		if w.latest > 0 {
			w.t.Fatalf("a volume with data was started as a new one\n%s", w.dump())
		}
	}
	var good []string
	for _, dir := range members {
		if heard[dir] != "" && w.disks[dir].generation == gen {
			good = append(good, dir)
		}
	}
	if len(good) == 0 || 2*len(good) < len(members) {
		p.state, p.err = v1beta2.InstanceStateError, "exit status 61"
		return
	}
	for _, address := range addresses {
		r := engineclient.Replica{Address: address, Mode: engineclient.ModeERR, Error: "stale"}
		for _, dir := range good {
			if heard[dir] == address {
				r.Mode, r.Member, r.Error = engineclient.ModeRW, dir, ""
			}
		}
		m.replicas = append(m.replicas, r)
	}
	m.gen = gen
	w.engines[w.address(p)] = m
	m.commit(good)
	m.write()
}

// commit makes a member set durable on its members and in the witness.
func (m *engineModel) commit(members []string) {
	w := m.w
	slices.Sort(members)
	m.gen, m.members = m.gen+1, members
	for _, dir := range members {
		w.disks[dir].generation, w.disks[dir].members = m.gen, members
	}
	var e v1beta2.Engine
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: m.proc.name}, &e))
	e.Status.Membership = &v1beta2.Membership{VolumeUUID: m.uid, Generation: m.gen, Members: members,
		Engine: m.proc.name, InstanceManager: m.proc.im}
	must(w.t, w.c.Status().Update(context.Background(), &e))
}

// write acknowledges new content on every replica in sync.
func (m *engineModel) write() {
	m.w.latest++
	for _, dir := range m.members {
		m.w.disks[dir].content = m.w.latest
	}
	m.publish()
}

// lose drops replicas that cannot be reached. The last one is kept: there is nothing to go on
// without it.
func (m *engineModel) lose() {
	var stay []string
	changed := false
	for i, r := range m.replicas {
		if r.Mode == engineclient.ModeERR {
			continue
		}
		p := m.w.replicaAt(r.Address, m.proc.node)
		if p != nil && (r.Member == "" || dirOf(p) == r.Member) {
			if r.Mode == engineclient.ModeRW {
				stay = append(stay, r.Member)
			}
			continue
		}
		m.replicas[i].Mode, m.replicas[i].Error, changed = engineclient.ModeERR, "connection lost", true
	}
	if !changed {
		return
	}
	if len(stay) > 0 && len(stay) < len(m.members) {
		if m.w.down[m.proc.node] && 2*len(stay) <= len(m.members) {
			// Cut off from the majority and from the witness: the engine suspends, nothing is acknowledged.
			return
		}
		m.commit(stay)
	}
	if len(stay) > 0 {
		m.write()
	}
	m.publish()
}

// rebuilt ends every rebuild.
func (w *world) rebuilt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.engines {
		if w.down[m.proc.node] {
			continue
		}
		for i, r := range m.replicas {
			if r.Mode != engineclient.ModeWO {
				continue
			}
			if p := w.replicaAt(r.Address, m.proc.node); p != nil && len(m.members) > 0 {
				dir := dirOf(p)
				w.disks[dir].content = w.latest
				m.replicas[i].Mode, m.replicas[i].Member = engineclient.ModeRW, dir
				m.commit(append(slices.Clone(m.members), dir))
			}
		}
		m.write()
	}
}

// detect lets every engine notice whom it lost.
func (w *world) detect() {
	for _, address := range slices.Sorted(maps.Keys(w.engines)) {
		if m := w.engines[address]; m.proc.state == v1beta2.InstanceStateRunning {
			m.lose()
		}
	}
}

func (m *engineModel) state() engineclient.State {
	return engineclient.State{
		Volume: "v", Engine: m.proc.name, SizeBytes: worldSize, FrontendUp: true, Endpoint: "/dev/longhorn/v",
		Replicas: slices.Clone(m.replicas), Generation: m.gen,
	}
}

func (m *engineModel) publish() {
	if m.observe != nil && !m.w.down[m.proc.node] {
		m.observe(m.state())
	}
}

// listening says whether every reachable engine's stream is open.
func (w *world) listening() bool {
	for deadline := time.Now().Add(3 * time.Millisecond); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) {
		w.mu.Lock()
		ok := true
		for _, m := range w.engines {
			if m.observe == nil && !w.down[m.proc.node] && w.engineObject(m) {
				ok = false
			}
		}
		w.mu.Unlock()
		if ok {
			return true
		}
	}
	return false
}

// engineObject says whether the Engine object has seen this run, so that its stream should be open.
func (w *world) engineObject(m *engineModel) bool {
	var e v1beta2.Engine
	err := w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: m.proc.name}, &e)
	return err == nil && e.Status.CurrentState == v1beta2.InstanceStateRunning && e.Status.UUID == m.proc.uuid
}

// The engine client of the world.

func (w *world) at(t engineclient.Target) (*engineModel, error) {
	m := w.engines[t.Address]
	if m == nil || w.down[m.proc.node] {
		return nil, fmt.Errorf("%w: %s", engineclient.ErrUnavailable, t.Address)
	}
	return m, nil
}

func (w *world) Get(_ context.Context, t engineclient.Target) (engineclient.State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.at(t)
	if err != nil {
		return engineclient.State{}, err
	}
	return m.state(), nil
}

func (w *world) Watch(ctx context.Context, t engineclient.Target, observe func(engineclient.State)) error {
	w.mu.Lock()
	m, err := w.at(t)
	if err != nil {
		w.mu.Unlock()
		return err
	}
	m.observe = observe
	observe(m.state())
	w.mu.Unlock()
	<-ctx.Done()
	return fmt.Errorf("%w: %w", engineclient.ErrUnavailable, ctx.Err())
}

func (w *world) ReplicaAdd(_ context.Context, t engineclient.Target, address string) (engineclient.State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.at(t)
	if err != nil {
		return engineclient.State{}, err
	}
	for _, r := range m.replicas {
		if r.Address == address {
			return m.state(), nil
		}
	}
	if w.replicaAt(address, m.proc.node) == nil {
		return engineclient.State{}, fmt.Errorf("%w: nothing at %s", engineclient.ErrPrecondition, address)
	}
	m.replicas = append(m.replicas, engineclient.Replica{Address: address, Mode: engineclient.ModeWO})
	m.publish()
	return m.state(), nil
}

func (w *world) ReplicaRemove(_ context.Context, t engineclient.Target, address string) (engineclient.State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.at(t)
	if err != nil {
		return engineclient.State{}, err
	}
	for i, r := range m.replicas {
		if r.Address != address {
			continue
		}
		if r.Mode == engineclient.ModeRW {
			if len(m.members) == 1 {
				return engineclient.State{}, fmt.Errorf("%w: last", engineclient.ErrPrecondition)
			}
			m.commit(slices.DeleteFunc(slices.Clone(m.members), func(d string) bool { return d == r.Member }))
		}
		m.replicas = slices.Delete(m.replicas, i, i+1)
		m.write()
		break
	}
	return m.state(), nil
}

func (w *world) SnapshotCreate(context.Context, engineclient.Target, engineclient.SnapshotRequest) (string, error) {
	return "", engineclient.ErrUnavailable
}

func (w *world) Version(context.Context, engineclient.Target) (engineclient.Version, error) {
	return engineclient.Version{}, engineclient.ErrUnavailable
}

func (w *world) Forget(engineclient.Target) {}

// report writes the processes into the instance managers' objects, as their controller would.
func (w *world) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ims v1beta2.InstanceManagerList
	must(w.t, w.c.List(context.Background(), &ims))
	for i := range ims.Items {
		im := &ims.Items[i]
		if w.down[im.Spec.NodeID] || im.Status.CurrentState != v1beta2.InstanceManagerStateRunning {
			continue
		}
		engines, replicas := map[string]v1beta2.InstanceProcess{}, map[string]v1beta2.InstanceProcess{}
		for _, p := range w.procs {
			if p.im != im.Name {
				continue
			}
			ip := v1beta2.InstanceProcess{Spec: v1beta2.InstanceProcessSpec{Name: p.name}, Status: v1beta2.InstanceProcessStatus{
				State: p.state, UUID: p.uuid, PortStart: p.port, PortEnd: p.port, ErrorMsg: p.err,
			}}
			if slices.Contains(p.args, "controller") {
				engines[p.name] = ip
			} else {
				replicas[p.name] = ip
			}
		}
		if maps.EqualFunc(im.Status.InstanceEngines, engines, sameProcess) &&
			maps.EqualFunc(im.Status.InstanceReplicas, replicas, sameProcess) {
			continue
		}
		im.Status.InstanceEngines, im.Status.InstanceReplicas = engines, replicas
		must(w.t, w.c.Status().Update(context.Background(), im))
	}
}

func sameProcess(a, b v1beta2.InstanceProcess) bool {
	return a.Status.State == b.Status.State && a.Status.UUID == b.Status.UUID
}
