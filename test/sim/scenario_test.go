package sim

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// TestIdleEngineLetsGoOfAReplicaThatMoved: a node loses power while nothing is asked of the volume,
// so the engine hears nothing of it. When the replica is back at another address it is taken in.
func TestIdleEngineLetsGoOfAReplicaThatMoved(t *testing.T) {
	w := NewWorld(1)
	v := NewVolume(w, 2, 1<<20)
	defer v.Close()
	var heal func()
	heal = func() {
		v.Heal()
		w.After(20*time.Millisecond, heal)
	}
	heal()
	if !w.Until(time.Minute, v.Healthy) {
		t.Fatalf("does not start\n%s", v.History())
	}
	w.Until(10*time.Second, func() bool { return false }) // nothing is under way any more
	x := v.Replicas[0]
	if v.Current.node == x.Node {
		x = v.Replicas[1] // the engine lives on
	}
	n, before := x.Node, x.Addr()
	v.PowerOff(n)
	w.Until(time.Second, func() bool { return false })
	n.PowerOn()
	if !w.Until(time.Minute, func() bool { return x.Addr() != before && v.Healthy() }) {
		t.Fatalf("the replica is not taken back\n%s", v.History())
	}
}

// TestARebuildThatDiffersIsRepeatedInFull: an account of an absence that says too little (here
// because a snapshot has rotted meanwhile, or its disk can no longer read it) is noticed by the
// comparison at the end, and the next rebuild compares everything, and brings what differs or
// cannot be read.
func TestARebuildThatDiffersIsRepeatedInFull(t *testing.T) {
	for name, damage := range map[string]func(fs *memdisk.FS, file string) error{
		"rotten":     func(fs *memdisk.FS, file string) error { return fs.Rot(file, 0, 4096) },
		"unreadable": func(fs *memdisk.FS, file string) error { return fs.Unreadable(file, 0, 4096) },
	} {
		t.Run(name, func(t *testing.T) { repeatedInFull(t, damage) })
	}
}

func repeatedInFull(t *testing.T, damage func(fs *memdisk.FS, file string) error) {
	w := NewWorld(1)
	v := NewVolume(w, 2, 8<<20)
	defer v.Close()
	healing := true
	var heal func()
	heal = func() {
		if healing {
			v.Heal()
		}
		w.After(20*time.Millisecond, heal)
	}
	heal()
	until := func(what string, cond func() bool) {
		t.Helper()
		if !w.Until(time.Minute, cond) {
			t.Fatalf("%s: did not happen\n%s", what, v.History())
		}
	}
	until("start", v.Healthy)
	write := func(off, n int64) {
		t.Helper()
		done := false
		v.Current.front.Submit(&Call{Kind: block.Write, FUA: true, Off: off, Len: n, Fill: func(b []byte) {
			b[0], b[n-1] = 7, 7
		}, Done: func(code block.Code, _ []byte) {
			if code != block.OK {
				t.Fatalf("write at %d: %s", off, code)
			}
			done = true
		}})
		until("write", func() bool { return done })
	}
	write(0, 64<<10)
	taken := false
	v.Current.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "one", Created: created},
		Reply: func(err error) {
			taken = err == nil
		}})
	until("snapshot", func() bool { return taken })

	source, x := v.Replicas[0], v.Replicas[1]
	if v.Current.node == x.Node {
		source, x = x, source // the engine lives on
	}
	healing = false
	x.Kill()
	write(128<<10, 512) // it is missed, in the region of what rots
	until("dropped", func() bool { return v.Current.mode(x.Addr()) == engine.ERR })
	if err := damage(x.Disk.FS, replicaDir+x.Name+"/volume-snap-one.img"); err != nil {
		t.Fatal(err)
	}
	healing = true
	until("rebuilt", v.Healthy)
	if failed := strings.Count(v.History(), "rebuild-failed"); failed != 1 || v.Rebuilt != 1 {
		t.Errorf("%d rebuilds failed, %d ended well; want one of each\n%s", failed, v.Rebuilt, v.History())
	}
	a, b := make([]byte, 256<<10), make([]byte, 256<<10)
	for c, p := range map[*Replica][]byte{source: a, x: b} {
		if _, err := c.Chain().ReadAt(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	if at := differ(a, b); at >= 0 || a[0] != 7 {
		t.Errorf("the replicas differ at %d", at)
	}
}

// TestStandstillDropsNobody: the engine's machine stands still for longer than a replica may be
// silent. What the others answered is there when it goes on, and the replica on the machine itself
// has answered nothing yet: nobody is dropped.
func TestStandstillDropsNobody(t *testing.T) {
	for seed := range uint64(10) {
		w := NewWorld(seed)
		v := NewVolume(w, 3, 1<<20)
		defer v.Close()
		v.StartEngine(v.Replicas[0].Node)
		if !w.Until(time.Minute, v.Healthy) {
			t.Fatalf("does not start\n%s", v.History())
		}
		open := 0
		for i := range int64(16) {
			open++
			v.Current.front.Submit(&Call{Kind: block.Write, Off: i << 12, Len: 4096, Fill: func([]byte) {},
				Done: func(code block.Code, _ []byte) {
					if open--; code != block.OK {
						t.Errorf("write: %s", code)
					}
				}})
		}
		w.After(w.Between(0, 2*time.Millisecond), func() {
			w.After(2*v.Timeouts.Replica, both(freeze(v.Current.Process), freeze(v.Replicas[0].proc)))
		})
		if !w.Until(time.Minute, func() bool { return open == 0 }) || !v.Healthy() || v.Dropped > 0 {
			t.Fatalf("seed %d: %d writes open, %d replicas dropped\n%s", seed, open, v.Dropped, v.History())
		}
	}
}
