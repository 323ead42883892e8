// Package rig runs a volume's data path as real processes without a cluster: replicas, an engine,
// and a witness kept in the test's memory. Tests kill its parts, cut its network, fill its disks,
// and look at what is left.
//
// Everything belongs to the test process: files live in one temporary directory, processes die with
// the test, network namespaces and small file systems have no name that could outlive it. What a
// killed test leaves nevertheless (the directory, block devices of its engines) the next one
// removes.
package rig

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"ankole.storage/host/patience"
	"ankole.storage/test/logs"
	"ankole.storage/test/wait"
)

func waitContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience.Of(wait.Limit))
}

// Config describes a volume under test.
type Config struct {
	Replicas int
	// Size in bytes.
	Size int64
	// Transport is how the engine offers the volume: "nbd-unix" (default), or a block device,
	// "fuse-loop" or "ublk".
	Transport string
	// Network gives every replica and both engine hosts a network namespace.
	Network bool
	// StorageNetwork gives them a second network, and replicas their addresses there; it implies
	// Network.
	StorageNetwork bool
	// Disk is the size of a small file system for each replica; 0 leaves them in the temporary
	// directory.
	Disk int64
	// Keep has every engine host keep block devices over the death of an engine, as an instance
	// manager does.
	Keep bool
	// Shares: engines share memory with the first replica, as with one on their node.
	Shares bool
	// NoFrontend: the volume is not offered.
	NoFrontend bool
	// EngineFlags are added to every engine's command line.
	EngineFlags []string
	// Program is the path of the engine program; "" for that of EngineProgram.
	Program string
	// EngineEnv is what EngineEnv of the volume is in the beginning.
	EngineEnv []string
}

// Volume is a volume under test.
type Volume struct {
	t        testing.TB
	cfg      Config
	Dir      string
	Name     string
	UUID     string
	Size     int64
	binary   string
	secret   string
	lock     *os.File
	net      *Network
	hosts    []*Host
	witness  *Witness
	Replicas []*Replica
	// EngineHosts are two nodes where an engine can run; the first is used unless a test says
	// otherwise.
	EngineHosts []*Host
	// EngineEnv is added to the environment of engines started from now on.
	EngineEnv []string
	// output is where processes that are started from now on write, nil for logs of their own.
	output *os.File
	// watch judges what the processes have written.
	watch   logs.Watch
	engine  *Engine
	engines []*Engine // all that were ever started
	hits    atomic.Int64
	Addr    string // of the engine's control interface
}

var build = sync.OnceValues(func() (string, error) {
	if b := os.Getenv("ANKOLE_ENGINE"); b != "" {
		return b, nil
	}
	return Build("engine")
})

// EngineProgram returns the path of the engine program.
func EngineProgram() (string, error) { return build() }

