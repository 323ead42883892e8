package quorum

import (
	"fmt"
	"slices"
)

// A takeover starts an engine without the witness. The replicas themselves are asked what they have
// promised, and to whom; that promises nothing. If the newest promise was made to an engine under
// the same instance manager, and everybody who could know of a later set is there, the engine takes
// the number after that promise as its epoch, a sub-epoch, and contacts them with it.
//
// Nobody else can have the same one: all members must promise it, and each promises a number to one
// process. Nobody else can have started from later data: every member of the base is there, and had
// another engine been promised by one of them it would refuse. So the first record, which is on
// every member, needs no witness. The next engine that the witness grants an epoch outbids it like
// any other.

// Probed is what a replica answers to a question that promises nothing.
type Probed struct {
	Answer
	// Promised is the newest epoch it has promised; InstanceManager is where the engine runs that
	// it was promised to.
	Promised        uint64
	InstanceManager string
}

// probe begins a takeover when the witness is silent and this process has not asked it for an
// epoch: such a question may still be carried out.
func (c *Core) probe() {
	if !c.cfg.Takeover || c.wanted != 0 || c.phase != Asking {
		return
	}
	c.phase = Probing
	c.probes, c.silent = nil, 0
	c.do(Action{Kind: Probe})
}

// ProbeAnswered reports a replica's answer to Probe.
func (c *Core) ProbeAnswered(p Probed) {
	switch c.phase {
	case Probing:
		c.probes = append(c.probes, p)
		c.tryTakeover(false)
	case Preparing:
		c.probes = append(c.probes, p)
	}
}

// Prepared returns the members that have answered a successor, sorted, and whether all have who
// will.
func (c *Core) Prepared() (heard []string, all bool) {
	for _, p := range c.probes {
		heard = append(heard, p.Member)
	}
	slices.Sort(heard)
	return heard, c.phase != Preparing || len(c.probes)+c.silent >= c.cfg.Candidates
}

// Succeed lets a prepared successor begin: the engine before has left, and answers nothing any
// more. It is a start like any other from here on.
func (c *Core) Succeed() {
	if c.phase == Preparing {
		c.ask()
	}
}

// contactAs contacts the replicas with a sub-epoch.
func (c *Core) contactAs(epoch uint64) {
	c.epoch, c.takeover = epoch, true
	c.phase = Gathering
	c.answers, c.silent = nil, 0
	c.do(Action{Kind: Contact, Epoch: c.epoch})
}

// tryTakeover decides when everybody has spoken, or time is up.
func (c *Core) tryTakeover(timeUp bool) {
	if !timeUp && len(c.probes)+c.silent < c.cfg.Candidates {
		return
	}
	var answers []Answer
	newest := Probed{}
	for _, p := range c.probes {
		answers = append(answers, p.Answer)
		if p.Promised > newest.Promised {
			newest = p
		}
	}
	why := complete(answers, c.cfg.Candidates)
	switch {
	case why != "":
	case newest.InstanceManager != c.cfg.InstanceManager || c.cfg.InstanceManager == "":
		why = fmt.Sprintf("%s has promised epoch %s to an engine in instance manager %q; this one runs in %q",
			newest.Member, EpochText(newest.Promised), newest.InstanceManager, c.cfg.InstanceManager)
	case (newest.Promised+1)%GrantStep == 0:
		why = fmt.Sprintf("%d takeovers since the last grant are the most possible", GrantStep-1)
	}
	if why != "" {
		c.abandon(why)
		return
	}
	c.contactAs(newest.Promised + 1)
}

// complete says what is missing for a takeover, or nothing: all members of the highest record, and,
// unless it is known to be agreed, everybody whom it replaces, so that the record proposed is on
// everybody who could know of another one.
func complete(answers []Answer, candidates int) string {
	d := Decide(Known{Void: true, Answers: answers, Silent: candidates - len(answers)})
	switch d.Verdict {
	case Found:
		return "the replicas hold no record yet"
	case Refuse:
		return d.Reason
	}
	return ""
}

// abandon gives a takeover up and waits for the witness again.
func (c *Core) abandon(why string) {
	c.reason = "the witness does not answer, and without it: " + why
	// What was promised to this attempt must be outbid like anybody else's.
	c.floor = max(c.floor, c.epoch)
	c.epoch, c.takeover = 0, false
	c.phase = Asking
}
