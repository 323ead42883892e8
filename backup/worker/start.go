package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/backup"
	"ankole.storage/backup/share"
	"ankole.storage/backup/target"
)

const (
	// DefaultGiveUp is how long a store may leave a request without an answer: longer than a server
	// of NFS or S3 takes to be replaced, and than all attempts of a request to S3.
	DefaultGiveUp = 10 * time.Minute
	// silence is how long a worker may tell nothing; it tells something each second.
	silence = time.Minute
	// endWait is how long a worker may take to end when it is killed.
	endWait = 5 * time.Second
)

// ErrGivenUp: the store of a worker does not answer, or the worker does not.
var ErrGivenUp = errors.New("the backup target does not answer")

// Program is the name of the program that is a worker.
const Program = "backup-worker"

// programVariable names where it is, if that is not beside the program that starts it.
const programVariable = "ANKOLE_BACKUP_WORKER"

// Command is how a worker is started.
func Command() []string {
	if p := os.Getenv(programVariable); p != "" {
		return []string{p}
	}
	own, err := os.Executable()
	if err != nil {
		return []string{Program}
	}
	return []string{filepath.Join(filepath.Dir(own), Program)}
}

// Volume is what a worker reads or writes. The methods of a backup's are Changed and ReadAt, those
// of a restore's are WriteAt and ZeroAt. At most 8 calls of at most 1 MiB are under way. When ctx
// ends a method may return before the volume has done what it was asked for.
type Volume interface {
	// Changed lists the ranges that were written or discarded after the snapshot since, or with "" all
	// that hold data, from offset on; next is where to go on, -1 at the end. It returns
	// backup.ErrNoBase if there is no such snapshot below the one that is read.
	Changed(ctx context.Context, since backup.Base, offset int64) (extents []backup.Extent, next int64, err error)
	ReadAt(ctx context.Context, p []byte, offset int64) error
	WriteAt(ctx context.Context, p []byte, offset int64) error
	ZeroAt(ctx context.Context, offset, length int64) error
}

// Job is what is given to a worker.
type Job struct {
	// Command starts a worker process: a program and its arguments; nil: as Command says.
	Command []string
	// Env is the environment of the process; nil: that of this one.
	Env   []string
	Order Order
	// Volume is nil where the order concerns the store alone.
	Volume Volume
	// Report is called, one call at a time, with what the worker tells; an error ends the work. Nil:
	// nobody wants to know.
	Report func(ctx context.Context, r Report) error

	// Kill replaces the end of a process in tests; nil: SIGKILL.
	Kill func(*os.Process) error
}

// Run has a worker carry a job out and returns its result, JSON. It returns ErrGivenUp, and leaves
// the worker behind if that cannot be ended, when the store does not answer; otherwise the error of
// the order, marked as it was.
func Run(ctx context.Context, j Job) ([]byte, error) {
	if j.Order.GiveUp == 0 {
		j.Order.GiveUp = DefaultGiveUp
	}
	if len(j.Command) == 0 {
		j.Command = Command()
	}
	if j.Kill == nil {
		j.Kill = (*os.Process).Kill
	}
	shared, file, err := newMemory()
	if err != nil {
		return nil, fmt.Errorf("memory of a backup worker: %w", err)
	}
	defer shared.unmap()
	conn, cmd, err := j.start(file)
	_ = file.Close() // it is mapped
	if err != nil {
		return nil, fmt.Errorf("backup worker cannot be started: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // it outlives Run if the process does
	calls, stop := context.WithCancelCause(ctx)
	p := &parent{job: &j, ctx: calls, stop: stop, heard: make(chan struct{}, 1), shared: shared,
		buffers: make(chan []byte, Pieces)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		s := rpc.NewServer()
		_ = s.RegisterName("Parent", p) // its methods are those that it has
		s.ServeConn(conn)
	}()
	why := p.watch(calls, ended)
	if why != nil {
		stop(why)
		why = j.end(cmd.Process, ended, why)
	}
	stop(nil)
	_ = conn.Close() // nothing is to be sent any more
	<-served         // nobody is in the memory any more
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.end != nil:
		return p.end.Result, p.end.error()
	case why != nil:
		return nil, why
	}
	return nil, fmt.Errorf("the backup worker has ended: %s", cmd.ProcessState)
}

// start starts the process, which gets a file of memory.
func (j *Job) start(memory *os.File) (net.Conn, *exec.Cmd, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "worker"), os.NewFile(uintptr(pair[1]), "parent")
	defer theirs.Close()
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(j.Command[0], j.Command[1:]...)
	cmd.Env, cmd.Stderr, cmd.ExtraFiles = j.Env, os.Stderr, []*os.File{theirs, memory}
	t, err := target.Parse(j.Order.Target)
	mounts := err == nil && share.Is(t) // a worker says what is wrong with a URL
	if mounts {
		cmd.SysProcAttr = share.Namespace()
	}
	if err := cmd.Start(); err != nil {
		conn.Close()
		if mounts && errors.Is(err, unix.EPERM) {
			return nil, nil, fmt.Errorf("%s is a share, which takes a privileged Pod to mount: %w", t, err)
		}
		return nil, nil, err
	}
	return conn, cmd, nil
}

