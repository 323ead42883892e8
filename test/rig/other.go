package rig

import (
	"context"
	"net"
	"os/exec"
)

// Other is a process on a host that is neither an engine nor a replica.
type Other struct {
	Host *Host
	proc *process
}

// NewHost adds a host.
func (v *Volume) NewHost(name string) *Host {
	v.t.Helper()
	return v.newHost(name)
}

// Run starts a program of cmd/ on the host, until the test ends. Its output is appended to the log
// of that name.
func (h *Host) Run(name, program string, args ...string) *Other {
	h.v.t.Helper()
	o := &Other{h, h.v.spawnProgram(Program(h.v.t, program), h, name, 0, nil, args...)}
	h.v.t.Cleanup(func() {
		o.Kill()
		if h.v.t.Failed() {
			h.v.t.Logf("--- %s ---\n%s", name, o.proc.log)
		}
	})
	return o
}

// Exec runs a program on the host to its end.
func (h *Host) Exec(c *exec.Cmd) (err error) {
	if h.ns == nil {
		return c.Run()
	}
	h.ns.do(func() { err = c.Start() })
	if err != nil {
		return err
	}
	return c.Wait()
}

// Pid is that of the process.
func (o *Other) Pid() int { return o.proc.cmd.Process.Pid }

// Kill sends SIGKILL and waits for the end.
func (o *Other) Kill() { o.proc.end() }

// Alive reports whether the process has not ended.
func (o *Other) Alive() bool { return o.proc.alive() }

// Log is the end of what it has written.
func (o *Other) Log() string { return o.proc.log.String() }

// Listen listens outside of all hosts, at a port of the management network that hosts reach.
func (v *Volume) Listen() (l net.Listener, err error) {
	if v.net == nil {
		return net.Listen("tcp", "127.0.0.1:0")
	}
	v.net.hub.do(func() { l, err = net.Listen("tcp", management.net+hubAddress+":0") })
	return l, err
}

// Connect connects to a process on a host, from outside of all hosts.
func (v *Volume) Connect(ctx context.Context, address string) (net.Conn, error) {
	return v.dial(ctx, address)
}
