package quorum

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// history is the world around cores: a witness and replicas that keep what was made durable on
// them, and engines whose questions and messages are answered, lost or delayed one by one.
// Scenarios tell it what happens next.
type history struct {
	witness WitnessRecord
	saved   WitnessRecord
	nodes   map[string]*node
	engines map[string]*player
	copies  map[string]node // directories copied aside
	now     Time
	out     []string
	// sets are the members of each record's number; wrong, the rules that were broken.
	sets  map[[2]uint64]string
	wrong []string
}

// term is the lease in scenarios.
const term = 10 * time.Second

// node is a replica's durable memory.
type node struct {
	name     string
	promised uint64
	to       string // the engine promised to
	rec      Record
	blank    bool
	// empty: nobody can have written to it, since no engine has served from it.
	empty      bool
	closed     bool
	counter    int64
	rebuilding bool
}

// player is an engine and what it has asked for.
type player struct {
	name     string
	core     *Core
	question *Action // to the witness
	delayed  *Action // a swap that is still on its way although the engine has given it up
	writes   map[string][]Record
	status   string
	fenced   bool
	im       string
	// confirmed is when the last question was sent that each replica has answered; asked, when the
	// witness was.
	confirmed map[string]Time
	asked     Time
	promised  Time // when a replica last answered
}

func newHistory() *history {
	return &history{now: 1, nodes: map[string]*node{}, engines: map[string]*player{}, copies: map[string]node{}}
}

func (h *history) say(format string, args ...any) {
	h.out = append(h.out, fmt.Sprintf(format, args...))
}

// do carries out one line and returns what came of it.
func (h *history) do(line string) (string, error) {
	h.out = nil
	f := strings.Fields(line)
	var err error
	switch f[0] {
	case "replicas":
		err = h.addReplicas(f[1:])
	case "engine":
		err = h.addEngine(f[1:])
	case "start":
		err = h.start(f[1], f[2:])
	case "witness":
		err = h.setWitness(f[1:])
	case "time":
		d, e := time.ParseDuration(f[1])
		h.now, err = h.now+Time(d), e
	case "copy":
		h.copies[f[1]] = *h.nodes[f[1]]
	case "back":
		*h.nodes[f[1]] = h.copies[f[1]]
	case "show":
		h.show()
	default:
		p := h.engines[f[0]]
		if p == nil || len(f) < 2 {
			return "", fmt.Errorf("what is %q?", line)
		}
		err = h.step(p, f[1], f[2:])
		h.settle(p)
	}
	return strings.Join(h.out, "\n"), err
}

func (h *history) addReplicas(names []string) error {
	for _, name := range names {
		name, kind, _ := strings.Cut(name, "=")
		kind, count, _ := strings.Cut(kind, ":")
		counter, _ := strconv.ParseInt(count, 10, 64)
		h.nodes[name] = &node{name: name, blank: kind == "" || kind == "blank", empty: kind == "" || kind == "blank",
			closed: kind == "closed", counter: counter}
	}
	return nil
}

func (h *history) addEngine(f []string) error {
	p := &player{name: f[0], writes: map[string][]Record{}, im: "x", confirmed: map[string]Time{}}
	n := 0
	var trust, inSync []string
	takeover, successor, announce := true, false, false
	for _, a := range f[1:] {
		k, v, _ := strings.Cut(a, "=")
		switch k {
		case "candidates":
			n, _ = strconv.Atoi(v)
		case "im":
			p.im = v
		case "takeover":
			takeover = v != "no"
		case "successor":
			successor = true
		case "announce":
			announce = true
		case "trust":
			trust = strings.Split(v, ",")
		case "in-sync":
			inSync = strings.Split(v, ",")
		default:
			return fmt.Errorf("what is %q?", a)
		}
	}
	p.core = New(Config{Engine: p.name, InstanceManager: p.im, Candidates: n, Trust: trust, InSync: inSync,
		Takeover: takeover, Successor: successor, Announce: announce})
	h.engines[p.name] = p
	h.settle(p)
	return nil
}

