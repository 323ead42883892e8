package engine

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// Mode of a replica in this engine.
type Mode uint8

// Modes.
const (
	// Unknown: not yet decided; the replica is being contacted.
	Unknown Mode = iota
	WO
	RW
	ERR
)

// String is the mode as clients know it.
func (m Mode) String() string { return [...]string{"", "WO", "RW", "ERR"}[m] }

// links are those to the replicas of the volume.
type links struct {
	e *Engine
	// all has them by their index; places in the middle are nil where a link was forgotten.
	all    []*link
	byName map[string]*link
	// last is the index of the replica that was read from last.
	last int
	// looked is when it was looked for requests that take too long.
	looked clock.Ticks
}

// due is when one of them has been silent for too long, or is asked for a sign of life.
func (k *links) due() clock.Ticks {
	w := k.overdueWake()
	for _, l := range k.all {
		w = clock.Min(w, clock.Min(l.deadline(), l.pingDue()))
	}
	return w
}

// step drops who was silent for too long, owes an answer for too long, or has lost files.
func (k *links) step() {
	for _, l := range k.all {
		if l != nil && l.deadline() <= k.e.now {
			l.fail("no answer within " + k.timeout().String())
		}
		if k.e.now >= l.pingDue() {
			l.ping()
		}
	}
	if k.overdueDue() <= k.e.now {
		k.dropOverdue()
	}
	k.dropLost()
}

func (k *links) flush() {
	for _, l := range k.all {
		if l != nil {
			l.flush()
		}
	}
}

// link is the engine's side of one replica.
type link struct {
	session
	index      int
	mode       Mode
	member     string
	err        string
	helloReply wire.HelloReply // the answer to the hello
	load       int             // requests in flight
	// working and long count control messages in flight by isSlow and isLong.
	working, long int
	// confirmedAt is when the last request was sent that it has answered in this session; pinging:
	// one was sent for that alone.
	confirmedAt   clock.Ticks
	pinging       bool
	helloAt       clock.Ticks
	probing       bool // ask what it has promised, no more
	removed       bool // see forgetRemoved
	again         bool // connect again once closed
	voting        bool // reached only to store the record that replaces it: see vote.go
	joining       *rebuildJob
	rebuild       *Rebuild // progress of the last rebuild
	purge         *Purge   // progress of the last purge
	sectorRepairs int      // ranges that its disk could not read and that were written again
	local         bool     // on this engine's node
	lost          string   // which of its files have lost their names; see lost.go
}

// add takes a place that freePlace has found.
func (k *links) add(addr string) *link {
	e := k.e
	l := &link{session: session{e: e, addr: addr}, index: k.freePlace(nil), local: isAt(addr, e.cfg.LocalHost)}
	l.peer = l
	for l.index >= len(k.all) {
		k.all = append(k.all, nil)
	}
	k.all[l.index] = l
	return l
}

// isAt says whether an address, host:port, is at a host, in whatever way either is written.
func isAt(addr, host string) bool {
	i := strings.LastIndexByte(addr, ':')
	if i < 0 || host == "" {
		return false
	}
	at := strings.TrimSuffix(strings.TrimPrefix(addr[:i], "["), "]")
	a, errA := netip.ParseAddr(at)
	b, errB := netip.ParseAddr(host)
	return at == host || errA == nil && errB == nil && a == b
}

// freePlace is the place for another link, that of gone counting as free, -1 if all are taken.
// Tasks know links by their places: one that was asked of a link which is gone leaves its place
// free until it has ended, so that nobody is taken for who was there.
func (k *links) freePlace(gone *link) int {
	taken := uint32(0)
	for _, t := range k.e.tasks.all {
		if t.used {
			taken |= t.asked | t.tried
		}
	}
	for i := range maxLinks {
		if taken&(1<<i) == 0 && (i >= len(k.all) || k.all[i] == nil || k.all[i] == gone) {
			return i
		}
	}
	return -1
}

func (l *link) bit() uint32 { return 1 << l.index }

// of is the first of the links in mask.
func (k *links) of(mask uint32) *link { return k.all[bits.TrailingZeros32(mask)] }

// tag implements sessionPeer.
func (l *link) tag(what uint64) uint64 {
	return loop.Tag(ownerLink, l.run<<16|uint64(l.index)<<8|what)
}

// lane implements sessionPeer.
func (l *link) lane() int { return l.index }

// contact begins a session with the replica.
func (l *link) contact() {
	if l.phase != sessionIdle && l.phase != sessionClosed {
		// Contacted again with a higher epoch: the old connection ends first.
		l.again = true
		l.hangUp()
		return
	}
	l.confirmedAt, l.pinging = 0, false
	l.connect()
}

