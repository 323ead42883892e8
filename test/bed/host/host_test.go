package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/host/mountinfo"
	"ankole.storage/test/bed/plan"
	"ankole.storage/test/lack"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		lack.Skip(t, "control groups, loop devices and interfaces need root")
	}
}

// TestCgroup: a control group has CPUs so that processes may enter, and takes them with it.
func TestCgroup(t *testing.T) {
	needRoot(t)
	path := fmt.Sprintf("/ankole-bed-test-%d", os.Getpid())
	if err := MakeCgroup(path + "/a/b"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = RemoveCgroup(path) })
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := EnterCgroup(path+"/a/b", cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	pids, err := Processes(path)
	if err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("processes %v, want %d (%v)", pids, cmd.Process.Pid, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := RemoveCgroup(path); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process ended with %v", err)
	}
	if left, err := Cgroups(path); err != nil || len(left) > 0 {
		t.Errorf("left: %v (%v)", left, err)
	}
}

// TestParameters: what was noted first is what is written back, once.
func TestParameters(t *testing.T) {
	needRoot(t)
	file := filepath.Join(t.TempDir(), "parameters")
	if err := SaveParameters(file); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(first), `"vm/overcommit_memory"`) {
		t.Fatalf("noted %s (%v)", first, err)
	}
	if err := os.WriteFile(file, []byte(`{"kernel/panic":"0"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SaveParameters(file); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(file); err != nil || string(kept) != `{"kernel/panic":"0"}` {
		t.Errorf("a second note has overwritten the first: %s (%v)", kept, err)
	}
	if err := os.WriteFile(file, first, 0o600); err != nil { // so that the machine stays as it is
		t.Fatal(err)
	}
	for range 2 {
		if err := RestoreParameters(file); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the note is still there: %v", err)
	}
}

// TestDisk: the loop device of a disk in the folder is found, and detached.
func TestDisk(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "disk")
	if err := MakeDisk(file, 64<<20); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = DetachLoop(device) })
	if have, err := LoopsBelow(dir); err != nil || !slices.Equal(have, []string{device}) {
		t.Errorf("loop devices %v, want %s (%v)", have, device, err)
	}
	if dead, err := DeadLoops(); err != nil || slices.Contains(dead, device) {
		t.Errorf("%s counts as a dead volume's: %v (%v)", device, dead, err)
	}
	if err := DetachLoop(device); err != nil {
		t.Fatal(err)
	}
	if have, err := LoopsBelow(dir); err != nil || len(have) > 0 {
		t.Errorf("loop devices %v (%v)", have, err)
	}
}

// TestServed: what an engine in any namespace serves is found in the tables of mounts.
func TestServed(t *testing.T) {
	served := map[string]bool{}
	table, err := mountinfo.Table(func() ([]byte, error) {
		return []byte("119 98 0:38 / /run/ankole/3432/fuse/a16 rw shared:77 - fuse.ankole ankole-a16 rw\n" +
			"120 98 8:1 / /srv/a5 rw shared:78 - ext4 /dev/sda1 rw\nnonsense\n"), nil
	})
	addServed(served, table)
	if want := map[string]bool{"a16": true}; err != nil || !maps.Equal(served, want) {
		t.Errorf("served %v, want %v (%v)", served, want, err)
	}
}

// TestAbortUnmounted: a FUSE connection whose file system is mounted nowhere, but in use, is ended;
// one that is mounted goes on.
func TestAbortUnmounted(t *testing.T) {
	needRoot(t)
	var connections [2]int
	var dirs [2]string
	for i := range connections {
		connections[i], dirs[i] = mountFUSE(t, "fuse.test")
		user, err := unix.Open(dirs[i], unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(user) })
	}
	if err := unix.Unmount(dirs[0], unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if !alive(connections[0]) || !alive(connections[1]) {
		t.Fatal("a connection has ended by itself")
	}
	if err := AbortUnmounted(); err != nil {
		t.Fatal(err)
	}
	if alive(connections[0]) {
		t.Error("the connection of what is mounted nowhere goes on")
	}
	if !alive(connections[1]) {
		t.Error("the connection of what is mounted has ended")
	}
}

// mountFUSE mounts a FUSE file system that nobody serves.
func mountFUSE(t *testing.T, kind string) (fd int, dir string) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		lack.Skip(t, "FUSE: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	dir = t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount("none", dir, kind, 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return fd, dir
}

// alive says whether a connection has not ended: the kernel has asked for INIT, and waits for the
// answer.
func alive(fd int) bool {
	var p [8192]byte
	_, err := unix.Read(fd, p[:])
	return err == nil || errors.Is(err, unix.EAGAIN)
}

// TestDevicesOfANode: of the engines' file systems those that only processes of the node see are
// its own, and what is ended is these.
func TestDevicesOfANode(t *testing.T) {
	needRoot(t)
	group := fmt.Sprintf("/ankole-bed-test-fuse-%d", os.Getpid())
	if err := MakeCgroup(group + "/pod"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = RemoveCgroup(group) })
	machines, _ := mountFUSE(t, "fuse.ankole")
	other, otherDir := mountFUSE(t, "fuse.other")
	own, ownDir := mountFUSE(t, "fuse.ankole")
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := EnterCgroup(group+"/pod", cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{otherDir, ownDir} { // the process keeps its copies
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	list, err := MountedBy(group)
	if err != nil || len(list) != 1 {
		t.Fatalf("connections %v (%v)", list, err)
	}
	if err := Abort(list); err != nil {
		t.Fatal(err)
	}
	if alive(own) || !alive(other) || !alive(machines) {
		t.Errorf("alive are the node's %v, another system's %v, the machine's %v", alive(own), alive(other), alive(machines))
	}
}

// TestNetworks makes and removes the bridges of a bed in a network namespace of the test's own.
func TestNetworks(t *testing.T) {
	needRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and with it the namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	p, err := plan.Plan{Dir: "/srv/test", Nodes: 2, Network: "10.213.0.0"}.Validate()
	if err != nil {
		t.Fatal(err)
	}
	if err := MakeNetworks(p); err != nil {
		t.Fatal(err)
	}
	have, err := Interfaces(p.InterfacePrefix())
	if err != nil || !slices.Contains(have, p.Bridge()) || !slices.Contains(have, p.StorageBridge()) {
		t.Errorf("interfaces %v (%v)", have, err)
	}
	if err := RemoveInterfaces(p.InterfacePrefix()); err != nil {
		t.Fatal(err)
	}
	if left, err := Interfaces(p.InterfacePrefix()); err != nil || len(left) > 0 {
		t.Errorf("left: %v (%v)", left, err)
	}
}
