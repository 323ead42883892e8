package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/keeper"
)

// Host is a node: a place for processes with an address of its own, a way to the witness, and block
// devices of its own. Without namespaces the address is one of the machine's loopback addresses.
type Host struct {
	Name string
	Addr string
	// Storage is the address on the storage network, where replicas listen; Addr without one.
	Storage string
	// Dir holds what the host's processes leave outside the replica directory: sockets and device
	// nodes.
	Dir string
	// Witness is the host's way to the witness.
	Witness *Relay
	v       *Volume
	ns      *namespace
	net     *Network
	port    int
	// claim keeps a loopback address; nil in a namespace.
	claim io.Closer
	// unkeep ends the host's keeper; nil without one.
	unkeep func()
}

// firstPort is where a host starts to count.
const firstPort = 10000

func (v *Volume) newHost(name string) *Host {
	v.t.Helper()
	h := &Host{v: v, Name: name, Dir: filepath.Join(v.Dir, name), port: firstPort}
	if err := os.MkdirAll(filepath.Join(h.Dir, "dev"), 0o700); err != nil {
		v.t.Fatal(err)
	}
	if v.net != nil {
		if err := v.net.join(h); err != nil {
			v.t.Fatal(err)
		}
	} else {
		h.Addr, h.claim = loopback(v.t)
		h.Storage = h.Addr
	}
	if v.cfg.Keep {
		h.keep(v.t)
	}
	h.Witness = v.witness.relay(v.t, filepath.Join(h.Dir, "witness.sock"))
	v.hosts = append(v.hosts, h)
	return h
}

// keep runs the host's keeper of block devices until the test ends.
func (h *Host) keep(t testing.TB) {
	t.Helper()
	l, err := keeper.Listen(h.keeperSocket())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { keeper.NewServer(slog.New(slog.DiscardHandler), 0).Serve(ctx, l) })
	h.unkeep = func() {
		cancel()
		work.Wait()
	}
}

// DeviceOwned reports whether the keeper knows a living engine of a volume's device. If it does
// not, the device is lost by asking.
func (h *Host) DeviceOwned(volume string) bool {
	held, _, fds, err := keeper.Take(h.keeperSocket(), keeper.Owner{Volume: volume, Engine: "rig"})
	if err == nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		err = held.Drop()
	}
	return errors.Is(err, keeper.ErrInUse)
}

func (h *Host) keeperSocket() string { return filepath.Join(h.Dir, "devices.sock") }

// environment is what the host's processes get to know about it.
func (h *Host) environment(v *Volume) []string {
	env := []string{"ANKOLE_VOLUME_UUID=" + v.UUID, "ANKOLE_VOLUME_SECRET=" + v.secret,
		"ANKOLE_WITNESS=unix:" + filepath.Join(h.Dir, "witness.sock"),
		"ANKOLE_BLOCK_TRANSPORT=" + v.cfg.Transport, "POD_NAME=" + h.Name,
		fmt.Sprintf(`ANKOLE_MOUNTS={"/host/var/lib/longhorn/unix-domain-socket": %q, "/dev/longhorn": %q}`, h.Dir,
			h.Devices())}
	if h.Storage != h.Addr {
		env = append(env, "ANKOLE_LOCAL_ADDRESS="+h.Storage, "ANKOLE_DATA_NETWORK=storage network test/rig")
	}
	if h.unkeep != nil {
		env = append(env, "ANKOLE_KEEPER=unix:"+h.keeperSocket())
	}
	return env
}

// Devices is the directory of the nodes of its block devices.
func (h *Host) Devices() string { return filepath.Join(h.Dir, "dev") }

// address returns an address for a process: ip, which is one of the host's, with the next port.
func (h *Host) address(ip string) string {
	// Never the same twice: a connection that is cut off may still hold the old one.
	h.port += 10
	return fmt.Sprintf("%s:%d", ip, h.port)
}

// Interfaces of a host: of the network that all have, and of the storage network.
const (
	ManagementInterface = "eth0"
	StorageInterface    = "lhnet1"
)

// Traffic is what an interface has received and sent.
type Traffic struct{ In, Out int64 }

// Sub returns what came after an earlier look.
func (a Traffic) Sub(b Traffic) Traffic { return Traffic{a.In - b.In, a.Out - b.Out} }

// Bytes returns what an interface of the host has received and sent so far, in bytes, as its kernel
// counts them: headers, acknowledgements and repetitions too.
func (h *Host) Bytes(t testing.TB, device string) Traffic {
	t.Helper()
	var text []byte
	var err error
	h.ns.do(func() { text, err = os.ReadFile("/proc/thread-self/net/dev") })
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, counts, _ := strings.Cut(line, ":")
		if f := strings.Fields(counts); strings.TrimSpace(name) == device && len(f) == deviceCounts {
			in, err1 := strconv.ParseInt(f[0], 10, 64)
			out, err2 := strconv.ParseInt(f[deviceCounts/2], 10, 64)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			return Traffic{in, out}
		}
	}
	t.Fatalf("host %s has no interface %s:\n%s", h.Name, device, text)
	return Traffic{}
}

// deviceCounts is the number of counts of an interface in /proc/net/dev: half of them about what it
// received, bytes first, half about what it sent.
const deviceCounts = 16

// Cut makes everything vanish that the other hosts send to h, and that h sends to them unless
// oneWay.
func (h *Host) Cut(t testing.TB, oneWay bool, others ...*Host) {
	t.Helper()
	var from []string
	for _, o := range others {
		from = append(from, o.Addr)
		if o.Storage != o.Addr {
			from = append(from, o.Storage)
		}
		if !oneWay {
			o.Cut(t, true, h)
		}
	}
	if err := h.ns.run("nft", "add element inet rig cut { "+strings.Join(from, ", ")+" }"); err != nil {
		t.Fatal(err)
	}
	h.v.Hit()
}

// Others are all hosts of the volume but h.
func (h *Host) Others() []*Host {
	var out []*Host
	for _, o := range h.net.hosts {
		if o != h {
			out = append(out, o)
		}
	}
	return out
}

// Heal ends every cut of the volume's network.
func (v *Volume) Heal() {
	v.t.Helper()
	if v.net == nil {
		return
	}
	for _, h := range v.net.hosts {
		if err := h.ns.run("nft", "flush set inet rig cut"); err != nil {
			v.t.Fatal(err)
		}
	}
}

// sweepDevices removes block devices whose engine was killed.
func (h *Host) sweepDevices() error { return sweepDevices(h.Devices()) }

func sweepDevices(dir string) error {
	if !blockdev.Possible() {
		return nil
	}
	ctx, cancel := waitContext()
	defer cancel()
	return blockdev.Sweep(ctx, dir)
}
