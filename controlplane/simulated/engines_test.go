package simulated_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engineclient"
)

const (
	// replicaTimeout is how long an engine waits for a replica that does not answer.
	replicaTimeout = 8 * time.Second
	// engineEnds is how long an engine without any replica goes on.
	engineEnds = 10 * time.Second
)

// serving is what an engine's process does. Whom it may start and go on with is in
// membership_test.go.
type serving struct {
	w        *world
	p        *proc
	volume   string
	size     int64
	epoch    int64
	has      memberSet // what was agreed last
	begun    time.Time
	contact  bool // replicas are judged
	replicas []*mirror
	ended    bool
	next     time.Time // of the next check
	deaf     time.Time // orders do not reach it until then
	options  engineclient.Options
	purge    *engineclient.Purge // the last one
	clone    engineclient.Clone
	from     string // the volume that it is filled from

	told    engineclient.State
	changed chan struct{} // closed at each change
}

// mirror is one replica of an engine.
type mirror struct {
	address string
	dir     string
	mode    engineclient.Mode
	problem string
	rebuild *engineclient.Rebuild
	silent  time.Time // since when it does not answer
}

func (w *world) serve(p *proc) {
	p.engine = w.newServing(p)
	w.engineOf[volumeOf(p.name)] = p.engine
	p.engine.publish()
	p.engine.checkIn(w.between(10*time.Millisecond, 500*time.Millisecond))
}

func (w *world) newServing(p *proc) *serving {
	known, err := strconv.ParseInt(argument(p.args, "--current-size"), 10, 64)
	if err != nil && !isStandIn(p) {
		w.failf("%s is started with %v", p.name, p.args)
	}
	s := &serving{w: w, p: p, volume: argument(p.args, "--volume-name"), size: known, begun: time.Now(),
		changed: make(chan struct{}), options: defaultOptions()}
	for i, a := range p.args {
		if a == "--replica" {
			s.replicas = append(s.replicas, &mirror{address: strings.TrimPrefix(p.args[i+1], "tcp://")})
		}
	}
	return s
}

// replicaAt is the process that an engine reaches at an address, if it has its directory and they
// have the same secret.
func (w *world) replicaAt(address string, engine *proc) *proc {
	p := w.processAt(address, engine.pod.host)
	if p == nil || p.secret != engine.secret || w.lockedOut(p) {
		return nil
	}
	w.copies[p.directory()].holder = p
	return p
}

func (w *world) processAt(address string, from *host) *proc {
	ip, _, _ := strings.Cut(address, ":")
	if rest, storage := strings.CutPrefix(ip, "192.168"); storage {
		ip = "10.0" + rest
	}
	pod := w.podWith(ip)
	if pod == nil || pod.host != from && (!pod.host.reachable() || !from.reachable()) || pod.host.off {
		return nil
	}
	for _, p := range pod.processes {
		if p.address() == address && p.state == v1beta2.InstanceStateRunning && p.engine == nil &&
			!pod.host.diskGone && !pod.host.hung {
			return p
		}
	}
	return nil
}

// noticed has every engine look at its replicas soon: connections break, or can be made.
func (w *world) noticed() {
	for _, h := range w.nodes {
		for _, p := range w.podsOn(h) {
			for _, name := range sortedNames(p.processes) {
				if e := p.processes[name].engine; e != nil {
					e.checkIn(w.between(0, time.Second))
				}
			}
		}
	}
}

// noticedOf has engines look after news of a process: in a crowd that of its volume only.
func (w *world) noticedOf(p *proc) {
	if !w.crowded {
		w.noticed()
		return
	}
	if e := w.engineOf[volumeOf(p.name)]; e != nil {
		e.checkIn(w.between(0, time.Second))
	}
}

func (s *serving) members() (out []string) {
	for _, r := range s.replicas {
		if r.mode == engineclient.ModeRW {
			out = append(out, r.dir)
		}
	}
	return out
}

// source is a member that can be copied from, "" if there is none.
func (s *serving) source() string {
	for _, r := range s.replicas {
		if r.mode == engineclient.ModeRW && r.silent.IsZero() {
			return r.dir
		}
	}
	return ""
}

// checkIn plans a check, unless one comes earlier.
func (s *serving) checkIn(d time.Duration) {
	at := time.Now().Add(d)
	if s.next.After(time.Now()) && !s.next.After(at) {
		return
	}
	s.next = at
	s.w.at(at, func() {
		if s.next.Equal(at) {
			s.next = time.Time{}
			s.check()
		}
	})
}