// start lets an engine start from replicas that all answer, without telling the steps; founding.txt
// has them.
func (h *history) start(name string, members []string) error {
	im := "im=x"
	if n := len(members) - 1; strings.HasPrefix(members[n], "im=") {
		im, members = members[n], members[:n]
	}
	if err := h.addEngine([]string{name, fmt.Sprintf("candidates=%d", len(members)), im}); err != nil {
		return err
	}
	p := h.engines[name]
	for _, s := range [][]string{{"reads"}, {"swaps"}, append([]string{"hears"}, members...),
		append([]string{"writes"}, members...), {"swaps"}, append([]string{"writes"}, members...)} {
		if err := h.step(p, s[0], s[1:]); err != nil {
			return err
		}
		h.settle(p)
	}
	for len(h.out) > 1 && !strings.HasPrefix(h.out[len(h.out)-1], "(") {
		h.out = h.out[:len(h.out)-1]
	}
	h.out = h.out[len(h.out)-1:]
	return nil
}

func (h *history) setWitness(f []string) error {
	switch f[0] {
	case "saved":
		h.saved = h.witness
	case "restored":
		h.witness = h.saved
		h.say("the witness holds %s", h.witness)
	default:
		return fmt.Errorf("witness saved or restored, not %q", f[0])
	}
	return nil
}

func (h *history) show() {
	h.say("witness: %s", h.witness)
	for _, name := range sortedKeys(h.nodes) {
		n := h.nodes[name]
		extra := ""
		if n.rebuilding {
			extra = ", rebuilding"
		}
		h.say("%s: promised %s, %s%s", name, EpochText(n.promised), n.rec, extra)
	}
}

// settle notes what the core wants, and how it stands if that has changed.
func (h *history) settle(p *player) {
	for _, a := range p.core.Take() {
		h.say("%s", a)
		switch a.Kind {
		case AskWitness, SwapWitness:
			p.question, p.asked = &a, h.now
			h.proposed(a.Next.Record)
		case WriteRecord:
			p.writes[a.Member] = append(p.writes[a.Member], a.Record)
			h.proposed(a.Record)
		case Stop:
			p.fenced = a.Fenced
		case BeginServing:
			h.begins(p)
			for _, m := range a.Members {
				h.nodes[m].empty = false
			}
		}
	}
	status := p.core.Phase().String()
	if p.core.Phase() == Serving {
		status += " " + strings.Join(p.core.Live(), " ")
		if len(p.core.Live()) == 0 {
			status += "nobody"
		}
		if p.core.Holding() {
			status += ", holding"
		}
	}
	if status != p.status {
		p.status = status
		h.say("(%s is %s)", p.name, status)
	}
}

