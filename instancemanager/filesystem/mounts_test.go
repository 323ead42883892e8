package filesystem

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ankole.storage/host/hostpath"
	"ankole.storage/host/mountinfo"
	"ankole.storage/test/lack"
)

// A writable mount is taken if there is one, so that those that are read-only on purpose stay; else
// the oldest.
func TestChoose(t *testing.T) {
	m := func(id int, own, super string) mountinfo.Mount {
		return mountinfo.Mount{ID: id, Options: []string{own}, Super: []string{super}}
	}
	for _, row := range []struct {
		list   []mountinfo.Mount
		id     int
		change bool
	}{
		{[]mountinfo.Mount{m(5, "rw", "ro")}, 5, true},
		{[]mountinfo.Mount{m(5, "ro", "ro"), m(7, "rw", "ro")}, 7, true},
		{[]mountinfo.Mount{m(7, "ro", "ro"), m(5, "ro", "ro")}, 5, true},
		{[]mountinfo.Mount{m(5, "rw", "rw"), m(6, "ro", "rw")}, 5, false},
		{[]mountinfo.Mount{m(5, "ro", "rw")}, 5, true},
	} {
		got, err := best("v", row.list)
		if err != nil {
			t.Fatal(err)
		}
		if change := isReadOnly(&got[0]); got[0].ID != row.id || change != row.change {
			t.Errorf("%+v: %+v %v", row, got, change)
		}
	}
	if _, err := best("v", nil); !errors.Is(err, ErrNotMounted) {
		t.Error(err)
	}
}

