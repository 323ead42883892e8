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
	// Probing: the witness is silent; the replicas are asked whether this engine can take over
	// without it.
	Probing
	// Preparing: this engine is to follow one that still serves; the replicas are asked as in
	// Probing, and then it waits for Succeed.
	Preparing
	// Granting: swapping this engine's epoch into the witness.
	Granting
	// Gathering: replicas are being contacted with the epoch.
	Gathering
	// Waiting: an engine that may still answer reads must lose its lease first; nothing is proposed
	// yet.
	Waiting
	// Announcing: whom this engine follows is known, and its owner is told before anything is
	// proposed.
	Announcing
	// Committing: the first proposal of this epoch is under way; nothing is served yet.
	Committing
	// Serving: a committed set exists.
	Serving
	// Stopped: fenced, refused or out of replicas; Reason says which.
	Stopped
)

var phaseNames = [...]string{"asking", "probing", "preparing", "granting", "gathering", "waiting", "announcing",
	"committing", "serving", "stopped"}

// String names the phase.
func (p Phase) String() string { return phaseNames[p] }

// Config identifies the engine.
type Config struct {
	Engine          string
	InstanceManager string
	// Candidates is the number of replicas that will be contacted.
	Candidates int
	// Takeover allows a start without the witness; see takeover.go.
	Takeover bool
	// Successor: an engine that lives will leave the volume to this one; see Succeed. Nothing is asked
	// of the witness before.
	Successor bool
	// Announce: the owner wants to know whom this engine follows before the first proposal; see
	// Announced.
	Announce bool
	// Trust names members whose data a person wants to go on with if the start rule refuses, and so
	// accepts the loss of what only others have. Empty for none.
	Trust []string
	// InSync names members that hold the same where there is no record: the control plane of before
	// knew it. Empty for none.
	InSync []string
}

// Core is the protocol's state. Feed it events; take actions with Take.
type Core struct {
	cfg     Config
	phase   Phase
	reason  string
	actions []Action
	rounds  int // how often the replicas were to be asked

	epoch   uint64
	wanted  uint64        // epoch of the grant asked for last
	floor   uint64        // newest epoch that a replica is known to have promised to somebody else
	witness WitnessRecord // as last known
	before  WitnessRecord // as read before this engine's epoch
	void    bool
	swap    bool // a swap is outstanding
	asked   bool // a read is outstanding

	answers []Answer
	silent  int

	probes   []Probed
	takeover bool // the epoch was not granted by the witness

	witnessAt Time // when the witness was asked last that still named this engine

	committed Record
	live      []string // members still usable in this epoch, sorted
	decision  string   // why a person's decision was needed for the start
	replaced  []string // whom the base and what it replaced name, until the first commit
	voters    []string // of those being replaced, who can store the record all the same
	joiner    string
	prop      *proposal
	// superseded are proposals superseded since the last commit: somebody may hold one of them.
	superseded []proposal
}

// New returns a core that first asks the witness, or a successor's, which first asks the replicas.
func New(cfg Config) *Core {
	c := &Core{cfg: cfg}
	if cfg.Successor {
		c.phase = Preparing
		c.do(Action{Kind: Probe})
	} else {
		c.ask()
	}
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

// Holding reports whether acknowledgements must wait: a proposal that drops somebody is not
// committed yet.
func (c *Core) Holding() bool {
	return c.phase != Serving || (c.prop != nil && c.prop.joiner == "") || len(c.live) == 0
}

// Round counts the actions Contact and Probe. An answer, or that there is none, counts for the last
// of them: whoever has not carried it out yet reports neither.
func (c *Core) Round() int { return c.rounds }

func (c *Core) do(a Action) {
	if a.Kind == Contact || a.Kind == Probe {
		c.rounds++
	}
	c.actions = append(c.actions, a)
}

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
	switch {
	case c.phase == Serving && c.overtaken(w):
		c.stop(true, "engine %s of epoch %s has taken over from epoch %s", w.Engine, EpochText(w.Epoch), EpochText(c.epoch))
		return
	case c.phase != Asking:
		return
	}
	if own := w.Epoch == c.wanted && w.Engine == c.cfg.Engine; c.epoch != 0 && w.Epoch > c.epoch && !own {
		c.stop(true, "engine %s of epoch %s has taken over from epoch %s", w.Engine, EpochText(w.Epoch), EpochText(c.epoch))
		return
	}
	c.grant(w)
}

