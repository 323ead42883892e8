package engine_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
)

// TestScrubSpreadsNoRot: one replica's copy of the older snapshot has rotted, another one's copy of
// the newer snapshot in the same MiB. Each snapshot has a sound copy, so the scrub mends both, and
// users read what they have written, from every replica.
func TestScrubSpreadsNoRot(t *testing.T) {
	for _, replicas := range []int{2, 3} {
		g := newScrubRig(t, replicas)
		g.clean(engine.ScrubEnabled)
		want := g.sums(0)
		content, code := g.read(0, 1<<20)
		if code != block.OK {
			t.Fatal(code)
		}
		g.damage(errors.Join(g.disk(0).Rot(g.image(0, "a"), 0, 1), g.disk(1).Rot(g.image(1, "b"), 70000, 1)))
		s := g.scrub(engine.ScrubEnabled)
		if s.State != "complete" || s.Unrepaired != 0 || s.Repaired != 2 {
			t.Errorf("%d replicas: %+v", replicas, s)
		}
		for i := range 2 * replicas {
			if c, code := g.read(0, 1<<20); code != block.OK || !bytes.Equal(c.data, content.data) {
				t.Errorf("%d replicas, read %d: users read something else than before: %s", replicas, i, code)
			}
		}
		for i := range replicas {
			if got := g.sums(i); got != want {
				t.Errorf("%d replicas: replica %d has\n%s, want\n%s", replicas, i, got, want)
			}
		}
	}
}

// TestScrubSpreadsNoRotOfHeads: one replica's copy of a snapshot has rotted, and another one's head
// in the same MiB, which no checksum shows. The repair of the snapshot changes no head.
func TestScrubSpreadsNoRotOfHeads(t *testing.T) {
	for _, replicas := range []int{2, 3} {
		g := newScrubRig(t, replicas)
		g.clean(engine.ScrubEnabled)
		want := g.sums(0)
		dir := "/replicas/" + g.v.Replicas[1].Name
		names, err := g.disk(1).List(dir)
		g.damage(err)
		for _, name := range names {
			if strings.HasPrefix(name, "volume-head-") && strings.HasSuffix(name, ".img") {
				g.damage(g.disk(1).Rot(dir+"/"+name, 5000, 1))
			}
		}
		g.damage(g.disk(0).Rot(g.image(0, "a"), 0, 1))
		t.Logf("%d replicas: %+v", replicas, g.scrub(engine.ScrubEnabled))
		if got := g.sums(0); got != want {
			t.Errorf("%d replicas: replica 0, whose head was sound, has\n%s, want\n%s", replicas, got, want)
		}
	}
}

// TestScrubKeepsTheHeadBesideRot: a replica has lost a block of a snapshot that the user has zeroed
// since, and another one's copy of a newer snapshot has rotted in the same MiB. The zeroes stay,
// and the rot is copied nowhere.
func TestScrubKeepsTheHeadBesideRot(t *testing.T) {
	const at, n = 131072, 8192
	for _, replicas := range []int{2, 3} {
		g := newScrubRig(t, replicas)
		g.clean(engine.ScrubEnabled)
		g.losesBlocks("a", at, n)
		g.zero(at, n)
		want := g.sums(0)
		g.damage(g.disk(0).Rot(g.image(0, "b"), 70000, 1))
		if s := g.scrub(engine.ScrubEnabled); s.State != "complete" || s.Unrepaired != 0 || s.Repaired != 2 {
			t.Errorf("%d replicas: %+v", replicas, s)
		}
		for i := range replicas {
			if got := g.sums(i); got != want {
				t.Errorf("%d replicas: replica %d has\n%s, want\n%s", replicas, i, got, want)
			}
		}
	}
}
