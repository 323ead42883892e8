package replica_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/wire"
)

// account is the model of what a replica owes a member that is away: what is marked, and what has
// left the log since the record that dropped the member. Every request takes effect in the order it
// was sent in.
type account struct {
	log  map[uint32]bool
	left map[uint32]bool // nil while the record names the member
}

func (a *account) union() []uint32 {
	var all []uint32
	for n := range uint32(volumeSize / chain.RegionSize) {
		if a.log[n] || a.left[n] {
			all = append(all, n)
		}
	}
	return all
}

// told is what an answer to Regions says.
func told(t *rapid.T, a *answer) (regions []uint32, all bool) {
	var m wire.ControlReply
	if err := wire.Unmarshal(a.payload, &m); err != nil || a.h.Code != block.OK || m.Regions == nil {
		t.Fatalf("answer to regions: %s %+v %v", a.h.Code, m, err)
	}
	set := chain.RegionSet{Shift: m.Regions.Shift, Bits: m.Regions.Bits}
	for n := range uint32(volumeSize / chain.RegionSize) {
		if set.Has(chain.Region(n)) || slices.Contains(m.Regions.Dirty, n) {
			regions = append(regions, n)
		}
	}
	return regions, m.Regions.All
}

// controls sends a control request.
func (p *peer) controls(q wire.ControlRequest) *answer {
	return p.request(wire.Header{Type: wire.Control}, wire.Marshal(q))
}

// record names the replica alone, or the member "x" too.
func (p *peer) record(generation uint64, withX bool) *answer {
	m := &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: generation, Members: []string{p.g.r.Name}}
	if withX {
		m.Members = append(m.Members, "x")
	}
	return p.controls(wire.ControlRequest{SetRecord: m})
}

// asking sends requests without waiting for answers, and knows what the answers must be.
type asking struct {
	*peer
	account
	rt         *rapid.T
	generation uint64
	last       *answer
	questions  []question
	// absent counts questions about a member that is away, moving those asked while something else
	// was under way.
	absent, moving int
}

// question is one about the member "x".
type question struct {
	a    *answer
	want []uint32
	away bool
}

var someRegion = rapid.Uint32Range(0, volumeSize/chain.RegionSize-1)

func (q *asking) mark() {
	var b []byte
	for _, n := range rapid.SliceOfNDistinct(someRegion, 1, 2, rapid.ID).Draw(q.rt, "marks") {
		b = binary.LittleEndian.AppendUint32(b, n)
		q.log[n] = true
	}
	q.last = q.request(wire.Header{Type: wire.MarkDirty}, b)
}

func (q *asking) clear() {
	keep := rapid.SliceOfNDistinct(someRegion, 0, 2, rapid.ID).Draw(q.rt, "keep")
	stay := map[uint32]bool{}
	for _, n := range keep {
		stay[n] = true
	}
	for n := range q.log {
		if !stay[n] && q.left != nil {
			q.left[n] = true
		}
	}
	q.log = stay
	q.last = q.controls(wire.ControlRequest{ClearDirty: &wire.ClearDirty{Keep: keep}})
}

func (q *asking) setRecord() {
	withX := rapid.Bool().Draw(q.rt, "names x")
	switch {
	case withX:
		q.left = nil
	case q.left == nil:
		q.left = map[uint32]bool{}
	}
	q.generation++
	q.last = q.record(q.generation, withX)
}

func (q *asking) ask() {
	if q.last != nil && !q.last.done {
		q.moving++
	}
	q.last = q.controls(wire.ControlRequest{Regions: &wire.RegionsRequest{Member: "x"}})
	q.questions = append(q.questions, question{q.last, q.union(), q.left != nil})
}

func (q *asking) pause() {
	d := time.Duration(rapid.IntRange(1, 500).Draw(q.rt, "pause")) * time.Microsecond
	q.g.w.Until(d, func() bool { return false })
}

// check waits for the answers and compares them with the model.
func (q *asking) check() {
	for i, asked := range q.questions {
		q.g.until("answer", func() bool { return asked.a.done })
		got, all := told(q.rt, asked.a)
		switch {
		case !asked.away && !all:
			q.rt.Fatalf("question %d: nothing is known of the member, and the answer is %v instead of all regions", i, got)
		case asked.away && (all || !slices.Equal(got, asked.want)):
			q.rt.Fatalf("question %d: told %v, all %v; marked or gone from the log are %v", i, got, all, asked.want)
		case asked.away:
			q.absent++
		}
	}
}

// What a replica says of its differences to an absent member is one moment's: a region that is
// marked or has left the log since the member was dropped is in the answer, whatever marks, clears
// and records are on their way, and however many of them.
func TestRegionsAreOneView(t *testing.T) {
	runs, absent, moving := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		g := newSeededRig(t, rapid.Uint64().Draw(rt, "seed"))
		defer g.v.Close()
		q := &asking{peer: g.engine(1, "e"), account: account{log: map[uint32]bool{}}, rt: rt, generation: 1}
		q.record(1, true)
		founded := q.controls(wire.ControlRequest{ClearDirty: &wire.ClearDirty{Keep: []uint32{}}})
		g.until("founded", func() bool { return founded.done })
		for range rapid.IntRange(2, 30).Draw(rt, "requests") {
			rapid.SampledFrom([]func(){q.mark, q.mark, q.clear, q.setRecord, q.ask, q.pause}).Draw(rt, "request")()
		}
		q.check()
		absent, moving = absent+q.absent, moving+q.moving
	})
	if absent < runs/20 || moving < runs/20 {
		t.Errorf("nothing was tried: %d answers about an absent member, %d questions beside something else", absent, moving)
	}
}

// The shortest history: a clear that arrives while a question waits must not take the region from
// the answer.
func TestClearBehindAQuestion(t *testing.T) {
	for seed := range uint64(20) {
		g := newSeededRig(t, seed)
		p := g.engine(1, "e")
		p.record(1, true)
		p.controls(wire.ControlRequest{ClearDirty: &wire.ClearDirty{Keep: []uint32{}}})
		p.request(wire.Header{Type: wire.MarkDirty}, binary.LittleEndian.AppendUint32(nil, 0))
		p.record(2, false)
		a := p.controls(wire.ControlRequest{Regions: &wire.RegionsRequest{Member: "x"}})
		p.controls(wire.ControlRequest{ClearDirty: &wire.ClearDirty{Keep: []uint32{}}})
		g.until("answer", func() bool { return a.done })
		var m wire.ControlReply
		if err := wire.Unmarshal(a.payload, &m); err != nil || m.Regions == nil {
			t.Fatal(a.h.Code, err)
		}
		set := chain.RegionSet{Shift: m.Regions.Shift, Bits: m.Regions.Bits}
		if !set.Has(0) && !slices.Contains(m.Regions.Dirty, 0) {
			t.Fatalf("seed %d: region 0 is neither in the entry nor marked: %+v", seed, m.Regions)
		}
		g.v.Close()
	}
}
