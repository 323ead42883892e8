package filesystem

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// F17: a trim of a file system whose volume has a snapshot takes no space on any replica, gives
// back what was written since, and leaves the snapshot as it was; a rebuilt replica is no larger;
// when the snapshot is gone its space is too.
func TestF17TrimOverASnapshot(t *testing.T) {
	fs := fileSystems[0]
	m := mount(t, fs, 3)
	const kept, since = 32 * mib, 24 * mib
	m.writeFile("kept", kept)
	m.writeFile("over", since/2)
	m.sync()
	m.snapshot("before")
	image := m.hashOf(0, "volume-snap-before.img")
	m.writeFile("since", since)
	m.writeFile("over", since/2) // in place: in the head, and in the snapshot
	m.sync()
	full := m.allocated()
	for _, name := range []string{"kept", "since", "over"} {
		if err := os.Remove(filepath.Join(m.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.sync()
	m.command("fstrim", m.dir)
	m.sync()
	// What a file system writes of its own for it, and pages of whiteouts.
	const slack = 2 * mib
	trimmed := m.allocated()
	for i, n := range trimmed {
		if n > full[i]-since-since/2+slack {
			t.Errorf("replica %d: the trim has changed its space from %d to %d; %d were written since the snapshot", i,
				full[i], n, since+since/2)
		}
		if n := n - trimmed[0]; n > mib/4 || n < -mib/4 {
			t.Errorf("replica %d has %d bytes more than the first one", i, n)
		}
	}
	if got := m.hashOf(0, "volume-snap-before.img"); got != image {
		t.Error("the snapshot's file has changed")
	}

	// A replica that has lost everything gets whiteouts, not zeroes.
	lost := m.Replicas[2]
	m.lose(2, func() {
		if err := os.RemoveAll(lost.Dir); err != nil {
			t.Fatal(err)
		}
	})
	m.sync()
	if n := m.allocated()[2]; n > trimmed[2]+slack {
		t.Errorf("a replica made anew occupies %d bytes, the old one %d", n, trimmed[2])
	}

	m.purge("before")
	for i, n := range m.allocated() {
		if n > trimmed[i]-kept-since/2+slack {
			t.Errorf("replica %d occupies %d bytes without the snapshot, %d with it; it held %d", i, n, trimmed[i], kept+since/2)
		}
	}
	m.end()
}

// purge removes a snapshot and waits until every replica has given its space back.
func (m *mounted) purge(snapshot string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := m.Control().SnapshotRemove(ctx, &enginev1.SnapshotRemoveRequest{Name: snapshot}); err != nil {
		m.t.Fatal(err)
	}
	if _, err := m.Control().SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{}); err != nil {
		m.t.Fatal(err)
	}
	m.Await("purged", func(s *enginev1.State) bool {
		for _, r := range s.Replicas {
			if r.Mode == enginev1.Mode_MODE_RW && (r.GetPurge().GetRunning() || r.GetPurge().GetState() != "complete") {
				return false
			}
		}
		return true
	})
}

func (m *mounted) writeFile(name string, n int) {
	m.t.Helper()
	f, err := os.OpenFile(filepath.Join(m.dir, name), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close() // synced below
	if _, err := io.CopyN(f, rand.NewChaCha8([32]byte{byte(n)}), int64(n)); err != nil {
		m.t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		m.t.Fatal(err)
	}
}

// sync writes everything back, file system included.
func (m *mounted) sync() {
	m.t.Helper()
	m.command("sync", "-f", m.dir)
}

// allocated is what each replica's directory occupies.
func (m *mounted) allocated() (out []int64) {
	m.t.Helper()
	for _, r := range m.Replicas {
		total := int64(0)
		entries, err := os.ReadDir(r.Dir)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if os.IsNotExist(err) {
				continue // it is being replaced
			}
			if err != nil {
				m.t.Fatal(err)
			}
			total += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		out = append(out, total)
	}
	return out
}

func (m *mounted) hashOf(replica int, name string) string {
	m.t.Helper()
	f, err := os.Open(filepath.Join(m.Replicas[replica].Dir, name))
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close() // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		m.t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}
