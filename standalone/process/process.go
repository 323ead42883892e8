// Package process starts and ends the plain processes that stand for containers.
//
// A container runtime ends a container as a whole: its cgroup is killed, whatever the processes in
// it did to their sessions and parents. Plain processes have no such box, so every one started here
// carries a marker in its environment, which its descendants inherit. KillMarked ends all processes
// under a marker.
//
// Three things together leave no orphans. A container's processes are killed when its first process
// ends. The first process asks the kernel for SIGKILL when we die (PR_SET_PDEATHSIG). And the next
// start on the same state folder kills what carries the folder's marker before it starts anything.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// MarkerVariable holds a process's marker: the state folder's path, then node, Pod, container,
// separated by "|". It ends with "|", so that no marker is the prefix of a sibling's.
const MarkerVariable = "ANKOLE_CONTAINER"

// outputDrain is how long output still in pipes is read after everything of a container is dead.
// Only a process that escaped its marker can hold a pipe that long.
const outputDrain = 2 * time.Second

// ErrClosed means that the spawner no longer starts processes.
var ErrClosed = errors.New("process spawner is closed")

// Spec is a process to start.
type Spec struct {
	Path   string   // executable file
	Args   []string // argv, [0] included
	Env    []string // KEY=value, the whole environment without the marker
	Dir    string   // working directory
	Marker string
	Stdin  io.Reader // nil: /dev/null
	Stdout io.Writer
	Stderr io.Writer
}

// Exit is how a process ended.
type Exit struct {
	Code   int            // as a shell reports it: 128+n for signal n
	Signal syscall.Signal // 0 unless a signal ended it
	Time   time.Time
}

// Process is a running process.
type Process struct {
	cmd    *exec.Cmd
	spec   Spec
	marker string
	done   chan struct{}
	exit   Exit
}

// Spawner starts processes from one OS thread that lives as long as the spawner: the kernel sends
// the parent death signal when the starting *thread* ends, and Go ends threads at will.
type Spawner struct {
	requests chan request
	quit     chan struct{}
	once     sync.Once
	wg       sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	running map[*Process]bool
}

type request struct {
	cmd   *exec.Cmd
	reply chan error
}

// NewSpawner starts the thread. Close ends every process still running.
func NewSpawner() *Spawner {
	s := newSpawner()
	s.wg.Go(func() {
		// Never unlocked, so that nothing else can end the thread. It ends with this goroutine, unless it
		// is the program's first one, which never does.
		runtime.LockOSThread()
		s.run()
	})
	return s
}

func newSpawner() *Spawner {
	return &Spawner{requests: make(chan request), quit: make(chan struct{}), running: map[*Process]bool{}}
}

func (s *Spawner) run() {
	for {
		select {
		case r := <-s.requests:
			r.reply <- r.cmd.Start()
		case <-s.quit:
			return
		}
	}
}

// closeTime bounds the wait for processes that SIGKILL does not end, because they wait in the
// kernel.
const closeTime = 5 * time.Second

// Close stops the spawner, kills its processes and waits for them.
func (s *Spawner) Close() {
	s.mu.Lock()
	s.closed = true
	for p := range s.running {
		p.Signal(syscall.SIGKILL) // what else carries its marker ends with it
	}
	s.mu.Unlock()
	s.once.Do(func() { close(s.quit) })
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(closeTime):
	}
}

// Start starts a process in its own process group.
func (s *Spawner) Start(spec Spec) (*Process, error) {
	cmd := &exec.Cmd{
		Path:        spec.Path,
		Args:        spec.Args,
		Env:         append(append([]string{}, spec.Env...), MarkerVariable+"="+spec.Marker),
		Dir:         spec.Dir,
		Stdin:       spec.Stdin,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
		WaitDelay:   outputDrain,
	}
	out, err := newOutputs(cmd, spec)
	if err != nil {
		return nil, err
	}
	err = s.start(cmd)
	out.closeWriters()
	if err != nil {
		out.closeReaders()
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	p := &Process{cmd: cmd, spec: spec, marker: spec.Marker, done: make(chan struct{})}
	out.copy()
	s.follow(p, out)
	return p, nil
}

// start has the thread start a command. What was started is counted in wg, and follow has to be
// called.
func (s *Spawner) start(cmd *exec.Cmd) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.wg.Add(1) // before Close waits
	s.mu.Unlock()
	r := request{cmd: cmd, reply: make(chan error, 1)}
	err := ErrClosed
	select {
	case s.requests <- r:
		err = <-r.reply
	case <-s.quit:
	}
	if err != nil {
		s.wg.Done()
	}
	return err
}

// follow notes a process until it has ended.
func (s *Spawner) follow(p *Process, out *outputs) {
	s.mu.Lock()
	s.running[p] = true
	if s.closed { // Close has not seen it
		p.Signal(syscall.SIGKILL)
	}
	s.mu.Unlock()
	go func() {
		defer s.wg.Done()
		p.wait(out)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, p)
	}()
}

// wait reaps the process, ends what it left behind and drains its output.
func (p *Process) wait(out *outputs) {
	defer close(p.done)
	_ = p.cmd.Wait() // the state says more than the error
	p.exit = exitOf(p.cmd.ProcessState)
	KillMarked(p.marker)
	out.drain()
}

func exitOf(state *os.ProcessState) Exit {
	e := Exit{Code: state.ExitCode(), Time: time.Now()}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal()
		e.Code = 128 + int(e.Signal)
	}
	return e
}

// Spec is what the process was started with.
func (p *Process) Spec() Spec { return p.spec }

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process and everything under its marker has ended and its output is read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how it ended; valid after Done.
func (p *Process) Exit() Exit { return p.exit }

// Signal sends a signal to the process alone, as a container runtime does to a container's first
// process.
func (p *Process) Signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// Kill ends the process and all that carry its marker.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	KillMarked(p.marker)
}

// outputs are the pipes between a process and the writers of its output. They are not left to
// exec.Cmd, whose Wait waits for the last holder of a pipe, before we know that the first process
// has ended.
type outputs struct {
	readers, writers []*os.File
	sinks            []io.Writer
	wg               sync.WaitGroup
}

func newOutputs(cmd *exec.Cmd, spec Spec) (*outputs, error) {
	o := &outputs{}
	for _, t := range []struct {
		sink io.Writer
		set  func(io.Writer)
	}{
		{spec.Stdout, func(w io.Writer) { cmd.Stdout = w }},
		{spec.Stderr, func(w io.Writer) { cmd.Stderr = w }},
	} {
		if t.sink == nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			o.closeReaders()
			o.closeWriters()
			return nil, fmt.Errorf("start %s: %w", spec.Path, err)
		}
		o.readers, o.writers, o.sinks = append(o.readers, r), append(o.writers, w), append(o.sinks, t.sink)
		t.set(w)
	}
	return o, nil
}

func (o *outputs) closeWriters() {
	for _, w := range o.writers {
		_ = w.Close()
	}
}

func (o *outputs) closeReaders() {
	for _, r := range o.readers {
		_ = r.Close()
	}
}

func (o *outputs) copy() {
	for i, r := range o.readers {
		o.wg.Go(func() { _, _ = io.Copy(o.sinks[i], r) })
	}
}

func (o *outputs) drain() {
	done := make(chan struct{})
	go func() { o.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(outputDrain):
	}
	o.closeReaders()
	<-done
}