func (h *history) step(p *player, what string, args []string) error {
	switch what {
	case "reads", "swaps", "silent", "delayed", "arrives":
		return h.witnessStep(p, what, slices.Contains(args, "lost"))
	case "early":
		p.core.tellEarly()
	case "retries":
		p.core.Retry()
	case "refused":
		if p.question == nil || p.question.Kind != SwapWitness {
			return fmt.Errorf("%s has not asked for that", p.name)
		}
		p.question = nil
		p.core.WitnessRefused("order 2 is the newest")
	case "lease":
		h.lease(p)
	case "asks":
		p.core.AskForLease()
	case "waits":
		if p.core.Phase() != Waiting {
			return fmt.Errorf("%s is not waiting", p.name)
		}
		h.now = max(h.now, p.promised+Time(SuccessorWait(term)))
		p.core.LeaseOver()
	case "announced":
		p.core.Announced()
	case "timeout":
		p.core.GatherTimeout()
	case "succeeds":
		if _, all := p.core.Prepared(); !all {
			return fmt.Errorf("%s is not prepared", p.name)
		}
		p.core.Succeed()
	case "probes", "hears", "misses", "writes", "loses", "rebuilds", "joins", "reaches", "pings":
		lost := slices.Contains(args, "lost")
		for _, m := range args {
			if m == "lost" {
				continue
			}
			if h.nodes[m] == nil {
				return fmt.Errorf("no replica %q", m)
			}
			if err := h.replicaStep(p, what, h.nodes[m], lost); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("%s cannot %q", p.name, what)
	}
	return nil
}

// tellEarly proposes to the witness what the members need not have yet, as engines of before did.
func (c *Core) tellEarly() {
	r := c.prop.rec
	c.prop.witnessSent = true
	c.swapTo(WitnessRecord{Epoch: c.epoch, Engine: c.cfg.Engine, InstanceManager: c.cfg.InstanceManager,
		Record: Record{Epoch: r.Epoch, Generation: r.Generation, Members: r.Members}})
}

// swap carries out a compare-and-swap.
func (h *history) swap(a *Action) bool {
	ok := h.witness.Epoch == a.Expected.Epoch && h.witness.Record.Equal(a.Expected.Record)
	if ok {
		h.witness = a.Next
	}
	return ok
}

func (h *history) witnessStep(p *player, what string, lost bool) error {
	q := p.question
	if what == "arrives" {
		if p.delayed == nil {
			return fmt.Errorf("%s has no swap on its way", p.name)
		}
		h.say("the late swap is carried out: %v", h.swap(p.delayed))
		p.delayed = nil
		return nil
	}
	if q == nil || (what == "reads") != (q.Kind == AskWitness) && what != "silent" {
		return fmt.Errorf("%s has not asked for that", p.name)
	}
	p.question = nil
	switch {
	case what == "reads":
		p.core.WitnessConfirmed(p.asked, h.witness)
		p.core.WitnessRead(h.witness)
	case what == "delayed":
		p.delayed = q
		p.core.WitnessUnavailable()
	case what == "silent":
		p.core.WitnessUnavailable()
	default:
		ok := h.swap(q)
		if lost {
			p.core.WitnessUnavailable()
			return nil
		}
		if !ok {
			h.say("refused: the witness holds %s", h.witness)
		}
		p.core.WitnessConfirmed(p.asked, h.witness)
		p.core.WitnessSwapped(ok, h.witness)
	}
	return nil
}

func (h *history) replicaStep(p *player, what string, n *node, lost bool) error {
	switch what {
	case "probes":
		q := Probed{Answer: n.answer(), Promised: n.promised}
		if o := h.engines[n.to]; o != nil {
			q.InstanceManager = o.im
		}
		p.core.ProbeAnswered(q)
	case "hears":
		if !n.promise(p) {
			p.core.Outbid(n.promised)
			return nil
		}
		p.promised, p.confirmed[n.name] = h.now, h.now
		p.core.Answered(n.answer())
	case "misses":
		p.core.NoAnswer()
	case "loses":
		p.writes[n.name] = nil
		p.core.Failed(n.name)
	case "rebuilds":
		if !n.promise(p) {
			return fmt.Errorf("%s has promised epoch %s", n.name, EpochText(n.promised))
		}
		n.rec, n.rebuilding = Record{}, true
	case "reaches":
		if !n.promise(p) {
			return fmt.Errorf("%s has promised epoch %s", n.name, EpochText(n.promised))
		}
		p.core.Reached(n.name)
	case "joins":
		n.rebuilding = false
		p.core.Join(n.name)
	case "pings":
		if n.promised == p.core.Epoch() && n.to == p.name {
			p.confirmed[n.name] = h.now
		} else {
			h.say("%s refuses: it has promised epoch %s", n.name, EpochText(n.promised))
		}
	case "writes":
		w := p.writes[n.name]
		for len(w) > 0 && w[0].Agreed && n.promised == p.core.Epoch() && n.to == p.name {
			n.rec, w = w[0], w[1:] // nobody waits for it
			p.writes[n.name] = w
			if len(w) == 0 {
				return nil
			}
		}
		if len(w) == 0 {
			return fmt.Errorf("nothing is on its way from %s to %s", p.name, n.name)
		}
		if n.promised != p.core.Epoch() || n.to != p.name {
			h.say("%s refuses: it has promised epoch %s", n.name, EpochText(n.promised))
			p.writes[n.name] = nil
			p.core.Failed(n.name)
			return nil
		}
		p.writes[n.name] = w[1:]
		n.rec, n.blank = w[0], false
		if lost {
			p.writes[n.name] = nil
			p.core.Failed(n.name)
			return nil
		}
		p.confirmed[n.name] = h.now
		p.core.RecordWritten(n.name, w[0])
	}
	return nil
}

func (n *node) answer() Answer {
	return Answer{Member: n.name, Record: n.rec, Blank: n.blank && !n.rec.Valid(), Empty: n.empty,
		Closed: n.closed, Counter: n.counter, Rebuilding: n.rebuilding}
}

// lease tells what an engine may answer now.
func (h *history) lease(p *player) {
	end := p.core.LeaseEnd(term, func(m string) Time { return p.confirmed[m] })
	switch left := time.Duration(end - h.now); {
	case p.core.Holding():
		h.say("reads are held")
	case left > 0:
		h.say("reads are answered for another %s", left)
	default:
		h.say("reads wait for a confirmation")
	}
}

// promise makes the engine's epoch durable, or refuses.
func (n *node) promise(p *player) bool {
	e := p.core.Epoch()
	if e < n.promised || (e == n.promised && n.to != p.name) {
		return false
	}
	n.promised, n.to = e, p.name
	return true
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
