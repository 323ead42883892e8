package quorum

import (
	"fmt"
	"slices"
	"strings"
)

// world is a small volume with everything that can happen to it: replicas with durable memory,
// engines driven by real cores, messages under way, one witness. It is copied at each step, so that
// every continuation can be tried.
//
// Data is a set of numbered writes per replica. A write is acknowledged as package engine does it:
// when every replica in use has it, and, if one failed, when the set without it is committed.
type world struct {
	witness WitnessRecord
	now     Time
	disks   []disk
	engines []*engine
	writes  int // given out so far
	limits  limits
	err     error
}

// limits bound a search.
type limits struct {
	engines, writes, joins, faults int
	// votes: how often a replaced member is asked to store the record that replaces it.
	votes int
	// reads and ticks: reads begun, and how often time passes. A lease is leaseTicks long.
	reads, ticks int
	// lost: the search begins when the second of two replicas was lost.
	lost bool
	// only these faults, if there are any.
	only []string
	// hits, if set, are the replicas that faults hit: 1 is the first.
	hits int
	// takeover lets engines start without the witness.
	takeover bool
	// places: engines may be started where the last one ran.
	places bool
}

type disk struct {
	promised   uint64
	to         int // the engine promised to
	session    int // the engine connected, -1 for none
	rec        Record
	rebuilding bool
	has        uint16
	// was is the directory's state when the first engine began, if somebody has kept a copy of it.
	was *disk
}

type linkState uint8

const (
	closed linkState = iota
	probing
	contacting
	open
	broken // the engine has not noticed yet
)

type message struct {
	write int // -1: rec, -2: a read, -3: a ping
	rec   Record
	sent  Time
}

const (
	aRecord = -1 - iota
	aRead
	aPing
)

type link struct {
	state     linkState
	queue     []message
	confirmed Time
}

type engine struct {
	core     *Core
	alive    bool
	question *Action
	retry    bool
	links    []link
	began    bool
	rw, wo   uint16
	write    int // under way, -1 for none
	pending  uint16
	ok       uint16
	acked    uint16
	read     read
	im       int
	asked    Time // when the witness was
	promised Time // when a replica last did
	until    Time // the end of the wait for another's lease, 0 for none
	follows  int  // the epoch it has announced to follow, -1 before
}

// event is one thing that may happen next.
type event struct {
	engine int
	what   string
	at     int // replica, -1 for none
	do     func(w *world)
}

// String tells the event as a line of a history.
func (e event) String() string {
	if e.at < 0 {
		return fmt.Sprintf("e%d %s", e.engine, e.what)
	}
	return fmt.Sprintf("e%d %s", e.engine, strings.ReplaceAll(e.what, "*", replicaName(e.at)))
}

func newWorld(replicas int, l limits) *world {
	w := &world{limits: l, now: 1}
	for range replicas {
		w.disks = append(w.disks, disk{to: -1, session: -1})
	}
	w.start(0)
	for !w.engines[0].began {
		usual, _ := w.events()
		usual[0].do(w) // the undisturbed beginning
	}
	for i := range w.disks {
		was := w.disks[i]
		was.session = -1
		w.disks[i].was = &was
	}
	if l.lost {
		w.loseSecond()
	}
	return w
}

func replicaName(i int) string { return string(rune('a' + i)) }

func replicaIndex(name string) int { return int(name[0] - 'a') }

// start starts an engine in an instance manager, which ends the one it runs already.
func (w *world) start(im int) {
	for _, o := range w.engines {
		if o.im == im {
			o.alive, o.question = false, nil
		}
	}
	e := &engine{alive: true, write: -1, links: make([]link, len(w.disks)), im: im, read: read{at: -1}, follows: -1}
	e.core = New(Config{Engine: fmt.Sprintf("e%d", len(w.engines)), InstanceManager: fmt.Sprintf("im%d", im),
		Candidates: len(w.disks), Takeover: w.limits.takeover, Announce: true})
	w.engines = append(w.engines, e)
	w.act(len(w.engines) - 1)
}

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// act carries out what an engine's core wants.
func (w *world) act(k int) {
	e := w.engines[k]
	for actions := e.core.Take(); len(actions) > 0; actions = e.core.Take() {
		for i := range actions {
			w.one(k, &actions[i])
		}
	}
	w.settleWrite(k)
	w.settleRead(k)
}