// grant swaps an epoch into the witness, which holds w: newer than any epoch granted or promised
// that is known.
func (c *Core) grant(w WitnessRecord) {
	if c.epoch == 0 {
		c.before = w
	}
	c.witness = w
	c.phase = Granting
	c.wanted = (granted(max(w.Epoch, c.epoch, c.floor)) + 1) * GrantStep
	c.swapTo(WitnessRecord{Epoch: c.wanted, Engine: c.cfg.Engine, InstanceManager: c.cfg.InstanceManager,
		Record: w.Record, Stored: w.Stored})
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
		} else if !c.swap && c.prop.onMembers() {
			c.proposeToWitness(c.prop.rec)
		}
		return
	}
	c.informWitness()
}

// informWitness brings a lagging witness up to the committed record; nothing waits for it.
func (c *Core) informWitness() {
	if c.phase == Serving && !c.swap && !c.witness.Record.Equal(c.committed) {
		c.proposeToWitness(c.committed)
	}
}

// proposeToWitness asks the witness to hold r. A witness that was set back while this engine serves
// learns its epoch anew.
func (c *Core) proposeToWitness(r Record) {
	if c.prop != nil && c.prop.rec.Equal(r) {
		c.prop.witnessSent = true
	}
	// Whom a record replaces is nothing to the witness: what it holds outbids them all.
	c.swapTo(WitnessRecord{Epoch: c.epoch, Engine: c.cfg.Engine, InstanceManager: c.cfg.InstanceManager, Stored: true,
		Record: Record{Epoch: r.Epoch, Generation: r.Generation, Members: r.Members}})
}

// overtaken reports that the witness has granted an epoch to another engine since.
func (c *Core) overtaken(w WitnessRecord) bool {
	return w.Epoch > c.epoch || (w.Epoch == c.epoch && w.Engine != c.cfg.Engine)
}

// askWhy reads the witness when the last replica is gone: perhaps a newer engine has taken them
// all.
func (c *Core) askWhy() {
	if c.phase == Serving && len(c.live) == 0 && !c.asked && !c.swap {
		c.asked = true
		c.do(Action{Kind: AskWitness})
	}
}

