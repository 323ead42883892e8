package filesystem

import (
	"os"
	"path/filepath"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/powerdisk"
)

// TestTrimGivesSnapshotsUp: a file that two snapshots have is removed, and the file system is
// mounted anew and trimmed. With the option both are marked as removed and without the file at
// once, on every replica; without it nothing of them changes.
func TestTrimGivesSnapshotsUp(t *testing.T) {
	fs := fileSystems[0]
	fs.size = 256 * mib
	for name, flags := range map[string][]string{"with the option": {"--unmap-mark-snap-chain-removed"}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			m := mount(t, fs, 2, flags...)
			const file, again = 100 * mib, 20 * mib
			m.writeFile("kept", 8*mib)
			m.writeFile("file", file)
			m.sync()
			m.snapshot("s1")
			m.writeFile("file", again) // in place: in the second one too
			m.sync()
			m.snapshot("s2")
			before := m.sizes()
			full := m.allocated()
			if err := os.Remove(filepath.Join(m.dir, "file")); err != nil {
				t.Fatal(err)
			}
			if err := powerdisk.Unmount(m.dir); err != nil {
				t.Fatal(err)
			}
			m.remount()
			m.command("fstrim", m.dir)
			after := m.sizes()
			for name, holds := range map[string]int64{"s1": file, "s2": again} {
				want, removed := before[name].Size, false
				if flags != nil {
					want, removed = want-holds, true
				}
				if s := after[name]; s.Removed != removed || s.Size > want+mib || s.Size < want-mib {
					t.Errorf("%s: removed %v, %d bytes, want removed %v, about %d; it had %d", name, s.Removed, s.Size, removed, want,
						before[name].Size)
				}
			}
			for i, n := range m.allocated() {
				if flags != nil && n > full[i]-file-again+2*mib {
					t.Errorf("replica %d occupies %d bytes, %d before", i, n, full[i])
				}
			}
			m.end()
		})
	}
}

// sizes are the snapshots as the engine lists them now.
func (m *mounted) sizes() map[string]*enginev1.Snapshot {
	m.t.Helper()
	s, err := m.State()
	if err != nil {
		m.t.Fatal(err)
	}
	return s.Snapshots
}
