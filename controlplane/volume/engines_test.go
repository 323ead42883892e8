package volume_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/engineclient"
	"ankole.storage/controlplane/instance"
)

// Create implements instance.Processes.
func (w *world) Create(_ context.Context, im *v1beta2.InstanceManager, p instance.Process) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	node := im.Spec.NodeID
	if w.down[node] || im.Status.CurrentState != v1beta2.InstanceManagerStateRunning {
		return fmt.Errorf("instance manager %s does not answer", im.Name)
	}
	key := im.Name + "/" + p.Name
	if have := w.procs[key]; have != nil {
		if have.order != p.Order {
			return fmt.Errorf("process %s was made for order %s, not %s", p.Name, have.order, p.Order)
		}
		return nil
	}
	w.nextID++
	pr := &proc{
		im: im.Name, name: p.Name, node: node, state: v1beta2.InstanceStateRunning, uuid: fmt.Sprintf("run-%d", w.nextID),
		port: 10000 + 10*(w.nextID%3), env: p.Environment, args: p.Args, // ports repeat soon, as they do in a real range
		order: p.Order, binary: p.Binary,
	}
	for w.portTaken(pr) {
		pr.port += 10
	}
	w.procs[key] = pr
	if len(p.Environment["ANKOLE_VOLUME_SECRET"]) != 64 ||
		p.Environment["ANKOLE_VOLUME_UUID"] != string(w.volume(volumeOf(p.Name)).UID) {
		w.t.Fatalf("process %s has environment %v", p.Name, p.Environment)
	}
	listen := "--listen," + strings.TrimSuffix(w.address(pr), strconv.Itoa(pr.port))
	if !slices.Equal(p.PortArgs, []string{listen}) {
		w.t.Fatalf("process %s is to listen at %v, want %s", p.Name, p.PortArgs, listen)
	}
	switch {
	case isStandIn(pr):
		w.startStandIn(pr)
	case isEngine(pr):
		w.startEngine(pr)
	default:
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

// CopyLog implements instance.LogReader.
func (w *world) CopyLog(_ context.Context, im *v1beta2.InstanceManager, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down[im.Spec.NodeID] {
		return fmt.Errorf("instance manager %s does not answer", im.Name)
	}
	w.logsRead = append(w.logsRead, im.Name+"/"+name)
	return nil
}

// Delete implements instance.Processes.
func (w *world) Delete(_ context.Context, im *v1beta2.InstanceManager, name, uuid string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down[im.Spec.NodeID] {
		return fmt.Errorf("instance manager %s does not answer", im.Name)
	}
	p := w.procs[im.Name+"/"+name]
	if p != nil && uuid != "" && p.uuid != uuid {
		return nil
	}
	if p != nil {
		w.checkStop(p)
	}
	w.end(im.Name+"/"+name, "")
	return nil
}

// DeleteLast implements instance.Processes.
func (w *world) DeleteLast(ctx context.Context, im *v1beta2.InstanceManager, name, uuid string) error {
	return w.Delete(ctx, im, name, uuid)
}

// end lets a process end: with an error it stays listed, without one it is gone.
func (w *world) end(key, why string) {
	p := w.procs[key]
	if p == nil {
		return
	}
	if m := w.engines[w.address(p)]; m != nil && m.proc == p {
		m.cutShort()
		delete(w.engines, w.address(p))
		w.endStandIns(w.address(p))
	}
	delete(w.standIns, w.address(p))
	if why == "" {
		delete(w.procs, key)
	} else {
		p.state, p.err = v1beta2.InstanceStateError, why
	}
	w.detect()
}

// address is where a process is reached: an engine for its control, a replica for data.
func (w *world) address(p *proc) string {
	network := "192.168.0"
	if !isReplica(p) {
		network = "10.0.0"
	}
	return fmt.Sprintf("%s.%s:%d", network, p.node[1:], p.port)
}

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
	if c := w.disks[dir]; c == nil || w.removed(dir, c) {
		size, err := strconv.ParseInt(arg(p.args, "--size"), 10, 64)
		must(w.t, err)
		w.disks[dir] = &copyOf{node: p.node, size: size, other: volumeOf(p.name) != "v"}
	}
	if w.disks[dir].node != p.node {
		w.t.Fatalf("directory %s is on %s, its process on %s", dir, w.disks[dir].node, p.node)
	}
	must(w.t, os.MkdirAll(w.path(p.node, dir), 0o700))
	if why := w.disks[dir].damaged; why != "" {
		p.state, p.err = v1beta2.InstanceStateError, why
		return
	}
	if !w.lockedOut(p) {
		w.disks[dir].holder = p
	}
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

func (m *engineModel) state() engineclient.State {
	return engineclient.State{
		Volume: volumeOf(m.proc.name), Engine: m.proc.name, SizeBytes: m.size, FrontendUp: true,
		Endpoint: "/dev/longhorn/v", Replicas: m.withPurges(), Generation: m.record.generation,
		Clone: m.clone, Snapshots: m.w.snapshotsNow(volumeOf(m.proc.name)), Options: m.options,
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
		for _, m := range slices.Concat(slices.Collect(maps.Values(w.engines)), slices.Collect(maps.Values(w.standIns))) {
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
	if m == nil {
		m = w.standIns[t.Address]
	}
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
	p := w.replicaAt(address, m.proc.node)
	if p == nil {
		return engineclient.State{}, fmt.Errorf("%w: nothing at %s", engineclient.ErrPrecondition, address)
	}
	if err := m.beginRebuild(p); err != nil {
		return engineclient.State{}, err
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
			if len(m.record.members) == 1 {
				return engineclient.State{}, fmt.Errorf("%w: last", engineclient.ErrPrecondition)
			}
			others := slices.DeleteFunc(slices.Clone(m.record.members), func(d string) bool { return d == r.Member })
			if !m.commit(others) {
				return engineclient.State{}, fmt.Errorf("%w: not agreed", engineclient.ErrUnavailable)
			}
		}
		m.replicas = slices.Delete(m.replicas, i, i+1)
		m.write()
		break
	}
	return m.state(), nil
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
			ip := v1beta2.InstanceProcess{Spec: v1beta2.InstanceProcessSpec{Name: p.name, Order: p.order, Binary: p.binary}}
			ip.Status = v1beta2.InstanceProcessStatus{State: p.state, UUID: p.uuid, PortStart: p.port, PortEnd: p.port,
				ErrorMsg: p.err}
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
