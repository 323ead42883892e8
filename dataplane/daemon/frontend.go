package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/journal"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/nbd"
	"ankole.storage/dataplane/loop/posix"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/listener"
)

// Frontends by the names the control plane uses.
const (
	FrontendNone     = ""
	FrontendBlockdev = "tgt-blockdev"
)

// Transports of a block device.
const (
	TransportAuto     = "auto"
	TransportUblk     = "ublk"
	TransportFUSELoop = "fuse-loop"
	TransportNBDUnix  = "nbd-unix"
)

// socketDir is where NBD sockets are made, as the Pod sees it.
const socketDir = "/host/var/lib/longhorn/unix-domain-socket"

// frontendShell owns the blocking half of the frontend in use.
type frontendShell struct {
	mu   sync.Mutex
	stop func(p *engineProcess)
	// grown tells the user that the volume has another size, nil where there is no way to.
	grown func(ctx context.Context, size int64) error
	// journal is where a block device's requests are received, nil until one was needed.
	journal *journal.Journal
	// name is what the control plane calls the one that is up.
	name string
	// device is the block device that is up, again the next attempt to have it kept.
	device *fuseDevice
	again  *time.Timer
	// lost is the frontend whose device the kernel has ended, until another one is up; "" for none.
	lost string
	// over: the engine ends, and nothing is brought up any more.
	over bool
}

// startFrontend brings the frontend up and publishes its endpoint. ctx is the process's, or
// outlives the caller: its end undoes what has begun. One that was lost stays so if that fails, and
// comes back later. front.mu is held.
func (p *engineProcess) startFrontend(ctx context.Context, name string) error {
	if p.front.stop != nil {
		return errors.New("a frontend is up already: shut it down first")
	}
	lost := p.front.lost
	err := p.bringUp(ctx, name)
	if err == nil {
		p.front.lost = ""
	} else if lost != "" {
		p.offerLater(lost)
	}
	return err
}

// bringUp is startFrontend where none is up.
func (p *engineProcess) bringUp(ctx context.Context, name string) error {
	if name != FrontendNone {
		if err := p.mayOffer(); err != nil {
			return err
		}
	}
	switch name {
	case FrontendNone:
		p.dropKept("the volume is not offered")
		p.state.set(func(w *published) { w.frontend, w.up, w.endpoint, w.device = name, false, "", "" })
		return nil
	case FrontendBlockdev:
	default:
		return fmt.Errorf("frontend %q is not supported: use %s (frontend blockdev of a volume), or none",
			name, FrontendBlockdev)
	}
	transport := chooseTransport(p)
	var endpoint string
	var err error
	switch transport {
	case TransportNBDUnix:
		p.dropKept("the volume is offered on a socket")
		endpoint, err = p.startNBD()
	case TransportUblk, TransportFUSELoop:
		endpoint, err = p.startDevice(ctx, transport)
	default:
		err = fmt.Errorf("block transport %q is not known: use %s, %s, %s or %s", transport, TransportAuto,
			TransportUblk, TransportFUSELoop, TransportNBDUnix)
	}
	if err != nil {
		return err
	}
	p.offered(name, endpoint)
	return nil
}

// chooseTransport is the one that was asked for, or the best that can be had here.
func chooseTransport(p *engineProcess) string {
	c := chosen{asked: p.cfg.Transport, kept: p.hasKept(), ublk: ublkByDefault, haveUblk: blockdev.UblkAvailable,
		haveFUSE: blockdev.Available}
	transport, reasons := c.transport()
	if why := errors.Join(reasons...); why != nil && transport == TransportNBDUnix {
		p.cfg.Log.Info("no block device on this host, offering an NBD socket", "reason", why)
	} else if why != nil {
		p.cfg.Log.Info("no ublk device on this host", "reason", why)
	}
	return transport
}

// ublkByDefault lets ublk devices be chosen unasked. It waits for live upgrades that leave a device
// with the keeper: one by hand-over of descriptors is refused for a ublk device.
const ublkByDefault = false

// chosen is what a transport is chosen by.
type chosen struct {
	asked string
	// kept: a device was taken over. It goes on as what it is, whatever can be had at the moment.
	kept bool
	// ublk: it may be chosen unasked.
	ublk     bool
	haveUblk func() (resizes bool, err error)
	haveFUSE func() error
}

// transport chooses one. With auto that is a ublk device, where the kernel can resize it in use,
// since users of a volume are promised that; else FUSE and loop, else a socket. reasons are why it
// is not a better one.
func (c *chosen) transport() (transport string, reasons []error) {
	switch {
	case c.asked != TransportAuto && c.asked != "":
		return c.asked, nil
	case c.kept:
		return TransportFUSELoop, nil
	}
	if c.ublk {
		resizes, err := c.haveUblk()
		if err == nil && resizes {
			return TransportUblk, nil
		}
		if err == nil {
			err = errors.New("the kernel cannot resize a ublk device in use (Linux 6.16 can)")
		}
		reasons = append(reasons, err)
	}
	if err := c.haveFUSE(); err != nil {
		return TransportNBDUnix, append(reasons, err)
	}
	return TransportFUSELoop, reasons
}

