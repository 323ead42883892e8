package handover_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
)

// What was discarded over snapshots stays discarded, in several layers, through live upgrades with
// their block maps, a purge, the rebuild of a replica that lost everything, and a revert; all
// replicas have the same content at every snapshot in the end.
func TestDiscardsThroughHandOvers(t *testing.T) {
	const mib = 1 << 20
	ctx := t.Context()
	p := prepare(t, rig.Config{Replicas: 3, Size: 64 * mib})
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do := func(f func(d rig.Target) error) {
		t.Helper()
		d, err := p.v.Engine().Target()
		must(nil, err)
		must(nil, f(d))
		must(nil, d.Close())
	}
	want := make([]byte, 8*mib)
	write := func(off, n int, fill byte) {
		t.Helper()
		copy(want[off:], bytes.Repeat([]byte{fill}, n))
		do(func(d rig.Target) error { _, err := d.WriteAt(want[off:off+n], int64(off)); return err })
	}
	discard := func(off, n int) {
		t.Helper()
		clear(want[off : off+n])
		do(func(d rig.Target) error { return d.Discard(int64(off), int64(n)) })
	}
	look := func(when string) {
		t.Helper()
		got := make([]byte, len(want))
		do(func(d rig.Target) error { _, err := d.ReadAt(got, 0); return err })
		for at := range got {
			if got[at] != want[at] {
				t.Fatalf("%s: byte %d is %d, and should be %d", when, at, got[at], want[at])
			}
		}
	}
	snapshot := func(name string) []byte {
		t.Helper()
		must(p.v.Control().SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: name, UserCreated: true}))
		return bytes.Clone(want)
	}
	over := func() {
		t.Helper()
		p.new = p.v.Upgrade(nil, p.next...)
		p.taken()
		for i, r := range p.v.Replicas {
			r.Stop()
			if !strings.Contains(p.next[i].Log(), "block map taken over") {
				t.Errorf("the new replica has built its block map itself:\n%s", p.next[i].Log())
			}
		}
		p.v.Replicas, p.old = p.next, p.new
		p.next = standbys(p.v)
	}

	write(0, 8*mib, 1)
	snapshot("a")
	discard(0, 2*mib)
	snapshot("b")
	discard(2*mib, 2*mib)
	write(3*mib, mib/2, 2)
	over()
	look("after the first upgrade")
	discard(4*mib, mib) // by the map that was handed over
	atC := snapshot("c")
	discard(3*mib, mib) // in the head of before, and below it
	over()
	must(p.v.Control().SnapshotRemove(ctx, &enginev1.SnapshotRemoveRequest{Name: "b"}))
	must(p.v.Control().SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{}))
	p.v.Await("purge", func(s *enginev1.State) bool { return s.Snapshots["b"] == nil && !purging(s) })
	look("after a purge")
	over()
	look("after an upgrade on merged layers")

	lost := p.v.Replicas[2]
	must(p.v.Control().ReplicaRemove(ctx, &enginev1.ReplicaRemoveRequest{Address: "tcp://" + lost.Addr}))
	lost.Stop()
	p.next[2].Stop()
	names, err := filepath.Glob(filepath.Join(lost.Dir, "*"))
	must(nil, err)
	for _, name := range names {
		must(nil, os.Remove(name))
	}
	p.v.Replicas[2] = p.v.Imitate(lost).Start()
	p.v.Rebuild(p.v.Replicas[2])
	discard(5*mib, mib)
	look("after a rebuild")
	again := p.v.Imitate(p.v.Replicas[2])
	again.Standby = true
	p.next[2] = again.Start()
	over()
	look("after an upgrade of the rebuilt replica")

	must(p.v.Control().FrontendShutdown(ctx, &enginev1.FrontendShutdownRequest{}))
	must(p.v.Control().SnapshotRevert(ctx, &enginev1.SnapshotRevertRequest{Name: "c"}))
	must(p.v.Control().FrontendStart(ctx, &enginev1.FrontendStartRequest{Frontend: "tgt-blockdev"}))
	want = atC
	look("after a revert")
	discard(6*mib, mib)
	over()
	look("after an upgrade on the reverted chain")

	p.v.StopEngine()
	var first []rig.LayerHash
	for i, r := range p.v.Replicas {
		p.next[i].Stop()
		r.Stop()
		c, err := rig.Content(r.Dir)
		must(nil, err)
		if i == 0 {
			first = c
		} else if !slices.Equal(c, first) {
			t.Errorf("%s has other content than %s: %v and %v", r.Name, p.v.Replicas[0].Name, c, first)
		}
	}
}
