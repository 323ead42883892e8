package engine_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
)

// user makes random requests of whole blocks, one after the other, until it is stopped, and knows
// what the blocks hold.
type user struct {
	g       *scrubRig
	rnd     *rand.Rand
	first   int64 // of its blocks
	content []byte
	now     *call
	stopped bool
}

const userBlocks = 16

func (u *user) next() {
	if u.stopped {
		return
	}
	b := u.rnd.Int64N(userBlocks)
	n := 1 + u.rnd.Int64N(min(4, userBlocks-b))
	fill := byte(1 + u.rnd.IntN(255))
	kind := []block.Kind{block.Write, block.Discard, block.WriteZeroes}[u.rnd.IntN(3)]
	var data []byte
	if kind != block.Write {
		fill = 0
	} else {
		data = bytes.Repeat([]byte{fill}, int(n)*block.Size)
	}
	copy(u.content[b*block.Size:], bytes.Repeat([]byte{fill}, int(n)*block.Size))
	u.now = u.g.begin(kind, (u.first+b)*block.Size, n*block.Size, data)
}

// A file system that trims and writes while a replica is rebuilt over snapshots: layers below the
// head and zeroes in it reach the target at the same time, in the same blocks. The target goes on,
// and ends with the source's content and with a map that is its files'.
func TestTrimDuringARebuildOverSnapshots(t *testing.T) {
	for round := range uint64(5) {
		g := newScrubRig(t, 2)
		g.w.Until(time.Duration(1+round)*time.Millisecond, func() bool { return false }) // another history
		x := g.v.Replicas[1]
		x.Kill()
		g.until("it is dropped", func() bool { return g.count(engine.RW) == 1 && g.state.Reason == "" })
		dir := "/replicas/" + x.Name
		names, err := g.disk(1).List(dir)
		g.damage(err)
		for _, n := range names {
			g.damage(g.disk(1).Remove(dir + "/" + n))
		}
		var users []*user
		for i := range int64(24) {
			u := &user{g: g, rnd: rand.New(rand.NewPCG(round, uint64(i))), first: i * 40,
				content: make([]byte, userBlocks*block.Size)}
			if c, code := g.read(u.first*block.Size, userBlocks*block.Size); code != block.OK {
				t.Fatal(code)
			} else {
				copy(u.content, c.data)
			}
			users = append(users, u)
			var drive func()
			drive = func() {
				if u.now == nil || u.now.done {
					u.next()
				}
				if !u.stopped {
					g.w.After(10*time.Microsecond, drive)
				}
			}
			drive()
		}
		g.back(1)
		for _, u := range users {
			u.stopped = true
			if code := g.finish(u.now); code != block.OK {
				t.Fatal(code)
			}
		}
		for _, r := range g.v.Replicas {
			for _, u := range users {
				got := make([]byte, len(u.content))
				if _, err := r.Chain().ReadAt(got, u.first*block.Size); err != nil || !bytes.Equal(got, u.content) {
					t.Errorf("round %d: %s holds other bytes at %d than were written: %v", round, r.Name, u.first*block.Size, err)
				}
			}
			if err := r.Chain().CheckMap(); err != nil {
				t.Errorf("round %d: %s: %v", round, r.Name, err)
			}
		}
		if a, b := g.everything(0), g.everything(1); a != b {
			t.Errorf("round %d: after the rebuild\n%s\n%s", round, a, b)
		}
	}
}
