package work

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/backup/worker"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// TestShareIsTold: a worker that mounts says what is missing: the server, the path, or the kernel's
// client.
func TestShareIsTold(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		lack.Skip(t, "root, to give a worker mounts of its own")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // a server that speaks neither protocol
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close() // nothing was said
		}
	}()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().(*net.TCPAddr).Port
	_ = free.Close() // nothing listens there then
	there := l.Addr().(*net.TCPAddr).Port
	systems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url, system, says string
	}{
		{fmt.Sprintf("nfs://127.0.0.1:/x?nfsOptions=port=%d", nobody), "", "its server does not answer"},
		{fmt.Sprintf("cifs://127.0.0.1/x?cifsOptions=guest,port=%d", nobody), "", "its server does not answer"},
		{fmt.Sprintf("nfs://127.0.0.1:/x?nfsOptions=soft,timeo=10,retrans=1,port=%d", there), "nfs4",
			"has no file system nfs4: load its module nfs"},
		{fmt.Sprintf("cifs://127.0.0.1/x?cifsOptions=guest,soft,port=%d", there), "cifs",
			"has no file system cifs: load its module cifs"},
	} {
		if c.system != "" && bytes.Contains(systems, []byte("\t"+c.system+"\n")) {
			c.says = "mount " + c.url[:8] // the kernel has it, and says what the server has not said
		}
		j := listing("")
		j.Order.Target, j.Order.GiveUp = c.url, time.Minute
		if _, err := worker.Run(t.Context(), j); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %s", c.url, err, c.says)
		}
	}
}

// mute mounts a file system of FUSE on a directory whose server takes requests and answers none,
// but for the one that begins the connection. A process that has asked it is not to be killed.
// answers ends that: all requests fail.
func mute(t *testing.T, dir string) (answers func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		lack.Skip(t, "/dev/fuse: ", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount("mute", dir, "fuse.mute", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = unix.Close(fd) // the test ends
		lack.Skip(t, "the right to mount: ", err)
	}
	const initialize, headBytes, bodyBytes = 26, 16, 64
	request := make([]byte, 1<<17)
	n, err := unix.Read(fd, request)
	if err != nil || n < 40 || binary.NativeEndian.Uint32(request[4:]) != initialize {
		t.Fatalf("the kernel begins with %d bytes, %v", n, err)
	}
	answer := make([]byte, headBytes+bodyBytes)
	binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
	copy(answer[8:], request[8:16])                            // the number of the request
	copy(answer[headBytes:], request[40:48])                   // the version that the kernel has
	binary.NativeEndian.PutUint32(answer[headBytes+20:], 4096) // the most to write
	if _, err := unix.Write(fd, answer); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := unix.Read(fd, request); err != nil && !errors.Is(err, unix.EINTR) {
				return // unmounted, or aborted
			}
		}
	}()
	return func() {
		if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		<-ended
		_ = unix.Close(fd) // nobody asks any more
	}
}

// TestTargetHangsInTheKernel: a worker that waits in the kernel cannot be killed. It is named and
// left; no second one waits beside it, other targets are used, and this one when it answers.
func TestTargetHangsInTheKernel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	answers := mute(t, dir)
	var left *os.Process
	list := listing(dir)
	list.Order.GiveUp = 2 * time.Second
	list.Kill = func(p *os.Process) error { left = p; return p.Kill() }
	_, err := worker.Run(t.Context(), list)
	if !errors.Is(err, worker.ErrGivenUp) || left == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("process %d cannot be ended", left.Pid)) {
		answers()
		t.Fatal(err)
	}
	j := listing(dir)
	j.Order.GiveUp = time.Second
	j.Kill = func(p *os.Process) error { t.Errorf("process %d waits as well", p.Pid); return p.Kill() }
	if _, err := worker.Run(t.Context(), j); !errors.Is(err, worker.ErrHeld) ||
		!strings.Contains(err.Error(), fmt.Sprintf("process %d ", left.Pid)) {
		t.Errorf("beside one that waits: %v", err)
	}
	if _, err := worker.Run(t.Context(), listing(t.TempDir())); err != nil {
		t.Errorf("another target: %v", err)
	}
	answers()
	wait.For(t, "the target is used again", func() error {
		if _, err := worker.Run(t.Context(), listing(dir)); err != nil {
			return err
		}
		return nil
	})
}
