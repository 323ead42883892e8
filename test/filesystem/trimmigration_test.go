package filesystem

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/test/powerdisk"
)

// TestTrimOnTheTargetOfAMigration: a trim through the process that stands in for the engine on
// another node gives snapshots up as one beside the engine does.
func TestTrimOnTheTargetOfAMigration(t *testing.T) {
	fs := fileSystems[0]
	m := mount(t, fs, 2, "--unmap-mark-snap-chain-removed")
	const file = 32 * mib
	m.writeFile("file", file)
	m.sync()
	m.snapshot("s1")
	before := m.sizes()["s1"]
	if err := os.Remove(filepath.Join(m.dir, "file")); err != nil {
		t.Fatal(err)
	}
	if err := powerdisk.Unmount(m.dir); err != nil {
		t.Fatal(err)
	}
	s := m.StandIn(m.EngineHosts[1], m.Engine())
	s.AwaitUp()
	there := filepath.Join(m.EngineHosts[1].Dir, "dev", m.Name)
	if err := unix.Mount(there, m.dir, fs.name, 0, ""); err != nil {
		t.Fatalf("mount %s: %v", there, err)
	}
	m.command("fstrim", m.dir)
	if s := m.sizes()["s1"]; !s.Removed || s.Size > before.Size-file+mib {
		t.Errorf("removed %v, %d bytes; it had %d", s.Removed, s.Size, before.Size)
	}
	if err := powerdisk.Unmount(m.dir); err != nil {
		t.Fatal(err)
	}
	s.Signal(syscall.SIGINT)
	s.Exit()
	m.remount()
	m.end()
}
