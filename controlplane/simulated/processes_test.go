package simulated_test

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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/process/instance"
)

// pod is an instance manager that runs. refuses: it takes no process any more. ending: it was told
// to end, and so are its processes.
type pod struct {
	uid       types.UID
	name, ip  string
	storageIP string // "" without a storage network
	host      *host
	old       bool // tells no orders, and cannot be closed
	processes map[string]*proc
	refuses   bool
	ending    bool
	nextPort  int
}

// proc is a process of an instance manager.
type proc struct {
	pod               *pod
	name, order, uuid string
	state             v1beta2.InstanceState
	problem           string
	port              int
	args              []string
	binary            string
	volumeUID, secret string
	engine            *serving
}

// address is where a process is reached: an engine for its control, a replica for data.
func (p *proc) address() string {
	ip := p.pod.ip
	if p.pod.storageIP != "" && !slices.Contains(p.args, "controller") {
		ip = p.pod.storageIP
	}
	return ip + ":" + strconv.Itoa(p.port)
}

func (p *proc) alive() bool {
	return p.pod.processes[p.name] == p &&
		(p.state == v1beta2.InstanceStateRunning || p.state == v1beta2.InstanceStateStarting)
}

// data is a replica directory.
type data struct {
	node, path, volumeUID string
	size                  int64
	// version is the newest write that it has, promised the epoch of the newest engine that it has
	// answered, record the set in it. rebuilding: it counts for nothing.
	version    int
	promised   int64
	record     memberSet
	rebuilding bool
	// damaged is why its process refuses it.
	damaged string
	// holder is the process that has the directory's lock, or had it.
	holder *proc
	// part is the snapshot of another volume of which the directory holds a part, whole the one that
	// it was filled with.
	part, whole string
}

// podWritten is the kubelet's part for Pods of instance managers: it starts and removes them.
func (w *world) podWritten(p *corev1.Pod) {
	h, uid := w.host(p.Spec.NodeName), p.UID
	if len(p.OwnerReferences) == 0 {
		return
	}
	switch {
	case p.DeletionTimestamp != nil:
		late := h.kubeletLate
		if !w.calm && w.rng.IntN(4) == 0 {
			late = w.between(0, time.Minute)
		}
		w.after(late+w.between(0, 3*time.Second), func() { w.kubelet(h, p.Name, uid) })
	case p.Status.Phase == "":
		w.after(w.between(500*time.Millisecond, 5*time.Second), func() { w.kubelet(h, p.Name, uid) })
	}
}

// kubelet brings one Pod to where it should be, if its machine works.
func (w *world) kubelet(h *host, name string, uid types.UID) {
	p := get[*corev1.Pod](w, name)
	if p == nil || p.UID != uid || !h.reachable() {
		return
	}
	switch {
	case p.DeletionTimestamp != nil && w.pods[uid] != nil && !w.pods[uid].ending:
		w.leave(w.pods[uid])
		w.after(h.endLate+w.between(0, 5*time.Second), func() { w.kubelet(h, name, uid) })
	case p.DeletionTimestamp != nil:
		w.endPod(uid)
		w.store.remove(w.store.kindOf(p), p)
	case p.Status.Phase == "" && h.noPods:
	case p.Status.Phase == "":
		w.ids++
		n := &pod{uid: uid, name: name, ip: fmt.Sprintf("10.0.%d.%d", w.ids/250, w.ids%250+1), host: h,
			processes: map[string]*proc{}, nextPort: 10000, old: p.Spec.Containers[0].Image == oldImage}
		w.pods[uid] = n
		n.annotate(p, true)
		w.byIP[n.ip] = n
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: n.ip,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Ready: true}}}
		w.write(p)
	case p.Status.Phase == corev1.PodRunning && w.pods[uid] == nil:
		p.Status.Phase = corev1.PodFailed
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}}}}
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		w.write(p)
	}
}