func (c *Core) swapRefused(current WitnessRecord) {
	if c.overtaken(current) && c.epoch != 0 {
		c.stop(true, "engine %s of epoch %s has taken over from epoch %s", current.Engine, EpochText(current.Epoch),
			EpochText(c.epoch))
		return
	}
	if c.phase == Granting {
		// Somebody else was granted an epoch in between. Whoever comes last wins, so ask for the
		// next one.
		c.grant(current)
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
	c.probe()
}

// WitnessRefused reports that the witness knows of an order for another engine process, made after
// the one for this process: whoever wanted this engine has given it up, and with it what its users
// asked of it. It may not take the volume from an engine that was ordered later.
func (c *Core) WitnessRefused(reason string) {
	c.asked, c.swap = false, false
	c.stop(true, "%s", reason)
}

// Retry repeats the question to the witness that is still open; the engine calls it at intervals of
// its choice.
func (c *Core) Retry() {
	if c.asked || c.swap {
		return
	}
	switch c.phase {
	case Asking, Granting:
		// The lost swap may have been carried out, so read again before the next one.
		c.ask()
	case Committing, Serving:
		c.askWhy()
		if !c.asked {
			c.noteWitness()
		}
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

// NoAnswer reports that one candidate cannot be reached or refused.
func (c *Core) NoAnswer() {
	switch c.phase {
	case Gathering:
		c.silent++
		c.tryStart(false)
	case Probing:
		c.silent++
		c.tryTakeover(false)
	case Preparing:
		c.silent++
	}
}

// Outbid reports that a replica has promised epoch, at least as new as this engine's, to another
// engine. Either a newer engine exists, then the witness knows it, or the witness has forgotten:
// its record is void and a higher epoch must be granted. Several replicas of one round may say so.
func (c *Core) Outbid(epoch uint64) {
	switch c.phase {
	case Asking, Granting:
		c.floor = max(c.floor, epoch)
	case Probing, Preparing:
	case Gathering:
		if c.takeover {
			c.floor = max(c.floor, epoch)
			c.abandon("a replica has promised epoch " + EpochText(epoch) + " meanwhile")
			return
		}
		c.void = true
		c.floor = max(c.floor, epoch)
		c.ask()
	default:
		c.stop(true, "a replica has promised epoch %s, this engine has %s", EpochText(epoch), EpochText(c.epoch))
	}
}

// GatherTimeout ends the wait for silent candidates.
func (c *Core) GatherTimeout() {
	switch c.phase {
	case Gathering:
		c.tryStart(true)
	case Probing:
		c.tryTakeover(true)
	case Preparing:
		c.silent = c.cfg.Candidates - len(c.probes)
	}
}

// tryStart applies the start rule once everybody has spoken, or time is up.
func (c *Core) tryStart(timeUp bool) {
	if !timeUp && len(c.answers)+c.silent < c.cfg.Candidates {
		return
	}
	if c.takeover {
		if why := complete(c.answers, c.cfg.Candidates); why != "" {
			c.abandon(why)
			return
		}
	}
	d := Decide(Known{Witness: c.before, Void: c.void || c.takeover, Answers: c.answers, InSync: c.cfg.InSync,
		Silent: c.cfg.Candidates - len(c.answers)})
	if d.Verdict == Refuse && len(c.cfg.Trust) > 0 {
		refused := d.Reason
		d = trust(d.Base, c.answers, c.cfg.Trust)
		c.decision = fmt.Sprintf("a person trusts %s; without that: %s", joined(c.cfg.Trust), refused)
	}
	if d.Verdict == Refuse {
		c.stop(false, "%s", d.Reason)
		return
	}
	c.committed = d.Base
	c.live = slices.Clone(d.Fresh)
	c.replaced = d.Replaces
	if c.takeover {
		c.voters = d.Replaces
	}
	if why := c.oldReader(d.Base); why != "" {
		// Before anything is proposed: a record shows whoever finds it that all engines before have
		// lost their leases.
		c.phase = Waiting
		c.reason = "an engine that was replaced may still answer reads until its lease ends; " + why
		c.do(Action{Kind: WaitLease, Reason: why})
		return
	}
	c.announce()
}

// announce tells the owner whom this engine follows: the proposer of the highest record. Every
// engine that acknowledged anything has a committed record of its own epoch, and the start rule
// finds the newest of these or a later one; so nobody has acknowledged anything since that proposer
// did, if it ever did. 0: that is not certain, since nothing was ever agreed, or a person has
// accepted the loss of what was acknowledged.
func (c *Core) announce() {
	if !c.cfg.Announce {
		c.firstProposal()
		return
	}
	follows := c.committed.Epoch
	if c.decision != "" {
		follows = 0
	}
	c.phase = Announcing
	c.do(Action{Kind: Announce, Epoch: follows})
}

// Announced lets the first proposal begin.
func (c *Core) Announced() {
	if c.phase == Announcing {
		c.firstProposal()
	}
}

func (c *Core) firstProposal() {
	c.reason = ""
	c.phase = Committing
	c.propose("")
}

// LeaseOver ends the wait asked for by WaitLease.
func (c *Core) LeaseOver() {
	if c.phase == Waiting {
		c.announce()
	}
}