func (k *links) done(d *loop.Done) {
	v := loop.ValueOf(d.Tag)
	var l *link
	if index := int(v >> 8 & 0xff); index < len(k.all) {
		l = k.all[index]
	}
	now := l != nil && v>>16 == l.run&(1<<40-1)
	switch {
	case d.Kind == loop.Call && now:
		k.e.windowMade(&l.session, d.Value.(windowMade))
	case d.Kind == loop.Call:
		k.e.windowMade(nil, d.Value.(windowMade))
	case now:
		l.completed(d, v&0xff)
	}
}

// broken implements sessionPeer.
func (l *link) broken(err error) { l.fail(err.Error()) }

// fail drops the replica: mode ERR, connection closed, membership told. Requests it still has are
// ended when the connection is down.
func (l *link) fail(reason string) {
	if l.e.passing.released() || l.e.fatal != "" {
		// Hanging up is not a failure of the replica: the set of members stays as it is.
		l.hangUp()
		return
	}
	if l.again || (l.mode == ERR && (l.phase == sessionClosing || l.phase == sessionClosed)) {
		return // it is being closed already, perhaps to be contacted again
	}
	gathering, member := l.awaited(), l.member
	if l.mode != ERR {
		l.err = reason
		l.mode = ERR
		l.e.event("replica-dropped", l.addr, reason)
	}
	l.hangUp()
	if p := l.purge; p != nil && p.Running && !p.asked {
		p.end("error", reason)
	}
	if j := l.joining; j != nil {
		l.joining = nil
		j.abort(reason)
	}
	if gathering {
		l.e.quorum.NoAnswer()
	} else if l.e.links.byName[member] == l { // another link may be the member's, and this one have its name only
		l.e.quorum.Failed(member)
	}
	l.e.rebuilds.sourceLost(l)
	if l.e.links.count(RW) == 0 {
		l.e.members.dropClosed() // nothing will be agreed any more: whoever waits for it finds nobody
	}
	if l.e.serving && l.e.links.count(RW) == 0 && l.e.lost.since == clock.Never {
		l.e.lost.since = l.e.now
		l.e.event("no-replica-left", "", fmt.Sprintf("requests wait up to %s", l.e.lost.due().Sub(l.e.now)))
	}
}

// awaited reports whether the start waits for the replica to answer. Between the decision to ask
// everybody, with a higher epoch perhaps, and the asking it does not: whoever fails there is asked
// all the same.
func (l *link) awaited() bool {
	q := l.e.quorum
	if l.mode != Unknown || l.e.gathering.round != q.Round() {
		return false
	}
	switch q.Phase() {
	case quorum.Gathering:
		return l.phase != sessionReady
	case quorum.Probing, quorum.Preparing:
		return l.phase != sessionProbed
	}
	return false
}

// hangUp closes the connection.
func (l *link) hangUp() {
	l.close()
	l.e.changed = true
}

// down implements sessionPeer: what the replica owes has failed.
func (l *link) down() {
	l.e.tasks.failOwed(l)
	l.load = 0
	if l.again {
		l.again = false
		l.mode = Unknown
		l.contact()
	}
}

func (k *links) forget(l *link) {
	if k.byName[l.member] == l {
		delete(k.byName, l.member)
	}
	k.all[l.index] = nil
	// Slots in the middle keep their place, since indices are in tags.
	for n := len(k.all); n > 0 && k.all[n-1] == nil; n-- {
		k.all = k.all[:n-1]
	}
	k.e.changed = true
}

// deadline is when the link must have made progress.
func (l *link) deadline() clock.Ticks {
	if l == nil {
		return clock.Never
	}
	timeout := l.e.links.timeout()
	switch {
	case l.negotiating():
		return l.handshakeDue(timeout)
	case l.phase != sessionReady || l.load == 0:
		return clock.Never
	}
	return l.heard.Add(timeout)
}

// place implements sessionPeer.
func (l *link) place(h *wire.Header) loop.Seg {
	if t := l.e.tasks.of(h.ID, l); t != nil && h.Type == t.kind && t.reads() {
		return t.seg
	}
	return loop.Seg{}
}

// answered implements sessionPeer.
func (l *link) answered(h *wire.Header, p []byte) error {
	if h.Type == wire.Notice {
		return l.noticed(p)
	}
	l.e.tasks.answered(l, h, p)
	return nil
}

// greeted implements sessionPeer.
func (l *link) greeted(g *wire.GreetingMessage) error {
	if g.Member == "" {
		return fmt.Errorf("%w: greeting of a member without a name", wire.ErrFrame)
	}
	if o := l.e.links.other(g.Member, l); o != nil && l.joining == nil {
		return fmt.Errorf("replica %s is served at %s already", g.Member, o.addr)
	}
	l.member = g.Member // said, not proved: it is nobody's name for others yet
	l.sayHello()
	return nil
}

