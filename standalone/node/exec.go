package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	utilexec "k8s.io/utils/exec"

	"ankole.storage/standalone/process"
)

// errNotRunning means that a command was asked for in a container that does not run.
var errNotRunning = errors.New("container is not running")

// stdio of a command in a container; nil parts are /dev/null.
type stdio struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// execIn runs a command as if inside a container: with its environment, folder and mounts, under
// its marker so that it ends with the container. It returns the command's exit code.
func (a *Agent) execIn(ctx context.Context, pod *v1.Pod, c *v1.Container, command []string, proc *process.Process,
	io stdio) (int, error) {
	if proc == nil {
		return 0, fmt.Errorf("%w: %s", errNotRunning, c.Name)
	}
	if len(command) == 0 {
		return 0, errors.New("no command given")
	}
	img, err := a.cfg.Images.Find(c.Image)
	if err != nil {
		return 0, err
	}
	spec := proc.Spec()
	spec.Path, err = img.Lookup(command[0], lookupEnv(spec.Env, "PATH"))
	if err != nil {
		return 0, err
	}
	spec.Args, spec.Stdin, spec.Stdout, spec.Stderr = command, io.in, io.out, io.err
	spec.Marker += "exec|" + newContainerID() + "|"
	p, err := a.cfg.Spawner.Start(spec)
	if err != nil {
		return 0, err
	}
	select {
	case <-p.Done():
		return p.Exit().Code, nil
	case <-ctx.Done():
		p.Kill()
		<-p.Done()
		return p.Exit().Code, ctx.Err()
	}
}

// runHook runs a lifecycle hook.
func (a *Agent) runHook(ctx context.Context, pod *v1.Pod, c *v1.Container, h *v1.LifecycleHandler,
	proc *process.Process) error {
	switch {
	case h.Exec != nil:
		code, err := a.execIn(ctx, pod, c, h.Exec.Command, proc, stdio{})
		if err == nil && code != 0 {
			err = fmt.Errorf("command exited with code %d", code)
		}
		return err
	case h.HTTPGet != nil:
		req, err := httpprobe.NewRequestForHTTPGetAction(h.HTTPGet, c, a.addressOf(pod), "lifecycle")
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req.WithContext(ctx))
		if err != nil {
			return err
		}
		return resp.Body.Close()
	case h.Sleep != nil:
		pause(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
	}
	return nil
}

func lookupEnv(env []string, name string) string {
	for _, kv := range env {
		if len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			return kv[len(name)+1:]
		}
	}
	return ""
}

// executor runs `kubectl exec` commands.
type executor struct {
	a *Agent
	w *worker
}

// ExecInContainer implements the streaming library's interface. There is no terminal behind a
// process node: with tty set the command still gets pipes.
func (e executor) ExecInContainer(ctx context.Context, _, _, container string, cmd []string,
	in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize,
	timeout time.Duration) error {
	pod, _, _ := e.w.snapshot()
	c := findContainer(pod, container)
	if c == nil {
		return fmt.Errorf("container %s not found in pod %s", container, pod.Name)
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	proc := e.w.process(container)
	io := stdio{in: in}
	if out != nil {
		io.out = out
	}
	if errOut != nil {
		io.err = errOut
	}
	code, err := e.a.execIn(ctx, pod, c, cmd, proc, io)
	if err == nil && code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return err
}

func findContainer(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
