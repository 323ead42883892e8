package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// State is where a process is in its life; the values are those on the wire.
type State string

// The states; see the package comment.
const (
	Starting State = "starting"
	Running  State = "running"
	Stopping State = "stopping"
	Stopped  State = "stopped"
	Error    State = "error"
)

// Status is what can be seen of a process at one moment.
type Status struct {
	Spec  Spec
	State State
	// ErrorMsg says why a process is in state Error: what exec or wait said ("exit status 1",
	// "signal: killed"), and after an exit status the last line that the process has printed.
	ErrorMsg string
	Ports    PortRange
	// UUID tells two processes of one name apart.
	UUID string
	// Deleted: it has left the list.
	Deleted bool
	// Conditions are observations by name, see SetCondition. The map is never changed.
	Conditions map[string]bool
	// Revision of the last change.
	Revision int64
}

const (
	// stopSignal and replaceSignal are the polite ones: finish, hand over.
	stopSignal    = unix.SIGINT
	replaceSignal = unix.SIGHUP
	// drainTimeout is how long the output of an ended process is still read. Its group is dead by
	// then, so more can only come from a process that left the group and kept the pipe.
	drainTimeout = 2 * time.Second
	// maxStopRequests bounds requests on their way to the goroutine of a process, which takes them
	// at once.
	maxStopRequests = 8
)

type stopRequest struct {
	signal  unix.Signal
	timeout time.Duration // then SIGKILL
	why     string
}

// Process is one instance.
type Process struct {
	m      *Manager
	spec   Spec // Environment is dropped once started
	uuid   string
	ports  PortRange
	listen string
	// predecessor is where the engine listens that this one is to follow, empty for none.
	predecessor string

	stops chan stopRequest

	// Under m.mu:
	state    State
	errorMsg string
	revision int64
	listed   bool // known by its name
	deleting bool // to be removed when it has ended
	last     bool // and no other one follows it
	// next is the replacement that is on its way, before the process whose place this replacement
	// takes. A process that has a next one stays in the list until that one has ended too.
	next, before *Process
	ended        bool
	// left: it has ended in order and is shown as if it ran, since the engine that follows it is on
	// its way.
	left    bool
	removed bool
	said    string        // the last line it has printed
	changed chan struct{} // closed at the next change of state
	// conditions is replaced, never changed.
	conditions map[string]bool

	// Owned by run:
	child *child
}

func newProcess(m *Manager, spec Spec, ports PortRange) *Process {
	p := &Process{m: m, spec: spec, uuid: uuid.NewString(), ports: ports, state: Starting,
		stops: make(chan stopRequest, maxStopRequests), changed: make(chan struct{})}
	p.spec.PortArgs = slices.Clone(spec.PortArgs)
	p.spec.Args, p.listen = spec.withPorts(ports, m.cfg.PodIP)
	return p
}

// status is called with the lock held. The slices are never changed.
func (p *Process) status() Status {
	spec := p.spec
	spec.Environment = nil
	return Status{Spec: spec, State: p.state, ErrorMsg: p.errorMsg, Ports: p.ports, UUID: p.uuid,
		Deleted: p.removed, Conditions: p.conditions, Revision: p.revision}
}

// set moves to a state. The lock is held.
func (p *Process) set(s State, errorMsg string) {
	if p.state == s && p.errorMsg == errorMsg {
		return
	}
	p.m.log.Info("process changed", "process", p.spec.Name, "uuid", p.uuid, "from", p.state, "to", s, "error", errorMsg)
	p.state, p.errorMsg = s, errorMsg
	close(p.changed)
	p.changed = make(chan struct{})
	p.m.publish(p, false)
}

// requestStop asks for the end of a process that has not ended. The lock is held.
func (p *Process) requestStop(r stopRequest) {
	p.set(Stopping, p.errorMsg)
	select {
	case p.stops <- r:
	default: // as many are on their way already
	}
}

// start launches the process and hands it to its goroutine, which owns it until it has ended.
func (p *Process) start() {
	log, output, err := p.launch()
	if err != nil {
		p.finish(err)
		p.m.running.Done()
		return
	}
	go p.run(log, output)
}

