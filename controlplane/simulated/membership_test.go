package simulated_test

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/replica"
)

// The membership protocol of docs/design/quorum.md without its messages. An engine is granted an
// epoch by the witness, begins with the highest record that it hears, needs half of that record's
// members, drops whom it loses, and admits others only by copying everything.

// memberSet is a record: a set of members that an engine has made durable.
type memberSet struct {
	epoch, generation int64
	members           []string
}

func (r memberSet) newerThan(o memberSet) bool {
	return r.epoch > o.epoch || r.epoch == o.epoch && r.generation > o.generation
}

// newest is the record of a volume's members that the witness has; nil before its first start.
func (w *world) newest(volume string) (m *v1beta2.Membership) {
	for _, e := range all[*v1beta2.Engine](w) {
		have := e.Status.Membership
		if e.Spec.VolumeName == volume && have != nil && len(have.Members) > 0 && (m == nil || have.Epoch > m.Epoch) {
			m = have
		}
	}
	return m
}

// holds says whether a directory has everything that was acknowledged to the user of its volume.
func (w *world) holds(d *data) bool {
	return d != nil && !d.rebuilding && d.version > 0 && d.version == w.acknowledged[d.volumeUID]
}

// witness is the object that has the record, and the record; nil if it cannot be reached, or is of
// another volume.
func (s *serving) witness() (*v1beta2.Engine, *v1beta2.Membership) {
	e := get[*v1beta2.Engine](s.w, s.p.name)
	if e == nil || !s.p.pod.host.reachable() || replica.VolumeUID(e) != s.p.volumeUID {
		return nil, nil
	}
	if e.Status.Membership == nil {
		return e, &v1beta2.Membership{VolumeUUID: s.p.volumeUID}
	}
	return e, e.Status.Membership.DeepCopy()
}

// record writes into the witness what the engine is and whom it has.
func (s *serving) record(e *v1beta2.Engine, m *v1beta2.Membership) {
	m.Epoch, m.RecordEpoch, m.Generation, m.Members = s.epoch, s.has.epoch, s.has.generation, s.has.members
	m.Engine, m.InstanceManager = s.p.name, s.p.pod.name
	e.Status.Membership = m
	s.w.write(e)
}

// commit makes a set durable on its members and in the witness. It needs the witness, or a majority
// of the set before. It returns false if the engine has to wait, or was replaced and has ended.
func (s *serving) commit(members []string) bool {
	slices.Sort(members)
	if s.replaced() {
		return false
	}
	kept := 0
	for _, dir := range members {
		if slices.Contains(s.has.members, dir) {
			kept++
		}
	}
	e, m := s.witness()
	if e == nil && 2*kept <= len(s.has.members) {
		return false
	}
	s.has = memberSet{s.epoch, s.has.generation + 1, members}
	for _, dir := range members {
		s.w.copies[dir].record = s.has
	}
	if e != nil {
		s.record(e, m)
	}
	return true
}

// tellWitness brings the witness up to date after a set that was agreed without it.
func (s *serving) tellWitness() {
	if e, m := s.witness(); e != nil && m.Epoch == s.epoch &&
		s.has.newerThan(memberSet{m.RecordEpoch, m.Generation, nil}) {
		s.record(e, m)
	}
}

// replaced ends an engine that learns of a newer one, from the witness or from a replica.
func (s *serving) replaced() bool {
	_, m := s.witness()
	newer := m != nil && m.Epoch > s.epoch
	for _, r := range s.replicas {
		newer = newer || r.silent.IsZero() && r.mode != engineclient.ModeERR && r.dir != "" &&
			s.w.copies[r.dir].promised > s.epoch
	}
	if newer && s.p.alive() {
		s.w.end(s.p, "exit status 62: fenced")
	}
	return newer
}

// acknowledge carries out a write: it reaches the members, each as it is, and is acknowledged when
// all of them have it. While one does not answer, it waits.
func (s *serving) acknowledge() {
	if !s.contact || s.ended || len(s.has.members) == 0 {
		return
	}
	for _, dir := range s.has.members {
		if !slices.ContainsFunc(s.replicas, func(r *mirror) bool {
			return r.dir == dir && r.mode == engineclient.ModeRW && r.silent.IsZero() && s.w.copies[dir].promised == s.epoch
		}) {
			return
		}
	}
	s.w.acknowledged[s.p.volumeUID]++
	for _, dir := range s.has.members {
		s.w.copies[dir].version = s.w.acknowledged[s.p.volumeUID]
	}
}

