package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"ankole.storage/standalone/podlog"
	"ankole.storage/standalone/process"
)

// exitStart is the code of a container whose program could not be executed, as the usual runtimes
// give it.
const exitStart = 128

// containerLog is the output of one run of a container.
type containerLog struct {
	file     *podlog.File
	out, err *podlog.Stream
}

func (l *containerLog) close() {
	l.out.Flush()
	l.err.Flush()
	_ = l.file.Close()
}

// launch is all that is needed to start a container.
type launch struct {
	image *Image
	spec  process.Spec
}

// start starts a container or records why it cannot be.
func (w *worker) start(ctx context.Context, pod *v1.Pod, r *record) {
	l, err := w.a.launch(ctx, pod, r.spec, w.vols.mounts)
	if err != nil {
		w.cannotStart(pod, r, err)
		return
	}
	id := newContainerID()
	file, err := podlog.Create(w.a.logPath(pod, r.spec.Name), podlog.MaxBytes)
	if err != nil {
		w.cannotStart(pod, r, err)
		return
	}
	logs := &containerLog{file: file, out: file.Stream("stdout"), err: file.Stream("stderr")}
	l.spec.Marker = w.a.cfg.marker(string(pod.UID), r.spec.Name, id)
	l.spec.Stdout, l.spec.Stderr = logs.out, logs.err
	proc, err := w.a.cfg.Spawner.Start(l.spec)
	if r.state == terminated {
		r.last = r.ended
		r.restarts++
	}
	r.id, r.imageID = "ankole://"+id, l.image.Dir
	r.startedAt = time.Now()
	r.reason, r.message = "", ""
	if err != nil {
		logs.close()
		w.end(pod, r, &v1.ContainerStateTerminated{
			ExitCode: exitStart, Reason: "StartError", Message: err.Error(), ContainerID: r.id,
			StartedAt: metaTime(r.startedAt), FinishedAt: metaTime(time.Now()),
		})
		w.a.events.Event(pod, v1.EventTypeWarning, "Failed", "Error: "+err.Error())
		return
	}
	w.log.Info("container started", "container", r.spec.Name, "pid", proc.PID(), "restarts", r.restarts)
	w.a.events.Event(pod, v1.EventTypeNormal, "Started", "Started container "+r.spec.Name)
	r.state, r.proc, r.log, r.killing = running, proc, logs, false
	r.ended = nil
	r.started, r.ready = r.spec.StartupProbe == nil, r.spec.ReadinessProbe == nil
	w.setRunning(r.spec.Name, proc)
	r.probes = w.startProbes(ctx, pod, r)
	w.wg.Go(func() {
		select {
		case <-proc.Done():
			w.post(ctx, func() { w.exited(r, proc) })
		case <-ctx.Done():
		}
	})
}

func newContainerID() string {
	return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
}

// launch assembles image, environment, command and mounts.
func (a *Agent) launch(ctx context.Context, pod *v1.Pod, c *v1.Container, mountsOf mountsFunc) (*launch, error) {
	img, err := a.cfg.Images.Find(c.Image)
	if err != nil {
		return nil, err
	}
	env, err := a.environment(ctx, pod, c, img)
	if err != nil {
		return nil, err
	}
	mounts, err := mountsOf(pod, c, env)
	if err != nil {
		return nil, err
	}
	if err := a.setMounts(pod, c, env, mounts); err != nil {
		return nil, err
	}
	args, err := argv(c, img, env)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	path, err := img.Lookup(args[0], env.values["PATH"])
	if err != nil {
		path = args[0] // starting it fails with the system's message, as in a container
	}
	return &launch{image: img, spec: process.Spec{
		Path: path, Args: args, Env: env.list(), Dir: a.workingDir(pod, c, mounts),
	}}, nil
}

type mountsFunc func(*v1.Pod, *v1.Container, *environment) (map[string]string, error)

