package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/probe"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"

	"ankole.storage/host/patience"
	"ankole.storage/standalone/process"
)

// maxProbeOutput bounds what is kept of a probe command's output.
const maxProbeOutput = 10 << 10

// probeSet is the probes of one run of a container.
type probeSet struct {
	stop context.CancelFunc
	ctx  context.Context
	wg   *sync.WaitGroup
}

func (s *probeSet) cancel() {
	if s != nil {
		s.stop()
	}
}

// startProbes begins with the startup probe; the others follow when it has passed.
func (w *worker) startProbes(ctx context.Context, pod *v1.Pod, r *record) *probeSet {
	ctx, cancel := context.WithCancel(ctx)
	s := &probeSet{stop: cancel, ctx: ctx, wg: &w.wg}
	if r.spec.StartupProbe == nil {
		w.startSteadyProbes(pod, r, s)
		return s
	}
	w.runProbe(pod, r, s, r.spec.StartupProbe, "Startup", false, func(ok bool, msg string) bool {
		if !ok {
			w.unhealthy(pod, r, "startup", msg, r.spec.StartupProbe)
			return false
		}
		r.started = true
		w.startSteadyProbes(pod, r, s)
		return false
	})
	return s
}

func (w *worker) startSteadyProbes(pod *v1.Pod, r *record, s *probeSet) {
	if p := r.spec.LivenessProbe; p != nil {
		w.runProbe(pod, r, s, p, "Liveness", true, func(ok bool, msg string) bool {
			if !ok {
				w.unhealthy(pod, r, "liveness", msg, p)
			}
			return ok
		})
	}
	if p := r.spec.ReadinessProbe; p != nil {
		w.runProbe(pod, r, s, p, "Readiness", false, func(ok bool, _ string) bool {
			r.ready = ok
			return true
		})
	}
}

// unhealthy ends a container whose startup or liveness probe failed too often.
func (w *worker) unhealthy(pod *v1.Pod, r *record, kind, msg string, p *v1.Probe) {
	grace := w.grace(pod, false, nil)
	if p.TerminationGracePeriodSeconds != nil {
		grace = time.Duration(*p.TerminationGracePeriodSeconds) * time.Second
	}
	w.kill(r.probes.parent(), pod, r, grace,
		fmt.Sprintf("Container %s failed %s probe, will be restarted: %s", r.spec.Name, kind, msg))
}

// parent is a context that outlives the probes themselves, for the preStop hook after their end.
func (s *probeSet) parent() context.Context { return context.WithoutCancel(s.ctx) }

// runProbe runs a probe until its verdict function, which the worker calls at every change of
// verdict, returns false. before is the verdict assumed at first.
func (w *worker) runProbe(pod *v1.Pod, r *record, s *probeSet, p *v1.Probe, kind string, before bool,
	verdict func(bool, string) bool) {
	proc := r.proc
	s.wg.Go(func() {
		if !pause(s.ctx, time.Duration(p.InitialDelaySeconds)*time.Second) {
			return
		}
		t := thresholds{last: before, success: max(int(p.SuccessThreshold), 1), failure: max(int(p.FailureThreshold), 1)}
		if kind == "Startup" {
			t.undecided = true
		}
		for {
			ok, msg := w.a.probeOnce(s.ctx, pod, r.spec, p, proc)
			if s.ctx.Err() != nil {
				return
			}
			if !ok {
				w.a.events.Eventf(pod, v1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", kind, msg)
			}
			if t.add(ok) {
				again := make(chan bool, 1)
				w.post(s.ctx, func() {
					// The container may have ended between the probe and now.
					again <- r.proc == proc && !r.killing && verdict(ok, msg)
				})
				select {
				case more := <-again:
					if !more {
						return
					}
				case <-s.ctx.Done():
					return
				}
			}
			if !pause(s.ctx, max(time.Duration(p.PeriodSeconds)*time.Second, time.Second)) {
				return
			}
		}
	})
}

// thresholds turns single results into verdicts.
type thresholds struct {
	last             bool
	undecided        bool // no verdict yet: the first one counts as a change
	run              int  // results in a row that equal value
	value            bool
	success, failure int
}

// add takes one result and says whether the verdict changed.
func (t *thresholds) add(ok bool) bool {
	if t.run == 0 || t.value != ok {
		t.value, t.run = ok, 0
	}
	t.run++
	need := t.failure
	if ok {
		need = t.success
	}
	if t.run < need || (!t.undecided && ok == t.last) {
		return false
	}
	t.last, t.undecided = ok, false
	return true
}

func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// probeOnce runs a probe's action once.
func (a *Agent) probeOnce(ctx context.Context, pod *v1.Pod, c *v1.Container, p *v1.Probe, proc *process.Process) (bool,
	string) {
	timeout := patience.Of(max(time.Duration(p.TimeoutSeconds)*time.Second, time.Second))
	var res probe.Result
	var msg string
	var err error
	switch {
	case p.Exec != nil:
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var out bytes.Buffer
		code, execErr := a.execIn(ctx, pod, c, p.Exec.Command, proc,
			stdio{out: &limitedBuffer{b: &out}, err: &limitedBuffer{b: &out}})
		return execErr == nil && code == 0, strings.TrimSpace(out.String() + " " + execMessage(code, execErr))
	case p.HTTPGet != nil:
		var req *http.Request
		if req, err = httpprobe.NewRequestForHTTPGetAction(p.HTTPGet, c, a.addressOf(pod), "probe"); err == nil {
			res, msg, err = httpprobe.New(false).Probe(req, timeout)
		}
	case p.TCPSocket != nil:
		host := p.TCPSocket.Host
		if host == "" {
			host = a.addressOf(pod)
		}
		var port int
		if port, err = resolvePort(p.TCPSocket.Port, c); err == nil {
			res, msg, err = tcpprobe.New().Probe(host, port, timeout)
		}
	case p.GRPC != nil:
		service := ""
		if p.GRPC.Service != nil {
			service = *p.GRPC.Service
		}
		res, msg, err = grpcprobe.New().Probe(a.addressOf(pod), service, int(p.GRPC.Port), timeout)
	}
	if err != nil {
		return false, err.Error()
	}
	return res == probe.Success || res == probe.Warning, msg
}

func execMessage(code int, err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "command timed out"
	case err != nil:
		return err.Error()
	case code != 0:
		return "command exited with code " + strconv.Itoa(code)
	}
	return ""
}

func resolvePort(p intstr.IntOrString, c *v1.Container) (int, error) {
	if p.Type == intstr.Int {
		return p.IntValue(), nil
	}
	for _, cp := range c.Ports {
		if cp.Name == p.StrVal {
			return int(cp.ContainerPort), nil
		}
	}
	if n, err := strconv.Atoi(p.StrVal); err == nil {
		return n, nil
	}
	return 0, fmt.Errorf("container %s has no port named %q", c.Name, p.StrVal)
}

// limitedBuffer keeps the beginning of an output and drops the rest.
type limitedBuffer struct {
	mu sync.Mutex
	b  *bytes.Buffer
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := maxProbeOutput - l.b.Len(); room > 0 {
		l.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
