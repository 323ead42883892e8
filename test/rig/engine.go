package rig

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/test/wait"
)

// Engine is one engine process.
type Engine struct {
	v    *Volume
	Name string
	Addr string
	Host *Host
	proc *process
	conn *grpc.ClientConn
}

// NewEngine starts an engine on a host with the given replicas (all, without arguments) and does
// not wait. It becomes the volume's engine; the one before is left alone.
func (v *Volume) NewEngine(h *Host, replicas ...*Replica) *Engine {
	v.t.Helper()
	if len(replicas) == 0 {
		replicas = v.Replicas
	}
	return v.launch(h, fmt.Sprintf("vol-e-%d", len(v.engines)+1), nil, replicas)
}

// Upgrade starts a successor of the volume's engine with the given replicas, under the same name,
// and does not wait. The volume's engine stays what it is; see SetEngine. env is added to its
// environment.
func (v *Volume) Upgrade(env []string, replicas ...*Replica) *Engine {
	v.t.Helper()
	old := v.engine
	e := v.launch(old.Host, old.Name, append([]string{"ANKOLE_PREDECESSOR=" + old.Addr}, env...), replicas, "--upgrade")
	v.SetEngine(old)
	return e
}

// StandIn starts on a host the process that stands in for an engine, and does not wait. The
// volume's engine stays what it is.
func (v *Volume) StandIn(h *Host, of *Engine) *Engine {
	v.t.Helper()
	now := v.engine
	s := v.launch(h, fmt.Sprintf("vol-e-%d", len(v.engines)+1), nil, nil, "--stand-in-for", "tcp://"+of.Addr)
	v.SetEngine(now)
	return s
}

func (v *Volume) launch(h *Host, name string, env []string, replicas []*Replica, flags ...string) *Engine {
	v.t.Helper()
	e := &Engine{v: v, Name: name, Addr: h.address(h.Addr), Host: h}
	args := []string{"--engine-instance-name", e.Name, "--volume-name", v.Name, "controller", v.Name, "--size",
		fmt.Sprint(v.Size), "--listen", e.Addr}
	if !v.cfg.NoFrontend {
		args = append(args, "--frontend", "tgt-blockdev")
	}
	args = slices.Concat(args, v.cfg.EngineFlags, flags)
	for _, r := range replicas {
		args = append(args, "--replica", "tcp://"+r.Addr)
	}
	logName := name
	for _, o := range v.engines {
		if o.Name == name {
			logName += "-again" // of one instance name, so that neither's end hides the other's
		}
	}
	if v.cfg.Shares {
		env = append([]string{"ANKOLE_LOCAL_ADDRESS=" + v.Replicas[0].Host.Storage}, env...)
	}
	e.proc = v.spawn(h, logName, 0, slices.Concat(v.EngineEnv, env), args...)
	dial := func(ctx context.Context, addr string) (net.Conn, error) { return v.dial(ctx, addr) }
	conn, err := grpc.NewClient("passthrough:///"+e.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial))
	if err != nil {
		v.t.Fatal(err)
	}
	e.conn = conn
	v.engine, v.Addr = e, e.Addr
	v.engines = append(v.engines, e)
	return e
}

