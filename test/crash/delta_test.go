package crash

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/test/rig"
)

// fillVolume writes content that no two megabytes have in common.
func fillVolume(t *testing.T, c *nbdclient.Client, size int64) {
	t.Helper()
	p := make([]byte, mib)
	for off := int64(0); off < size; off += mib {
		for i := range p {
			p[i] = byte(int64(i)*7 + off>>12 + int64(i)>>9)
		}
		if _, err := c.WriteAt(p, off); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}

var rebuiltLine = regexp.MustCompile(`(\d+) bytes sent of (\d+) looked at`)

// lastRebuilt returns what the last complete rebuild sent and looked at.
func lastRebuilt(t *testing.T, v *rig.Volume) (sent, looked int64) {
	t.Helper()
	all := rebuiltLine.FindAllStringSubmatch(v.Engine().Log(), -1)
	if len(all) == 0 {
		t.Fatalf("no rebuild in the engine's log:\n%s", v.Engine().Log())
	}
	last := all[len(all)-1]
	sent, _ = strconv.ParseInt(last[1], 10, 64) // digits
	looked, _ = strconv.ParseInt(last[2], 10, 64)
	return sent, looked
}

// finish ends everything and compares the directories.
func finish(t *testing.T, v *rig.Volume) {
	t.Helper()
	v.StopEngine()
	for _, r := range v.Replicas {
		r.Stop()
	}
	identical(t, v.Replicas...)
}

// A replica that was away for a moment under a writer gets what it missed, not the volume; also
// when the engine was another one meanwhile, and when it is killed again while it is rebuilt.
func TestShortAbsenceCostsWhatChanged(t *testing.T) {
	t.Parallel()
	const size = 256 * mib
	v := rig.New(t, 3, size)
	v.StartEngine()
	c := v.Dial()
	fillVolume(t, c, size)
	victim := v.Replicas[1]
	away := func(what string, writes int, meanwhile func()) {
		victim.Kill()
		for i := range writes {
			if _, err := c.WriteAt([]byte(fmt.Sprintf("%-4096s", what)), int64(i)*5*mib+int64(i)*8192); err != nil {
				t.Fatal(err)
			}
		}
		v.Await("degraded", func(s *enginev1.State) bool { return rig.Modes(s)[enginev1.Mode_MODE_RW] == 2 })
		meanwhile()
		victim.Start()
		v.Rebuild(victim)
		sent, looked := lastRebuilt(t, v)
		t.Logf("%s: %d writes of 4 KiB missed, %d bytes sent, %d compared, of a volume of %d", what, writes, sent,
			looked, int64(size))
		if sent > int64(writes)*4*mib || sent > size/4 {
			t.Errorf("%s: %d bytes sent for %d writes", what, sent, writes)
		}
	}
	away("killed", 10, func() {})
	away("killed, another engine", 10, func() {
		v.StopEngine()
		v.StartEngine(v.Replicas[0], v.Replicas[2])
		c = v.Dial()
	})
	away("killed twice", 10, func() {
		victim.Start()
		if _, err := addReplica(v, victim); err == nil {
			victim.Kill()
			v.Await("dropped again", func(s *enginev1.State) bool {
				return rig.Modes(s)[enginev1.Mode_MODE_RW] == 2 && rig.Modes(s)[enginev1.Mode_MODE_WO] == 0
			})
		}
		victim.Kill()
	})
	finish(t, v)
}

// addReplica asks the engine to take a replica in, and does not wait for it.
func addReplica(v *rig.Volume, r *rig.Replica) (*enginev1.State, error) {
	ctx, cancel := context.WithTimeout(context.Background(), operation)
	defer cancel()
	return v.Control().ReplicaAdd(ctx, &enginev1.ReplicaAddRequest{Address: "tcp://" + r.Addr})
}

// The source of a rebuild is killed midway: another replica takes over and nothing begins anew.
func TestSourceKilledMidway(t *testing.T) {
	t.Parallel()
	const size = 128 * mib
	v, err := rig.Open(t, rig.Config{Replicas: 3, Size: size, EngineFlags: []string{"--rebuild-bandwidth", "32Mi"}})
	if err != nil {
		t.Fatal(err)
	}
	v.StartEngine()
	fillVolume(t, v.Dial(), size)
	victim := v.Replicas[1]
	victim.Kill()
	v.Await("degraded", func(s *enginev1.State) bool { return rig.Modes(s)[enginev1.Mode_MODE_RW] == 2 })
	if err := os.RemoveAll(victim.Dir); err != nil {
		t.Fatal(err)
	}
	victim.Start()
	if _, err := addReplica(v, victim); err != nil {
		t.Fatal(err)
	}
	from := ""
	v.Await("a fifth is copied", func(s *enginev1.State) bool {
		for _, x := range s.Replicas {
			if r := x.Rebuild; r != nil && r.Running && r.DoneBytes > size/5 {
				from = r.FromAddress
				return true
			}
		}
		return false
	})
	for _, r := range v.Replicas {
		if "tcp://"+r.Addr == from {
			r.Kill()
		}
	}
	v.Await("rebuilt from another source", func(s *enginev1.State) bool { return victim.Mode(s) == enginev1.Mode_MODE_RW })
	sent, _ := lastRebuilt(t, v)
	t.Logf("%d bytes sent for a volume of %d whose source was killed", sent, int64(size))
	if sent > size+size/4 {
		t.Errorf("%d bytes sent: it began anew", sent)
	}
	for _, r := range v.Replicas {
		if !r.Alive() {
			r.Start()
			v.Rebuild(r)
		}
	}
	finish(t, v)
}
