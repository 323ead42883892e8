package volume_test

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/engineclient"
	"ankole.storage/controlplane/replica"
)

// copyOf is a replica directory: which writes it holds, what it has promised, and the membership
// record in it.
type copyOf struct {
	node string
	// has is the set of writes, by number. A write reaches a directory through an engine or a
	// rebuild only.
	has big.Int
	// promised is the epoch of the newest engine that it has answered; it refuses older ones.
	promised int64
	record   memberSet
	// rebuilding: a rebuild has begun and is not finished. The directory counts for nothing.
	rebuilding bool
	// size in bytes.
	size int64
	// holder is the process that has the directory's lock, or had it.
	holder *proc
	// part is the snapshot of another volume of which the directory holds a part, whole the one that
	// it was filled with.
	part, whole string
	// other: it belongs to another volume than v, of which nothing but that it can be read matters.
	other bool
	// damaged is why its process refuses it.
	damaged string
}

// memberSet is a record: a set of members that an engine has made durable.
type memberSet struct {
	epoch, generation int64
	members           []string
}

func (r memberSet) valid() bool { return len(r.members) > 0 }

func (r memberSet) newerThan(o memberSet) bool {
	return r.epoch > o.epoch || r.epoch == o.epoch && r.generation > o.generation
}

// complete says whether the directory holds every acknowledged write, and may be used.
func (w *world) complete(c *copyOf) bool {
	return !c.other && !c.rebuilding && new(big.Int).AndNot(&w.acknowledged, &c.has).Sign() == 0
}

// engineModel is a running engine: the membership protocol of docs/quorum.md without its messages.
// An engine begins with the highest record it hears, needs half of that record's members, drops
// whom it loses, and admits others only by copying everything.
type engineModel struct {
	w        *world
	proc     *proc
	uid      string
	epoch    int64
	replicas []engineclient.Replica
	record   memberSet
	observe  func(engineclient.State)
	size     int64
	clone    engineclient.Clone
	options  engineclient.Options
	// purging: a purge has begun in this run; purged: one has ended.
	purging, purged bool
}

func (w *world) witness(engine string) (v1beta2.Membership, memberSet) {
	var e v1beta2.Engine
	must(w.t, client.IgnoreNotFound(w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: engine}, &e)))
	if e.Status.Membership == nil {
		return v1beta2.Membership{VolumeUUID: replica.VolumeUID(&e)}, memberSet{}
	}
	m := *e.Status.Membership
	return m, memberSet{m.RecordEpoch, m.Generation, m.Members}
}

func (w *world) setWitness(engine string, m v1beta2.Membership) {
	var e v1beta2.Engine
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: engine}, &e))
	e.Status.Membership = &m
	must(w.t, w.c.Status().Update(context.Background(), &e))
}

// startEngine is the beginning of an engine: it is granted an epoch, hears the replicas, and finds
// out whom to start with.
func (w *world) startEngine(p *proc) {
	granted, base := w.witness(p.name)
	heard, addresses := w.hear(p)
	m := &engineModel{w: w, proc: p, uid: granted.VolumeUUID, epoch: granted.Epoch, options: defaultOptions()}
	void := false
	for dir := range heard {
		d := w.disks[dir]
		void = void || d.promised > granted.Epoch // the witness has forgotten what it granted
		m.epoch = max(m.epoch, d.promised)
		if d.record.newerThan(base) {
			base = d.record
		}
	}
	m.epoch++
	granted.Epoch, granted.Engine, granted.InstanceManager = m.epoch, p.name, p.im
	w.setWitness(p.name, granted)
	if w.endGranted > 0 {
		w.endGranted--
		p.state, p.err = v1beta2.InstanceStateError, "signal: killed"
		return
	}
	for dir := range heard {
		w.disks[dir].promised = m.epoch
	}
	fresh, ok := w.judge(base, void, heard, len(addresses))
	if !ok {
		fresh, ok = w.trusted(p, heard)
	}
	if !ok {
		p.state, p.err = v1beta2.InstanceStateError, "exit status 61: record "+fmt.Sprint(base)+" needs more of its members"
		return
	}
	if volumeOf(p.name) == "v" {
		w.checkStart(p, fresh)
	}
	for _, address := range addresses {
		r := engineclient.Replica{Address: address, Mode: engineclient.ModeERR, Error: "stale"}
		for _, dir := range fresh {
			if heard[dir] == address {
				r.Mode, r.Member, r.Error = engineclient.ModeRW, dir, ""
			}
		}
		m.replicas = append(m.replicas, r)
	}
	for _, dir := range fresh[1:] { // what was not acknowledged may differ: the comparison after a crash
		w.disks[dir].has.Set(&w.disks[fresh[0]].has)
	}
	m.record = base
	if !m.agreeOnSize(fresh) {
		return
	}
	m.findClone(fresh)
	w.engines[w.address(p)] = m
	if !m.commit(fresh) {
		w.t.Fatalf("the witness refuses the engine to which it has just granted an epoch\n%s", w.dump())
	}
	m.write()
	w.detect() // whoever was replaced learns of it
}