func (w *world) one(k int, a *Action) {
	e := w.engines[k]
	switch a.Kind {
	case AskWitness, SwapWitness:
		e.question, e.asked = a, w.now
	case WaitLease:
		e.until = e.promised + Time(SuccessorWait(leaseTicks))
	case Announce:
		e.follows = int(a.Epoch)
		w.checkFollows()
		e.core.Announced()
	case Probe:
		for i := range e.links {
			w.hangUp(k, i)
			e.links[i] = link{state: probing}
		}
	case Contact:
		for i := range e.links {
			w.hangUp(k, i)
			e.links[i] = link{state: contacting}
		}
	case WriteRecord:
		i := replicaIndex(a.Member)
		if a.Record.Agreed {
			// Nothing waits for it, and it matters only to a start with a void witness, which is
			// told in scenarios.
			if d := &w.disks[i]; d.session == k && len(e.links[i].queue) == 0 {
				d.rec = a.Record
			}
			return
		}
		switch e.links[i].state {
		case open:
			e.links[i].queue = append(e.links[i].queue, message{write: aRecord, rec: a.Record, sent: w.now})
		case broken: // it will be noticed
		default:
			e.core.Failed(a.Member)
		}
	case BeginServing:
		e.began = true
		e.rw = set(a.Members)
		for _, m := range a.Members {
			// What a later engine has acknowledged this one need not have: it may serve stale reads
			// until its lease ends (docs/design/quorum.md), but cannot acknowledge anything.
			if missing := w.ackedBefore(e.core.Epoch()) &^ w.disks[replicaIndex(m)].has; missing != 0 {
				w.fail("e%d starts from %s, which misses acknowledged writes %b", k, m, missing)
			}
		}
	case Committed:
		e.rw = set(a.Members)
		e.wo &^= e.rw
		for i := range e.links {
			if (e.rw|e.wo)&(1<<i) == 0 && e.links[i].state == open {
				w.hangUp(k, i) // it has voted
			}
		}
	case Stop:
		e.alive = false
	}
}

func set(members []string) uint16 {
	var m uint16
	for _, name := range members {
		m |= 1 << replicaIndex(name)
	}
	return m
}

func (w *world) hangUp(k, i int) {
	if w.disks[i].session == k {
		w.disks[i].session = -1
	}
	w.engines[k].links[i] = link{}
	if r := &w.engines[k].read; r.at == i && !r.done {
		*r = read{at: -1}
	}
}

// lost: the engine notices that a replica is gone.
func (w *world) lost(k, i int) {
	e := w.engines[k]
	w.hangUp(k, i)
	bit := uint16(1) << i
	e.pending &^= bit
	e.rw &^= bit
	e.wo &^= bit
	e.core.Failed(replicaName(i))
}

// Events that a random history treats apart.
const (
	started        = "is started"
	startedInPlace = "is started in its predecessor's place"
	reaches        = "reaches *"
	doesNotReach   = "does not reach *"
	reachesOneWay  = "reaches * but not back"
	servedUntold   = "is served by * but not told"
	witnessSilent  = "loses its question to the witness"
	answerLost     = "loses the witness's answer"
	witnessAnswers = "is answered by the witness"
	isCutOff       = "is cut off from *"
	dies           = "dies"
	isSetBack      = "comes to * in an older state"
)

