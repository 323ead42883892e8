package quorum

import "slices"

// proposal is a record on its way to being committed.
type proposal struct {
	rec     Record
	durable []string
	// sent and witnessSent say who was told of the record, and so may hold it.
	sent        []string
	witnessSent bool
	// joiner is written last, after everybody else in the set has the record.
	joiner        string
	joinerWritten bool
	witnessed     bool
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
	if c.prop != nil && len(c.prop.sent) > 0 {
		c.superseded = append(c.superseded, *c.prop)
	}
	rec := Record{Epoch: c.epoch, Generation: gen + 1, Members: members, Replaces: without(c.competitors(), members),
		Accepted: c.phase == Committing && c.decision != ""}
	c.prop = &proposal{rec: rec, joiner: joiner}
	for _, m := range c.live {
		c.writeRecord(m)
	}
}

// competitors are all whom a record names that somebody may start from instead of the one being
// proposed.
func (c *Core) competitors() []string {
	all := union(c.committed.Members, c.replaced)
	for i := range c.superseded {
		all = union(all, c.superseded[i].rec.Members)
	}
	return all
}

// writeRecord sends the proposal to a member.
func (c *Core) writeRecord(member string) {
	c.prop.sent = append(c.prop.sent, member)
	c.do(Action{Kind: WriteRecord, Member: member, Record: c.prop.rec})
}

// RecordWritten reports that rec is durable on member.
func (c *Core) RecordWritten(member string, rec Record) {
	p := c.prop
	if c.phase == Stopped || p == nil || !p.rec.Equal(rec) || slices.Contains(p.durable, member) {
		return
	}
	p.durable = append(p.durable, member)
	c.tryCommit()
}

// tryCommit tells the witness, when all members have the record. So a witness without a record says
// that nothing was ever agreed, and a volume whose beginning was cut off can begin anew; and a
// member whose record is older than the witness' is not as that member was left; see outdated. It
// writes the voters and the joiner when everybody else is done, and commits when the rule
// holds.
func (c *Core) tryCommit() {
	p := c.prop
	if !p.onMembers() {
		return
	}
	for _, m := range c.voters {
		if slices.Contains(p.rec.Replaces, m) && !slices.Contains(p.sent, m) {
			c.writeRecord(m)
		}
	}
	if !p.witnessed && !c.agreedBy(p.durable) {
		if !c.swap {
			c.proposeToWitness(p.rec)
		}
		return
	}
	if p.joiner != "" && !slices.Contains(p.durable, p.joiner) {
		if !p.joinerWritten {
			p.joinerWritten = true
			c.writeRecord(p.joiner)
		}
		return
	}
	c.commit()
}

// onMembers reports whether all members but a joiner have the record.
func (p *proposal) onMembers() bool {
	return !slices.ContainsFunc(p.rec.Members, func(m string) bool {
		return m != p.joiner && !slices.Contains(p.durable, m)
	})
}

// Voters returns whom the proposal under way replaces and could be agreed by: a replaced member
// that has stored the record is not found any more by a start that does not hear of it. They are
// asked last, when all members have the record: until then such a member may be all that is left.
func (c *Core) Voters() []string {
	if !c.mayVote() || !c.Holding() || c.prop == nil || !c.prop.onMembers() {
		return nil
	}
	return without(c.prop.rec.Replaces, c.voters)
}

// mayVote reports whether voters can help: the first record of a granted epoch needs the witness
// whoever has it.
func (c *Core) mayVote() bool { return c.phase == Serving || (c.phase == Committing && c.takeover) }

// Reached reports that one of Voters has promised the epoch and has a record of its own, neither
// void nor incomplete.
func (c *Core) Reached(member string) {
	if slices.Contains(c.Voters(), member) {
		c.voters = append(c.voters, member)
		c.writeRecord(member)
	}
}

// agreedBy reports whether a proposal durable on members needs no witness: nobody who starts later,
// with the witness as it is, can find enough members of another record without hearing of this one.
//
// The first record of an epoch always needs the witness. Replicas that were not heard may hold
// proposals of earlier engines that nobody knows of; only the witness outbids those, whoever is
// heard next. A takeover has heard everybody, and all of them must have the record, those that it
// has lost since too: the witness may yet learn of a set that one of them could start.
func (c *Core) agreedBy(members []string) bool {
	if c.phase == Committing && (!c.takeover || len(without(c.competitors(), members)) > 0) {
		return false
	}
	if !outvotes(members, c.committed) {
		return false
	}
	for i := range c.superseded {
		if l := &c.superseded[i]; !outvotes(members, l.rec) && !l.overwritten(members) {
			return false
		}
	}
	return true
}

// outvotes reports whether members hold a majority of r, so that no start from r can miss them all.
func outvotes(members []string, r Record) bool {
	n := 0
	for _, m := range members {
		if r.Has(m) {
			n++
		}
	}
	return n >= majority(len(r.Members))
}

// overwritten reports whether everybody who was told of the proposal is among members, who hold a
// later one.
func (p *proposal) overwritten(members []string) bool {
	return !p.witnessSent && !slices.ContainsFunc(p.sent, func(m string) bool { return !slices.Contains(members, m) })
}

func (c *Core) commit() {
	p := c.prop
	c.committed = p.rec
	c.committed.Replaces, c.committed.Accepted = nil, false
	c.prop, c.superseded, c.replaced, c.voters = nil, nil, nil, nil
	// Nothing waits for this. It shows that a witness which knows nothing of it has forgotten, and
	// spares a start with such a witness from asking whoever was dropped.
	for _, m := range c.committed.Members {
		c.do(Action{Kind: WriteRecord, Member: m, Record: c.committed.agreed()})
	}
	if p.joiner != "" {
		c.live = slices.Clone(p.rec.Members)
		c.joiner = ""
	}
	members := slices.Clone(c.live)
	if c.phase == Committing {
		c.phase = Serving
		c.do(Action{Kind: BeginServing, Record: c.committed, Members: members, Reason: c.decision})
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
	c.voters = without(c.voters, []string{member})
	i := slices.Index(c.live, member)
	if i < 0 {
		if c.prop != nil && c.prop.joiner == member {
			c.supersede()
		}
		return
	}
	c.live = slices.Delete(c.live, i, i+1)
	if len(c.live) == 0 {
		// Nobody is left to agree on anything: a joiner that still gets the record must not bring
		// the failed members back.
		c.prop, c.joiner = nil, ""
		c.reason = "no replica left"
		c.askWhy()
		if c.phase == Committing {
			c.stop(false, "the last replica failed before the volume could start")
		}
		return
	}
	c.supersede()
}

// supersede replaces the proposal under way by one for the present live set. A joiner that was part
// of it is proposed again afterwards.
func (c *Core) supersede() {
	if c.prop != nil && c.prop.joiner != "" && c.joiner == c.prop.joiner {
		c.joiner = c.prop.joiner
	}
	c.propose("")
}

// Join proposes a rebuilt replica as a member. It is a member once Committed names it.
func (c *Core) Join(member string) {
	if c.phase != Serving || len(c.live) == 0 || slices.Contains(c.live, member) {
		return
	}
	c.joiner = member
	if c.prop == nil {
		c.propose(member)
	}
}

// Live returns the members in use, sorted.
func (c *Core) Live() []string { return slices.Clone(c.live) }
