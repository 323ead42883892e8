package quorum

import (
	"fmt"
	"slices"
)

// Phase is where an engine's membership stands.
type Phase uint8

// Phases.
const (
	// Asking: reading the witness.
	Asking Phase = iota
	// Granting: swapping this engine's epoch into the witness.
	Granting
	// Gathering: replicas are being contacted with the epoch.
	Gathering
	// Committing: the first proposal of this epoch is under way; nothing is served yet.
	Committing
	// Serving: a committed set exists.
	Serving
	// Stopped: fenced, refused or out of replicas; Reason says which.
	Stopped
)

var phaseNames = [...]string{"asking", "granting", "gathering", "committing", "serving", "stopped"}

// String names the phase.
func (p Phase) String() string { return phaseNames[p] }

// ActionKind is what the engine must do.
type ActionKind uint8

// Actions.
const (
	// AskWitness: read the witness; answer with WitnessRead or WitnessUnavailable.
	AskWitness ActionKind = iota + 1
	// SwapWitness: compare-and-swap Expected to Next; answer with WitnessSwapped or WitnessUnavailable.
	SwapWitness
	// Contact: connect to every candidate with Epoch (again, if it was raised); answer each with Answered or Silent.
	Contact
	// WriteRecord: make Record durable on Member; answer with RecordWritten, or Failed.
	WriteRecord
	// BeginServing: Members serve from now on.
	BeginServing
	// Committed: the set Members is committed; held acknowledgements of writes that only the dropped ones missed may go.
	Committed
	// Stop: Reason says why; the engine must not acknowledge anything any more.
	Stop
)

// Action is one thing to do.
type Action struct {
	Kind     ActionKind
	Epoch    uint64
	Expected WitnessRecord
	Next     WitnessRecord
	Member   string
	Record   Record
	Members  []string
	Reason   string
	// Fenced: the reason is a newer engine.
	Fenced bool
}

// Config identifies the engine.
type Config struct {
	Engine          string
	InstanceManager string
	// Candidates is the number of replicas that will be contacted.
	Candidates int
}

// Core is the protocol's state. Feed it events; take actions with Take.
type Core struct {
	cfg     Config
	phase   Phase
	reason  string
	actions []Action

	epoch   uint64
	witness WitnessRecord // as last known
	before  WitnessRecord // as read before this engine's epoch
	void    bool
	swap    bool // a swap is outstanding
	asked   bool // a read is outstanding

	answers []Answer
	silent  int

	committed Record
	live      []string // members still usable in this epoch, sorted
	joiner    string
	prop      *proposal
}

// proposal is a record on its way to being committed.
type proposal struct {
	rec     Record
	durable []string
	// joiner is written last, after everybody else in the set has the record.
	joiner        string
	joinerWritten bool
	witnessed     bool
}

// New returns a core that first asks the witness.
func New(cfg Config) *Core {
	c := &Core{cfg: cfg}
	c.ask()
	return c
}

// Take returns the actions since the last call.
func (c *Core) Take() []Action {
	a := c.actions
	c.actions = nil
	return a
}

// Phase returns the present phase.
func (c *Core) Phase() Phase { return c.phase }

// Epoch returns the epoch granted to this engine, 0 before that.
func (c *Core) Epoch() uint64 { return c.epoch }

// Record returns the last committed record.
func (c *Core) Record() Record { return c.committed }

// Reason explains Stopped, or why a start is still waiting.
func (c *Core) Reason() string { return c.reason }

// Holding reports whether acknowledgements must wait: a proposal that drops somebody is not committed yet.
func (c *Core) Holding() bool {
	return c.phase != Serving || (c.prop != nil && c.prop.joiner == "") || len(c.live) == 0
}

func (c *Core) do(a Action) { c.actions = append(c.actions, a) }

func (c *Core) stop(fenced bool, format string, args ...any) {
	if c.phase == Stopped {
		return
	}
	c.phase = Stopped
	c.reason = fmt.Sprintf(format, args...)
	c.do(Action{Kind: Stop, Reason: c.reason, Fenced: fenced})
}

func (c *Core) ask() {
	c.phase = Asking
	c.asked = true
	c.do(Action{Kind: AskWitness})
}

// WitnessRead reports what the witness holds; the zero record when it holds nothing.
func (c *Core) WitnessRead(w WitnessRecord) {
	c.asked = false
	if c.phase != Asking {
		return
	}
	if c.epoch != 0 && w.Epoch > c.epoch {
		c.stop(true, "engine %s of epoch %d has taken over from epoch %d", w.Engine, w.Epoch, c.epoch)
		return
	}
	if c.epoch == 0 {
		c.before = w
	}
	c.witness = w
	c.grant(w.Epoch + 1)
}

