package handover_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// scatter makes a layer of a directory that nobody has a file in so many pieces, a block and a hole
// by turns. Content is written to the first of them; the others are space only.
func scatter(t *testing.T, file string, pieces, written int) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // synced below
	for i := range int64(pieces) {
		if i < int64(written) {
			_, err = f.WriteAt(bytes.Repeat([]byte{byte(1 + i%255)}, 4096), i*8192)
		} else {
			err = unix.Fallocate(int(f.Fd()), 0, i*8192, 4096)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// offline does something to every directory while nothing runs, and has it taken as it is then.
func (p *place) offline(change func(dir string)) {
	p.t.Helper()
	p.v.StopEngine()
	for _, r := range p.v.Replicas {
		r.Stop()
		change(r.Dir)
		if err := os.Remove(filepath.Join(r.Dir, "ankole.meta")); err != nil {
			p.t.Fatal(err)
		}
		r.Start()
	}
	p.v.SpawnEngine()
	p.old = p.v.Engine()
	serves(p.t, "engine", p.old)
}

// A purge goes on in the next engine where it was.
func TestPurgeGoesOnAfterAHandOver(t *testing.T) {
	// So many that copying them takes longer than it takes to begin the upgrade.
	const pieces = 6000
	ctx := context.Background()
	p := &place{t: t, v: open(t, rig.Config{Replicas: 2, Size: pieces * 8192, NoFrontend: true})}
	p.v.SpawnEngine()
	serves(t, "engine", p.v.Engine())
	for _, name := range []string{"s1", "s2"} {
		if _, err := p.v.Engine().Control().SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	p.offline(func(dir string) { scatter(t, filepath.Join(dir, "volume-snap-s2.img"), pieces, pieces) })
	p.next = standbys(p.v)
	c := p.old.Control()
	if _, err := c.SnapshotRemove(ctx, &enginev1.SnapshotRemoveRequest{Name: "s1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{}); err != nil {
		t.Fatal(err)
	}
	p.new = p.v.Upgrade(nil, p.next...)
	p.taken()
	if strings.Contains(p.old.Log(), "event=purged") {
		t.Logf("the purge had ended before the engine was replaced:\n%s", p.old.Log())
	} else {
		wait.Until(t, "the new engine goes on with the purge", func() bool {
			return strings.Contains(p.new.Log(), "event=purging")
		})
	}
	wait.Until(t, "the purge is done", func() bool {
		s, err := p.new.State()
		return err == nil && s.Snapshots["s1"] == nil && s.Snapshots["s2"] != nil && !purging(s)
	})
	for _, r := range p.next {
		if _, err := os.Stat(filepath.Join(r.Dir, "volume-snap-s1.img")); !os.IsNotExist(err) {
			t.Errorf("%s: the snapshot that was purged is still there: %v", r.Name, err)
		}
		checkScattered(t, filepath.Join(r.Dir, "volume-snap-s2.img"), pieces)
	}
	p.useful(p.new)
}

func purging(s *enginev1.State) bool {
	for _, r := range s.Replicas {
		if r.GetPurge().GetRunning() || r.GetPurge().GetState() == "error" {
			return true
		}
	}
	return false
}

// checkScattered reads what scatter has written.
func checkScattered(t *testing.T, file string, pieces int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, 8192)
	for i := range int64(pieces) {
		if n, err := f.ReadAt(got, i*8192); n < 4096 {
			t.Fatal(err)
		}
		if want := bytes.Repeat([]byte{byte(1 + i%255)}, 4096); !bytes.Equal(got[:4096], want) {
			t.Fatalf("%s: block %d has other content", file, 2*i)
		}
	}
}

// How long an upgrade of a volume in many pieces takes. ANKOLE_PIECES says in how many, TMPDIR
// the disk.
func TestPauseByPieces(t *testing.T) {
	pieces, err := strconv.Atoi(os.Getenv("ANKOLE_PIECES"))
	if err != nil {
		lack.Later(t, "measures; set ANKOLE_PIECES to a number of pieces")
	}
	p := &place{t: t, v: open(t, rig.Config{Replicas: 3, Size: int64(pieces) * 8192, NoFrontend: true})}
	p.v.SpawnEngine()
	p.old = p.v.Engine()
	serves(t, "engine", p.old)
	wait.Until(t, "the members are agreed", func() bool { return strings.Contains(p.old.Log(), "event=members") })
	p.offline(func(dir string) { scatter(t, filepath.Join(dir, "volume-head-000.img"), pieces, 0) })
	for i := range 3 {
		p.next = standbys(p.v)
		p.new = p.v.Upgrade(nil, p.next...)
		p.taken()
		maps := 0
		for _, r := range p.next {
			maps += strings.Count(r.Log(), "block map taken over")
		}
		t.Logf("upgrade %d of %d pieces: %v, %d maps taken over", i, pieces, p.pause(), maps)
		for _, r := range p.v.Replicas {
			r.Stop()
		}
		p.v.Replicas, p.old = p.next, p.new
	}
	p.v.StopEngine()
}