// events lists everything that can happen next, and what can go wrong.
func (w *world) events() (usual, faults []event) {
	for k := range w.engines {
		u, f := w.engineEvents(k)
		usual, faults = append(usual, u...), append(faults, f...)
	}
	if w.limits.ticks > 0 {
		usual = append(usual, event{0, "time passes", -1, func(w *world) { w.limits.ticks--; w.now++ }})
	}
	if n := len(w.engines); n < w.limits.engines {
		if last := w.engines[n-1]; w.limits.places && last.alive {
			usual = append(usual, event{n, startedInPlace, -1, func(w *world) { w.start(w.engines[n-1].im) }})
		}
		usual = append(usual, event{n, started, -1, func(w *world) { w.start(n) }})
	}
	return usual, faults
}

func (w *world) engineEvents(k int) (ok, faults []event) {
	at := -1
	add := func(what string, do func(w *world, e *engine)) {
		ok = append(ok, event{k, what, at, func(w *world) { do(w, w.engines[k]); w.act(k) }})
	}
	fault := func(what string, do func(w *world, e *engine)) {
		faults = append(faults, event{k, what, at, func(w *world) {
			w.limits.faults--
			do(w, w.engines[k])
			w.act(k)
		}})
	}
	e := w.engines[k]
	for at = range e.links {
		w.linkEvents(k, at, add, fault)
	}
	at = -1
	if !e.alive {
		return ok, faults
	}
	if e.question != nil {
		add(witnessAnswers, func(w *world, e *engine) { w.answer(e, false) })
		fault(answerLost, func(w *world, e *engine) { w.answer(e, true) })
		fault(witnessSilent, func(w *world, e *engine) {
			e.question, e.retry = nil, true
			e.core.WitnessUnavailable()
		})
	}
	if e.retry {
		add("asks the witness again", func(w *world, e *engine) { e.retry = false; e.core.Retry() })
	}
	w.readEvents(e, add)
	if e.until != 0 && w.now >= e.until {
		add("has waited long enough", func(w *world, e *engine) { e.until = 0; e.core.LeaseOver() })
	}
	if e.began && e.write < 0 && e.rw != 0 && w.writes < w.limits.writes {
		add("writes", func(w *world, e *engine) { w.begin(e) })
	}
	for i := range w.disks {
		if at = i; w.atRest(i) {
			fault(isSetBack, func(w *world, _ *engine) { w.setBack(i) })
		}
	}
	at = -1
	fault(dies, func(w *world, e *engine) { e.alive, e.question = false, nil })
	return ok, faults
}

type adder func(what string, do func(w *world, e *engine))

func (w *world) linkEvents(k, i int, add, fault adder) {
	e, d := w.engines[k], &w.disks[i]
	mine := d.session == k
	if e.links[i].state == open && e.alive && e.began && e.read.at < 0 && w.limits.reads > 0 && e.rw&(1<<i) != 0 {
		add("reads from *", func(w *world, e *engine) { w.beginRead(k, i) })
	}
	cut := func(w *world, e *engine) { w.hangUp(k, i); e.links[i].state = broken }
	switch state := e.links[i].state; {
	case state == probing && e.alive:
		add(reaches, func(w *world, e *engine) { w.tell(k, i) })
		fault(doesNotReach, func(w *world, e *engine) { e.links[i].state = closed; e.core.NoAnswer() })
	case state == contacting && e.alive:
		add(reaches, func(w *world, e *engine) { w.reach(k, i, false) })
		fault(doesNotReach, func(w *world, e *engine) { e.links[i].state = closed; e.core.NoAnswer() })
		fault(reachesOneWay, func(w *world, e *engine) { w.reach(k, i, true) })
	case state == open && mine && len(e.links[i].queue) > 0:
		add("is served by *", func(w *world, e *engine) { w.deliver(k, i, false) })
		fault(servedUntold, func(w *world, e *engine) { w.deliver(k, i, true) })
		fault(isCutOff, cut)
	case state == open && mine && e.alive:
		fault(isCutOff, cut)
		if d.rebuilding && e.wo&(1<<i) != 0 {
			add("has copied everything to *", func(w *world, e *engine) { w.rebuilt(k, i) })
		}
	case (state == open || state == broken) && e.alive:
		add("notices that * is gone", func(w *world, e *engine) { w.lost(k, i) })
	case state == closed && e.alive && w.limits.votes > 0 && d.promised <= e.core.Epoch() && d.rec.Valid() &&
		!d.rebuilding &&
		slices.Contains(e.core.Voters(), replicaName(i)):
		add("has the record stored by *, which it replaces", func(w *world, e *engine) { w.vote(k, i) })
	case state == closed && e.alive && e.began && w.limits.joins > 0 && e.wo == 0 && e.write < 0 && e.rw != 0 &&
		!e.core.Holding() && d.promised <= e.core.Epoch():
		add("begins to rebuild *", func(w *world, e *engine) { w.rebuild(k, i) })
	}
}