// grant swaps the epoch into the witness.
func (c *Core) grant(epoch uint64) {
	c.phase = Granting
	c.swapTo(WitnessRecord{Epoch: epoch, Engine: c.cfg.Engine, InstanceManager: c.cfg.InstanceManager, Record: c.witness.Record})
}

func (c *Core) swapTo(next WitnessRecord) {
	c.swap = true
	c.do(Action{Kind: SwapWitness, Expected: c.witness, Next: next})
}

// WitnessSwapped reports the outcome of a swap and the record now held.
func (c *Core) WitnessSwapped(ok bool, current WitnessRecord) {
	c.swap = false
	c.witness = current
	if c.phase == Stopped {
		return
	}
	if !ok {
		c.swapRefused(current)
		return
	}
	switch c.phase {
	case Granting:
		c.epoch = current.Epoch
		c.phase = Gathering
		c.answers, c.silent = nil, 0
		c.do(Action{Kind: Contact, Epoch: c.epoch})
	case Committing, Serving:
		c.noteWitness()
	}
}

// noteWitness uses the witness for the proposal under way, or asks it to catch up.
func (c *Core) noteWitness() {
	if c.prop != nil {
		if c.witness.Record.Equal(c.prop.rec) {
			c.prop.witnessed = true
			c.tryCommit()
		} else if !c.swap {
			c.proposeToWitness(c.prop.rec)
		}
		return
	}
	c.informWitness()
}

// informWitness brings a lagging witness up to the committed record; nothing waits for it.
func (c *Core) informWitness() {
	if c.phase == Serving && !c.swap && !c.witness.Record.Equal(c.committed) && c.witness.Epoch == c.epoch {
		c.proposeToWitness(c.committed)
	}
}

func (c *Core) proposeToWitness(r Record) {
	next := c.witness
	next.Record = r
	c.swapTo(next)
}

func (c *Core) swapRefused(current WitnessRecord) {
	if current.Epoch > c.epoch && c.epoch != 0 {
		c.stop(true, "engine %s of epoch %d has taken over from epoch %d", current.Engine, current.Epoch, c.epoch)
		return
	}
	if c.phase == Granting {
		// Somebody else was granted an epoch in between. Whoever comes last wins, so ask for the next one.
		c.before = current
		c.grant(current.Epoch + 1)
		return
	}
	c.noteWitness()
}

// WitnessUnavailable reports that a read or swap got no answer. Retry repeats what is still wanted.
func (c *Core) WitnessUnavailable() {
	c.asked, c.swap = false, false
	if c.phase == Asking || c.phase == Granting {
		c.reason = "the witness does not answer: is a manager running?"
	}
}

// Retry repeats the question to the witness that is still open; the engine calls it at intervals of its choice.
func (c *Core) Retry() {
	if c.asked || c.swap {
		return
	}
	switch c.phase {
	case Asking, Granting:
		// The lost swap may have been carried out, so read again before the next one.
		c.ask()
	case Committing, Serving:
		c.noteWitness()
	}
}

// Answered reports a replica that has promised the epoch.
func (c *Core) Answered(a Answer) {
	if c.phase != Gathering {
		return
	}
	c.answers = append(c.answers, a)
	c.tryStart(false)
}

// Silent reports that one candidate cannot be reached or refused.
func (c *Core) Silent() {
	if c.phase != Gathering {
		return
	}
	c.silent++
	c.tryStart(false)
}

// Outbid reports that a replica has promised epoch, at least as new as this engine's. Either a newer engine exists,
// then the witness knows it, or the witness has forgotten: its record is void and a higher epoch must be granted.
func (c *Core) Outbid(epoch uint64) {
	if c.phase != Gathering {
		c.stop(true, "a replica has promised epoch %d, this engine has %d", epoch, c.epoch)
		return
	}
	c.void = true
	if epoch > c.witness.Epoch {
		c.witness.Epoch = c.epoch
		c.grant(epoch + 1)
	} else {
		c.ask()
	}
}

// GatherTimeout ends the wait for silent candidates.
func (c *Core) GatherTimeout() {
	if c.phase == Gathering {
		c.tryStart(true)
	}
}

// tryStart applies the start rule once everybody has spoken, or time is up.
func (c *Core) tryStart(timeUp bool) {
	if !timeUp && len(c.answers)+c.silent < c.cfg.Candidates {
		return
	}
	d := Decide(c.before, c.void, c.answers)
	if d.Verdict == Refuse {
		c.stop(false, "%s", d.Reason)
		return
	}
	c.committed = d.Base
	c.live = slices.Clone(d.Fresh)
	c.phase = Committing
	c.propose("")
}