// begin judges which replicas are up to date; false as long as it waits for one.
func (s *serving) begin() bool {
	waited := time.Since(s.begun)
	e, m := s.witness()
	heard := map[string]*mirror{}
	for _, r := range s.replicas {
		if r.silent.IsZero() && r.dir != "" {
			heard[r.dir] = r
		}
	}
	if m == nil || len(heard) < len(s.replicas) && waited < replicaTimeout {
		return false
	}
	base, void := memberSet{m.RecordEpoch, m.Generation, m.Members}, false
	s.epoch = m.Epoch
	for _, dir := range sortedNames(heard) {
		d := s.w.copies[dir]
		void = void || d.promised > m.Epoch // the witness has forgotten what it granted
		s.epoch = max(s.epoch, d.promised)
		if d.record.newerThan(base) {
			base = d.record
		}
	}
	s.epoch++
	s.has = base
	s.record(e, m)
	if s.w.endGranted > 0 {
		s.w.endGranted--
		s.w.end(s.p, "signal: killed")
		return false
	}
	for dir := range heard {
		s.w.copies[dir].promised = s.epoch
	}
	fresh, ok := s.judge(base, void, heard)
	if !ok {
		fresh, ok = s.trusted(heard)
	}
	if !ok {
		s.w.end(s.p, fmt.Sprintf("exit status 61: record %v needs more of its members", base))
		return false
	}
	s.w.startsWith(s, fresh)
	s.contact = true
	for _, r := range s.replicas {
		r.mode, r.problem = engineclient.ModeERR, "stale"
		if slices.Contains(fresh, r.dir) && heard[r.dir] == r {
			r.mode, r.problem = engineclient.ModeRW, ""
		}
	}
	for _, dir := range fresh[1:] { // what was not acknowledged may differ: the comparison after a crash
		s.w.copies[dir].version = s.w.copies[fresh[0]].version
	}
	s.agreeOnSize(fresh)
	s.findClone(fresh)
	if !s.commit(fresh) {
		s.w.failf("the witness refuses the engine to which it has just granted an epoch")
	}
	s.acknowledge()
	s.w.noticedOf(s.p) // whoever was replaced learns of it
	s.w.oneWriter(s.volume, false)
	return true
}

// judge is the start rule: which of those heard the engine may start with.
func (s *serving) judge(base memberSet, void bool, heard map[string]*mirror) (fresh []string, ok bool) {
	dirs := sortedNames(heard)
	if s.w.bug == startsWithAnyCopy {
		return dirs, len(dirs) > 0
	}
	if len(base.members) == 0 {
		for _, dir := range dirs {
			if d := s.w.copies[dir]; d.rebuilding || d.version > 0 {
				return nil, false
			}
		}
		return dirs, len(dirs) > 0 && len(dirs) == len(s.replicas) // all blank: they found the volume
	}
	for _, dir := range dirs {
		d := s.w.copies[dir]
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

// trusted is what an engine that cannot start otherwise goes on with: the copy that a person has
// named, if it answers. What only others have was acknowledged to nobody from then on.
func (s *serving) trusted(heard map[string]*mirror) (fresh []string, ok bool) {
	dir := argument(s.p.args, "--accept-data-loss")
	if dir == "" || heard[dir] == nil || s.w.copies[dir].version == 0 {
		return nil, false
	}
	s.w.acknowledged[s.p.volumeUID] = s.w.copies[dir].version
	return []string{dir}, true
}

// agreeOnSize is what an engine does about sizes when it starts: it fails if all replicas have less
// than the volume is known to have had, and finishes an expansion that some of them have.
func (s *serving) agreeOnSize(members []string) {
	known, err := strconv.ParseInt(argument(s.p.args, "--current-size"), 10, 64)
	must(s.w, err)
	s.size = 0
	for _, dir := range members {
		s.size = max(s.size, s.w.copies[dir].size)
	}
	if s.size < known {
		s.w.failf("engine %s is told that the volume has %d bytes, its replicas have %d", s.p.uuid, known, s.size)
	}
	for _, dir := range members {
		s.w.copies[dir].size = s.size
	}
}

// startsWith fails when an engine starts with a copy that lacks acknowledged writes (P2).
func (w *world) startsWith(s *serving, fresh []string) {
	for _, dir := range fresh {
		if w.acknowledged[s.p.volumeUID] > 0 && !w.holds(w.copies[dir]) {
			w.failf("P2: engine %s (%s) starts with %s as if up to date, which lacks acknowledged writes", s.p.name, s.p.uuid,
				dir)
		}
	}
}

// bug is a rule of the protocol that the engines of a world break, to show that the checks notice.
type bug int

const (
	noBug bug = iota
	// startsWithAnyCopy: an engine takes whatever replicas it hears, whoever was dropped meanwhile.
	startsWithAnyCopy
)