// watch returns nil when the worker has said what became of its order or has ended by itself,
// otherwise why it has to be ended.
func (p *parent) watch(ctx context.Context, ended chan error) error {
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for {
		select {
		case err := <-ended:
			ended <- err
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-quiet.C:
			return fmt.Errorf("%w: its worker has told nothing for %s", ErrGivenUp, silence)
		case <-p.heard:
			quiet.Reset(silence)
		}
	}
}

// end ends the process, and says if that is not possible.
func (j *Job) end(process *os.Process, ended <-chan error, why error) error {
	_ = j.Kill(process) // it may have ended
	wait := time.NewTimer(endWait)
	defer wait.Stop()
	select {
	case <-ended:
		return why
	case <-wait.C:
		return fmt.Errorf("%w; process %d cannot be ended while the kernel waits for the target: it is left, and no "+
			"other one is let in there before it has ended", why, process.Pid)
	}
}

// parent serves a worker.
type parent struct {
	job  *Job
	ctx  context.Context
	stop context.CancelCauseFunc
	// heard has an element when the worker has told something.
	heard chan struct{}

	shared Memory
	// buffers are for pieces. A volume may use that of a call which has ended before it, so none goes
	// back to it or to the shared memory then.
	buffers chan []byte

	mu  sync.Mutex
	end *End
}

// Order tells the worker what to do.
func (p *parent) Order(_ struct{}, o *Order) error {
	*o = p.job.Order
	return nil
}

// Tell takes a report.
func (p *parent) Tell(r Report, _ *struct{}) error {
	select {
	case p.heard <- struct{}{}:
	default:
	}
	if r.Waits > p.job.Order.GiveUp {
		p.stop(fmt.Errorf("%w: no answer for %s", ErrGivenUp, p.job.Order.GiveUp))
	}
	if p.job.Report == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return nil
	}
	err := p.job.Report(p.ctx, r)
	if err != nil {
		p.stop(err)
	}
	return err
}

// End takes what became of the order.
func (p *parent) End(e End, _ *struct{}) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = &e
	return nil
}

func (p *parent) volume() (Volume, error) {
	if p.job.Volume == nil {
		return nil, errors.New("the order concerns no volume")
	}
	return p.job.Volume, nil
}

// Changed lists a page of ranges.
func (p *parent) Changed(q Page, page *Extents) error {
	v, err := p.volume()
	if err == nil {
		page.Extents, page.Next, err = v.Changed(p.ctx, q.Since, q.Offset)
	}
	if errors.Is(err, backup.ErrNoBase) {
		page.NoBase, err = true, nil
	}
	return err
}

// piece calls do with a buffer for a piece, and its place.
func (p *parent) piece(q Piece, do func(v Volume, buffer, place []byte) error) error {
	v, err := p.volume()
	if err != nil {
		return err
	}
	place, err := p.shared.Place(q.Place, q.Length)
	if err != nil {
		return err
	}
	var buffer []byte
	select {
	case buffer = <-p.buffers:
	default:
		buffer = make([]byte, PieceBytes)
	}
	if err := do(v, buffer[:q.Length], place); err != nil {
		return err
	}
	select {
	case p.buffers <- buffer:
	default:
	}
	return nil
}

// Read reads a piece.
func (p *parent) Read(q Piece, _ *struct{}) error {
	return p.piece(q, func(v Volume, buffer, place []byte) error {
		err := v.ReadAt(p.ctx, buffer, q.Offset)
		if err == nil {
			copy(place, buffer)
		}
		return err
	})
}

// Write writes a piece.
func (p *parent) Write(q Piece, _ *struct{}) error {
	return p.piece(q, func(v Volume, buffer, place []byte) error {
		copy(buffer, place)
		return v.WriteAt(p.ctx, buffer, q.Offset)
	})
}

// Zero zeroes a range.
func (p *parent) Zero(r Range, _ *struct{}) error {
	v, err := p.volume()
	if err == nil {
		err = v.ZeroAt(p.ctx, r.Offset, r.Length)
	}
	return err
}

// told is an error that a worker has told: its text, and what it is.
type told struct {
	text string
	mark error
}

func (t *told) Error() string { return t.text }

func (t *told) Unwrap() error { return t.mark }

func (e *End) error() error {
	switch {
	case e.Error == "":
		return nil
	case len(e.Damage) > 0:
		return &told{e.Error, &backup.DamageError{Damage: e.Damage}}
	case e.Mark >= 0 && e.Mark < len(Marks):
		return &told{e.Error, Marks[e.Mark]}
	}
	return errors.New(e.Error)
}
