package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace without a name: it lives as long as the thread that made it and
// the processes started on it, so nothing of it outlives the test. A nil namespace is the one the
// test runs in.
type namespace struct {
	calls chan func()
	fd    int
}

// newNamespace makes a namespace whose loopback interface is up.
func newNamespace() (*namespace, error) {
	n := &namespace{calls: make(chan func())}
	made := make(chan error)
	go func() {
		// Never unlocked: the thread ends with this goroutine, and nobody else ever runs in the
		// namespace.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		made <- err
		if err != nil {
			return
		}
		for f := range n.calls {
			f()
		}
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	if err := n.run("ip", "link", "set", "lo", "up"); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// home runs what belongs into no namespace of the test's, on a thread of its own: a process that
// was started on any other thread would die if that one ended, as threads do whose goroutine has
// locked them.
var home = sync.OnceValue(func() *namespace {
	n := &namespace{calls: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range n.calls {
			f()
		}
	}()
	return n
})

// do runs f on the namespace's thread; processes that f starts live in the namespace.
func (n *namespace) do(f func()) {
	if n == nil {
		n = home()
	}
	done := make(chan struct{})
	n.calls <- func() { defer close(done); f() }
	<-done
}

// close gives the namespace up. Processes started in it are killed by the end of its thread, since
// they asked for that.
func (n *namespace) close() {
	close(n.calls)
	unix.Close(n.fd)
}

// path names the namespace to programs started from here.
func (n *namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.fd) }

// run runs a program in the namespace.
func (n *namespace) run(args ...string) error {
	var out []byte
	var err error
	n.do(func() { out, err = exec.Command(args[0], args[1:]...).CombinedOutput() })
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// dial connects from within the namespace.
func (n *namespace) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	if n == nil {
		return d.DialContext(ctx, "tcp", addr)
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// A thread of its own, since others must not wait for this; it ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			done <- result{nil, err}
			return
		}
		c, err := d.DialContext(ctx, "tcp", addr)
		done <- result{c, err}
	}()
	r := <-done
	return r.conn, r.err
}

// Network is one namespace per host, and bridges that each host has an interface to: one, or a
// second one as the storage network.
type Network struct {
	hub     *namespace
	bridges []bridge
	hosts   []*Host
}

// bridge is one network of the hosts.
type bridge struct {
	// name of the bridge, and what the names of its ports begin with.
	name, port string
	// net is the first three numbers of all addresses on it, device a host's interface to it.
	net, device string
}

var (
	management = bridge{"br0", "p", "10.77.0.", ManagementInterface}
	storage    = bridge{"br1", "s", "10.78.0.", StorageInterface}
)

// ErrNoNetwork says why namespaces cannot be made here.
var ErrNoNetwork = errors.New("no network namespaces here")

// hubAddress ends the test's own address on each bridge.
const hubAddress = "254"

func newNetwork(second bool) (*Network, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: they need root", ErrNoNetwork)
	}
	for _, p := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(p); err != nil {
			return nil, fmt.Errorf("%w: %w (install iproute2 and nftables)", ErrNoNetwork, err)
		}
	}
	hub, err := newNamespace()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoNetwork, err)
	}
	n := &Network{hub: hub, bridges: []bridge{management}}
	if second {
		n.bridges = append(n.bridges, storage)
	}
	for _, b := range n.bridges {
		for _, args := range []string{"ip link add " + b.name + " type bridge",
			"ip addr add " + b.net + hubAddress + "/24 dev " + b.name, "ip link set " + b.name + " up"} {
			if err := hub.run(strings.Fields(args)...); err != nil {
				hub.close()
				return nil, fmt.Errorf("%w: %w", ErrNoNetwork, err)
			}
		}
	}
	return n, nil
}

// filter is a host's firewall: what comes from an address in "cut" vanishes without an answer, as
// on a broken network.
const filter = `add table inet rig
add set inet rig cut { type ipv4_addr; }
add chain inet rig in { type filter hook input priority 0; }
add rule inet rig in ip saddr @cut drop`

// join gives a host its namespace and its addresses.
func (n *Network) join(h *Host) error {
	ns, err := newNamespace()
	if err != nil {
		return err
	}
	n.hosts = append(n.hosts, h)
	h.ns, h.net = ns, n
	for i, b := range n.bridges {
		h.Storage = fmt.Sprintf("%s%d", b.net, len(n.hosts)) // on the last one
		if i == 0 {
			h.Addr = h.Storage
		}
		if err := n.plug(h, b, h.Storage); err != nil {
			return err
		}
	}
	return ns.run("nft", filter)
}

// plug connects a host to a bridge.
func (n *Network) plug(h *Host, b bridge, address string) error {
	port := fmt.Sprintf("%s%d", b.port, len(n.hosts))
	for _, c := range []struct {
		ns   *namespace
		args string
	}{
		{n.hub, "ip link add " + port + " type veth peer name " + b.device + " netns " + h.ns.path()},
		{n.hub, "ip link set " + port + " master " + b.name + " up"},
		{h.ns, "ip addr add " + address + "/24 dev " + b.device},
		{h.ns, "ip link set " + b.device + " up"},
	} {
		if err := c.ns.run(strings.Fields(c.args)...); err != nil {
			return err
		}
	}
	return nil
}

func (n *Network) close() {
	if n == nil {
		return
	}
	for _, h := range n.hosts {
		h.ns.close()
	}
	n.hub.close()
}
