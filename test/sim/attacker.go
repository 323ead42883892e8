package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// attacker is somebody in the network between engines and replicas. He reads everything, and
// changes, repeats, moves, leaves out and invents frames, and leads connections elsewhere. What he
// does not know is the volume's secret; checksums he makes right.
type attacker struct {
	w      *World
	rnd    *rand.Rand
	attack *attack
	left   int // how often he still acts
	// acted is what he has done.
	acted []string
	// skip is how much of a frame is still to come on a connection; kept is a write that was seen
	// on it.
	skip map[*conn]int
	kept map[*conn][]byte
}

// attack is one kind of what an attacker does.
type attack struct {
	name string
	// frame changes the frames of a chunk at i, and reports whether it did; nil for connects.
	frame func(a *attacker, c *conn, frames [][]byte, i int, h *wire.Header) ([][]byte, bool)
}

// relayed is the attack on connections themselves.
var relayed = attack{"relay", nil}

var forgeries = []attack{{"forge", forge}, {"move", moveWrite}, {"reflect", reflect}, {"narrow", narrow},
	{"downgrade", downgrade}}

var replays = []attack{{"repeat", repeat}, {"omit", omit}, {"reorder", reorder}}

// Attack puts an attacker into the network until stop is called.
func (w *World) Attack(rnd *rand.Rand, k *attack, times int) (a *attacker, stop func()) {
	a = &attacker{w: w, rnd: rnd, attack: k, left: times, skip: map[*conn]int{}, kept: map[*conn][]byte{}}
	w.attacker = a
	return a, func() {
		if w.attacker == a {
			w.attacker = nil
		}
	}
}

func (a *attacker) did(what string) {
	a.left--
	a.acted = append(a.acted, a.attack.name+" "+what)
}

// lead is where a connection to addr really goes: to another listener if he relays.
func (a *attacker) lead(addr string) string {
	if a == nil || a.attack != &relayed || a.left <= 0 {
		return addr
	}
	var others []string
	for o := range a.w.listeners {
		if o != addr {
			others = append(others, o)
		}
	}
	if len(others) == 0 {
		return addr
	}
	slices.Sort(others)
	to := others[a.rnd.IntN(len(others))]
	a.did(fmt.Sprintf("%s to %s", addr, to))
	return to
}

// pass is what becomes of a chunk that is sent on a connection.
func (a *attacker) pass(c *conn, chunk []byte) []byte {
	if a == nil || a.attack.frame == nil {
		return chunk
	}
	n := min(a.skip[c], len(chunk))
	a.skip[c] -= n
	frames, heads, ok := a.split(c, chunk[n:])
	if !ok {
		return chunk
	}
	for i := range heads {
		if a.left <= 0 {
			break
		}
		if changed, ok := a.attack.frame(a, c, frames, i, &heads[i]); ok {
			a.did(fmt.Sprintf("%s %d+%d", heads[i].Type, heads[i].Off, heads[i].Len))
			return slices.Concat(append([][]byte{chunk[:n]}, changed...)...)
		}
	}
	return chunk
}

// split cuts what begins with a frame into its frames; heads are the headers of those that are
// whole.
func (a *attacker) split(c *conn, p []byte) (frames [][]byte, heads []wire.Header, ok bool) {
	for len(p) >= wire.HeaderSize {
		var h wire.Header
		if _, err := h.Decode(p); err != nil {
			return nil, nil, false // he has come in the middle of a frame
		}
		n := wire.HeaderSize + int(h.Payload)
		if n > len(p) {
			a.skip[c] = n - len(p)
			return append(frames, p), heads, true
		}
		frames, heads = append(frames, bytes.Clone(p[:n])), append(heads, h)
		p = p[n:]
	}
	return frames, heads, len(p) == 0
}

// encode writes a header over that of a frame. Its tag, if it has one, stays: he cannot make it.
func encode(frame []byte, h *wire.Header) {
	var was wire.Header
	if tagged, _ := was.Decode(frame); tagged {
		h.EncodeTagged(frame)
		return
	}
	h.Sum = 0
	if h.Payload > 0 {
		h.Sum = wire.Sum(frame[wire.HeaderSize:])
	}
	h.Encode(frame)
}