// initiate implements sessionPeer.
func (l *link) initiate(m *wire.InitiationMessage) (*wire.Handshake, []byte) {
	return wire.Initiate(m, l.e.cfg.Secret, l.e.digester)
}

// sayHello asks for the promise of this engine's epoch, or only for what the replica has promised.
func (l *link) sayHello() {
	c := &l.e.cfg
	l.lost = ""
	l.helloAt = l.e.now
	l.hello(&wire.HelloMessage{Notices: true, VolumeName: c.VolumeName, VolumeUUID: c.VolumeUUID, Engine: l.e.identity,
		InstanceManager: c.InstanceManager, Epoch: l.e.quorum.Epoch(), Prepared: l.probing, Build: c.Build,
		Member: l.member})
}

// probeAnswered handles the answer to a hello that promises nothing.
func (l *link) probeAnswered(r *wire.HelloReply) {
	l.phase = sessionProbed
	_, im, _ := cutLast(r.PromisedTo, "@")
	l.e.quorum.ProbeAnswered(quorum.Probed{Answer: l.answer(r), Promised: r.Promised, InstanceManager: im})
}

// cutLast cuts s at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (l *link) answer(r *wire.HelloReply) quorum.Answer {
	a := quorum.Answer{Member: l.member, Blank: r.Blank, Empty: r.Empty, Closed: r.Closed, Counter: r.Counter,
		Rebuilding: r.Rebuilding}
	if r.Record != nil && r.Record.VolumeUUID == l.e.cfg.VolumeUUID {
		a.Record = recordFrom(r.Record)
	}
	return a
}

// other returns the link other than l that a member is reached by, nil if there is none. Only
// who has proved to know the secret is one.
func (k *links) other(member string, l *link) *link {
	if o := k.byName[member]; o != nil && o != l && o.phase != sessionClosed && o.mode != ERR {
		return o
	}
	return nil
}

// allowed checks that the answer to the hello is one to a hello of the present epoch, and lets the
// replica in. That it knows the secret, the answer's tag has shown: whoever listens at an address
// that a replica had could otherwise drive the epoch up, or have the witness taken for void.
func (l *link) allowed(h *wire.Header, r *wire.HelloReply) error {
	switch {
	case h.Epoch != l.e.quorum.Epoch():
		return fmt.Errorf("the answer is to a hello of epoch %d, and the engine's is %d now", h.Epoch, l.e.quorum.Epoch())
	case h.Code == block.Fenced && l.e.quorum.Phase() != quorum.Serving:
		l.e.quorum.Outbid(r.Promised)
		return fmt.Errorf("replica has promised epoch %d", r.Promised)
	case h.Code != block.OK:
		return fmt.Errorf("refused: %s: %s", h.Code, r.Error)
	}
	return nil
}

// welcomed implements sessionPeer: the replica has promised the epoch and told its record.
func (l *link) welcomed(h *wire.Header, r *wire.HelloReply) error {
	if err := l.allowed(h, r); err != nil {
		return err
	}
	if o := l.e.links.other(l.member, l); o != nil && l.probing {
		return fmt.Errorf("replica %s is served at %s already", l.member, o.addr)
	} else if o != nil {
		// Only one process can have the directory: the other one is gone, and nothing was sent to
		// it since that would have told.
		o.fail(fmt.Sprintf("its directory is served at %s now", l.addr))
		return fmt.Errorf("replica %s was served at %s until now: try again", l.member, o.addr)
	}
	l.e.links.byName[l.member] = l
	if l.probing {
		l.probeAnswered(r)
		return nil
	}
	l.helloReply = *r
	l.phase = sessionReady
	l.confirmed(l.helloAt)
	l.e.changed = true
	l.offerWindow()
	if l.joining != nil {
		l.joining.ready()
		return nil
	}
	if l.voting {
		l.vote()
		return nil
	}
	l.e.gathering.promised = l.e.now
	l.e.quorum.Answered(l.answer(r))
	return nil
}

// count returns how many links have mode m.
func (k *links) count(m Mode) int {
	n := 0
	for _, l := range k.all {
		if l != nil && l.mode == m {
			n++
		}
	}
	return n
}

// mask returns the links of mode m that take requests.
func (k *links) mask(m Mode) uint32 {
	var mask uint32
	for _, l := range k.all {
		if l != nil && l.mode == m && l.phase == sessionReady {
			mask |= l.bit()
		}
	}
	return mask
}
