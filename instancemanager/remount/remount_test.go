package remount

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ankole.storage/hostpath"
	"ankole.storage/test/lack"
)

const table = `22 1 0:20 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
30 1 7:1 / /var/lib/kubelet/plugins/a\040b/globalmount rw,noatime,nosuid - ext4 /dev/longhorn/v ro,errors=remount-ro
41 30 7:1 / /pods/1 ro,relatime - ext4 /dev/longhorn/v ro
40 30 7:1 / /pods/2 rw - ext4 /dev/longhorn/v ro
50 1 253:3 / /pods/3 rw - xfs /dev/mapper/w rw
`

func TestParse(t *testing.T) {
	list, err := parse(table)
	if err != nil || len(list) != 5 {
		t.Fatal(list, err)
	}
	want := mount{id: 30, device: "7:1", target: "/var/lib/kubelet/plugins/a b/globalmount",
		options: []string{"rw", "noatime", "nosuid"},
		super:   []string{"ro", "errors=remount-ro"}}
	if !reflect.DeepEqual(list[1], want) {
		t.Errorf("%+v, want %+v", list[1], want)
	}
	for _, bad := range []string{"x\n", "a 1 0:20 / /p rw - proc proc rw\n", "22 1 0:20 / /p rw - proc\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// A writable mount is taken if there is one, so that those that are read-only on purpose stay; else
// the oldest.
func TestChoose(t *testing.T) {
	m := func(id int, own, super string) mount {
		return mount{id: id, options: []string{own}, super: []string{super}}
	}
	for _, row := range []struct {
		list   []mount
		id     int
		change bool
	}{
		{[]mount{m(5, "rw", "ro")}, 5, true},
		{[]mount{m(5, "ro", "ro"), m(7, "rw", "ro")}, 7, true},
		{[]mount{m(7, "ro", "ro"), m(5, "ro", "ro")}, 5, true},
		{[]mount{m(5, "rw", "rw"), m(6, "ro", "rw")}, 5, false},
		{[]mount{m(5, "ro", "rw")}, 5, true},
	} {
		got, change, err := choose("v", row.list)
		if got.id != row.id || change != row.change || err != nil {
			t.Errorf("%+v: %+v %v %v", row, got, change, err)
		}
	}
	if _, _, err := choose("v", nil); !errors.Is(err, ErrNotMounted) {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", strings.Repeat("x", 300)} {
		if err := Volume(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := Volume("nobody-has-this-volume"); !errors.Is(err, ErrNotMounted) {
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
	find := func(process string) *mount {
		text, err := os.ReadFile(filepath.Join(process, "mountinfo"))
		if err != nil {
			t.Fatal(err)
		}
		list, err := parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if m.target == dir {
				return &m
			}
		}
		return nil
	}
	m := find(process)
	if m == nil || !m.readOnly() || find(ownProcess) != nil {
		t.Fatalf("mounted as %+v", m)
	}
	if err := inNamespaceOf(process, func() error { return m.writable("v") }); err != nil {
		t.Fatal(err)
	}
	before := m
	if m = find(process); m.readOnly() || m.superReadOnly() ||
		!strings.Contains(strings.Join(m.options, ","), "nosuid") {
		t.Errorf("%+v afterwards", m)
	}
	for _, o := range []string{"sync", "lazytime"} {
		if !strings.Contains(strings.Join(before.super, ","), o) {
			t.Fatalf("mounted without %s: %+v", o, before)
		}
		if !strings.Contains(strings.Join(m.super, ","), o) {
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
