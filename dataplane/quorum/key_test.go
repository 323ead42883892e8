package quorum

import (
	"slices"
	"strings"
)

// key tells worlds apart that can go on differently.
type key struct{ b []byte }

func (k *key) num(n ...int) {
	for _, n := range n {
		k.b = append(k.b, byte(n), byte(n>>8))
	}
}

func (k *key) flags(f ...bool) {
	for _, f := range f {
		k.num(map[bool]int{false: 0, true: 1}[f])
	}
}

func (k *key) rec(r Record) {
	k.num(int(r.Epoch), int(r.Generation), int(set(r.Members)), int(set(r.Replaces)))
	k.flags(r.Agreed)
}

func (k *key) witness(w WitnessRecord) {
	k.num(int(w.Epoch))
	k.b = append(k.b, w.Engine...)
	k.rec(w.Record)
	k.flags(w.Stored)
}

func (w *world) key() []byte {
	k := &key{}
	k.witness(w.witness)
	k.num(int(w.now), w.limits.reads, w.limits.ticks)
	for _, d := range w.disks {
		k.num(int(d.promised), d.to, d.session, int(d.has))
		k.rec(d.rec)
		k.flags(d.rebuilding, d.setBack())
	}
	k.num(w.writes, w.limits.engines, w.limits.writes, w.limits.joins, w.limits.faults, w.limits.votes)
	for _, e := range w.engines {
		k.flags(e.alive, e.began)
		k.num(int(e.core.epoch), int(e.acked), e.follows)
		for _, l := range e.links {
			k.num(int(l.state), len(l.queue), int(l.confirmed))
			for _, m := range l.queue {
				k.num(m.write, int(m.sent))
				k.rec(m.rec)
			}
		}
		if e.alive {
			k.engine(e)
		}
	}
	return k.b
}

func (k *key) engine(e *engine) {
	c := e.core
	if e.question != nil {
		k.num(int(e.question.Kind))
		k.witness(e.question.Expected)
		k.witness(e.question.Next)
	}
	r := &e.read
	k.num(r.at, int(r.arrived), int(r.needs), int(r.has), e.im, int(e.asked), int(e.promised), int(e.until),
		int(c.witnessAt))
	k.flags(r.done, e.retry, c.void, c.swap, c.asked)
	k.num(int(e.rw), int(e.wo), e.write, int(e.pending), int(e.ok), int(c.phase), int(c.wanted), int(c.floor), c.silent)
	k.witness(c.witness)
	k.witness(c.before)
	k.rec(c.committed)
	k.num(int(set(c.replaced)), int(set(c.voters)))
	k.num(int(set(c.live)), len(c.superseded))
	k.b = append(k.b, c.joiner...)
	for _, l := range c.superseded {
		k.proposal(&l)
	}
	// The order of answers makes no difference.
	answers := slices.Clone(c.answers)
	slices.SortFunc(answers, func(a, b Answer) int { return strings.Compare(a.Member, b.Member) })
	for _, p := range c.probes {
		answers = append(answers, p.Answer)
		k.num(int(p.Promised))
	}
	k.flags(c.takeover)
	for _, a := range answers {
		k.b = append(k.b, a.Member...)
		k.rec(a.Record)
		k.flags(a.Rebuilding, a.Blank, a.Empty, a.Closed)
	}
	if c.prop != nil {
		k.proposal(c.prop)
	}
}

func (k *key) proposal(p *proposal) {
	k.rec(p.rec)
	k.num(int(set(p.durable)), int(set(p.sent)))
	k.b = append(k.b, p.joiner...)
	k.flags(p.witnessSent, p.joinerWritten, p.witnessed)
}

func (w *world) clone() *world {
	c := *w
	c.disks = slices.Clone(w.disks)
	c.engines = make([]*engine, len(w.engines))
	for k, e := range w.engines {
		x := *e
		x.core = e.core.clone()
		x.links = slices.Clone(e.links)
		for i := range x.links {
			x.links[i].queue = slices.Clone(x.links[i].queue)
		}
		c.engines[k] = &x
	}
	return &c
}

// clone copies a core. Slices that are only ever replaced are shared.
func (c *Core) clone() *Core {
	x := *c
	x.actions = nil
	x.answers, x.probes = slices.Clone(c.answers), slices.Clone(c.probes)
	x.live, x.voters = slices.Clone(c.live), slices.Clone(c.voters)
	x.superseded = slices.Clone(c.superseded)
	if c.prop != nil {
		p := *c.prop
		p.durable, p.sent = slices.Clone(p.durable), slices.Clone(p.sent)
		x.prop = &p
	}
	return &x
}
