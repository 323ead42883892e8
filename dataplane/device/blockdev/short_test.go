package blockdev_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/test/descriptors"
)

// TestLoopDevicesWithoutDescriptors: who cannot look says so, and not that there is none: a device
// that waits for its next engine would be given up.
func TestLoopDevicesWithoutDescriptors(t *testing.T) {
	restore := descriptors.None(t)
	_, short := blockdev.Backing("/nowhere")
	restore()
	if !errors.Is(short, unix.EMFILE) {
		t.Errorf("without descriptors: %v", short)
	}
	if list, err := blockdev.Backing("/nowhere"); len(list) > 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
}

// TestMountsThatComeAndGo: a kernel leaves a line out of the list of mounts while another mount
// goes. That the volume's mount is gone is believed when the list says so twice.
func TestMountsThatComeAndGo(t *testing.T) {
	const other, ours = "36 27 0:39 / /mnt/other rw - tmpfs x rw\n", "42 27 0:40 / /run/a\\040vol rw - fuse.ankole x rw\n"
	for _, row := range []struct {
		name  string
		lists []string // the last one is read again and again
		want  bool
	}{
		{"there", []string{other + ours}, true},
		{"left out once", []string{other, other + ours}, true},
		{"left out while others go", []string{other + other + other, other + other, other, ours}, true},
		{"gone", []string{other}, false},
		{"no mounts at all", []string{""}, false},
	} {
		reads := 0
		got, err := blockdev.IsMounted("/run/a vol", func() ([]byte, error) {
			reads++
			return []byte(row.lists[min(reads, len(row.lists))-1]), nil
		})
		if err != nil || got != row.want {
			t.Errorf("%s: mounted %v after %d looks, %v", row.name, got, reads, err)
		}
	}
	changing := 0
	if got, err := blockdev.IsMounted("/run/a vol", func() ([]byte, error) {
		changing++
		return []byte(strings.Repeat(other, changing)), nil
	}); got || err != nil || changing > 10 {
		t.Errorf("a list that never is the same: mounted %v after %d looks, %v", got, changing, err)
	}
}
