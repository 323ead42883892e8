package enginebinary

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"ankole.storage/controlplane/naming"
	"ankole.storage/hostpath"
)

// killWait is how long a killed binary may keep its output open before that is closed.
const killWait = 5 * time.Second

// Local runs binaries on this node. Use NewLocal.
type Local struct {
	resolve func(string) string
	running chan struct{}
}

// NewLocal returns a runner; resolve is hostpath.Resolve, or a test's.
func NewLocal(resolve func(string) string) *Local {
	return &Local{resolve: resolve, running: make(chan struct{}, maxRunning)}
}

// Run runs a binary to its end. The end of ctx kills it. An exit status other than 0 is a result
// and no error.
func (l *Local) Run(ctx context.Context, r Request) (Result, error) {
	if err := r.check(); err != nil {
		return Result{}, err
	}
	select {
	case l.running <- struct{}{}:
		defer func() { <-l.running }()
	default:
		return Result{}, fmt.Errorf("%w (%d); one of them may wait for a rebuild", ErrBusy, maxRunning)
	}
	path := naming.EngineBinaryOnHost(r.Image)
	out, message := &head{most: MaxOutputBytes}, &tail{most: maxMessageBytes}
	cmd := exec.CommandContext(ctx, l.resolve(path), r.arguments()...)
	cmd.Env = variables(r.Environment)
	cmd.Stdout, cmd.Stderr = out, message
	// Nobody would end a binary that waits for a rebuild once this process is gone. The signal
	// comes at the end of the thread that started the child, so it must not end before.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = killWait
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("%s of %s was stopped: %w", r.Verb[0], path, context.Cause(ctx))
	case errors.Is(err, fs.ErrNotExist):
		return Result{}, fmt.Errorf("%w: %s of image %s", ErrNoBinary, path, r.Image)
	case out.cut:
		return Result{}, fmt.Errorf("%w: %s of %s: more than %d bytes", ErrOutput, r.Verb[0], path, MaxOutputBytes)
	case err != nil && !errors.As(err, &exit):
		return Result{}, fmt.Errorf("run %s: %w", path, err)
	}
	return Result{Output: out.kept.Bytes(), Message: message.String(), Status: cmd.ProcessState.ExitCode()}, nil
}

// variables are the child's: what the programs of the system look at, and what the request adds.
// The manager's own credentials are not handed on.
func variables(added map[string]string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", hostpath.Variable} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for name, value := range added {
		env = append(env, name+"="+value)
	}
	return env
}

// head keeps the beginning of what is written and notes that there was more.
type head struct {
	kept bytes.Buffer // not embedded: its ReadFrom knows no bound
	most int
	cut  bool
}

// Write never returns an error, which would end the program that prints: what is too much is cut.
func (h *head) Write(p []byte) (int, error) {
	room := h.most - h.kept.Len()
	if len(p) > room {
		h.cut = true
	}
	_, _ = h.kept.Write(p[:min(len(p), room)]) // a buffer takes everything
	return len(p), nil
}

// tail keeps the end of what is written.
type tail struct {
	kept []byte
	most int
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - t.most; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(bytes.ToValidUTF8(t.kept, []byte("?"))) }