// Whose mounts count: a process has mounts of its own if its namespace is not that of the host's
// first process, where that is known.
func TestApart(t *testing.T) {
	dir := t.TempDir()
	process := func(name, namespace string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Join(path, "ns"), 0o700),
			os.Symlink(namespace, filepath.Join(path, mountsOf))); err != nil {
			t.Fatal(err)
		}
		return path
	}
	host, same, other := process("host", "mnt:[1]"), process("same", "mnt:[1]"), process("other", "mnt:[2]")
	missing := filepath.Join(dir, "missing")
	for name, row := range map[string]struct {
		host, own string
		apart     bool
	}{
		"process node":               {missing, same, false},
		"the machine's namespace":    {host, same, false},
		"a container":                {host, other, true},
		"nobody knows which it is":   {host, missing, true},
		"a process node without any": {missing, missing, false},
	} {
		if got := apart(row.host, row.own); got != row.apart {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestNames(t *testing.T) {
	var n Node
	for _, name := range []string{"", "..", "a/b", strings.Repeat("x", 300)} {
		if err := n.Remount(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := n.Remount("nobody-has-this-volume"); !errors.Is(err, ErrNotMounted) {
		t.Error(err)
	}
}

// The mount is made writable in the namespace that it is in, which is not that of the test.
func TestInAnotherNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		lack.Skip(t, "needs root, to mount")
	}
	dir := t.TempDir()
	host := exec.Command("unshare", "--mount", "sh", "-c",
		`mount -t tmpfs -o ro,nosuid,sync,lazytime,size=64k none "$0" && echo mounted && read x`, dir)
	in, err := host.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = host.Wait() }) // "read" ends with its input
	if n, err := out.Read(make([]byte, 8)); n == 0 {
		lack.Skip(t, "cannot mount in a namespace of its own here: ", err)
	}
	process := fmt.Sprintf("/proc/%d", host.Process.Pid)
	find := func(process string) (found *mountinfo.Mount) {
		f, err := os.Open(filepath.Join(process, "mountinfo"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		err = mountinfo.Each(f, func(m *mountinfo.Mount) {
			if m.Target == dir {
				c := *m
				found = &c
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	m := find(process)
	if m == nil || !m.ReadOnly() || find(ownProcess) != nil {
		t.Fatalf("mounted as %+v", m)
	}
	if err := inNamespaceOf(process, func() error {
		return opened(m, func(fd int) error { return writable("v", m, fd) })
	}); err != nil {
		t.Fatal(err)
	}
	before := m
	if m = find(process); isReadOnly(m) ||
		!strings.Contains(strings.Join(m.Options, ","), "nosuid") {
		t.Errorf("%+v afterwards", m)
	}
	for _, o := range []string{"sync", "lazytime"} {
		if !strings.Contains(strings.Join(before.Super, ","), o) {
			t.Fatalf("mounted without %s: %+v", o, before)
		}
		if !strings.Contains(strings.Join(m.Super, ","), o) {
			t.Errorf("the file system has lost %s: %+v", o, m)
		}
	}
	if find(ownProcess) != nil {
		t.Error("the test's own namespace has it now")
	}
	if hostpath.Resolve(hostProcess) != hostProcess {
		t.Error("the test runs with a mount map") // it would not see what a Pod sees
	}
}

// What stands on a volume's device is the volume's. A file system that has numbers of its own in
// the list of mounts is found by its source, if it is of a kind that has a device there and not any
// text. A device that was the volume's before is told apart, by the path from which it was mounted;
// one on top of it by the file below that.
func TestMountsOfAVolume(t *testing.T) {
	d := newDisk(t, "listed")
	dir := t.TempDir()
	sys := devicesBy
	defer func() { devicesBy = sys }()
	devicesBy = dir + "/"
	below := func(upper, file string) {
		loop := filepath.Join(dir, upper, "slaves/loop99/loop")
		if err := errors.Join(os.MkdirAll(loop, 0o700), os.WriteFile(filepath.Join(loop, "backing_file"),
			[]byte(file+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	below("253:1", "/run/fuse/listed/listed")
	below("253:2", "/listed (deleted)")
	below("253:3", "/images/of-the-host")
	ownPath, mapped := devicePlaces+"/longhorn/listed", devicePlaces+"/mapper/listed"
	rows := []struct {
		line         string
		ours, former bool
	}{
		{numbersOf(d.loop) + " / /a rw - ext4 /dev/any rw", true, false},
		{"0:45 / /b rw - btrfs /dev/longhorn/listed rw", true, false},
		{"0:46 / /c rw - btrfs " + d.loop + " rw", true, false},
		{"0:47 / /d rw - tmpfs /dev/longhorn/listed rw", false, false},
		{"0:48 / /e rw - fuse.any /dev/longhorn/listed rw", false, false},
		{"0:49 / /f rw - btrfs /dev/longhorn/other rw", false, false},
		{"0:50 / /g rw - btrfs listed rw", false, false},
		{"259:7 / /h rw - btrfs /dev/longhorn/listed rw", false, false},
		{"7:999 / /i rw - ext4 " + ownPath + " rw,emergency_ro", false, true},
		{"7:999 / /j rw - ext4 " + ownPath + "-2 rw", false, false},
		{"0:51 / /k rw - tmpfs " + ownPath + " rw", false, false},
		{"253:1 / /l rw - ext4 " + mapped + " rw", false, true},
		{"253:2 / /m rw - ext4 " + mapped + " rw", false, true},
		{"253:3 / /n rw - ext4 " + mapped + " rw", false, false},
		{"253:4 / /o rw - ext4 " + mapped + " rw", false, false},
	}
	var table strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&table, "%d 1 %s\n", i, row.line)
	}
	if err := os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(table.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	of, err := mountsIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	own, former := of("listed")
	worked, err := mounts(dir, "listed")
	if err != nil || !reflect.DeepEqual(worked, own) {
		t.Errorf("work is done on %v, %v, not on %v", worked, err, own)
	}
	has := func(list []mountinfo.Mount, id int) bool {
		return slices.ContainsFunc(list, func(m mountinfo.Mount) bool { return m.ID == id })
	}
	for i, row := range rows {
		if has(own, i) != row.ours || has(former, i) != row.former {
			t.Errorf("%s: found %v, as a former one %v", row.line, has(own, i), has(former, i))
		}
	}
	if err := os.Remove(ownPath); err != nil {
		t.Fatal(err)
	}
	if own, former := of("listed"); len(own) != 0 || len(former) != 3 {
		t.Errorf("without a node: %v, formerly %v", own, former)
	}
}
