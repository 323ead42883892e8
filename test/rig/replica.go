package rig

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"syscall"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/wait"
)

const (
	sigkill = syscall.SIGKILL
	sigterm = syscall.SIGTERM
)

// Replica is one replica process and its directory.
type Replica struct {
	v    *Volume
	Name string
	// Dir is the replica directory.
	Dir  string
	Addr string
	Host *Host
	// Disk is the small file system the directory is on, nil without.
	Disk *Disk
	// Env is added to the environment of processes started from now on.
	Env []string
	// Flags are added to the command line of processes started from now on.
	Flags []string
	// Standby lets processes started from now on be standby if another one has the directory.
	Standby bool
	proc    *process
}

// AddReplica adds a replica with a directory of its own; Start starts it.
func (v *Volume) AddReplica(name string) *Replica {
	r := &Replica{v: v, Name: name, Dir: filepath.Join(v.Dir, name), Host: v.newHost("host-" + name)}
	v.Replicas = append(v.Replicas, r)
	return r
}

// Start starts the replica's process and waits until it listens.
func (r *Replica) Start() *Replica {
	r.v.t.Helper()
	r.Spawn(0)
	r.v.await("replica "+r.Name, r.proc, r.Listening)
	return r
}

// Listening reports whether the replica accepts connections.
func (r *Replica) Listening() bool { return r.v.listening(r.Addr) }

// Imitate returns another replica on the same directory and host, which is not one of the volume's.
func (v *Volume) Imitate(r *Replica) *Replica {
	return &Replica{v: v, Name: r.Name + "-again", Dir: r.Dir, Host: r.Host}
}

// DialControl connects to a replica's control port.
func (v *Volume) DialControl(r *Replica) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	return v.dial(ctx, r.Addr)
}

// DialData connects to a replica's data port.
func (v *Volume) DialData(r *Replica) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(r.Addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	return v.dial(ctx, net.JoinHostPort(host, strconv.Itoa(n+1)))
}

// Spawn starts the replica's process and does not wait. files bounds its file descriptors; 0 leaves
// them as they are.
func (r *Replica) Spawn(files int) {
	r.v.t.Helper()
	r.Addr = r.Host.address(r.Host.Storage)
	args := []string{"--volume-name", r.v.Name, "replica", r.Dir, "--size", fmt.Sprint(r.v.Size), "--listen", r.Addr,
		"--replica-instance-name", r.Name + "-r"}
	if r.Standby {
		args = append(args, "--standby")
	}
	args = append(args, r.Flags...)
	r.proc = r.v.spawn(r.Host, r.Name, files, r.Env, args...)
}

// Kill sends SIGKILL and waits for the end.
func (r *Replica) Kill() { r.proc.end() }

// Signal sends a signal.
func (r *Replica) Signal(s syscall.Signal) { r.proc.kill(s) }

// Stopped reports whether the process was stopped by a signal and has not been continued.
func (r *Replica) Stopped() bool { return r.proc.stopped() }

// Alive reports whether the process runs.
func (r *Replica) Alive() bool { return r.proc.alive() }

// Pid returns the process number.
func (r *Replica) Pid() int { return r.proc.cmd.Process.Pid }

// Log returns the end of what the replica's processes have said.
func (r *Replica) Log() string { return r.proc.log.String() }

// Exit waits for the replica's end and returns its exit status.
func (r *Replica) Exit() int {
	r.v.t.Helper()
	wait.Until(r.v.t, "end of replica "+r.Name, func() bool { return !r.proc.alive() })
	return r.proc.cmd.ProcessState.ExitCode()
}

// Stop ends the replica cleanly.
func (r *Replica) Stop() {
	r.v.t.Helper()
	r.proc.kill(sigterm)
	<-r.proc.done
	if !r.proc.cmd.ProcessState.Success() {
		r.v.t.Fatalf("replica %s: %s\n%s", r.Name, r.proc.cmd.ProcessState, r.proc.log)
	}
}

// Mode returns what the engine thinks of the replica, unspecified if it does not know it.
func (r *Replica) Mode(s *enginev1.State) enginev1.Mode {
	for _, x := range s.Replicas {
		if x.Address == "tcp://"+r.Addr {
			return x.Mode
		}
	}
	return enginev1.Mode_MODE_UNSPECIFIED
}

// Modes counts replicas by mode.
func Modes(s *enginev1.State) map[enginev1.Mode]int {
	m := map[enginev1.Mode]int{}
	for _, r := range s.Replicas {
		m[r.Mode]++
	}
	return m
}
