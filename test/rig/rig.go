// Package rig runs a volume's data path as real processes without a cluster: replicas, an engine, and a witness kept in
// the test's memory. Tests kill its parts and look at what is left. Everything lives in one temporary directory and ends
// with the test.
package rig

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/bench/nbdclient"
)

// wait bounds every wait for a condition.
const wait = 60 * time.Second

// Volume is a volume under test.
type Volume struct {
	t        testing.TB
	Dir      string
	Name     string
	UUID     string
	Size     int64
	binary   string
	secret   string
	witness  *Witness
	Replicas []*Replica
	engine   *process
	engineID int
	Addr     string // of the engine's control interface
	conn     *grpc.ClientConn
}

// Replica is one replica process.
type Replica struct {
	v    *Volume
	Name string
	// Dir is the replica directory.
	Dir  string
	Addr string
	proc *process
}

// process is a child that ends with the test.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	log  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var build = sync.OnceValues(func() (string, error) {
	if b := os.Getenv("ANKOLE_ENGINE"); b != "" {
		return b, nil
	}
	dir, err := os.MkdirTemp("", "ankole-engine-")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "engine")
	c := exec.Command("go", "build", "-o", out, "ankole.storage/cmd/engine")
	if msg, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, msg)
	}
	return out, nil
})

// New makes a volume with n replicas, all started, and no engine yet.
func New(t testing.TB, n int, size int64) *Volume {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "rig-") // short: sockets live below it
	if err != nil {
		t.Fatal(err)
	}
	v := &Volume{t: t, Dir: dir, Name: "vol", UUID: uuid.NewString(), Size: size, binary: bin,
		secret: hex.EncodeToString(bytes.Repeat([]byte{7}, 32))}
	t.Cleanup(v.close)
	v.witness = startWitness(t, filepath.Join(dir, "witness.sock"))
	for i := range n {
		v.AddReplica(fmt.Sprintf("vol-%08d", i)).Start()
	}
	return v
}

// SetBinary makes processes that are started from now on run another engine program; "" changes nothing.
func (v *Volume) SetBinary(path string) {
	if path != "" {
		v.binary = path
	}
}

// Secret is the volume's secret in hexadecimal digits.
func (v *Volume) Secret() string { return v.secret }

func (v *Volume) close() {
	if v.conn != nil {
		_ = v.conn.Close()
	}
	v.KillAll()
	if v.t.Failed() {
		v.dumpLogs()
	}
	_ = os.RemoveAll(v.Dir)
}

func (v *Volume) dumpLogs() {
	for _, r := range v.Replicas {
		if r.proc != nil {
			v.t.Logf("--- replica %s ---\n%s", r.Name, r.proc.log)
		}
	}
	if v.engine != nil {
		v.t.Logf("--- engine ---\n%s", v.engine.log)
	}
}

// AddReplica adds a replica with a directory of its own; Start starts it.
func (v *Volume) AddReplica(name string) *Replica {
	r := &Replica{v: v, Name: name, Dir: filepath.Join(v.Dir, name)}
	v.Replicas = append(v.Replicas, r)
	return r
}

// ports returns a free port whose successor is free too.
func ports(t testing.TB) int {
	t.Helper()
	for range 100 {
		a, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := a.Addr().(*net.TCPAddr).Port
		b, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p+1))
		a.Close()
		if err == nil {
			b.Close()
			return p
		}
	}
	t.Fatal("no two neighbouring free ports")
	return 0
}

func (v *Volume) spawn(args ...string) *process {
	v.t.Helper()
	p := &process{cmd: exec.Command(v.binary, args...), done: make(chan struct{}), log: &lockedBuffer{}}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = append(os.Environ(), "ANKOLE_VOLUME_UUID="+v.UUID, "ANKOLE_VOLUME_SECRET="+v.secret,
		"ANKOLE_WITNESS=unix:"+filepath.Join(v.Dir, "witness.sock"), "ANKOLE_BLOCK_TRANSPORT=nbd-unix", "POD_NAME=rig",
		fmt.Sprintf(`ANKOLE_MOUNTS={"/host/var/lib/longhorn/unix-domain-socket": %q}`, v.Dir))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit status is in ProcessState
	}()
	return p
}

func (p *process) kill(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // it may have ended
}

