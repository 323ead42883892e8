package chain

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/chain/twoslot"
	"ankole.storage/dataplane/disk/memdisk"
)

// A process that is killed between writing a slot and syncing it leaves one that a loss of power
// may take back. The next process writes over the other one, which is the last that is durable:
// whatever it loses to a loss of power, that record or a newer one remains.
func TestCrashAfterAKillDuringASidecarWrite(t *testing.T) {
	stamp := Stamp{7}
	log := format(dirtyMagic)
	record := func(n byte) []byte { return bytes.Repeat([]byte{n}, log.Room()) } // every sector of a slot differs
	for seed := range uint64(300) {
		fs := memdisk.New()
		s, err := createSlotFile(fs, "/s", log, stamp, record(0))
		if err != nil {
			t.Fatal(err)
		}
		if err := fs.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
		for _, durable := range []byte{1, 2} {
			if err := s.write(record(durable)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.put(record(3)); err != nil { // killed before the sync
			t.Fatal(err)
		}
		next, _, err := openSlotFile(fs, "/s", log, stamp, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := next.put(record(4)); err != nil { // power goes before the sync
			t.Fatal(err)
		}
		after, err := fs.Crash(seed).ReadFile("/s", 2*slotSize)
		if err != nil {
			t.Fatal(err)
		}
		if p := log.Newest(twoslot.Owner{Key: stamp}, after); p.Valid == 0 || p.Payload[0] < 2 {
			t.Fatalf("seed %d: record 2 was durable; left is %v (valid %v)", seed, p.Payload[:min(len(p.Payload), 1)], p.Valid)
		}
	}
}
