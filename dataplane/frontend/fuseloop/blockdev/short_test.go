package blockdev_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
)

// TestLoopDevicesWithoutDescriptors: who cannot look says so, and not that there is none: a device
// that waits for its next engine would be given up.
func TestLoopDevicesWithoutDescriptors(t *testing.T) {
	last, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	// descriptors are numbered from below, and all up to this one are in use
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(last.Fd()), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	_, short := blockdev.Backing("/nowhere")
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(short, unix.EMFILE) {
		t.Errorf("without descriptors: %v", short)
	}
	if list, err := blockdev.Backing("/nowhere"); len(list) > 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
}