// cannotStart puts a container into the waiting state that a kubelet would show.
func (w *worker) cannotStart(pod *v1.Pod, r *record, err error) {
	reason := "CreateContainerError"
	switch {
	case errors.Is(err, ErrNoImage) && r.spec.ImagePullPolicy == v1.PullNever:
		reason = "ErrImageNeverPull"
	case errors.Is(err, ErrNoImage):
		reason = "ImagePullBackOff"
	case errors.Is(err, errConfig):
		reason = "CreateContainerConfigError"
	}
	if r.reason != reason || r.message != err.Error() {
		w.a.events.Event(pod, v1.EventTypeWarning, "Failed", "Error: "+reason+": "+err.Error())
		w.log.Warn("container cannot start", "container", r.spec.Name, "reason", reason, "error", err)
	}
	r.reason, r.message = reason, err.Error()
	r.notBefore = time.Now().Add(retryInterval)
}

// exited takes note of a container's end.
func (w *worker) exited(r *record, proc *process.Process) {
	if r.proc != proc {
		return
	}
	pod, _, _ := w.snapshot()
	e := proc.Exit()
	r.log.close()
	r.probes.cancel()
	reason := "Error"
	if e.Code == 0 {
		reason = "Completed"
	}
	w.log.Info("container ended", "container", r.spec.Name, "exitCode", e.Code, "signal", int(e.Signal))
	w.end(pod, r, &v1.ContainerStateTerminated{
		ExitCode: int32(e.Code), Reason: reason, Message: w.terminationMessage(pod, r, e.Code),
		StartedAt: metaTime(r.startedAt), FinishedAt: metaTime(e.Time), ContainerID: r.id,
	})
}

// end records the end of a run and the pause before the next.
func (w *worker) end(pod *v1.Pod, r *record, how *v1.ContainerStateTerminated) {
	firstEnd := r.restarts == 0 && r.pause == 0
	now := time.Now()
	r.pause = w.a.cfg.BackOff.nextPause(r.pause, now.Sub(r.startedAt), firstEnd)
	r.notBefore = now.Add(r.pause)
	r.state, r.ended, r.proc, r.killing = terminated, how, nil, false
	r.started, r.ready = false, false
	w.setRunning(r.spec.Name, nil)
	if r.pause > 0 && r.restartable(pod.Spec.RestartPolicy) {
		w.a.events.Eventf(pod, v1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s_%s(%s)",
			r.spec.Name, pod.Name, pod.Namespace, pod.UID)
	}
}

// terminationMessage is what the container left in its termination file, or else, if it asked for
// that and failed, the end of its log.
func (w *worker) terminationMessage(pod *v1.Pod, r *record, code int) string {
	path := terminationFile(w.a.containerDir(pod, r.spec.Name))
	data, err := os.ReadFile(path)
	_ = os.Remove(path)
	if err == nil && len(data) > 0 {
		return string(data[:min(len(data), maxTerminationMessage)])
	}
	if code == 0 || r.spec.TerminationMessagePolicy != v1.TerminationMessageFallbackToLogsOnError {
		return ""
	}
	return podlog.Tail(w.a.logPath(pod, r.spec.Name), maxTerminationMessage/2)
}

func (w *worker) setRunning(container string, proc *process.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if proc == nil {
		delete(w.running, container)
		return
	}
	w.running[container] = proc
}

// process is the running process of a container, nil if there is none. Safe for any goroutine.
func (w *worker) process(container string) *process.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running[container]
}

func (a *Agent) podDir(pod *v1.Pod) string { return a.cfg.dir("pods", string(pod.UID)) }

func (a *Agent) containerDir(pod *v1.Pod, container string) string {
	return filepath.Join(a.podDir(pod), "containers", container)
}

// LogDir is where the output of a Pod's containers is: one file per container.
func (a *Agent) logDir(namespace, pod string) string { return a.cfg.dir("logs", namespace+"_"+pod) }

func (a *Agent) logPath(pod *v1.Pod, container string) string {
	return filepath.Join(a.logDir(pod.Namespace, pod.Name), container+".log")
}
