package powerloss

import (
	"path/filepath"
	"strings"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
	"ankole.storage/test/rig"
)

// TestFailedSyncEndsTheReplica breaks the disk of one replica: the flush succeeds on the other, the
// replica's process ends and says why, and is no member any more.
func TestFailedSyncEndsTheReplica(t *testing.T) {
	needDisks(t)
	d, err := run.Open("failing", powerdisk.Options{Image: powerdisk.NewImage(diskSize("ext4"))})
	if err != nil {
		t.Fatal(err)
	}
	v := rig.New(t, 1, 8*mib)
	t.Cleanup(func() {
		v.KillAll()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.Format("ext4"); err != nil {
		lack.Skip(t, err)
	}
	at, err := d.Mount("ext4")
	if err != nil {
		lack.Skip(t, err)
	}
	r := v.AddReplica("vol-00000001")
	r.Dir = filepath.Join(at, r.Name)
	r.Start()
	v.StartEngine()
	c := v.Dial()
	if _, err := c.WriteAt(make([]byte, mib), 0); err != nil {
		t.Fatal(err)
	}
	d.FailSyncs()
	if err := c.Flush(); err != nil {
		t.Fatalf("the flush failed, although one replica has a good disk: %v", err)
	}
	if code := r.Exit(); code == 0 || !strings.Contains(r.Log(), "disk failed") {
		t.Errorf("the replica ended with %d, saying\n%s", code, r.Log())
	}
	s, err := v.State()
	if err != nil || rig.Modes(s)[enginev1.Mode_MODE_RW] != 1 || r.Mode(s) != enginev1.Mode_MODE_ERR {
		t.Errorf("the engine's replicas are %v, %v", s.GetReplicas(), err)
	}
}
