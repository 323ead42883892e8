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

// discarded is a place whose content is known.
type discarded struct {
	*place
	want []byte
}

func (d *discarded) must(_ any, err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *discarded) do(f func(d rig.Target) error) {
	d.t.Helper()
	target, err := d.v.Engine().Target()
	d.must(nil, err)
	d.must(nil, f(target))
	d.must(nil, target.Close())
}

func (d *discarded) write(off, n int, fill byte) {
	d.t.Helper()
	copy(d.want[off:], bytes.Repeat([]byte{fill}, n))
	p := rig.Aligned(n)
	copy(p, d.want[off:])
	d.do(func(x rig.Target) error { _, err := x.WriteAt(p, int64(off)); return err })
}

func (d *discarded) discard(off, n int) {
	d.t.Helper()
	clear(d.want[off : off+n])
	d.do(func(x rig.Target) error { return x.Discard(int64(off), int64(n)) })
}

func (d *discarded) look(when string) {
	d.t.Helper()
	got := rig.Aligned(len(d.want))
	d.do(func(x rig.Target) error { _, err := x.ReadAt(got, 0); return err })
	for at := range got {
		if got[at] != d.want[at] {
			d.t.Fatalf("%s: byte %d is %d, and should be %d", when, at, got[at], d.want[at])
		}
	}
}

func (d *discarded) snapshot(name string) (content []byte) {
	d.t.Helper()
	d.must(d.v.Control().SnapshotCreate(d.t.Context(),
		&enginev1.SnapshotCreateRequest{Name: name, UserCreated: true}))
	return bytes.Clone(d.want)
}

// over gives the volume to the next processes.
func (d *discarded) over() {
	d.t.Helper()
	d.new = d.v.Upgrade(nil, d.next...)
	d.taken()
	d.new.AwaitUp()
	for i, r := range d.v.Replicas {
		r.Stop()
		if !strings.Contains(d.next[i].Log(), "block map taken over") {
			d.t.Errorf("the new replica has built its block map itself:\n%s", d.next[i].Log())
		}
	}
	d.v.Replicas, d.old = d.next, d.new
	d.next = standbys(d.v)
}

// anew removes the last replica with all it has, and has another one rebuilt in its place.
func (d *discarded) anew() {
	d.t.Helper()
	last := len(d.v.Replicas) - 1
	lost := d.v.Replicas[last]
	d.must(d.v.Control().ReplicaRemove(d.t.Context(),
		&enginev1.ReplicaRemoveRequest{Address: "tcp://" + lost.Addr}))
	lost.Stop()
	d.next[last].Stop()
	names, err := filepath.Glob(filepath.Join(lost.Dir, "*"))
	d.must(nil, err)
	for _, name := range names {
		d.must(nil, os.Remove(name))
	}
	d.v.Replicas[last] = d.v.Imitate(lost).Start()
	d.v.Rebuild(d.v.Replicas[last])
	again := d.v.Imitate(d.v.Replicas[last])
	again.Standby = true
	d.next[last] = again.Start()
}

// equal ends everything and compares what the replicas have at every snapshot and at the head.
func (d *discarded) equal() {
	d.t.Helper()
	d.v.StopEngine()
	var first []rig.LayerHash
	for i, r := range d.v.Replicas {
		d.next[i].Stop()
		r.Stop()
		c, err := rig.Content(r.Dir)
		d.must(nil, err)
		if i == 0 {
			first = c
		} else if !slices.Equal(c, first) {
			d.t.Errorf("%s has other content than %s: %v and %v", r.Name, d.v.Replicas[0].Name, c, first)
		}
	}
}

// What was discarded over snapshots stays discarded, in several layers, through live upgrades with
// their block maps, a purge, the rebuild of a replica that lost everything, and a revert; all
// replicas have the same content at every snapshot in the end.
func TestDiscardsThroughHandOvers(t *testing.T) {
	const mib = 1 << 20
	ctx := t.Context()
	d := &discarded{withDevice(t, 3), make([]byte, 8*mib)}
	d.write(0, 8*mib, 1)
	d.snapshot("a")
	d.discard(0, 2*mib)
	d.snapshot("b")
	d.discard(2*mib, 2*mib)
	d.write(3*mib, mib/2, 2)
	d.over()
	d.look("after the first upgrade")
	d.discard(4*mib, mib) // by the map that was handed over
	atC := d.snapshot("c")
	d.discard(3*mib, mib) // in the head of before, and below it
	d.over()
	d.must(d.v.Control().SnapshotRemove(ctx, &enginev1.SnapshotRemoveRequest{Name: "b"}))
	d.must(d.v.Control().SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{}))
	d.v.Await("purge", func(s *enginev1.State) bool { return s.Snapshots["b"] == nil && !purging(s) })
	d.look("after a purge")
	d.over()
	d.look("after an upgrade on merged layers")
	d.anew()
	d.discard(5*mib, mib)
	d.look("after a rebuild")
	d.over()
	d.look("after an upgrade of the rebuilt replica")
	d.must(d.v.Control().FrontendShutdown(ctx, &enginev1.FrontendShutdownRequest{}))
	d.must(d.v.Control().SnapshotRevert(ctx, &enginev1.SnapshotRevertRequest{Name: "c"}))
	d.must(d.v.Control().FrontendStart(ctx, &enginev1.FrontendStartRequest{Frontend: "tgt-blockdev"}))
	d.want = atC
	d.look("after a revert")
	d.discard(6*mib, mib)
	d.over()
	d.look("after an upgrade on the reverted chain")
	d.equal()
}
