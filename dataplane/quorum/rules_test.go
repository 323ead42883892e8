package quorum

import (
	"strings"
	"testing"
)

// The histories in testdata are texts that -update rewrites. What must hold in all of them,
// whatever their text says, is checked here.

// broken notes a rule that a history breaks.
func (h *history) broken(rule string) { h.wrong = append(h.wrong, rule) }

// proposed checks a record that is on its way: one number is one set. A start compares records by
// their numbers only.
func (h *history) proposed(r Record) {
	if !r.Valid() {
		return
	}
	key, members := [2]uint64{r.Epoch, r.Generation}, strings.Join(r.Members, " ")
	if h.sets == nil {
		h.sets = map[[2]uint64]string{}
	}
	if have, ok := h.sets[key]; ok && have != members {
		h.broken("P2, one number is one set: " + EpochText(r.Epoch) + " is of {" + have + "} and of {" + members + "}: " +
			r.String())
	}
	h.sets[key] = members
}

// begins checks an engine that begins to serve: no other one may answer a read any more that misses
// what this one acknowledges. One that ran in the same instance manager is dead.
func (h *history) begins(p *player) {
	for _, name := range sortedKeys(h.engines) {
		o := h.engines[name]
		if o == p || o.im == p.im || o.core.Phase() != Serving || o.core.Holding() || o.core.Epoch() > p.core.Epoch() {
			continue
		}
		if o.core.LeaseEnd(term, func(m string) Time { return o.confirmed[m] }) <= h.now {
			continue
		}
		for _, m := range o.core.Live() {
			if h.nodes[m].to == o.name {
				h.broken("P3, a lease is waited for: " + p.name + " begins to serve while " + name + " may read from " + m)
			}
		}
	}
}

// playLines carries out commands and returns the history.
func playLines(t *testing.T, lines string) *history {
	t.Helper()
	h := newHistory()
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, err := h.do(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	for _, w := range h.wrong {
		t.Error(w)
	}
	return h
}

// TestSupersededProposalIsOutvoted: a joiner may hold a record that its engine has given up. Until
// the witness, or a majority of that record too, has the next one, nothing is acknowledged. (P2)
func TestSupersededProposalIsOutvoted(t *testing.T) {
	h := playLines(t, `
		replicas a d
		start e1 a
		e1 rebuilds d
		e1 joins d
		e1 writes a
		e1 writes d lost
		e1 writes a`)
	if c := h.engines["e1"].core; !c.Holding() {
		t.Errorf("P2: e1 acknowledges what d misses, with %v, while d may be started alone from the record it has", c.Live())
	}
	h = playLines(t, `
		replicas a d
		start e1 a
		e1 rebuilds d
		e1 joins d
		e1 writes a
		e1 writes d lost
		e1 writes a
		e1 swaps`)
	if h.engines["e1"].core.Holding() {
		t.Error("the witness has the record, and still everything is held")
	}
}

// TestLeaseIsWaitedFor: a replica that the successor has not heard may still serve reads of the
// engine before, whoever was granted an epoch in between. (P3)
func TestLeaseIsWaitedFor(t *testing.T) {
	first := `
		replicas a b c
		start e1 a b c im=x`
	takeover := func(e string) string {
		return strings.NewReplacer("E", e).Replace(`
		engine E candidates=3 im=y
		E reads
		E swaps`)
	}
	hears := func(e string) string {
		return strings.NewReplacer("E", e).Replace(`
		E hears a b
		E misses c`)
	}
	for e, lines := range map[string]string{
		"e2": first + takeover("e2") + hears("e2"),
		"e3": first + takeover("e2") + takeover("e3") + hears("e3"),
	} {
		if p := playLines(t, lines).engines[e].core.Phase(); p != Waiting {
			t.Errorf("P3: %s is %s while e1 may read from c, want waiting", e, p)
		}
	}
}

// TestNewSetHasANewNumber: a set without somebody is newer than the one with it. (P2)
func TestNewSetHasANewNumber(t *testing.T) {
	h := playLines(t, `
		replicas a b c
		start e1 a b c im=x
		e1 loses a`)
	before := h.nodes["b"].rec
	for _, m := range []string{"b", "c"} {
		w := h.engines["e1"].writes[m]
		if len(w) == 0 {
			t.Fatalf("nothing is on its way to %s", m)
		}
		if r := w[len(w)-1]; r.Compare(before) <= 0 {
			t.Errorf("P2: the set without a is %s, want one newer than %s", r, before)
		}
	}
}

// TestTakeoverLeavesNobodyBehind: a member that a takeover loses may be all that a late word to the
// witness names. Nothing is served before it has stored the record too. (P2)
func TestTakeoverLeavesNobodyBehind(t *testing.T) {
	const history = `
		replicas a b c
		start e1 a b c im=x
		e1 loses a
		e1 loses b
		e1 early
		e1 delayed
		engine e2 candidates=3 im=x
		e2 silent
		e2 probes a b c
		e2 hears a b c
		e2 loses c
		e2 writes a b
		e2 writes a b`
	if c := playLines(t, history).engines["e2"].core; c.Phase() != Committing {
		t.Errorf("P2: e2 is %s while c can go on alone with what the witness may learn, want committing", c.Phase())
	}
	if c := playLines(t, history+`
		e2 reaches c
		e2 writes c`).engines["e2"].core; c.Phase() != Serving {
		t.Errorf("e2 is %s although c has the record, want serving", c.Phase())
	}
}