// transport names the kind of a block device.
func (d *fuseDevice) transport() string {
	if d.isUblk() {
		return TransportUblk
	}
	return TransportFUSELoop
}

// offered publishes that a frontend is up.
func (p *engineProcess) offered(name, endpoint string) {
	p.front.name = name
	device, transport := "", TransportNBDUnix
	if d := p.front.device; d != nil {
		device, transport = d.ID(), d.transport()
	}
	p.state.set(func(w *published) { w.frontend, w.up, w.endpoint, w.device = name, true, endpoint, device })
	p.cfg.Log.Info("volume is offered", "endpoint", endpoint, "device", device,
		"transport", transport)
}

// end takes the frontend away for good.
func (f *frontendShell) end(p *engineProcess) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	f.takeDown(p)
}

// outlives reports whether the frontend stays when this process ends, which cannot go on: its users
// wait for the next engine, unless that one has served already.
func (f *frontendShell) outlives(l *life) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.device == nil || f.device.held == nil || errors.Is(context.Cause(l.ctx), ErrFenced) {
		return false
	}
	f.over = true
	l.p.cfg.Log.Warn("the engine cannot go on; its block device stays for the next one")
	return true
}

// takeDown takes the frontend away. The lock is held.
func (f *frontendShell) takeDown(p *engineProcess) {
	if f.stop != nil {
		f.stop(p)
	}
	f.forget()
	p.state.set(func(w *published) { w.up, w.endpoint, w.device = false, "", "" })
}

// forget leaves a frontend alone: it is gone, or another process is to have it.
func (f *frontendShell) forget() {
	f.stop, f.grown, f.name, f.device, f.lost = nil, nil, "", nil, ""
	if f.again != nil {
		f.again.Stop()
	}
}

func (p *engineProcess) startNBD() (string, error) {
	path, err := socketPath(p.cfg.VolumeName)
	if err != nil {
		return "", err
	}
	listener, _, err := posix.Listen("unix", path)
	if err != nil {
		return "", err
	}
	fe, err := nbd.New(nbd.Config{Owner: engine.OwnerFrontend, Arena: p.arena, Listener: listener,
		Export: p.cfg.VolumeName, Size: p.size()})
	if err == nil {
		err = p.attach(fe)
	}
	if err != nil {
		return "", errors.Join(err, unix.Close(int(listener)), os.Remove(path))
	}
	p.holdNBD(path)
	return nbdEndpoint(p.cfg.VolumeName, path), nil
}

// holdNBD notes how the NBD server that is attached is taken down.
func (p *engineProcess) holdNBD(path string) {
	p.front.stop = func(p *engineProcess) {
		// Before anybody else can listen there. One that stays is replaced at the next start.
		_ = os.Remove(path)
		p.detach()
	}
}

func nbdEndpoint(volume, path string) string {
	return "nbd+unix:///" + volume + "?socket=" + hostView(path)
}

// attach gives a frontend to the core, or says that the core does not have it: nothing in between,
// so that somebody closes its descriptors. The core answers in the step that takes the message.
func (p *engineProcess) attach(fe frontend.Frontend) error {
	return p.ask(context.Background(), func(reply func(error)) any {
		return engine.AttachFrontend{Frontend: fe, Reply: reply}
	})
}

// detachWait bounds how long a frontend may take to disconnect its clients.
const detachWait = 5 * time.Second

func (p *engineProcess) detach() {
	ctx, cancel := context.WithTimeout(context.Background(), detachWait)
	defer cancel()
	if err := p.ask(ctx, func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }); err != nil {
		p.cfg.Log.Warn("frontend did not stop in time", "error", err)
	}
}

// socketPath returns the real path of the volume's NBD socket.
func socketPath(volume string) (string, error) { return socketIn(hostpath.Resolve(socketDir), volume) }

// socketIn is socketPath; dir is the natural place. Where that is too deep for a socket address a
// short name stands for it, in a folder of this user's in the system's temporary directory: every
// user of the machine may have clusters.
func socketIn(dir, volume string) (string, error) {
	p, prepare := filepath.Join(dir, volume+".nbd"), func() error { return os.MkdirAll(dir, 0o700) }
	if len(p) > listener.MaxName {
		sum := sha256.Sum256([]byte(p))
		dir = filepath.Join(os.TempDir(), "ankole-sockets-"+strconv.Itoa(os.Geteuid()))
		p, prepare = filepath.Join(dir, hex.EncodeToString(sum[:8])), func() error { return listener.OwnFolder(dir) }
	}
	if err := prepare(); err != nil {
		return "", fmt.Errorf("directory for NBD sockets: %w", err)
	}
	return p, nil
}

// hostView is a path as a user on the node sees it: without the prefix under which a Pod sees the
// host's root.
func hostView(p string) string {
	if os.Getenv(hostpath.Variable) != "" {
		return p
	}
	if rest, ok := strings.CutPrefix(p, "/host/"); ok {
		return "/" + rest
	}
	return p
}
