package daemon_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// TestC15: without --listen the process service is at localhost:8500 and the proxy at
// localhost:8501, and nothing listens anywhere else. The instance manager has a network namespace
// of its own, where those ports are free.
func TestC15(t *testing.T) {
	ns := newNamespace(t)
	dir, err := os.MkdirTemp("", "im") // short: unix sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.Command(instancetest.Binary(t), "daemon", "--allow-plaintext", "tests", "--logs-dir", dir,
		"--witness-socket", filepath.Join(dir, "s.sock"))
	cmd.Env = append(os.Environ(), daemonMarker+"=1")
	var said strings.Builder
	cmd.Stderr = &said
	ns.do(func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the instance manager said:\n%s", said.String())
		}
	})
	conn := func(address string) *grpc.ClientConn {
		c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(ns.dial))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	processes, proxy := conn("127.0.0.1:8500"), conn("127.0.0.1:8501")
	wait.Until(t, "the process service answers at localhost:8500", func() bool {
		_, err := imrpc.NewProcessManagerServiceClient(processes).ProcessList(t.Context(), &imrpc.ProcessListRequest{})
		return err == nil
	})
	wait.Until(t, "the proxy answers at localhost:8501", func() bool {
		_, err := imrpc.NewProxyEngineServiceClient(proxy).Ping(t.Context(), &emptypb.Empty{})
		return err == nil
	})
	want := []string{"0100007F:2134", "0100007F:2135", "0100007F:2137"}
	if got := listening(t, cmd.Process.Pid); !slices.Equal(got, want) {
		t.Errorf("listens at %v, want 127.0.0.1 with ports 8500, 8501 and 8503: %v", got, want)
	}
}

// listening returns the addresses that sockets of a process's network namespace listen at, as the
// kernel writes them.
func listening(t *testing.T, pid int) (addresses []string) {
	t.Helper()
	const listen = "0A"
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == listen {
				addresses = append(addresses, f[1])
			}
		}
	}
	slices.Sort(addresses)
	return addresses
}

// networkNamespace is one that lives as long as the test; its loopback interface is up.
type networkNamespace struct{ fd int }

func newNamespace(t *testing.T) *networkNamespace {
	t.Helper()
	if os.Geteuid() != 0 {
		lack.Skip(t, "root, for a network namespace")
	}
	made := make(chan error)
	ns := &networkNamespace{}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			ns.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		if err == nil {
			err = loopbackUp()
		}
		made <- err
	}()
	if err := <-made; err != nil {
		lack.Skip(t, fmt.Sprintf("network namespaces: %v", err))
	}
	t.Cleanup(func() { _ = unix.Close(ns.fd) })
	return ns
}

// loopbackUp brings the loopback interface of the thread's namespace up.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, request)
}

// do runs f in the namespace; processes that f starts live there.
func (n *networkNamespace) do(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Setns(n.fd, unix.CLONE_NEWNET) == nil {
			f()
		}
	}()
	<-done
}

// dial connects from within the namespace.
func (n *networkNamespace) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	n.do(func() { conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address) })
	return conn, err
}