// hear returns the replicas of an engine's command line, and the address of each directory that
// answers.
func (w *world) hear(p *proc) (heard map[string]string, addresses []string) {
	heard = map[string]string{}
	for i, a := range p.args {
		if a != "--replica" {
			continue
		}
		address := strings.TrimPrefix(p.args[i+1], "tcp://")
		addresses = append(addresses, address)
		if r := w.replicaAt(address, p.node); r != nil && !w.lockedOut(r) {
			heard[dirOf(r)], w.disks[dirOf(r)].holder = address, r
		}
	}
	return heard, addresses
}

// judge is the start rule: which of those heard the engine may start with.
func (w *world) judge(base memberSet, void bool, heard map[string]string, candidates int) (fresh []string, ok bool) {
	dirs := slices.Sorted(maps.Keys(heard))
	if w.bug == startsWithAnyCopy {
		return dirs, len(dirs) > 0
	}
	if !base.valid() {
		for _, dir := range dirs {
			if d := w.disks[dir]; d.rebuilding || d.has.Sign() != 0 {
				return nil, false
			}
		}
		return dirs, len(dirs) > 0 && len(dirs) == candidates // all blank: they found the volume
	}
	for _, dir := range dirs {
		d := w.disks[dir]
		if slices.Contains(base.members, dir) && slices.Contains(d.record.members, dir) && !d.rebuilding {
			fresh = append(fresh, dir)
		}
	}
	need := (len(base.members) + 1) / 2
	if void {
		need = len(base.members)
	}
	return fresh, len(fresh) >= need
}

// checkStart holds promise P2: what an engine starts with has every acknowledged write.
func (w *world) checkStart(p *proc, fresh []string) {
	var complete, stale []string
	for _, dir := range fresh {
		if w.complete(w.disks[dir]) {
			complete = append(complete, dir)
		} else {
			stale = append(stale, dir)
		}
	}
	switch {
	case len(complete) == 0:
		w.t.Fatalf("P2: engine %s (%s) starts with %v, no copy of the latest content\n%s", p.name, p.uuid, fresh, w.dump())
	case len(stale) > 0:
		w.t.Fatalf("P2: engine %s (%s) starts with %v as if up to date, which lack acknowledged writes\n%s",
			p.name, p.uuid, stale, w.dump())
	}
}

// commit makes a member set durable on its members and in the witness. It needs the witness, or a
// majority of the set before. It returns false if the engine has to wait, or was replaced and has
// ended.
func (m *engineModel) commit(members []string) bool {
	w := m.w
	members = slices.Clone(members)
	slices.Sort(members)
	if m.replaced() {
		return false
	}
	reaches := !w.down[m.proc.node]
	if of, _ := w.witness(m.proc.name); reaches && of.VolumeUUID != m.uid {
		return false // refused: the record is of another volume, or gone
	}
	kept := 0
	for _, dir := range members {
		if slices.Contains(m.record.members, dir) {
			kept++
		}
	}
	if !reaches && 2*kept <= len(m.record.members) {
		return false // suspended: nothing is acknowledged
	}
	m.record = memberSet{m.epoch, m.record.generation + 1, members}
	for _, dir := range members {
		w.disks[dir].record = m.record
	}
	if reaches {
		w.setWitness(m.proc.name, v1beta2.Membership{
			VolumeUUID: m.uid, Epoch: m.epoch, RecordEpoch: m.epoch, Generation: m.record.generation, Members: members,
			Engine: m.proc.name, InstanceManager: m.proc.im,
		})
	}
	return true
}

// replaced ends an engine that learns of a newer one, from the witness or from a replica.
func (m *engineModel) replaced() bool {
	w := m.w
	newer := false
	if !w.down[m.proc.node] {
		granted, _ := w.witness(m.proc.name)
		newer = granted.Epoch > m.epoch
	}
	for _, r := range m.replicas {
		if p := w.replicaAt(r.Address, m.proc.node); p != nil && r.Mode != engineclient.ModeERR {
			newer = newer || w.disks[dirOf(p)].promised > m.epoch
		}
	}
	if newer {
		delete(w.engines, w.address(m.proc))
		m.proc.state, m.proc.err = v1beta2.InstanceStateError, "exit status 62: fenced"
	}
	return newer
}