// check judges the replicas, and looks again while something is open.
func (s *serving) check() {
	if s.ended || !s.p.alive() || s.p.pod.host.off {
		return
	}
	if s.standsIn() {
		s.offer()
		return
	}
	again := false
	for _, r := range s.replicas {
		if p := s.w.replicaAt(r.address, s.p); p != nil {
			r.silent, r.dir = time.Time{}, p.directory()
		} else if r.mode != engineclient.ModeERR && r.silent.IsZero() {
			r.silent = time.Now()
		}
	}
	if !s.contact {
		again = !s.begin()
	} else if s.replaced() {
		return
	} else {
		again = s.drop()
	}
	if s.ended || !s.p.alive() {
		return
	}
	if s.contact {
		s.tellWitness()
		s.acknowledge()
	}
	s.publish()
	if again {
		s.checkIn(time.Second)
	}
}

// drop takes replicas out that have not answered for too long.
func (s *serving) drop() (again bool) {
	left, late := 0, []*mirror{}
	for _, r := range s.replicas {
		switch {
		case r.mode == engineclient.ModeERR:
		case !r.silent.IsZero() && time.Since(r.silent) >= replicaTimeout:
			late = append(late, r)
		default:
			again = again || !r.silent.IsZero()
			if r.mode == engineclient.ModeRW {
				left++
			}
		}
	}
	if left == 0 {
		if time.Since(s.begun) > engineEnds && len(late) > 0 && time.Since(late[0].silent) > engineEnds {
			s.w.end(s.p, "no replica is left")
		}
		return true
	}
	for _, r := range late {
		members := slices.DeleteFunc(s.members(), func(d string) bool { return d == r.dir })
		if r.mode == engineclient.ModeRW && !s.commit(members) {
			return true
		}
		r.mode, r.problem = engineclient.ModeERR, "it does not answer"
		if r.rebuild != nil {
			r.rebuild.Running, r.rebuild.State, r.rebuild.Error = false, "error", "it does not answer"
		}
	}
	return again
}

// publish tells the state to whoever follows.
func (s *serving) publish() {
	st := engineclient.State{Volume: s.volume, Engine: s.p.name, SizeBytes: s.size, FrontendUp: s.contact,
		Epoch: s.epoch, Suspended: len(s.members()) == 0, SuspendedReason: "no replica", Generation: s.has.generation,
		Clone: s.clone, Snapshots: s.line().tell(), Options: s.options}
	if s.contact {
		st.Endpoint = "/dev/longhorn/" + s.volume
	}
	for _, r := range s.replicas {
		m := engineclient.Replica{Address: r.address, Member: r.dir, Mode: r.mode, Error: r.problem}
		if s.purge != nil {
			b := *s.purge
			m.Purge = &b
		}
		if r.rebuild != nil {
			b := *r.rebuild
			m.Rebuild = &b
		}
		st.Replicas = append(st.Replicas, m)
	}
	s.told = st
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *serving) stop() {
	if !s.ended {
		s.ended = true
		s.publish()
		s.w.noticedOf(s.p)
	}
}

// engines reaches engines.
type engines struct {
	w *world
	engineclient.EngineClient
}

func (e *engines) at(t engineclient.Target) (*serving, error) {
	ip, _, _ := strings.Cut(t.Address, ":")
	if pod, err := e.w.podAt(ip); err == nil {
		p := pod.processes[t.Engine]
		if p != nil && p.engine != nil && p.address() == t.Address && !p.engine.ended {
			return p.engine, nil
		}
	}
	return nil, fmt.Errorf("%w: nothing at %s", engineclient.ErrUnavailable, t.Address)
}

// ordered is at for an order: an engine may be deaf, though its state is heard.
func (e *engines) ordered(t engineclient.Target) (*serving, error) {
	s, err := e.at(t)
	if err == nil && time.Now().Before(s.deaf) {
		return nil, fmt.Errorf("%w: %s is busy", engineclient.ErrUnavailable, t.Address)
	}
	return s, err
}

// Forget implements engineclient.Client.
func (e *engines) Forget(engineclient.Target) {}

// Get implements engineclient.Client.
func (e *engines) Get(_ context.Context, t engineclient.Target) (engineclient.State, error) {
	s, err := e.at(t)
	if err != nil {
		return engineclient.State{}, err
	}
	return s.told, nil
}

