package filesystem

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/test/lack"
)

// Something else is mounted on top of a volume's mount: that is not frozen, trimmed or made
// writable. The volume's file system is reached by another mount of it, or not at all.
func TestCoveredMount(t *testing.T) {
	for _, row := range []struct {
		name    string
		another bool
	}{{"alone", false}, {"with-another-mount", true}} {
		t.Run(row.name, func(t *testing.T) {
			lower := newDisk(t, "lower-"+row.name).mount()
			if row.another {
				other := filepath.Join(t.TempDir(), "other")
				if err := errors.Join(os.Mkdir(other, 0o700), unix.Mount(lower.at, other, "", unix.MS_BIND, "")); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := unix.Unmount(other, 0); err != nil {
						t.Error(err)
					}
				})
			}
			content := lower.write("below")
			upper := newDisk(t, "upper-"+row.name)
			upper.at = lower.at
			upper.mount()
			resume := lower.q.Quiesce(t.Context(), lower.volume, true)
			if upper.frozen() {
				t.Error("the file system on top is frozen for a snapshot of the volume below it")
			}
			said := lower.said.String()
			if row.another && (said != "" || !lower.has(content)) {
				t.Errorf("on the disk %v; it says %s", lower.has(content), said)
			} else if !row.another && !strings.Contains(said, ErrCovered.Error()) {
				t.Errorf("it says %s", said)
			}
			resume()
			if _, err := new(Node).Trim(lower.volume); errors.Is(err, ErrCovered) == row.another {
				t.Error(err)
			}
			if err := unix.Mount("", upper.at, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			list, err := mounts(ownProcess, lower.volume)
			if err != nil {
				t.Fatal(err)
			}
			err = inNamespaceOf(ownProcess, func() error {
				return opened(&list[0], func(fd int) error { return writable(lower.volume, &list[0], fd) })
			})
			if _, change, lerr := look(ownProcess, upper.volume); !errors.Is(err, ErrCovered) || !change || lerr != nil {
				t.Errorf("made writable: %v; the one on top is read-only: %v, %v", err, change, lerr)
			}
		})
	}
}

// A file system that has numbers of its own in the list of mounts.
func TestQuiesceBtrfs(t *testing.T) {
	if _, err := exec.LookPath("mkfs.btrfs"); err != nil {
		lack.Skip(t, "needs mkfs.btrfs of btrfs-progs")
	}
	d := newDisk(t, "btrfs")
	if err := os.Truncate(d.file, 256<<20); err != nil { // the least that it takes is 109 MiB
		t.Fatal(err)
	}
	run(t, "losetup", "--set-capacity", d.loop)
	d.mountAs("btrfs")
	content := d.write("frozen")
	resume := d.q.Quiesce(t.Context(), d.volume, true)
	if !d.has(content) || !d.frozen() || d.said.Len() > 0 {
		t.Errorf("on the disk %v, frozen %v; %s", d.has(content), d.frozen(), d.said)
	}
	resume()
	if d.frozen() {
		t.Error("it stays frozen")
	}
}