// write carries out a write: it reaches the members, each as it is, and is acknowledged when all of
// them have it.
func (m *engineModel) write() {
	w := m.w
	for _, dir := range m.record.members {
		if m.memberAt(dir) == nil {
			return // a member is lost and the set without it is not agreed: the write waits
		}
	}
	if volumeOf(m.proc.name) != "v" {
		m.publish()
		return
	}
	w.nextWrite++
	for _, dir := range m.record.members {
		d := w.disks[dir]
		d.has.SetBit(&d.has, w.nextWrite, 1)
	}
	w.acknowledged.SetBit(&w.acknowledged, w.nextWrite, 1)
	m.publish()
}

// cutShort is a write under way when the engine is killed: one member has it, and nobody was told
// that it is done.
func (m *engineModel) cutShort() {
	for _, dir := range m.record.members {
		if m.memberAt(dir) != nil {
			m.w.nextWrite++
			d := m.w.disks[dir]
			d.has.SetBit(&d.has, m.w.nextWrite, 1)
			return
		}
	}
}

// memberAt returns the process of a directory that this engine uses as a member in sync, nil if it
// cannot be reached.
func (m *engineModel) memberAt(dir string) *proc {
	for _, r := range m.replicas {
		if r.Mode != engineclient.ModeRW || r.Member != dir {
			continue
		}
		p := m.w.replicaAt(r.Address, m.proc.node)
		if p != nil && dirOf(p) == dir && m.w.disks[dir].promised == m.epoch {
			return p
		}
	}
	return nil
}

// lose drops replicas that cannot be reached. The last one is kept: there is nothing to go on
// without it.
func (m *engineModel) lose() {
	if m.replaced() {
		return
	}
	for i, r := range m.replicas {
		p := m.w.replicaAt(r.Address, m.proc.node)
		if r.Mode != engineclient.ModeERR && (p == nil || r.Member != "" && dirOf(p) != r.Member) {
			m.replicas[i].Mode, m.replicas[i].Error = engineclient.ModeERR, "connection lost"
		}
	}
	var stay []string
	for _, dir := range m.record.members {
		if m.memberAt(dir) != nil {
			stay = append(stay, dir)
		}
	}
	if len(stay) > 0 && len(stay) < len(m.record.members) && m.commit(stay) {
		m.write()
	}
	m.publish()
}

// rebuilt ends every rebuild.
func (w *world) rebuilt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, address := range slices.Sorted(maps.Keys(w.engines)) {
		if m := w.engines[address]; m != nil && !w.down[m.proc.node] {
			m.finishRebuilds()
		}
	}
}

func (m *engineModel) finishRebuilds() {
	w := m.w
	if m.replaced() {
		return
	}
	for i, r := range m.replicas {
		p := w.replicaAt(r.Address, m.proc.node)
		if r.Mode != engineclient.ModeWO || p == nil || m.beginRebuild(p) != nil {
			continue
		}
		dir := dirOf(p)
		w.disks[dir].has.Set(&w.disks[m.source()].has)
		w.disks[dir].rebuilding = false
		w.disks[dir].part, w.disks[dir].whole = w.disks[m.source()].part, w.disks[m.source()].whole
		if m.commit(append(slices.Clone(m.record.members), dir)) {
			m.replicas[i].Mode, m.replicas[i].Member = engineclient.ModeRW, dir
		}
	}
	m.write()
}

// source is a member that can be copied from, empty if there is none.
func (m *engineModel) source() string {
	for _, dir := range m.record.members {
		if m.memberAt(dir) != nil {
			return dir
		}
	}
	return ""
}

// beginRebuild voids a directory before anything is copied to it.
func (m *engineModel) beginRebuild(p *proc) error {
	d := m.w.disks[dirOf(p)]
	switch {
	case m.source() == "":
		return fmt.Errorf("%w: no replica in sync to copy from", engineclient.ErrPrecondition)
	case slices.Contains(m.record.members, dirOf(p)):
		return fmt.Errorf("%w: the set without %s is not agreed", engineclient.ErrPrecondition, dirOf(p))
	case d.promised > m.epoch:
		return fmt.Errorf("%w: %s has promised a newer engine", engineclient.ErrPrecondition, dirOf(p))
	}
	*d = copyOf{holder: d.holder, node: d.node, promised: m.epoch, rebuilding: true, size: m.size, other: d.other}
	return nil
}

// detect lets every engine notice whom it lost.
func (w *world) detect() {
	for _, address := range slices.Sorted(maps.Keys(w.engines)) {
		if m := w.engines[address]; m != nil && m.proc.state == v1beta2.InstanceStateRunning {
			m.lose()
		}
	}
}

// bug is a rule of the protocol that the engines of a world break, to show that the world's checks
// notice.
type bug int

const (
	noBug bug = iota
	// startsWithAnyCopy: an engine takes whatever replicas it hears, whoever was dropped meanwhile.
	startsWithAnyCopy
)