// Watch implements engineclient.Client. Connections to a node that is lost break.
func (e *engines) Watch(ctx context.Context, t engineclient.Target, observe func(engineclient.State)) error {
	e.w.mu.Lock()
	s, err := e.at(t)
	e.w.mu.Unlock()
	if err != nil {
		return err
	}
	for {
		e.w.mu.Lock()
		state, changed, broken := s.told, s.changed, s.ended || !s.p.pod.host.reachable()
		e.w.mu.Unlock()
		if broken {
			return fmt.Errorf("%w: the connection broke", engineclient.ErrUnavailable)
		}
		observe(state)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (s *serving) find(address string) *mirror {
	for _, r := range s.replicas {
		if r.address == address {
			return r
		}
	}
	return nil
}

// ReplicaAdd implements engineclient.Client.
func (e *engines) ReplicaAdd(_ context.Context, t engineclient.Target, address string) (engineclient.State, error) {
	w := e.w
	s, err := e.ordered(t)
	if err != nil {
		return engineclient.State{}, err
	}
	w.order(t.Volume, "add replica "+address)
	if r := s.find(address); r != nil && r.mode != engineclient.ModeERR {
		return s.told, nil
	}
	p := w.replicaAt(address, s.p)
	if p == nil || !s.contact || s.source() == "" || slices.Contains(s.has.members, p.directory()) ||
		w.copies[p.directory()].promised > s.epoch {
		return engineclient.State{}, fmt.Errorf("%w: nothing to be rebuilt at %s", engineclient.ErrPrecondition, address)
	}
	s.replicas = slices.DeleteFunc(s.replicas, func(r *mirror) bool { return r.address == address })
	r := &mirror{address: address, dir: p.directory(), mode: engineclient.ModeWO,
		rebuild: &engineclient.Rebuild{Running: true, State: "in_progress"}}
	s.replicas = append(s.replicas, r)
	w.rebuildsWithin(p.pod.host)
	d := w.copies[r.dir]
	*d = data{damaged: d.damaged, holder: d.holder, node: d.node, path: d.path, volumeUID: d.volumeUID, size: s.size,
		promised: s.epoch, rebuilding: true}
	fails := !w.calm && w.rng.IntN(12) == 0
	if !w.held {
		w.after(w.between(5*time.Second, 40*time.Second), func() { s.rebuilt(r, fails) })
	}
	s.publish()
	return s.told, nil
}

func (s *serving) rebuilt(r *mirror, fails bool) {
	if s.ended || r.mode != engineclient.ModeWO || s.find(r.address) != r {
		return
	}
	r.rebuild.Running = false
	source := s.source()
	if fails || !r.silent.IsZero() || source == "" || !s.commit(append(s.members(), r.dir)) {
		r.mode, r.problem, r.rebuild.State, r.rebuild.Error = engineclient.ModeERR, "the rebuild failed", "error", "drawn"
	} else {
		r.mode, r.rebuild.State, r.rebuild.Percent = engineclient.ModeRW, "complete", 100
		d := s.w.copies[r.dir]
		d.version, d.rebuilding = s.w.copies[source].version, false
		d.part, d.whole = s.w.copies[source].part, s.w.copies[source].whole
	}
	if !s.ended {
		s.publish()
	}
}

// ReplicaRemove implements engineclient.Client.
func (e *engines) ReplicaRemove(_ context.Context, t engineclient.Target, address string) (engineclient.State, error) {
	s, err := e.ordered(t)
	if err != nil {
		return engineclient.State{}, err
	}
	e.w.order(t.Volume, "remove replica "+address)
	r := s.find(address)
	if r == nil {
		return s.told, fmt.Errorf("%w: replica %s", engineclient.ErrNotFound, address)
	}
	if r.mode == engineclient.ModeRW {
		members := slices.DeleteFunc(s.members(), func(d string) bool { return d == r.dir })
		if len(members) == 0 {
			return s.told, fmt.Errorf("%w: the last replica in sync", engineclient.ErrPrecondition)
		}
		if !s.commit(members) {
			return s.told, fmt.Errorf("%w: not agreed", engineclient.ErrUnavailable)
		}
	}
	s.replicas = slices.DeleteFunc(s.replicas, func(o *mirror) bool { return o == r })
	s.publish()
	return s.told, nil
}

// Expand implements engineclient.Client.
func (e *engines) Expand(_ context.Context, t engineclient.Target, size int64) error {
	s, err := e.ordered(t)
	if err != nil {
		return err
	}
	e.w.order(t.Volume, "expand "+t.Engine)
	if size < s.size {
		e.w.failf("engine %s of %d bytes is to shrink to %d", s.p.uuid, s.size, size)
	}
	for _, r := range s.replicas {
		if r.mode == engineclient.ModeWO || slices.Contains(s.has.members, r.dir) && !r.silent.IsZero() {
			return fmt.Errorf("%w: a replica is rebuilt, or a member is lost", engineclient.ErrPrecondition)
		}
	}
	e.w.after(e.w.between(100*time.Millisecond, 5*time.Second), func() {
		if s.ended || size <= s.size {
			return
		}
		s.size = size
		for _, dir := range s.members() {
			e.w.copies[dir].size = size
		}
		s.publish()
	})
	return nil
}