// Serves reports whether the engine is ready, as an instance manager asks: a successor is when the
// engine before has left.
func (e *Engine) Serves() bool {
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	r, err := healthpb.NewHealthClient(e.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err == nil && r.Status == healthpb.HealthCheckResponse_SERVING
}

// Engine returns the volume's newest engine.
func (v *Volume) Engine() *Engine { return v.engine }

// SetEngine makes an engine that was started before the volume's engine again.
func (v *Volume) SetEngine(e *Engine) { v.engine, v.Addr = e, e.Addr }

// SpawnEngine starts a new engine on the first engine host and does not wait.
func (v *Volume) SpawnEngine(replicas ...*Replica) {
	v.t.Helper()
	v.NewEngine(v.EngineHosts[0], replicas...)
}

// SetOffered says whether engines that are started from now on offer the volume from their start.
func (v *Volume) SetOffered(yes bool) { v.cfg.NoFrontend = !yes }

// StartEngine starts a new engine with the given replicas (all, without arguments) and waits until
// the volume is offered.
func (v *Volume) StartEngine(replicas ...*Replica) {
	v.t.Helper()
	v.SpawnEngine(replicas...)
	v.engine.AwaitUp()
}

// AwaitUp waits until the engine offers the volume.
func (e *Engine) AwaitUp() {
	e.v.t.Helper()
	e.v.await("engine", e.proc, e.Up)
}

// Up reports whether the engine offers the volume.
func (e *Engine) Up() bool {
	s, err := e.State()
	return err == nil && s.FrontendState == "up"
}

// Alive reports whether the process runs.
func (e *Engine) Alive() bool { return e != nil && e.proc.alive() }

// Signal sends a signal.
func (e *Engine) Signal(s syscall.Signal) { e.proc.kill(s) }

// Stopped reports whether the process was stopped by a signal and has not been continued.
func (e *Engine) Stopped() bool { return e.proc.stopped() }

// Kill sends SIGKILL and waits for the end.
func (e *Engine) Kill() { e.proc.end() }

// Log returns the end of what the engine has said.
func (e *Engine) Log() string { return e.proc.log.String() }

// Exit waits for the engine's end and returns its exit status.
func (e *Engine) Exit() int {
	e.v.t.Helper()
	wait.Until(e.v.t, "end of engine "+e.Name, func() bool { return !e.proc.alive() })
	return e.proc.cmd.ProcessState.ExitCode()
}

// Control is a client of the engine's control interface.
func (e *Engine) Control() enginev1.EngineClient { return enginev1.NewEngineClient(e.conn) }

// stateTimeout bounds a question to an engine that may be stopped or cut off.
const stateTimeout = 5 * time.Second

// State asks the engine for its state.
func (e *Engine) State() (*enginev1.State, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	return e.Control().Get(ctx, &enginev1.GetRequest{})
}

// EngineExit waits for the engine's end and returns its exit status and log.
func (v *Volume) EngineExit() (int, string) {
	v.t.Helper()
	return v.engine.Exit(), v.engine.Log()
}

// StopEngine ends the engine cleanly.
func (v *Volume) StopEngine() {
	v.t.Helper()
	v.engine.proc.kill(syscall.SIGINT)
	if code, log := v.EngineExit(); code != 0 {
		v.t.Fatalf("engine ended with %d\n%s", code, log)
	}
}

// KillEngine sends SIGKILL to the engine.
func (v *Volume) KillEngine() { v.engine.Kill() }

// EnginePid returns the engine's process number.
func (v *Volume) EnginePid() int { return v.engine.proc.cmd.Process.Pid }

// Control is a client of the engine's control interface.
func (v *Volume) Control() enginev1.EngineClient { return v.engine.Control() }

// State asks the engine for its state.
func (v *Volume) State() (*enginev1.State, error) { return v.engine.State() }

// Await waits until the engine's state satisfies cond.
func (v *Volume) Await(what string, cond func(*enginev1.State) bool) {
	v.t.Helper()
	v.await(what, v.engine.proc, func() bool { s, err := v.State(); return err == nil && cond(s) })
}

// Rebuild adds a started replica and waits until it is RW.
func (v *Volume) Rebuild(r *Replica) {
	v.t.Helper()
	ctx, cancel := waitContext()
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
	c, err := v.engine.dialNBD()
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (e *Engine) dialNBD() (*nbdclient.Client, error) {
	return nbdclient.Dial(context.Background(), e.NBDAddress(), nbdclient.Options{Export: e.v.Name})
}

// NBDAddress is where the engine offers the volume, as package nbdclient writes addresses.
func (e *Engine) NBDAddress() string { return "unix:" + filepath.Join(e.Host.Dir, e.v.Name+".nbd") }