func (w *world) answer(e *engine, lost bool) {
	q := e.question
	e.question = nil
	if !lost {
		defer func() { e.core.WitnessConfirmed(e.asked, w.witness) }()
	}
	ok := q.Kind == SwapWitness && w.witness.Epoch == q.Expected.Epoch && w.witness.Record.Equal(q.Expected.Record)
	if ok {
		w.witness = q.Next
	}
	switch {
	case lost:
		e.retry = true
		e.core.WitnessUnavailable()
	case q.Kind == AskWitness:
		e.core.WitnessRead(w.witness)
	default:
		e.core.WitnessSwapped(ok, w.witness)
	}
}

// promise is the replica's side of a handshake.
func (w *world) promise(k, i int) bool {
	d, epoch := &w.disks[i], w.engines[k].core.Epoch()
	if epoch < d.promised || (epoch == d.promised && d.to != k) {
		return false
	}
	d.promised, d.to, d.session = epoch, k, k
	return true
}

func (w *world) reach(k, i int, lost bool) {
	e, d := w.engines[k], &w.disks[i]
	promised := w.promise(k, i)
	switch {
	case lost:
		w.hangUp(k, i)
		e.core.NoAnswer()
	case !promised:
		e.links[i].state = closed
		e.core.Outbid(d.promised)
	default:
		e.links[i].state, e.links[i].confirmed = open, w.now
		e.promised = w.now
		if a := w.answerOf(i); w.witness.outdated(&a) && !d.setBack() {
			w.fail("%s is taken for an older state of itself: it has %s, the witness %s", a.Member, d.rec, w.witness.Record)
		}
		e.core.Answered(w.answerOf(i))
	}
}

func (w *world) answerOf(i int) Answer {
	d := &w.disks[i]
	return Answer{Member: replicaName(i), Record: d.rec, Rebuilding: d.rebuilding, Blank: !d.rec.Valid() && d.has == 0,
		Empty: d.has == 0}
}

// deliver lets the replica carry out the next message. A dead engine's messages may still be on
// their way.
func (w *world) deliver(k, i int, lost bool) {
	e, d := w.engines[k], &w.disks[i]
	q := &e.links[i].queue
	m := (*q)[0]
	*q = slices.Clone((*q)[1:])
	switch {
	case m.write == aRecord:
		d.rec = m.rec
	case m.write >= 0:
		d.has |= 1 << m.write
	}
	if !lost {
		e.links[i].confirmed = max(e.links[i].confirmed, m.sent)
	}
	switch {
	case lost:
		w.hangUp(k, i)
		e.links[i].state = broken
	case !e.alive:
	case m.write == aRecord:
		e.core.RecordWritten(replicaName(i), m.rec)
	case m.write == aRead:
		e.read.done, e.read.has = true, d.has
	case m.write == aPing:
	default:
		e.pending &^= 1 << i
		e.ok |= 1 << i
	}
}
