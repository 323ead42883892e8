package node

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/test/lack"
)

// container runs a script in a mount namespace of its own that does not follow what is unmounted in
// this one, as a container that mounts / has one, and returns what ends it.
func (b *bed) container(script string) (end func()) {
	b.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		script+"; echo ready; exec sleep 600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	b.Cleanup(end)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		b.Fatalf("%q, %v", line, err)
	}
	return end
}

// TestUnstageUnderAContainer: a volume whose file system only a container still sees leaves the
// node, with all that was written; the container reads on, and writes no more.
//
// Not parallel, nor the next one: the container has the mounts of all beds.
func TestUnstageUnderAContainer(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		b := newBed(t, minXFS)
		b.proc = "/proc"
		c := csitest.Capability(kind, csitest.Once)
		b.must(b.stage(c), b.publish(1, c, false))
		b.write(1, "written")
		end := b.container("true")
		b.must(b.unpublish(1), b.unstage(), b.unstage())
		end()
		b.command("fsck."+kind, map[string][]string{"ext4": {"-fn", b.file}, "xfs": {b.file}}[kind]...)
		again := newBed(t, minXFS)
		again.detach()
		again.command("cp", b.file, again.file)
		again.attach()
		again.must(again.stage(c), again.publish(1, c, false))
		if got := again.read(1); got != "written" {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

// TestUnstageUnderAWriter: a container that has a file open for writing keeps the volume; it is
// named, to the kubelet and to the manager, which is told when it has gone, too.
func TestUnstageUnderAWriter(t *testing.T) {
	b := newBed(t, 64*mib)
	f := newManager()
	b.proc, b.place.manager = "/proc", f
	c := csitest.Capability("ext4", csitest.Once)
	b.must(b.stage(c))
	end := b.container("exec 3>>" + filepath.Join(b.staging(), "log"))
	for range 2 {
		err := b.unstage()
		csitest.Wants(t, err, codes.Internal)
		csitest.Says(t, err, "still mounted by process sleep (", ") at "+b.staging(), "mountPropagation HostToContainer")
	}
	if len(f.kept) != 1 || f.kept[0].NodeID != "node-1" || len(f.kept[0].Keepers) != 1 ||
		f.kept[0].Keepers[0].Program != "sleep" || f.kept[0].Keepers[0].Path != b.staging() {
		t.Fatalf("told %+v", f.kept)
	}
	end()
	b.must(b.unstage(), b.unstage())
	if len(f.kept) != 2 || len(f.kept[1].Keepers) != 0 {
		t.Errorf("told %+v", f.kept)
	}
}

// TestKeepers: what is mounted on the node itself is told as that and keeps the volume; the Pod of
// a process is known by its control groups, whatever manages them.
func TestKeepers(t *testing.T) {
	t.Parallel()
	const table = "36 35 7:42 / /mnt/x rw - ext4 /dev/loop42 rw\n"
	proc := t.TempDir()
	process := func(pid, space, mounts, group string) {
		dir := filepath.Join(proc, pid)
		for name, text := range map[string]string{"mountinfo": mounts, "comm": "prog-" + pid + "\n", "cgroup": group} {
			if err := os.MkdirAll(filepath.Join(dir, "ns"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(space, filepath.Join(dir, "ns/mnt")); err != nil {
			t.Fatal(err)
		}
	}
	process("1", "mnt:[1]", table, "0::/init.scope\n")
	process("20", "mnt:[2]", table, "0::/kubepods.slice/kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice/cri-1.scope\n")
	process("21", "mnt:[2]", table, "") // of the same container
	process("30", "mnt:[3]", table, "0::/kubepods/besteffort/pod0a1b2c3d-1111-2222-3333-444455557777/1\n")
	process("40", "mnt:[4]", strings.ReplaceAll(table, "7:42", "7:4"), "")
	n := &Server{proc: proc}
	var got []string
	for _, k := range n.keepers(7<<8 | 42) {
		got = append(got, k.String())
	}
	want := "on the node itself at /mnt/x|by process prog-20 (20) of the Pod with UID 0a1b2c3d-1111-2222-3333-444455556666 " +
		"at /mnt/x|by process prog-30 (30) of the Pod with UID 0a1b2c3d-1111-2222-3333-444455557777 at /mnt/x"
	if all := strings.Join(got, "|"); all != want {
		t.Errorf("keepers\n%s, want\n%s", all, want)
	}
}

// TestPublishAfterNoSpace: ext4 that has ended after an error, as when there was no space for its
// journal, is mounted anew for a new Pod, by NodePublishVolume alone too.
func TestPublishAfterNoSpace(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	c := csitest.Capability("ext4", csitest.Once)
	b.must(b.stage(c), b.publish(1, c, false))
	b.write(1, "before")
	b.command("sync")
	if err := exec.Command("mount", "-o", "remount,abort", b.staging()).Run(); err == nil {
		_ = os.WriteFile(filepath.Join(b.staging(), "x"), nil, 0o600) // which the kernel notices the abort by
	}
	at, err := mounted(b.staging())
	if err != nil || len(at) != 1 || at[0].Refuses() != "emergency_ro" {
		lack.Skip(t, "this kernel does not tell that a file system has ended")
	}
	b.must(b.unpublish(1), b.publish(2, c, false))
	if got := b.read(2); got != "before" {
		t.Errorf("%q", got)
	}
	b.write(2, "after")
}
