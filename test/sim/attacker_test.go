package sim

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// inject adds a write of its own to the requests of an engine, whose session it has taken over.
func inject(_ *attacker, _ *conn, frames [][]byte, i int, h *wire.Header) ([][]byte, bool) {
	if h.Type != wire.Write || h.IsResponse() {
		return nil, false
	}
	own := bytes.Clone(frames[i])
	forged := *h
	forged.ID, forged.Off = h.ID+1<<40, attackedAt
	copy(own[wire.HeaderSize:], "mine")
	encode(own, &forged)
	return append([][]byte{own}, frames...), true
}

// attackedAt is a block that nobody writes to.
const attackedAt = 512 << 10

// TestAttacker: whatever somebody in the network does to a volume's connections, no replica gets
// other data for it than was written, and no user reads other data; what he touches ends, with the
// reason, and the volume is whole again when he is gone.
func TestAttacker(t *testing.T) {
	for _, c := range []struct {
		attack
		says string
	}{
		{attack{"forge", forge}, "changed, repeated or moved on its way"},
		{attack{"move", moveWrite}, "changed, repeated or moved on its way"},
		{attack{"inject", inject}, "changed, repeated or moved on its way"},
		{attack{"reflect", reflect}, "changed, repeated or moved on its way"},
		{attack{"repeat", repeat}, "changed, repeated or moved on its way"},
		{attack{"reorder", reorder}, "changed, repeated or moved on its way"},
		{attack{"omit", omit}, "changed, repeated or moved on its way, or one before it was left out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBesieged(t)
			b.until("start", b.v.Healthy)
			a, stop := b.w.Attack(stream(1, 0), &c.attack, 1)
			for i := range int64(100) {
				b.write(i<<12, byte(i))
			}
			b.until("everything is answered", func() bool { return b.open == 0 })
			stop()
			if len(a.acted) == 0 {
				t.Fatal("nothing was attacked")
			}
			b.whole()
			if !strings.Contains(b.v.History(), c.says) {
				t.Errorf("nothing says %q\n%s", c.says, b.v.History())
			}
		})
	}
}

// TestRelayedHandshake: somebody whom an engine connects to, at an address that a replica had
// perhaps, passes everything on to another replica, of the same volume or of another one. Nobody
// takes the engine's hello.
func TestRelayedHandshake(t *testing.T) {
	for name, beside := range map[string]bool{"the same volume": false, "another volume": true} {
		t.Run(name, func(t *testing.T) {
			b := newBesieged(t)
			if beside {
				other := NewVolumeOf(b.w, Identity{Name: "other", UUID: "9d7a1c0e-5c1b-4a52-8d5e-0c8f4ec1a4b2"}, "o", 1, 1<<20)
				t.Cleanup(other.Close)
			}
			a, stop := b.w.Attack(stream(1, 0), &relayed, 4)
			b.until("relayed", func() bool { return a.left == 0 })
			stop()
			if !strings.Contains(b.v.History(), "the connection was led here by somebody else") &&
				!strings.Contains(b.v.History(), "it was led here by somebody else") {
				t.Errorf("nobody has noticed\n%s", b.v.History())
			}
			b.until("start", b.v.Healthy)
			b.write(0, 1)
			b.until("the write", func() bool { return b.open == 0 })
			b.whole()
		})
	}
}

// TestLoweredGreeting: nobody has engine and replica speak an earlier version than both do, by what
// the one offers or the other picks.
func TestLoweredGreeting(t *testing.T) {
	for _, c := range []struct {
		attack
		says string
	}{
		{attack{"downgrade", downgrade}, "somebody has changed the greeting on its way"},
		{attack{"narrow", narrow}, "or the handshake was changed on its way"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBesieged(t)
			a, stop := b.w.Attack(stream(1, 0), &c.attack, 2)
			b.until("lowered", func() bool { return a.left == 0 })
			stop()
			b.until("start", b.v.Healthy)
			b.write(0, 1)
			b.until("the write", func() bool { return b.open == 0 })
			b.whole()
			if !strings.Contains(b.v.History(), c.says) {
				t.Errorf("nothing says %q\n%s", c.says, b.v.History())
			}
		})
	}
}

// besieged is a volume with an attacker around.
type besieged struct {
	t       *testing.T
	w       *World
	v       *Volume
	open    int
	content [1 << 20]byte
}

func newBesieged(t *testing.T) *besieged {
	w := NewWorld(1)
	b := &besieged{t: t, w: w, v: NewVolume(w, 2, 1<<20)}
	t.Cleanup(b.v.Close)
	var heal func()
	heal = func() {
		b.v.Heal()
		w.After(20*time.Millisecond, heal)
	}
	heal()
	return b
}

func (b *besieged) until(what string, cond func() bool) {
	b.t.Helper()
	if !b.w.Until(2*time.Minute, cond) {
		b.t.Fatalf("%s: did not happen\n%s", what, b.v.History())
	}
}

// write writes a block, with few others under way.
func (b *besieged) write(off int64, value byte) {
	b.t.Helper()
	b.open++
	fill := bytes.Repeat([]byte{value + 1}, block.Size)
	b.v.Current.front.Submit(&Call{Kind: block.Write, Off: off, Len: block.Size,
		Fill: func(p []byte) { copy(p, fill) },
		Done: func(code block.Code, _ []byte) {
			b.open--
			if copy(b.content[off:], fill); code != block.OK {
				b.t.Errorf("write at %d: %s", off, code)
			}
		}})
	if b.open >= 8 {
		b.until("room", func() bool { return b.open < 8 })
	}
}

// whole waits until the volume is healthy, and compares what users and replicas read with what was
// written.
func (b *besieged) whole() {
	b.t.Helper()
	b.until("healthy again", b.v.Healthy)
	got, done := make([]byte, len(b.content)), false
	b.v.Current.front.Submit(&Call{Kind: block.Read, Len: int64(len(got)), Done: func(code block.Code, p []byte) {
		done = copy(got, p) == len(got) && code == block.OK
	}})
	b.until("read", func() bool { return done })
	if at := differ(got, b.content[:]); at >= 0 {
		b.t.Errorf("users read something else at %d", at)
	}
	for _, x := range b.v.Replicas {
		if _, err := x.Chain().ReadAt(got, 0); err != nil {
			b.t.Fatal(err)
		}
		if at := differ(got, b.content[:]); at >= 0 {
			b.t.Errorf("%s has something else at %d", x.Name, at)
		}
	}
}