// propose starts a proposal for the live set, plus a joiner.
func (c *Core) propose(joiner string) {
	if len(c.live) == 0 {
		return
	}
	members := slices.Clone(c.live)
	if joiner != "" {
		members = append(members, joiner)
		slices.Sort(members)
	}
	gen := c.committed.Generation
	if c.prop != nil {
		gen = c.prop.rec.Generation
	}
	c.prop = &proposal{rec: Record{Epoch: c.epoch, Generation: gen + 1, Members: members}, joiner: joiner}
	for _, m := range c.live {
		c.do(Action{Kind: WriteRecord, Member: m, Record: c.prop.rec})
	}
	if !c.swap && !c.majorityReachable() {
		c.proposeToWitness(c.prop.rec)
	}
}

// majorityReachable reports whether the live members of the old set are a majority of it, so that no witness is needed.
func (c *Core) majorityReachable() bool {
	if !c.committed.Valid() {
		return true
	}
	n := 0
	for _, m := range c.live {
		if c.committed.Has(m) {
			n++
		}
	}
	return n >= majority(len(c.committed.Members))
}

// RecordWritten reports that rec is durable on member.
func (c *Core) RecordWritten(member string, rec Record) {
	p := c.prop
	if p == nil || !p.rec.Equal(rec) || slices.Contains(p.durable, member) {
		return
	}
	p.durable = append(p.durable, member)
	c.tryCommit()
}

// tryCommit writes the joiner when everybody else is done, and commits when the rule holds.
func (c *Core) tryCommit() {
	p := c.prop
	for _, m := range p.rec.Members {
		if m != p.joiner && !slices.Contains(p.durable, m) {
			return
		}
	}
	if !p.witnessed && !c.oldMajority() {
		if !c.swap {
			c.proposeToWitness(p.rec)
		}
		return
	}
	if p.joiner != "" && !slices.Contains(p.durable, p.joiner) {
		if !p.joinerWritten {
			p.joinerWritten = true
			c.do(Action{Kind: WriteRecord, Member: p.joiner, Record: p.rec})
		}
		return
	}
	c.commit()
}

// oldMajority reports whether the proposal is durable on a majority of the committed set.
func (c *Core) oldMajority() bool {
	if !c.committed.Valid() {
		return true
	}
	n := 0
	for _, m := range c.prop.durable {
		if c.committed.Has(m) {
			n++
		}
	}
	return n >= majority(len(c.committed.Members))
}

func (c *Core) commit() {
	p := c.prop
	c.committed = p.rec
	c.prop = nil
	if p.joiner != "" {
		c.live = slices.Clone(p.rec.Members)
		c.joiner = ""
	}
	members := slices.Clone(c.live)
	if c.phase == Committing {
		c.phase = Serving
		c.do(Action{Kind: BeginServing, Record: c.committed, Members: members})
	} else {
		c.do(Action{Kind: Committed, Record: c.committed, Members: members})
	}
	c.informWitness()
	if c.joiner != "" {
		c.propose(c.joiner)
	}
}

// Failed reports that a member (or joiner) can no longer be used. The rest go on without it.
func (c *Core) Failed(member string) {
	if c.phase != Committing && c.phase != Serving {
		return
	}
	if member == c.joiner {
		c.joiner = ""
	}
	i := slices.Index(c.live, member)
	if i < 0 {
		if c.prop != nil && c.prop.joiner == member {
			c.supersede()
		}
		return
	}
	c.live = slices.Delete(c.live, i, i+1)
	if len(c.live) == 0 {
		c.reason = "no replica left"
		if c.phase == Committing {
			c.stop(false, "the last replica failed before the volume could start")
		}
		return
	}
	c.supersede()
}

// supersede replaces the proposal under way by one for the present live set. A joiner that was part of it is proposed
// again afterwards.
func (c *Core) supersede() {
	if c.prop != nil && c.prop.joiner != "" && c.joiner == c.prop.joiner {
		c.joiner = c.prop.joiner
	}
	c.propose("")
}

// Join proposes a rebuilt replica as a member. It is a member once Committed names it.
func (c *Core) Join(member string) {
	if c.phase != Serving || slices.Contains(c.live, member) {
		return
	}
	c.joiner = member
	if c.prop == nil {
		c.propose(member)
	}
}

// Live returns the members in use, sorted.
func (c *Core) Live() []string { return slices.Clone(c.live) }
