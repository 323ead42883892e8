package enginebinary

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"runtime"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginebinaryv1 "ankole.storage/api/rpc/enginebinary/v1"
	"ankole.storage/host/hostpath"
)

// killWait is how long a binary that was killed may hold its output open.
const killWait = 5 * time.Second

// Server runs binaries of this node. Whoever serves it admits controllers only.
type Server struct {
	enginebinaryv1.UnimplementedEngineBinaryServer
	folders []string
	resolve func(string) string
	running chan struct{}
}

// New returns a server of the images in folders, paths as the Pod sees them; resolve returns where
// such a path is.
func New(folders []string, resolve func(string) string) *Server {
	return &Server{folders: folders, resolve: resolve, running: make(chan struct{}, maxRunning)}
}

// Register adds the service to a server.
func (l *Server) Register(s grpc.ServiceRegistrar) { enginebinaryv1.RegisterEngineBinaryServer(s, l) }

// Run implements the service.
func (l *Server) Run(ctx context.Context, r *enginebinaryv1.RunRequest) (*enginebinaryv1.RunResponse, error) {
	if err := check(r, l.folders); err != nil {
		return nil, err
	}
	select {
	case l.running <- struct{}{}:
		defer func() { <-l.running }()
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "too many engine binaries run on the node (%d); one of them may "+
			"wait for a rebuild", maxRunning)
	}
	binary, verb := r.GetBinary(), r.GetVerb()[0]
	out, message := &head{most: MaxOutputBytes}, &tail{most: maxMessageBytes}
	cmd := exec.CommandContext(ctx, l.resolve(binary), arguments(r)...)
	cmd.Env = variables(r.GetEnvironment())
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
		return nil, status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, fs.ErrNotExist):
		return nil, status.Errorf(codes.NotFound, "engine binary %s is not on the node", binary)
	case out.cut:
		return nil, status.Errorf(codes.OutOfRange, "%s of %s printed more than %d bytes", verb, binary, MaxOutputBytes)
	case err != nil && !errors.As(err, &exit):
		return nil, status.Errorf(codes.Unavailable, "run %s: %v", binary, err)
	}
	return &enginebinaryv1.RunResponse{Output: out.kept.Bytes(), Message: message.String(),
		Status: int32(cmd.ProcessState.ExitCode())}, nil
}

// Newest is the binary that was installed last: of who names no image.
func (l *Server) Newest() (binary string, err error) {
	var at time.Time
	for _, folder := range l.folders {
		images, err := os.ReadDir(l.resolve(folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", status.Errorf(codes.Unavailable, "read the engine images of the node: %v", err)
		}
		for _, image := range images {
			name := path.Join(folder, image.Name(), program)
			if info, err := os.Stat(l.resolve(name)); err == nil && (binary == "" || info.ModTime().After(at)) {
				binary, at = name, info.ModTime()
			}
		}
	}
	if binary == "" {
		return "", status.Error(codes.NotFound, "no engine image is installed on the node")
	}
	return binary, nil
}

// variables are those of this process that the binary needs, and those of the request. The rest
// may hold secrets.
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