// leave tells an instance manager to end: its engines are killed, its replicas end in order, and it
// tells of that as long as it is there.
func (w *world) leave(p *pod) {
	w.note("instance manager %s is told to end", p.name)
	p.refuses, p.ending = true, true
	for _, name := range slices.Sorted(maps.Keys(p.processes)) {
		if r := p.processes[name]; !isReplica(r) {
			w.end(r, "killed")
		} else if r.alive() {
			r.state = v1beta2.InstanceStateStopping
			w.after(w.between(10*time.Millisecond, 10*time.Second), func() { w.end(r, "its instance manager ends") })
		}
	}
	w.streams.changed(p)
	w.noticed()
}

// endPod ends an instance manager with its processes.
func (w *world) endPod(uid types.UID) {
	p := w.pods[uid]
	if p == nil {
		return
	}
	delete(w.pods, uid)
	for _, name := range slices.Sorted(maps.Keys(p.processes)) {
		w.end(p.processes[name], "its Pod has ended")
	}
	w.streams.changed(p)
}

// end ends a process: with a problem it stays listed.
func (w *world) end(p *proc, problem string) {
	if p.pod.processes[p.name] != p {
		return
	}
	if p.engine != nil {
		p.engine.stop()
	}
	if problem == "" {
		delete(p.pod.processes, p.name)
	} else {
		p.state, p.problem = v1beta2.InstanceStateError, problem
	}
	w.streams.changed(p.pod)
	w.noticedOf(p)
}

// orders are what controllers ask of instance managers.
type orders struct {
	instance.Processes
	w *world
}

// podWith is the Pod that has an address, nil if it runs no more.
func (w *world) podWith(ip string) *pod {
	if p := w.byIP[ip]; p != nil && w.pods[p.uid] == p {
		return p
	}
	return nil
}

func (w *world) podAt(ip string) (*pod, error) {
	if p := w.podWith(ip); p != nil && p.host.reachable() {
		return p, nil
	}
	return nil, fmt.Errorf("no instance manager answers at %q", ip)
}

func (w *world) ordered(im *v1beta2.InstanceManager, verb, process string) (*pod, error) {
	if im.Status.CurrentState != v1beta2.InstanceManagerStateRunning {
		return nil, fmt.Errorf("instance manager %s is not running", im.Name)
	}
	p, err := w.podAt(im.Status.IP)
	if err == nil && !w.calm && w.rng.IntN(100) == 0 {
		err = errInjected
	}
	if err == nil && verb != "" {
		w.order(volumeOf(process), verb+" "+process)
	}
	return p, err
}

// Create implements instance.Processes.
func (o *orders) Create(_ context.Context, im *v1beta2.InstanceManager, p instance.Process) error {
	w := o.w
	w.tries++
	at, err := w.ordered(im, "start", p.Name)
	if err != nil {
		return err
	}
	if w.loses || !w.calm && w.rng.IntN(40) == 0 {
		w.note("the answer to the start of %s is lost", p.Name)
		w.lost(func() {
			if w.pods[at.uid] == at && at.host.reachable() {
				_ = w.startProcess(at, p) // nobody waits for the answer
			}
		})
		return errInjected
	}
	return w.startProcess(at, p)
}

func (w *world) startProcess(at *pod, p instance.Process) error {
	if have := at.processes[p.Name]; have != nil {
		if have.order != "" && have.order != p.Order {
			return fmt.Errorf("process %s was made for order %s, not %s", p.Name, have.order, p.Order)
		}
		return nil
	}
	if at.refuses {
		return fmt.Errorf("instance manager %s is closed", at.name)
	}
	n := w.newProcess(at, p)
	if isEngine(n) {
		w.oneWriter(volumeOf(p.Name), true)
	}
	at.processes[p.Name] = n
	w.streams.changed(at)
	if n.hangs() {
		w.after(time.Minute, func() { w.stopping(n) }) // it is given up, and waits for its disk
		return nil
	}
	if !slices.Contains(p.Args, "controller") {
		w.open(n)
	}
	w.after(w.between(50*time.Millisecond, 2*time.Second), func() {
		if !n.alive() {
			return
		}
		if d := w.copies[n.directory()]; d != nil && d.damaged != "" {
			w.end(n, d.damaged)
			return
		}
		if n.state = v1beta2.InstanceStateRunning; slices.Contains(p.Args, "controller") {
			w.serve(n)
		}
		w.streams.changed(at)
		w.noticedOf(n)
	})
	return nil
}

