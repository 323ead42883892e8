package crash

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
)

// copyDir makes to what from is, with the times of its files.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", "--sparse=always", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestF19OldState: the directory of the only copy is replaced by what it was one start before. The
// engine refuses it, says that it is old, and changes nothing of the volume's record.
func TestF19OldState(t *testing.T) {
	t.Parallel()
	v := rig.New(t, 1, 16*mib)
	r := v.Replicas[0]
	write := func(fill byte) {
		t.Helper()
		v.StartEngine()
		if _, err := v.Dial().WriteAt(bytes.Repeat([]byte{fill}, mib), 0); err != nil {
			t.Fatal(err)
		}
		v.StopEverything()
	}
	write(1)
	copyDir(t, r.Dir, r.Dir+".old")
	r.Start()
	write(2)
	now := r.Dir + ".now"
	copyDir(t, r.Dir, now)
	copyDir(t, r.Dir+".old", r.Dir)
	r.Start()
	v.SpawnEngine()
	if status, said := v.EngineExit(); status != 61 || !strings.Contains(said, "an older state") {
		t.Fatalf("F19: the engine ends with %d and says\n%s", status, said)
	}
	r.Stop()
	copyDir(t, now, r.Dir)
	r.Start()
	v.StartEngine()
	check(t, v, append(bytes.Repeat([]byte{2}, mib), make([]byte, 15*mib)...))
}

// TestF19SecondHead: somebody copies the head of one copy, changes it, and names it in volume.meta.
// Its process ends with both names in the reason, both files stay, and the volume is what it was.
func TestF19SecondHead(t *testing.T) {
	t.Parallel()
	v := rig.New(t, 3, 16*mib)
	v.StartEngine()
	model := make([]byte, v.Size)
	copy(model, bytes.Repeat([]byte{1}, mib))
	if _, err := v.Dial().WriteAt(model[:mib], 0); err != nil {
		t.Fatal(err)
	}
	v.StopEverything()
	r := v.Replicas[0]
	meta := filepath.Join(r.Dir, "volume.meta")
	text, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	head := "volume-head-000.img"
	second := filepath.Join(r.Dir, "volume-head-009.img")
	for _, suffix := range []string{"", ".meta"} {
		copyDir(t, filepath.Join(r.Dir, head+suffix), second+suffix)
	}
	f, err := os.OpenFile(second, os.O_RDWR, 0)
	if err == nil {
		if _, err = f.WriteAt(bytes.Repeat([]byte{9}, 4096), 0); err == nil {
			err = f.Close()
		}
	}
	named := bytes.Replace(text, []byte(`"Head":"`+head), []byte(`"Head":"volume-head-009.img`), 1)
	if err != nil || bytes.Equal(named, text) || os.WriteFile(meta, named, 0o644) != nil {
		t.Fatalf("%v; volume.meta is %s", err, text)
	}
	r.Spawn(0)
	status, said := r.Exit(), r.Log()
	if status != 65 || !strings.Contains(said, head) || !strings.Contains(said, "volume-head-009.img") {
		t.Errorf("F19: the process ends with %d and says\n%s", status, said)
	}
	for _, name := range []string{head, "volume-head-009.img"} {
		if _, err := os.Stat(filepath.Join(r.Dir, name)); err != nil {
			t.Error(err)
		}
	}
	for _, o := range v.Replicas[1:] {
		o.Start()
	}
	v.StartEngine(v.Replicas[1:]...)
	check(t, v, model)
	if err := os.RemoveAll(r.Dir); err != nil { // as the control plane makes a new copy
		t.Fatal(err)
	}
	r.Start()
	v.Rebuild(r)
	if s, err := v.State(); err != nil || rig.Modes(s)[enginev1.Mode_MODE_RW] != 3 {
		t.Errorf("after the rebuild: %v %v", s, err)
	}
	check(t, v, model)
}
