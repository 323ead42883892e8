package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"ankole.storage/host/mtls"
	"ankole.storage/host/patience"
)

// Config of a Manager. Zero durations and sizes take the defaults.
type Config struct {
	// LogsDir receives <process name>.log; it is created.
	LogsDir string
	// Binaries are the paths, as the Pod sees it, of the folder that has a folder for each engine
	// image of the node: nothing but an engine of one of them is started, with variables of ours
	// alone. Empty: anything is.
	Binaries []string
	// Output shows the lines of all instances, prefixed with [<name>].
	Output io.Writer
	// Ports is where instances get their ports from.
	Ports PortRange
	// PodIP replaces wildcard listen addresses; empty: they stay.
	PodIP string
	// Environment is given to each instance after the instance manager's own: ANKOLE_WITNESS and
	// the like.
	Environment []string
	// Certificates secure what instances serve; nil: they serve plaintext.
	Certificates *mtls.Source
	// Owner tells this instance manager from every other one on the machine, and is the same at its
	// next start: with it, processes that an instance left behind are ended, those from before a
	// start too. Empty: nobody looks for them.
	Owner string
	// Resolve turns a path of the Pod into the one to open.
	Resolve func(string) string
	// Gone is called when a process deleted by DeleteLast has ended and left the list, or had left it
	// before, before another one of its name can be made. It must not block. May be nil.
	Gone func(name string)
	// Kept names the engines that Close kills instead of stopping them in order: what they serve
	// outlives them and waits for the engines that follow them, which a stop in order would end. It
	// must not block. May be nil.
	Kept func() map[string]bool
	// EnginesEnded is called by Close when the last engine has ended, or cannot be ended, before
	// replicas are told to. May be nil.
	EnginesEnded func()
	// Log receives what happens to instances.
	Log *slog.Logger

	// StopTimeout is from the polite signal to SIGKILL.
	StopTimeout time.Duration
	// ProbeInterval and ProbeTimeout bound the wait for readiness; a process that is not ready then
	// is stopped.
	ProbeInterval, ProbeTimeout time.Duration
	// ReplaceTimeout is how long a replacement may take to be running before it takes the place
	// all the same.
	ReplaceTimeout time.Duration
	// MaxLogSize is the size at which a log file is rotated, in bytes.
	MaxLogSize int64

	proc string // where processes are shown, for tests; empty: /proc
}

// Defaults of the reference: probes every 100 ms, 600 of them; 60 s from SIGINT to SIGKILL.
const (
	defaultStopTimeout    = 60 * time.Second
	defaultProbeInterval  = 100 * time.Millisecond
	defaultProbeTimeout   = 600 * defaultProbeInterval
	defaultReplaceTimeout = 30 * time.Second
)

