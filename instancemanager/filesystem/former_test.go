package filesystem

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// node is the path of the volume's block device.
func (d *disk) node() string { return filepath.Join(devicePlaces, "longhorn", d.volume) }

// mountByNode mounts the file system from the volume's node, as its users do.
func (d *disk) mountByNode() *disk {
	d.t.Helper()
	d.mount()
	if err := errors.Join(unix.Unmount(d.at, 0), unix.Mount(d.node(), d.at, "ext4", 0, "")); err != nil {
		d.t.Fatal(err)
	}
	return d
}

// replacedBy has the volume's node lead to another device.
func (d *disk) replacedBy(next *disk) {
	d.t.Helper()
	if err := errors.Join(os.Remove(d.node()), os.Symlink(next.loop, d.node())); err != nil {
		d.t.Fatal(err)
	}
}

// A file system is left frozen by a process that was killed, and its device ends; the volume has
// another one by now, or none. The file system is thawed all the same: whoever writes to it could
// not even be killed. The mark stays until the volume's present file system was looked at too.
func TestFrozenOnAFormerDevice(t *testing.T) {
	former := newDisk(t, "former").mountByNode()
	freeze := func() {
		t.Helper()
		former.leaveMark(former.volume)
		if err := former.ioctl(fifreeze); err != nil {
			t.Fatal(err)
		}
	}
	freeze()
	next := newDisk(t, "former-next")
	former.replacedBy(next)
	former.recovered(former.q, former.volume)
	if former.frozen() || !former.marked() {
		t.Fatalf("while the next one is not mounted: frozen %v, marked %v\n%s", former.frozen(), former.marked(), former.said)
	}
	if err := former.ioctl(fifreeze); err != nil {
		t.Fatal(err)
	}
	next.mount()
	if err := next.ioctl(fifreeze); err != nil {
		t.Fatal(err)
	}
	former.recovered(former.q, former.volume)
	if former.frozen() || next.frozen() || former.marked() {
		t.Fatalf("frozen %v, the next one %v, marked %v\n%s", former.frozen(), next.frozen(), former.marked(), former.said)
	}
	freeze()
	if err := os.Remove(former.node()); err != nil {
		t.Fatal(err)
	}
	former.recovered(former.q, former.volume)
	if former.frozen() {
		t.Errorf("where the volume has no device any more it stays frozen\n%s", former.said)
	}
	former.write("afterwards")
	if former.said.Len() > 0 {
		t.Errorf("it has complained: %s", former.said)
	}
}

// A file system on a former device cannot be thawed, since another mount covers it: a snapshot has
// what was written to the present one all the same.
func TestSnapshotBesideAFormerDevice(t *testing.T) {
	former := newDisk(t, "covered-former").mountByNode()
	next := newDisk(t, "covered-former-next")
	former.replacedBy(next)
	next.at = former.at
	next.mount()
	former.leaveMark(former.volume)
	content := next.write("present")
	former.q.Quiesce(t.Context(), former.volume, true)()
	if !next.has(content) || next.frozen() || !former.marked() {
		t.Errorf("on the disk %v, frozen %v, marked %v\n%s", next.has(content), next.frozen(), former.marked(), former.said)
	}
	if !strings.Contains(former.said.String(), errFormer.Error()) {
		t.Errorf("it says %s", former.said)
	}
}