// New makes a volume with n replicas, all started, and no engine yet. It is offered on an NBD
// socket.
func New(t testing.TB, n int, size int64) *Volume {
	t.Helper()
	v, err := Open(t, Config{Replicas: n, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Open makes a volume, its replicas started, and no engine yet. The error is ErrNoNetwork or
// ErrNoDisk where the machine cannot do what the configuration asks for; everything else fails the
// test.
func Open(t testing.TB, cfg Config) (*Volume, error) {
	t.Helper()
	bin := cfg.Program
	if bin == "" {
		var err error
		if bin, err = build(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	sweep.Do(sweepDead)
	if cfg.Transport == "" {
		cfg.Transport = "nbd-unix"
	}
	v := &Volume{t: t, cfg: cfg, EngineEnv: cfg.EngineEnv, Name: "vol", UUID: uuid.NewString(), Size: cfg.Size,
		binary: bin, witness: &Witness{}}
	secret := sha256.Sum256([]byte(v.UUID)) // every volume has one of its own
	v.secret = hex.EncodeToString(secret[:])
	if v.Dir, v.lock, err = makeDirectory(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.close)
	if cfg.Network || cfg.StorageNetwork {
		if v.net, err = newNetwork(cfg.StorageNetwork); err != nil {
			return nil, err
		}
	}
	v.EngineHosts = []*Host{v.newHost("node-a"), v.newHost("node-b")}
	for i := range cfg.Replicas {
		r := v.AddReplica(fmt.Sprintf("vol-%08d", i))
		if cfg.Disk > 0 {
			if r.Disk, err = newDisk(r.Name, cfg.Disk); err != nil {
				return nil, err
			}
			r.Dir = filepath.Join(r.Disk.Path(), r.Name)
		}
		r.Start()
	}
	return v, nil
}

// SetBinary makes processes that are started from now on run another engine program; "" changes
// nothing.
func (v *Volume) SetBinary(path string) {
	if path != "" {
		v.binary = path
	}
}

// SetOutput makes processes that are started from now on write to f instead of logs of their own.
func (v *Volume) SetOutput(f *os.File) { v.output = f }

// PermitLog announces a panic, or another thing that no process may write, which the test causes;
// see package logs.
func (v *Volume) PermitLog(pattern string) { v.watch.Permit(pattern) }

// Secret is the volume's secret in hexadecimal digits.
func (v *Volume) Secret() string { return v.secret }

// close ends everything. What a failed test leaves is kept for a look at it.
func (v *Volume) close() {
	v.KillAll()
	v.watch.Check(v.t, filepath.Join(v.Dir, "logs"))
	for _, e := range v.engines {
		_ = e.conn.Close()
	}
	for _, h := range v.hosts {
		if h.unkeep != nil {
			h.unkeep()
		}
		if h.claim != nil {
			_ = h.claim.Close() // a listener nobody connected to
		}
		if err := h.sweepDevices(); err != nil {
			v.t.Errorf("block devices of %s: %v", h.Name, err)
		}
	}
	for _, r := range v.Replicas {
		if v.t.Failed() {
			if err := r.Disk.keep(filepath.Join(v.Dir, r.Name+".img")); err != nil {
				v.t.Logf("disk of %s is not kept: %v", r.Name, err)
			}
		}
		r.Disk.close()
	}
	v.net.close()
	v.lock.Close()
	if !v.t.Failed() {
		_ = os.RemoveAll(v.Dir)
		return
	}
	v.dumpLogs()
	kept := keepDirectory(v.Dir)
	v.t.Logf("everything is kept in %s (logs in %s)", kept, filepath.Join(kept, "logs"))
}

func (v *Volume) dumpLogs() {
	for _, r := range v.Replicas {
		if r.proc != nil {
			v.t.Logf("--- replica %s ---\n%s", r.Name, r.proc.log)
		}
	}
	for _, e := range v.engines[max(0, len(v.engines)-3):] {
		v.t.Logf("--- engine %s ---\n%s", e.Name, e.proc.log)
	}
}

// claimPort is where a host without a namespace holds its address. Nothing else listens there.
const claimPort = 9999

// loopback returns a loopback address that is this host's alone, among all test processes of this
// machine, until the claim is closed. Ports that are free now need not be free when a process
// listens at them: any connection may have taken them meanwhile, but not at an address that nobody
// else knows.
func loopback(t testing.TB) (addr string, claim io.Closer) {
	t.Helper()
	for range 100 {
		addr = fmt.Sprintf("127.%d.%d.%d", 96+rand.IntN(32), rand.IntN(256), 1+rand.IntN(254))
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", addr, claimPort))
		if err == nil {
			return addr, l
		}
	}
	t.Fatal("no loopback address is free")
	return "", nil
}

// await waits for a condition, and fails at once if the process it depends on ends.
func (v *Volume) await(what string, p *process, cond func() bool) {
	v.t.Helper()
	if poll(p.done, cond) || cond() {
		return
	}
	if !p.alive() {
		v.t.Fatalf("%s ended: %s\n%s", what, p.cmd.ProcessState, p.log)
	}
	wait.RanOut(v.t, what)
	v.t.Fatalf("%s: condition did not come true within %s\n%s", what, patience.Of(wait.Limit), p.log)
}

// KillAll kills every process at once.
func (v *Volume) KillAll() {
	var all []*process
	for _, r := range v.Replicas {
		if r.proc != nil {
			all = append(all, r.proc)
		}
	}
	for _, e := range v.engines {
		all = append(all, e.proc)
	}
	for _, p := range all {
		if p.alive() {
			p.kill(sigkill)
		}
	}
	for _, p := range all {
		<-p.done
	}
}

// Hit counts a fault that has hit: a process that was alive was killed or stopped, a connection was
// cut, a disk was filled. What a test does by itself it counts itself.
func (v *Volume) Hit() { v.hits.Add(1) }

// Hits returns how many faults have hit so far.
func (v *Volume) Hits() int { return int(v.hits.Load()) }

// AtLeast fails the test if something happened less often than it must have for the test to show
// anything.
func AtLeast(t testing.TB, what string, got, want int) {
	t.Helper()
	if got < want {
		t.Errorf("%s: %d times, want %d at least: this run shows nothing", what, got, want)
	}
}

// StopEverything asks every process to end, replicas first, and then waits for all of them.
func (v *Volume) StopEverything() {
	v.t.Helper()
	for _, r := range v.Replicas {
		r.proc.kill(sigterm)
	}
	v.StopEngine()
	for _, r := range v.Replicas {
		<-r.proc.done
		if !r.proc.cmd.ProcessState.Success() {
			v.t.Errorf("replica %s: %s", r.Name, r.proc.cmd.ProcessState)
		}
	}
}

// dial connects to a process of the volume, from outside of all hosts.
func (v *Volume) dial(ctx context.Context, addr string) (net.Conn, error) {
	if v.net == nil {
		return (*namespace)(nil).dial(ctx, addr)
	}
	return v.net.hub.dial(ctx, addr)
}

// Listens reports whether somebody accepts connections from outside of all hosts at "ip:port".
func (v *Volume) Listens(address string) bool { return v.listening(address) }

// listening reports whether somebody accepts connections at addr.
func (v *Volume) listening(addr string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := v.dial(ctx, addr)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// errGaveUp ends attempts that did not succeed in time.
var errGaveUp = errors.New("gave up")