// newProcess is what an order makes, before it is listed.
func (w *world) newProcess(at *pod, p instance.Process) *proc {
	w.ids, w.starts = w.ids+1, w.starts+1
	n := &proc{pod: at, name: p.Name, order: p.Order, uuid: fmt.Sprintf("run-%d", w.ids), args: p.Args, binary: p.Binary,
		state: v1beta2.InstanceStateStarting, port: at.nextPort, volumeUID: p.Environment["ANKOLE_VOLUME_UUID"],
		secret: p.Environment["ANKOLE_VOLUME_SECRET"]}
	if at.old {
		n.order = ""
	}
	at.nextPort += 10
	listen := "--listen," + strings.TrimSuffix(n.address(), strconv.Itoa(n.port))
	if len(n.secret) != 64 || n.volumeUID == "" ||
		!slices.Equal(p.PortArgs, []string{listen}) {
		w.failf("process %s has environment %v, and is to listen at %v, want %s", p.Name, p.Environment, p.PortArgs, listen)
	}
	return n
}

// hangs says whether a process waits for a disk that does not answer.
func (p *proc) hangs() bool { return p.pod.host.hung && !slices.Contains(p.args, "controller") }

// stopping tells a process to end, which one that waits for its disk does not.
func (w *world) stopping(p *proc) {
	if !p.alive() {
		return
	}
	p.state = v1beta2.InstanceStateStopping
	if p.engine != nil {
		p.engine.stop()
	}
	w.streams.changed(p.pod)
	if !p.hangs() {
		w.after(w.between(10*time.Millisecond, 2*time.Second), func() { w.end(p, "") })
	}
}

// hang lets the disk of a machine answer no more, or again.
func (w *world) hang(h *host, hung bool) {
	if h.hung == hung {
		return
	}
	w.note("disk of %s hangs: %v", h.name, hung)
	h.hung = hung
	for _, p := range w.podsOn(h) {
		for _, name := range sortedNames(p.processes) {
			if r := p.processes[name]; !hung && r.engine == nil && r.state == v1beta2.InstanceStateStopping {
				w.end(r, "")
			} else if !hung && r.engine == nil && r.state == v1beta2.InstanceStateStarting {
				w.end(r, "it was given up")
			}
		}
	}
	w.noticed()
}

// volumeOf is the volume of a process, by its name.
func volumeOf(process string) string {
	volume, _, _ := strings.Cut(process, "-")
	return volume
}