// Start starts the replica's process and waits until it listens.
func (r *Replica) Start() *Replica {
	r.v.t.Helper()
	r.Addr = fmt.Sprintf("127.0.0.1:%d", ports(r.v.t))
	r.proc = r.v.spawn("--volume-name", r.v.Name, "replica", r.Dir, "--size", fmt.Sprint(r.v.Size), "--listen", r.Addr,
		"--replica-instance-name", r.Name+"-r")
	r.v.await("replica "+r.Name, r.proc, func() bool { return listening(r.Addr) })
	return r
}

func listening(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// await waits for a condition, and fails at once if the process it depends on ends.
func (v *Volume) await(what string, p *process, cond func() bool) {
	v.t.Helper()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-p.done:
			v.t.Fatalf("%s ended: %s\n%s", what, p.cmd.ProcessState, p.log)
		case <-deadline.C:
			v.t.Fatalf("%s: condition did not come true within %s\n%s", what, wait, p.log)
		case <-tick.C:
		}
	}
}

// Kill sends SIGKILL and waits for the end.
func (r *Replica) Kill() {
	r.proc.kill(syscall.SIGKILL)
	<-r.proc.done
}

// Pid returns the process number.
func (r *Replica) Pid() int { return r.proc.cmd.Process.Pid }

// Stop ends the replica cleanly.
func (r *Replica) Stop() {
	r.v.t.Helper()
	r.proc.kill(syscall.SIGTERM)
	<-r.proc.done
	if !r.proc.cmd.ProcessState.Success() {
		r.v.t.Fatalf("replica %s: %s\n%s", r.Name, r.proc.cmd.ProcessState, r.proc.log)
	}
}

// StopEverything asks every process to end, replicas first, and then waits for all of them.
func (v *Volume) StopEverything() {
	v.t.Helper()
	for _, r := range v.Replicas {
		r.proc.kill(syscall.SIGTERM)
	}
	v.StopEngine()
	for _, r := range v.Replicas {
		<-r.proc.done
		if !r.proc.cmd.ProcessState.Success() {
			v.t.Errorf("replica %s: %s", r.Name, r.proc.cmd.ProcessState)
		}
	}
}

// KillAll kills every process at once.
func (v *Volume) KillAll() {
	var all []*process
	for _, r := range v.Replicas {
		if r.proc != nil {
			all = append(all, r.proc)
		}
	}
	if v.engine != nil {
		all = append(all, v.engine)
	}
	for _, p := range all {
		p.kill(syscall.SIGKILL)
	}
	for _, p := range all {
		<-p.done
	}
}

// StartEngine starts a new engine with the given replicas (all, without arguments) and waits until the volume is offered.
func (v *Volume) StartEngine(replicas ...*Replica) {
	v.t.Helper()
	v.SpawnEngine(replicas...)
	v.await("engine", v.engine, func() bool { s, err := v.State(); return err == nil && s.FrontendState == "up" })
}

// SpawnEngine starts a new engine and does not wait.
func (v *Volume) SpawnEngine(replicas ...*Replica) {
	v.t.Helper()
	if len(replicas) == 0 {
		replicas = v.Replicas
	}
	v.engineID++
	v.Addr = fmt.Sprintf("127.0.0.1:%d", ports(v.t))
	args := []string{"--engine-instance-name", fmt.Sprintf("vol-e-%d", v.engineID), "--volume-name", v.Name, "controller", v.Name,
		"--frontend", "tgt-blockdev", "--size", fmt.Sprint(v.Size), "--listen", v.Addr}
	for _, r := range replicas {
		args = append(args, "--replica", "tcp://"+r.Addr)
	}
	v.engine = v.spawn(args...)
	if v.conn != nil {
		_ = v.conn.Close()
	}
	conn, err := grpc.NewClient(v.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		v.t.Fatal(err)
	}
	v.conn = conn
}

// EngineExit waits for the engine's end and returns its exit status.
func (v *Volume) EngineExit() (int, string) {
	v.t.Helper()
	select {
	case <-v.engine.done:
	case <-time.After(wait):
		v.t.Fatalf("engine did not end within %s\n%s", wait, v.engine.log)
	}
	return v.engine.cmd.ProcessState.ExitCode(), v.engine.log.String()
}

// StopEngine ends the engine cleanly.
func (v *Volume) StopEngine() {
	v.t.Helper()
	v.engine.kill(syscall.SIGINT)
	if code, log := v.EngineExit(); code != 0 {
		v.t.Fatalf("engine ended with %d\n%s", code, log)
	}
}

