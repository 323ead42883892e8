package engine_test

import (
	"errors"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// Options of rebuilds hold at once and are shown; what is out of range changes nothing.
func TestRebuildOptions(t *testing.T) {
	g := newRig(t, 2, 4<<20).start()
	set := func(width int, budget int64) (err error) {
		done := false
		g.proc.Post(engine.SetOptions{RebuildConcurrency: &width, RebuildBudget: &budget, Reply: func(e error) {
			err, done = e, true
		}})
		g.until("answer", func() bool { return done })
		return err
	}
	if err := set(5, 1<<20); err != nil || g.state.Options.RebuildConcurrency != 5 || g.state.RebuildBudget != 1<<20 {
		t.Errorf("%v, %+v", err, g.state)
	}
	for _, row := range []struct {
		width  int
		budget int64
	}{{6, 1}, {-1, 1}, {2, -1}} {
		if err := set(row.width, row.budget); !errors.Is(err, block.Invalid) {
			t.Errorf("%+v: %v", row, err)
		}
	}
	if g.state.Options.RebuildConcurrency != 5 || g.state.RebuildBudget != 1<<20 {
		t.Errorf("%+v", g.state)
	}
	if err := set(1, 0); err != nil || g.state.RebuildBudget != 0 {
		t.Errorf("%v, %+v", err, g.state)
	}
}

// The volume's users leave so many pieces of a rebuild under way at once as the option says, and
// twice.
func TestRebuildConcurrency(t *testing.T) {
	for _, row := range []struct{ option, busy, idle int }{{0, 2, 8}, {1, 2, 8}, {3, 6, 8}, {5, 10, 10}} {
		for _, used := range []bool{true, false} {
			g := newRig(t, 1, 32*mib).start()
			for i := range int64(32) {
				g.finish(g.write(i*mib, 1, mib))
			}
			g.proc.Post(engine.SetOptions{RebuildConcurrency: &row.option, Reply: func(error) {}})
			source := g.fakes[0]
			source.script = func(h *wire.Header) (block.Code, bool) {
				return block.OK, h.Type == wire.LayerRead || h.Type == wire.Read && h.Len == 512
			}
			want := row.idle
			if used {
				want = row.busy
				g.begin(block.Read, 0, 512, make([]byte, 512)) // stays open
			}
			pieces := func() (n int) {
				n = len(source.held)
				if used {
					n--
				}
				return n
			}
			g.add("x")
			g.until("pieces under way", func() bool { return pieces() == want })
			g.never("more at once", time.Second, func() bool { return pieces() > want })
		}
	}
}