func (p *Process) launch() (*logFile, *os.File, error) {
	log, err := p.m.logs.acquire(p.spec.Name)
	if err != nil {
		p.m.log.Warn("process starts without a log of its own", "process", p.spec.Name, "err", err)
	}
	output, input, err := os.Pipe()
	if err != nil {
		p.m.logs.release(log)
		return nil, nil, fmt.Errorf("create the output pipe of process %s: %w", p.spec.Name, err)
	}
	defer input.Close()
	env := append(p.spec.environment(p.m.inherited, p.m.cfg.Environment), string(p.m.strays.mark(p.uuid)))
	if p.predecessor != "" {
		env = append(env, predecessorVariable+"="+p.predecessor)
	}
	cmd := &exec.Cmd{
		Path:   p.m.cfg.Resolve(p.spec.Binary),
		Args:   append([]string{p.spec.Binary}, p.spec.Args...),
		Env:    env,
		Stdout: input,
		Stderr: input,
	}
	if p.child, err = p.m.launcher.start(cmd); err != nil {
		output.Close()
		p.m.logs.release(log)
		// What os says names the real path; everything reported is the Pod's.
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, nil, fmt.Errorf("start %s: %w", p.spec.Binary, err)
	}
	return log, output, nil
}

// run looks after a started process until it has ended. It alone signals and reaps.
func (p *Process) run(log *logFile, output *os.File) {
	defer p.m.running.Done()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_ = eachLine(output, func(line string) error {
			p.heard(line)
			return log.writeLine(line)
		})
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.child.awaitEnd()
	}()
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan error, 1)
	if p.ports.Len() == 0 {
		p.onReady(nil)
		close(ready)
	} else {
		go func() { ready <- p.m.probe(ctx, p.listen, p.m.cfg.ProbeInterval, p.m.cfg.ProbeTimeout) }()
	}

	p.supervise(ended, ready)

	err := p.child.reap()
	p.m.strays.look(p.uuid)
	cancel()
	_ = output.SetReadDeadline(time.Now().Add(drainTimeout))
	select {
	case <-drained:
	case <-time.After(drainTimeout + logWait):
		p.m.log.Warn("a process has ended whose last lines cannot be written: the disk for logs hangs",
			"process", p.spec.Name, "directory", p.m.logs.dir)
	}
	output.Close()
	p.m.logs.release(log)
	<-ready
	p.finish(err)
}

// reason says why a process has failed: how it ended, and what it said last if it ended by itself.
func (p *Process) reason(err error) string {
	text := err.Error()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() && p.said != "" {
		text += ": " + strings.TrimPrefix(p.said, "error: ")
	}
	if p.errorMsg != "" {
		text += " (" + p.errorMsg + ")"
	}
	return text
}

// maxSaid bounds what is kept of the last line.
const maxSaid = 1 << 10

// heard keeps the last line: what a process says before it fails is the reason, as far as whoever
// waits for it is concerned.
func (p *Process) heard(line string) {
	if line = strings.TrimSpace(line); line == "" {
		return
	}
	p.m.mu.Lock()
	p.said = line[:min(len(line), maxSaid)]
	p.m.mu.Unlock()
}

// supervise returns when the process has ended. ready is closed once its result has been dealt
// with.
func (p *Process) supervise(ended <-chan struct{}, ready chan error) {
	kill := time.NewTimer(0)
	<-kill.C
	defer kill.Stop()
	var due time.Time // when kill fires, zero for never
	probing := ready
	for {
		select {
		case err, ok := <-probing:
			if ok {
				p.onReady(err)
				close(ready) // for the last read of run
			}
			probing = nil
		case r := <-p.stops:
			p.m.log.Info("signal process", "process", p.spec.Name, "signal", r.signal, "why", r.why)
			_ = p.child.signal(r.signal)
			if at := time.Now().Add(r.timeout); due.IsZero() || at.Before(due) {
				due = at // whoever asks again puts nothing off
				kill.Reset(r.timeout)
			}
		case <-kill.C:
			due = time.Time{}
			p.m.log.Warn("kill process: it ignored the signal to stop", "process", p.spec.Name)
			_ = p.child.signal(unix.SIGKILL)
		case <-ended:
			return
		}
	}
}

// onReady acts on the result of the readiness probe.
func (p *Process) onReady(err error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.state != Starting {
		return
	}
	if err == nil {
		p.set(Running, "")
		return
	}
	p.errorMsg = err.Error()
	p.requestStop(stopRequest{signal: stopSignal, timeout: p.m.cfg.StopTimeout, why: err.Error()})
}

// finish records how the process ended; nil is exit status 0.
func (p *Process) finish(err error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.ended = true
	p.spec.Environment = nil
	switch {
	case err != nil:
		p.set(Error, p.reason(err))
	case p.next != nil && p.next.spec.follows() && !p.deleting && !p.m.closed:
		p.left = true // swap takes it out of the list, or discard tells of its end
	default:
		p.set(Stopped, p.errorMsg)
	}
	if p.deleting {
		p.m.remove(p)
	}
}