// KillEngine sends SIGKILL to the engine.
func (v *Volume) KillEngine() {
	v.engine.kill(syscall.SIGKILL)
	<-v.engine.done
}

// EnginePid returns the engine's process number.
func (v *Volume) EnginePid() int { return v.engine.cmd.Process.Pid }

// Control is a client of the engine's control interface.
func (v *Volume) Control() enginev1.EngineClient { return enginev1.NewEngineClient(v.conn) }

// State asks the engine for its state.
func (v *Volume) State() (*enginev1.State, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return v.Control().Get(ctx, &enginev1.GetRequest{})
}

// Await waits until the engine's state satisfies cond.
func (v *Volume) Await(what string, cond func(*enginev1.State) bool) {
	v.t.Helper()
	v.await(what, v.engine, func() bool { s, err := v.State(); return err == nil && cond(s) })
}

// Modes counts replicas by mode.
func Modes(s *enginev1.State) map[enginev1.Mode]int {
	m := map[enginev1.Mode]int{}
	for _, r := range s.Replicas {
		m[r.Mode]++
	}
	return m
}

// Rebuild adds a started replica and waits until it is RW.
func (v *Volume) Rebuild(r *Replica) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if _, err := v.Control().ReplicaAdd(ctx, &enginev1.ReplicaAddRequest{Address: "tcp://" + r.Addr}); err != nil {
		v.t.Fatalf("add %s: %v", r.Name, err)
	}
	v.Await("rebuild of "+r.Name, func(s *enginev1.State) bool {
		for _, x := range s.Replicas {
			if x.Address != "tcp://"+r.Addr {
				continue
			}
			if x.Mode == enginev1.Mode_MODE_ERR {
				v.t.Fatalf("rebuild of %s: %s", r.Name, x.Error)
			}
			return x.Mode == enginev1.Mode_MODE_RW
		}
		return false
	})
}

// Dial connects to the volume's NBD socket.
func (v *Volume) Dial() *nbdclient.Client {
	v.t.Helper()
	c, err := nbdclient.Dial(context.Background(), "unix:"+filepath.Join(v.Dir, v.Name+".nbd"), nbdclient.Options{Export: v.Name})
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Witness is a witness in memory.
type Witness struct {
	witnessv1.UnimplementedWitnessServer
	mu      sync.Mutex
	record  *witnessv1.Membership
	Swaps   int
	offline bool
	onSwap  func(*witnessv1.Membership)
}

func startWitness(t testing.TB, path string) *Witness {
	t.Helper()
	lis, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	w := &Witness{}
	s := grpc.NewServer()
	witnessv1.RegisterWitnessServer(s, w)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(lis) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return w
}

// Witness returns the volume's witness.
func (v *Volume) Witness() *Witness { return v.witness }

// SetOffline makes the witness answer UNAVAILABLE.
func (w *Witness) SetOffline(off bool) {
	w.mu.Lock()
	w.offline = off
	w.mu.Unlock()
}

// OnSwap has f called with every new record before anybody else learns of it. f must not call the witness.
func (w *Witness) OnSwap(f func(*witnessv1.Membership)) {
	w.mu.Lock()
	w.onSwap = f
	w.mu.Unlock()
}

// Record returns what is recorded, nil if nothing.
func (w *Witness) Record() *witnessv1.Membership {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record
}

var errOffline = status.Error(codes.Unavailable, "no manager answers")

// Get implements witnessv1.WitnessServer.
func (w *Witness) Get(context.Context, *witnessv1.GetRequest) (*witnessv1.Membership, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.offline:
		return nil, errOffline
	case w.record == nil:
		return nil, status.Error(codes.NotFound, "no record")
	}
	return w.record, nil
}

// CompareAndSwap implements witnessv1.WitnessServer.
func (w *Witness) CompareAndSwap(_ context.Context, r *witnessv1.CompareAndSwapRequest) (*witnessv1.CompareAndSwapResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.offline {
		return nil, errOffline
	}
	e := r.Expected
	same := (e == nil) == (w.record == nil) && (e == nil || (e.VolumeUuid == w.record.VolumeUuid && e.Epoch == w.record.Epoch && e.Generation == w.record.Generation))
	if same {
		w.record = r.Next
		w.Swaps++
		if w.onSwap != nil {
			w.onSwap(w.record)
		}
	}
	return &witnessv1.CompareAndSwapResponse{Swapped: same, Current: w.record}, nil
}
