package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"ankole.storage/test/wait"
)

// process is a child that ends with the test, also when the test is killed.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	log  logFile
	v    *Volume
}

// logFile is where a process writes what it has to say.
type logFile string

// logTail is how much of a log an error message shows; the file has the rest.
const logTail = 16 << 10

func (l logFile) String() string {
	b, err := os.ReadFile(string(l))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-logTail):])
}

// spawn starts the engine's binary on a host, with at most files descriptors if that is not 0. Its
// output is appended to the log of that name.
func (v *Volume) spawn(h *Host, name string, files int, env []string, args ...string) *process {
	v.t.Helper()
	return v.spawnProgram(v.binary, h, name, files, env, args...)
}

// spawnProgram is spawn of any program.
func (v *Volume) spawnProgram(binary string, h *Host, name string, files int, env []string, args ...string) *process {
	v.t.Helper()
	p := &process{v: v, name: name, done: make(chan struct{}), log: logFile(filepath.Join(v.Dir, "logs", name+".log"))}
	out, err := os.OpenFile(string(p.log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		v.t.Fatal(err)
	}
	defer out.Close()
	p.cmd = exec.Command(binary, args...)
	if files > 0 {
		p.cmd = exec.Command("prlimit", append([]string{fmt.Sprintf("--nofile=%d", files), binary}, args...)...)
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if v.output != nil {
		p.cmd.Stdout, p.cmd.Stderr = v.output, v.output
	}
	p.cmd.Env = slices.Concat(os.Environ(), h.environment(v), env)
	// The kernel counts the end of the thread that started it as the parent's; do has threads that
	// stay.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	h.ns.do(func() { err = p.cmd.Start() })
	if err != nil {
		v.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit status is in ProcessState
	}()
	return p
}

func (p *process) kill(sig syscall.Signal) {
	if p.alive() && (sig == syscall.SIGKILL || sig == syscall.SIGSTOP) {
		p.v.Hit()
	}
	_ = p.cmd.Process.Signal(sig) // it may have ended
}

// alive reports whether the process was started and has not ended. A nil process is not alive.
func (p *process) alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stopped reports whether every thread was stopped by a signal: one may go on for a moment after
// the signal was sent.
func (p *process) stopped() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, t := range threads {
		b, err := os.ReadFile(t)
		if _, state, ok := strings.Cut(string(b), ") "); err != nil || !ok || !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// end sends SIGKILL and waits for the end.
func (p *process) end() {
	p.kill(syscall.SIGKILL)
	<-p.done
}

// poll waits until cond holds, or stop is closed; false if it does not hold then, or not in time.
func poll(stop <-chan struct{}, cond func() bool) bool {
	deadline := time.NewTimer(wait.Limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-stop:
			return false
		case <-deadline.C:
			return false
		case <-tick.C:
		}
	}
	return true
}