func argument(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// directory is that of a replica's process.
func (p *proc) directory() string { return filepath.Base(argument(p.args, "replica")) }

// open makes a replica's directory if it is not there.
func (w *world) open(p *proc) {
	dir := filepath.Join(w.dir, p.pod.host.name, argument(p.args, "replica"))
	if _, err := os.Stat(dir); err == nil {
		return
	}
	must(w, os.MkdirAll(dir, 0o700))
	size, err := strconv.ParseInt(argument(p.args, "--size"), 10, 64)
	must(w, err)
	w.copies[p.directory()] = &data{node: p.pod.host.name, path: dir, volumeUID: p.volumeUID, size: size}
	w.after(time.Second, func() { w.lookAtDisk(p.pod.host) })
}

// Get implements instance.Processes.
func (o *orders) Get(_ context.Context, im *v1beta2.InstanceManager, name string) (*v1beta2.InstanceProcess, error) {
	at, err := o.w.ordered(im, "", "")
	if err != nil || at.processes[name] == nil {
		return nil, err
	}
	p := at.processes[name].tell()
	return &p, nil
}

// CopyLog implements instance.LogReader: a manager that is cut off does not answer.
func (o *orders) CopyLog(_ context.Context, im *v1beta2.InstanceManager, name string) error {
	_, err := o.w.ordered(im, "read the log of", name)
	if err == nil {
		o.w.logsRead = append(o.w.logsRead, name)
	}
	return err
}

// Delete implements instance.Processes.
func (o *orders) Delete(_ context.Context, im *v1beta2.InstanceManager, name, uuid string) error {
	w := o.w
	at, err := w.ordered(im, "end", name)
	if err != nil {
		return err
	}
	p := at.processes[name]
	if p == nil || uuid != "" && p.uuid != uuid || p.state == v1beta2.InstanceStateStopping {
		return nil
	}
	if p.state == v1beta2.InstanceStateError {
		w.end(p, "")
		return nil
	}
	w.stops(p)
	w.stopping(p)
	return nil
}

// DeleteLast implements instance.Processes.
func (o *orders) DeleteLast(ctx context.Context, im *v1beta2.InstanceManager, name, uuid string) error {
	return o.Delete(ctx, im, name, uuid)
}

// closeIdle is Callers.CloseIdle.
func (w *world) closeIdle(_ context.Context, ip string) (map[string]*imrpc.ProcessResponse, bool, error) {
	p, err := w.podAt(ip)
	if err != nil {
		return nil, false, err
	}
	w.order(p.name, "close instance manager "+p.name)
	list, busy := map[string]*imrpc.ProcessResponse{}, false
	for name, r := range p.processes {
		busy = busy || r.state != v1beta2.InstanceStateError
		list[name] = &imrpc.ProcessResponse{Spec: &imrpc.ProcessSpec{Name: name},
			Status: &imrpc.ProcessStatus{State: string(r.state)}}
	}
	p.refuses = !busy && !p.old
	return list, p.refuses, nil
}

// streams are what a leader hears from instance managers.
type streams struct {
	w      *world
	heard  *heard.Lists
	ctx    context.Context
	cancel context.CancelFunc
	// pods are those that are followed, by instance manager.
	pods map[string]types.UID
}

func newStreams(w *world) *streams {
	s := &streams{w: w, heard: heard.New(namespace), pods: map[string]types.UID{}}
	s.ctx, s.cancel = context.WithCancel(w.t.Context())
	return s
}

// Drop implements instancemanager.Follower.
func (s *streams) Drop(manager string) {
	delete(s.pods, manager)
	s.heard.Drop(manager)
}

// Follow implements instancemanager.Follower.
func (s *streams) Follow(manager string, uid types.UID, _ string) {
	if s.pods[manager] == uid {
		return
	}
	s.pods[manager] = uid
	s.heard.Begin(manager, uid)
	s.w.after(s.w.between(time.Millisecond, 200*time.Millisecond), func() { s.tell(manager, uid) })
}

// changed plans that a leader is told of what a Pod runs, or that it does not answer.
func (s *streams) changed(p *pod) {
	if s.pods[p.name] != p.uid {
		return
	}
	in := s.w.between(0, 50*time.Millisecond)
	if !p.host.reachable() || p.host.mute {
		in = s.w.between(time.Second, 10*time.Second)
	} else if !s.w.calm && s.w.rng.IntN(50) == 0 {
		in = s.w.between(0, 5*time.Second)
	}
	s.w.after(in, func() { s.tell(p.name, p.uid) })
}

func (s *streams) tell(manager string, uid types.UID) {
	if s.w.streams != s || s.pods[manager] != uid {
		return
	}
	p := s.w.pods[uid]
	if p == nil || !p.host.reachable() || p.host.mute {
		s.heard.Lose(s.ctx, manager, uid)
		return
	}
	s.heard.Tell(s.ctx, manager, uid, p.list())
}