func isData(h *wire.Header) bool {
	return h.Payload > 0 && (h.Type == wire.Write && !h.IsResponse() || h.Type == wire.Read && h.IsResponse())
}

// forge gives a write, or the answer to a read, other data.
func forge(_ *attacker, _ *conn, frames [][]byte, i int, h *wire.Header) ([][]byte, bool) {
	if !isData(h) {
		return nil, false
	}
	data := frames[i][wire.HeaderSize:]
	for j := range data[:min(len(data), 64)] {
		data[j] ^= 0xff
	}
	encode(frames[i], h)
	return frames, true
}

// moveWrite has a write go elsewhere.
func moveWrite(_ *attacker, _ *conn, frames [][]byte, i int, h *wire.Header) ([][]byte, bool) {
	if h.Type != wire.Write || h.IsResponse() {
		return nil, false
	}
	moved := *h
	moved.Off ^= block.Size
	encode(frames[i], &moved)
	return frames, true
}

// reflect sends a frame to its sender, besides.
func reflect(_ *attacker, c *conn, frames [][]byte, i int, h *wire.Header) ([][]byte, bool) {
	if h.Type == wire.Initiation || h.Type == wire.Greeting {
		return nil, false
	}
	back := bytes.Clone(frames[i])
	c.peer.transmit(func(sender *conn) { sender.inbox = append(sender.inbox, back) })
	return frames, true
}

// downgrade has a replica pick an earlier version than both sides speak.
func downgrade(_ *attacker, _ *conn, frames [][]byte, i int, h *wire.Header) ([][]byte, bool) {
	var g wire.GreetingMessage
	if h.Type != wire.Greeting || wire.Unmarshal(frames[i][wire.HeaderSize:], &g) != nil {
		return nil, false
	}
	g.Version = wire.MinVersion - 1
	frames[i] = replaced(frames[i], h, wire.Marshal(g))
	return frames, true
}

// narrow has an engine offer earlier versions alone.
func narrow(_ *attacker, _ *conn, frames [][]byte, i int, h *wire.Header) ([][]byte, bool) {
	var p wire.Proved
	var m wire.InitiationMessage
	if h.Type != wire.Initiation || wire.Unmarshal(frames[i][wire.HeaderSize:], &p) != nil ||
		wire.Unmarshal(p.Said, &m) != nil {
		return nil, false
	}
	m.MinVersion, m.Version = m.MinVersion-1, m.MinVersion-1
	p.Said = wire.Marshal(m)
	frames[i] = replaced(frames[i], h, wire.Marshal(p))
	return frames, true
}

// replaced is a frame with another payload.
func replaced(frame []byte, h *wire.Header, payload []byte) []byte {
	other := *h
	other.Payload = uint32(len(payload))
	frame = append(frame[:wire.HeaderSize], payload...)
	encode(frame, &other)
	return frame
}

// repeat sends an earlier write of the connection again.
func repeat(a *attacker, c *conn, frames [][]byte, i int, h *wire.Header) ([][]byte, bool) {
	if h.Type != wire.Write || h.IsResponse() {
		return nil, false
	}
	again := a.kept[c]
	if again == nil {
		a.kept[c] = bytes.Clone(frames[i])
		return nil, false
	}
	return slices.Insert(frames, i+1, again), true
}

// omit swallows a write or an answer.
func omit(_ *attacker, _ *conn, frames [][]byte, i int, h *wire.Header) ([][]byte, bool) {
	if h.Type != wire.Write {
		return nil, false
	}
	return slices.Delete(frames, i, i+1), true
}

// reorder has two frames change places.
func reorder(_ *attacker, _ *conn, frames [][]byte, i int, _ *wire.Header) ([][]byte, bool) {
	if i == 0 {
		return nil, false
	}
	frames[i-1], frames[i] = frames[i], frames[i-1]
	return frames, true
}
