package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crilogs "k8s.io/cri-client/pkg/logs"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"ankole.storage/standalone/kube"
	"ankole.storage/standalone/podlog"
	"ankole.storage/standalone/process"
)

const (
	// headerTimeout bounds a client that says nothing.
	headerTimeout = 10 * time.Second
	// execIdle ends an exec session without traffic, execCreate one whose streams never come; the
	// kubelet's values.
	execIdle, execCreate = 4 * time.Hour, 30 * time.Second
)

// server is the node's kubelet endpoint, which the API server calls for logs and exec.
type server struct {
	http *http.Server
	wg   sync.WaitGroup
	stop context.CancelFunc
}

// serve listens on the node's address. Only the API server's certificate is accepted.
func (a *Agent) serve() (*server, error) {
	cert, err := tls.LoadX509KeyPair(a.cfg.Serving.CertFile, a.cfg.Serving.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("node %s: kubelet endpoint: %w", a.cfg.Name, err)
	}
	ca, err := os.ReadFile(a.cfg.API.CAFile)
	if err != nil {
		return nil, fmt.Errorf("node %s: kubelet endpoint: %w", a.cfg.Name, err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	l, err := net.Listen("tcp", net.JoinHostPort(a.cfg.Address, strconv.Itoa(a.cfg.Port)))
	if err != nil {
		return nil, fmt.Errorf("node %s: kubelet endpoint: %w (choose other addresses with --node-network or "+
			"another port with --kubelet-port)", a.cfg.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{stop: cancel, http: &http.Server{
		Handler:           onlyAPIServer(a.routes()),
		ReadHeaderTimeout: headerTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{cert},
			ClientCAs:    pool,
			ClientAuth:   tls.RequireAndVerifyClientCert,
			MinVersion:   tls.VersionTLS12,
			NextProtos:   []string{"http/1.1"}, // exec upgrades the connection
		},
	}}
	s.wg.Go(func() { _ = s.http.ServeTLS(l, "", "") })
	return s, nil
}

func (s *server) close() {
	s.stop()
	_ = s.http.Close()
	s.wg.Wait()
}

func onlyAPIServer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 ||
			r.TLS.PeerCertificates[0].Subject.CommonName != kube.KubeletClientUser {
			http.Error(w, "only the API server may call this endpoint", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *Agent) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /pods", a.listPods)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", a.containerLogs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", a.exec)
	return mux
}

func (a *Agent) listPods(w http.ResponseWriter, _ *http.Request) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	a.mu.Lock()
	for _, wk := range a.workers {
		pod, _, _ := wk.snapshot()
		list.Items = append(list.Items, *pod)
	}
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// containerLogs streams a container's log with the kubelet's own reader.
func (a *Agent) containerLogs(w http.ResponseWriter, r *http.Request) {
	wk := a.podByName(r.PathValue("namespace"), r.PathValue("pod"))
	if wk == nil {
		http.Error(w, "pod does not exist on node "+a.cfg.Name, http.StatusNotFound)
		return
	}
	opts, err := logOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	pod, _, _ := wk.snapshot()
	container := r.PathValue("container")
	path := a.logPath(pod, container)
	if opts.Previous {
		path = podlog.PreviousPath(path)
		opts.Follow = false
	}
	if _, err := os.Stat(path); err != nil || (opts.Previous && neverRestarted(pod, container)) {
		http.Error(w, fmt.Sprintf("container %q in pod %q has no log yet (previous: %t)", container, pod.Name, opts.Previous),
			http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	out := flushWriter{w, http.NewResponseController(w)}
	live := aliveness{w: wk, proc: wk.process(container)}
	if err := crilogs.ReadLogs(r.Context(), path, container, readOptions(opts, time.Now()), live, out,
		out); err != nil && r.Context().Err() == nil {
		a.cfg.Log.Warn("reading a container log failed", "path", path, "error", err)
	}
}

// neverRestarted says that a previous log can only be that of another Pod which had the name
// before.
func neverRestarted(pod *v1.Pod, container string) bool {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return list[i].RestartCount == 0
			}
		}
	}
	return true
}

// aliveness answers the one question that the log reader has for a container runtime while it
// follows.
type aliveness struct {
	criapi.RuntimeService
	w    *worker
	proc *process.Process // the run that is followed
}

// ContainerStatus says whether the run of container id that is followed still goes on.
func (l aliveness) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	s := runtimeapi.ContainerState_CONTAINER_EXITED
	if l.proc != nil && l.w.process(id) == l.proc {
		s = runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{State: s}}, nil
}

// flushWriter sends each line on at once, for followers.
type flushWriter struct {
	io.Writer
	c *http.ResponseController
}

func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	_ = f.c.Flush()
	return n, err
}

// readOptions is the log reader's form of the API's options.
func readOptions(o *v1.PodLogOptions, now time.Time) *crilogs.LogOptions {
	r := &crilogs.LogOptions{
		TailLines: o.TailLines, LimitBytes: o.LimitBytes, Follow: o.Follow, Timestamp: o.Timestamps,
	}
	if o.SinceSeconds != nil {
		r.Since = now.Add(-time.Duration(*o.SinceSeconds) * time.Second)
	}
	if o.SinceTime != nil {
		r.Since = o.SinceTime.Time
	}
	return r
}

// logOptions reads the query that the API server makes of PodLogOptions.
func logOptions(q url.Values) (*v1.PodLogOptions, error) {
	o := &v1.PodLogOptions{
		Follow:     q.Get("follow") == "true",
		Previous:   q.Get("previous") == "true",
		Timestamps: q.Get("timestamps") == "true",
	}
	for _, number := range []struct {
		name string
		into **int64
	}{{"sinceSeconds", &o.SinceSeconds}, {"tailLines", &o.TailLines}, {"limitBytes", &o.LimitBytes}} {
		if s := q.Get(number.name); s != "" {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("%s=%q is not a whole number of zero or more", number.name, s)
			}
			*number.into = &n
		}
	}
	if s := q.Get("sinceTime"); s != "" {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return nil, fmt.Errorf("sinceTime=%q is not a time: %w", s, err)
		}
		mt := metav1.NewTime(t)
		o.SinceTime = &mt
	}
	return o, nil
}

func (a *Agent) exec(w http.ResponseWriter, r *http.Request) {
	wk := a.podByName(r.PathValue("namespace"), r.PathValue("pod"))
	if wk == nil {
		http.Error(w, "pod does not exist on node "+a.cfg.Name, http.StatusNotFound)
		return
	}
	opts, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pod, _, _ := wk.snapshot()
	remotecommand.ServeExec(w, r, executor{a: a, w: wk}, pod.Name, string(pod.UID), r.PathValue("container"),
		r.URL.Query()["command"], opts, execIdle, execCreate, remotecommand.SupportedStreamingProtocols)
}