func (c *Config) setDefaults() {
	setDefault(&c.StopTimeout, defaultStopTimeout)
	setDefault(&c.ProbeInterval, defaultProbeInterval)
	setDefault(&c.ProbeTimeout, defaultProbeTimeout)
	setDefault(&c.ReplaceTimeout, patience.Of(defaultReplaceTimeout))
	setDefault(&c.MaxLogSize, maxLogSize)
	if c.Ports == (PortRange{}) {
		c.Ports = PortRange{Start: 10000, End: 20000}
	}
	if c.Output == nil {
		c.Output = io.Discard
	}
	if c.Resolve == nil {
		c.Resolve = func(path string) string { return path }
	}
	if c.Kept == nil {
		c.Kept = func() map[string]bool { return nil }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Manager owns the instances of one instance manager. Its methods may be called from any goroutine.
type Manager struct {
	cfg       Config
	log       *slog.Logger
	logs      *logs
	launcher  *launcher
	strays    *strays
	inherited []string

	// running counts the processes that have a goroutine.
	running sync.WaitGroup

	mu       sync.Mutex
	ports    *portMap
	listed   map[string]*Process
	all      map[*Process]struct{} // listed ones, replacements before their turn, replaced ones until they end
	revision int64
	closed   bool
	refuses  bool // see CloseIdle

	watchers       map[*Subscription]struct{}
	watchersClosed bool
}

// New returns a Manager without processes. Close it.
func New(cfg Config) (*Manager, error) {
	cfg.setDefaults()
	logs, err := newLogs(cfg.LogsDir, cfg.MaxLogSize, cfg.Output)
	if err != nil {
		return nil, err
	}
	return &Manager{
		cfg: cfg, log: cfg.Log, logs: logs, launcher: newLauncher(cfg.Log), strays: newStrays(cfg.Owner, cfg.proc, cfg.Log),
		inherited: os.Environ(),
		ports:     newPortMap(cfg.Ports),
		listed:    map[string]*Process{},
		all:       map[*Process]struct{}{},
		watchers:  map[*Subscription]struct{}{},
	}, nil
}

// Create reserves ports and starts a process. One that cannot be started is listed in state error
// and returned without an error. Errors: ErrInvalid, ErrExists, ErrNoPorts, ErrTooMany, ErrRefused,
// ErrClosed.
func (m *Manager) Create(spec Spec) (Status, error) {
	if err := spec.check(m.cfg.Binaries); err != nil {
		return Status{}, err
	}
	m.mu.Lock()
	if old := m.listed[spec.Name]; old != nil {
		defer m.mu.Unlock()
		return Status{}, fmt.Errorf("%w: %s is %s; delete it first", ErrExists, spec.Name, old.state)
	}
	p, err := m.add(spec)
	if err != nil {
		defer m.mu.Unlock()
		return Status{}, err
	}
	p.listed = true
	m.listed[spec.Name] = p
	m.publish(p, false)
	m.mu.Unlock()

	p.start()
	return m.statusOf(p), nil
}

// maxProcesses bounds what a client can have started and left: the default range of ports is enough
// for 1000 replicas, and four times as many fit a list of 4 MiB, which is what clients of gRPC take
// by default.
const maxProcesses = 4000

// add makes a process that is not listed and not started yet. The lock is held.
func (m *Manager) add(spec Spec) (*Process, error) {
	if m.closed {
		return nil, fmt.Errorf("%w: process %s is not started", ErrClosed, spec.Name)
	}
	if m.refuses {
		return nil, fmt.Errorf("%w: process %s is not started", ErrRefused, spec.Name)
	}
	if len(m.all) >= maxProcesses {
		return nil, fmt.Errorf("%w: process %s is not started, there are %d, which is the limit; delete unused ones",
			ErrTooMany, spec.Name, maxProcesses)
	}
	ports, err := m.ports.take(spec.PortCount)
	if err != nil {
		return nil, fmt.Errorf("process %s: %w", spec.Name, err)
	}
	p := newProcess(m, spec, ports)
	m.all[p] = struct{}{}
	m.running.Add(1)
	return p, nil
}

// Get returns one process; ErrNotFound.
func (m *Manager) Get(name string) (Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.find(name, "")
	if err != nil {
		return Status{}, err
	}
	return p.status(), nil
}

// List returns all processes, in no order, and the revision it shows.
func (m *Manager) List() ([]Status, int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Status, 0, len(m.listed))
	for _, p := range m.listed {
		list = append(list, p.status())
	}
	return list, m.revision
}

// CloseIdle has no process started any more, if none runs, starts or stops, and tells whether that
// is so now. A process that is created at the same time either keeps the Manager open or is refused
// with ErrRefused. The Manager goes on otherwise; Close it.
func (m *Manager) CloseIdle() (closed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.all {
		if !p.ended {
			return false
		}
	}
	m.refuses = true
	return true
}

// Delete asks a process to end and returns at once; a process that has ended already leaves the
// list right away (the status then says Deleted). Repeating it is harmless and puts nothing off;
// after the stop timeout it kills again. uuid may be empty. Errors: ErrNotFound.
func (m *Manager) Delete(name, uuid string) (Status, error) { return m.delete(name, uuid, false) }

// DeleteLast is Delete for a process that no other one of its name follows here. Where none is
// listed what it may have left is given up all the same, and the error is ErrNotFound.
func (m *Manager) DeleteLast(name, uuid string) (Status, error) { return m.delete(name, uuid, true) }

func (m *Manager) delete(name, uuid string, last bool) (Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.find(name, uuid)
	if err != nil {
		if last && m.listed[name] == nil && validName.MatchString(name) && m.cfg.Gone != nil {
			m.cfg.Gone(name)
		}
		return Status{}, err
	}
	p.last = p.last || last
	for _, p := range []*Process{p.next, p} {
		if p != nil {
			p.end(stopRequest{signal: stopSignal, timeout: m.cfg.StopTimeout, why: "deleted"})
		}
	}
	return p.status(), nil
}

// end has a process end, and be forgotten when it has. The lock is held.
func (p *Process) end(r stopRequest) {
	p.deleting = true
	if p.ended {
		p.m.remove(p)
	} else {
		p.requestStop(r)
	}
}

// SetCondition records an observation about a process and tells the watchers if it is news. A
// process that is not there any more is passed over.
func (m *Manager) SetCondition(name, uuid, condition string, value bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.find(name, uuid)
	if err != nil {
		return
	}
	if before, ok := p.conditions[condition]; ok && before == value {
		return
	}
	conditions := maps.Clone(p.conditions)
	if conditions == nil {
		conditions = map[string]bool{}
	}
	conditions[condition] = value
	p.conditions = conditions
	m.publish(p, false)
}

// find looks a process up. The lock is held.
func (m *Manager) find(name, uuid string) (*Process, error) {
	p := m.listed[name]
	if p == nil {
		return nil, fmt.Errorf("%w: %.255s", ErrNotFound, name)
	}
	if uuid != "" && uuid != p.uuid {
		return nil, fmt.Errorf("%w: %s with UUID %s (the present one has %s)", ErrNotFound, name, uuid, p.uuid)
	}
	return p, nil
}

// remove forgets a process that has ended and frees its ports. One that is being replaced stays,
// with its name, until the replacement has ended too. The lock is held.
func (m *Manager) remove(p *Process) {
	if p.removed || p.next != nil {
		return
	}
	p.removed = true
	m.ports.release(p.ports)
	delete(m.all, p)
	if p.listed {
		delete(m.listed, p.spec.Name)
	}
	m.publish(p, true)
	if p.last && m.cfg.Gone != nil {
		m.cfg.Gone(p.spec.Name)
	}
	if old := p.before; old != nil {
		p.unlink()
		if old.deleting && old.ended {
			m.remove(old)
		}
	}
}

// unlink makes a replacement a process like any other, and the one that it was to replace too. The
// lock is held.
func (p *Process) unlink() { p.before.next, p.before = nil, nil }

func (m *Manager) statusOf(p *Process) Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.status()
}

// Log calls line for each line in the log of a process, oldest first, until the end of the file, or
// with Follow until the process has ended. Logs of processes that are gone can be read too while
// they are kept. Errors: ErrNotFound, ErrTooMany, and those of ctx and line.
func (m *Manager) Log(ctx context.Context, name string, o LogOptions, line func(string) error) error {
	if len(name) > maxNameLen || !validName.MatchString(name) {
		return fmt.Errorf("%w: %.64q", ErrNotFound, name)
	}
	return m.logs.read(ctx, name, o, line)
}
