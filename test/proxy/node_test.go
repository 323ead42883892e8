package proxy

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"ankole.storage/api/rpc/imrpc"
	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/instancemanager/client"
	"ankole.storage/instancemanager/daemon"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/instancemanager/witness/relayclient"
	"ankole.storage/test/logs"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

const marker = "ANKOLE_TEST_INSTANCE_MANAGER"

// TestMain makes the test binary the instance manager.
func TestMain(m *testing.M) {
	if os.Getenv(marker) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		context.AfterFunc(ctx, stop)
		os.Exit(daemon.Main(ctx))
	}
	os.Exit(m.Run())
}

const mib = 1 << 20

// node is an instance manager and what stands around it: directories, and a manager that answers
// for the witness.
type node struct {
	t    *testing.T
	ip   string
	dir  string
	cmd  *exec.Cmd
	im   *client.Client
	conn *grpc.ClientConn // to the proxy
	out  *outside
}

// start runs an instance manager until the test ends. transport is how its engines offer volumes.
func start(t *testing.T, transport string) *node {
	t.Helper()
	engine, err := rig.EngineProgram()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ankole-proxy-") // short: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, ip: instancetest.Host(), dir: dir}
	for _, d := range []string{"root/replicas", "root/unix-domain-socket", "bin/test", "dev", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(engine, filepath.Join(dir, "bin/test/longhorn")); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "im.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.cmd = exec.Command(instancetest.Binary(t), "daemon", "--allow-plaintext", "tests",
		"--listen", n.ip+":8500", "--logs-dir",
		filepath.Join(dir, "logs"), "--witness-socket", filepath.Join(dir, "w.sock"))
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.Env = append(os.Environ(), marker+"=1", "POD_IP="+n.ip, "POD_NAME=im-test", "ANKOLE_BLOCK_TRANSPORT="+transport,
		fmt.Sprintf(`ANKOLE_MOUNTS={"/host/var/lib/longhorn": %q, "/engine-binaries": %q, "/dev/longhorn": %q}`,
			dir+"/root", dir+"/bin", dir+"/dev"))
	// It dies with the test, and its instances with it. The kernel counts the end of the thread
	// that started it as the parent's, so one thread does nothing else.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := n.cmd.Start()
		if started <- err; err == nil {
			_ = n.cmd.Wait() // the status does not matter: it was told to end
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-wait.Late():
			wait.RanOut(t, "the end of the instance manager")
			_ = n.cmd.Process.Kill()
			<-ended
			t.Error("the instance manager did not end")
		}
		n.readLogs()
	})
	if n.im, err = client.Dial(n.ip+":8500", nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.im.Close() })
	wait.Until(t, "the instance manager serves", func() bool { return n.im.Check(t.Context()) == nil })
	n.answer()
	n.conn = n.dial()
	n.out = newOutside(t, n.conn)
	return n
}

// readLogs looks for what no process may write, and shows the logs of a test that has failed.
func (n *node) readLogs() {
	new(logs.Watch).Check(n.t, filepath.Join(n.dir, "im.log"), filepath.Join(n.dir, "logs"))
	if !n.t.Failed() {
		return
	}
	files, _ := filepath.Glob(filepath.Join(n.dir, "logs", "*.log"))
	for _, f := range append(files, filepath.Join(n.dir, "im.log")) {
		text, _ := os.ReadFile(f)
		n.t.Logf("--- %s ---\n%s", filepath.Base(f), text[max(0, len(text)-8<<10):])
	}
}

// proxyPort is the one after the process service's.
const proxyPort = 8501

// dial connects to the proxy once more.
func (n *node) dial(options ...grpc.DialOption) *grpc.ClientConn {
	n.t.Helper()
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	c, err := grpc.NewClient(fmt.Sprintf("passthrough:///%s:%d", n.ip, proxyPort), options...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// answer is the manager that keeps the records of membership.
func (n *node) answer() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- relayclient.Serve(ctx, n.im.Conn(), "manager", &records{}) }()
	n.t.Cleanup(func() { cancel(); <-ended })
}

// records are the volumes' memberships.
type records struct {
	mu sync.Mutex
	of map[string]*witnessv1.Membership
}

func (r *records) Get(_ context.Context, q *witnessv1.GetRequest) (*witnessv1.Membership, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.of[q.GetVolumeName()]; m != nil {
		return m, nil
	}
	return nil, status.Error(codes.NotFound, "no record")
}

func (r *records) CompareAndSwap(_ context.Context,
	q *witnessv1.CompareAndSwapRequest) (*witnessv1.CompareAndSwapResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have, want := r.of[q.GetVolumeName()], q.GetExpected()
	same := (have == nil) == (want == nil) && have.GetVolumeUuid() == want.GetVolumeUuid() &&
		have.GetEpoch() == want.GetEpoch() &&
		have.GetGeneration() == want.GetGeneration()
	if same {
		if r.of == nil {
			r.of = map[string]*witnessv1.Membership{}
		}
		r.of[q.GetVolumeName()] = q.GetNext()
		have = q.GetNext()
	}
	return &witnessv1.CompareAndSwapResponse{Swapped: same, Current: have}, nil
}

// volume is one volume on the node: replicas and an engine, all run by the instance manager.
type volume struct {
	n       *node
	name    string
	size    int64
	env     map[string]string
	engine  string   // "ip:port"
	address []string // of replicas, "tcp://ip:port"
}

func (n *node) volume(name string, size int64, replicas int) *volume {
	n.t.Helper()
	v := &volume{n: n, name: name, size: size, env: map[string]string{"ANKOLE_VOLUME_UUID": uuid.NewString(),
		"ANKOLE_VOLUME_SECRET": hex.EncodeToString(bytes.Repeat([]byte{7}, 32))}}
	for range replicas {
		v.replica()
	}
	v.offer()
	return v
}

// offer starts an engine with the replicas there are, and waits until the volume is offered.
func (v *volume) offer() {
	v.n.t.Helper()
	n, name := v.n, v.name
	args := []string{"--engine-instance-name", v.engineName(), "--volume-name", name, "controller", name, "--frontend",
		"tgt-blockdev",
		"--size", fmt.Sprint(v.size), "--engine-replica-timeout", "8"}
	for _, address := range v.address {
		args = append(args, "--replica", address)
	}
	v.engine = n.process(&imrpc.ProcessSpec{Name: v.engineName(), Binary: "/engine-binaries/test/longhorn", Args: args,
		PortCount: 1,
		PortArgs:  []string{"--listen,0.0.0.0:"}, Environment: v.env})
	wait.Until(n.t, name+" is offered", func() bool {
		a, err := n.out.call(n.t.Context(), "VolumeGet", v.request())
		return err == nil && a["volume"].(map[string]any)["frontendState"] == "up"
	})
}

func (v *volume) engineName() string { return v.name + "-e-0" }

// directory of replica i.
func (v *volume) directory(i int) string {
	return filepath.Join(v.n.dir, "root/replicas", fmt.Sprintf("%s-%08d", v.name, i))
}

// replica starts another replica and returns its address.
func (v *volume) replica() string {
	v.n.t.Helper()
	i := len(v.address)
	name := fmt.Sprintf("%s-r-%08d", v.name, i)
	v.address = append(v.address,
		"tcp://"+v.n.process(&imrpc.ProcessSpec{Name: name, Binary: "/engine-binaries/test/longhorn", PortCount: 10,
			PortArgs: []string{"--listen,0.0.0.0:"}, Environment: v.env,
			Args: []string{"--volume-name", v.name, "replica",
				"/host/var/lib/longhorn/replicas/" + filepath.Base(v.directory(i)), "--size", fmt.Sprint(v.size),
				"--replica-instance-name", name}}))
	return v.address[i]
}

// process starts an instance, waits until it runs, and returns its first address.
func (n *node) process(spec *imrpc.ProcessSpec) string {
	n.t.Helper()
	if _, err := n.im.ProcessCreate(n.t.Context(), spec); err != nil {
		n.t.Fatal(err)
	}
	port := int32(0)
	wait.Until(n.t, spec.Name+" runs", func() bool {
		r, err := n.im.ProcessGet(n.t.Context(), spec.Name)
		if err != nil {
			n.t.Fatal(err)
		}
		if s := r.GetStatus().GetState(); s == "error" || s == "stopped" {
			n.t.Fatalf("%s: %s", spec.Name, r.GetStatus())
		}
		port = r.GetStatus().GetPortStart()
		return r.GetStatus().GetState() == "running"
	})
	return fmt.Sprintf("%s:%d", n.ip, port)
}

// request is a request in JSON that names the engine, with further fields.
func (v *volume) request(further ...string) string {
	e := fmt.Sprintf(`"address": %q, "engine_name": %q, "volume_name": %q`, v.engine, v.engineName(), v.name)
	if further == nil {
		return "{" + e + "}" // the engine is the whole request
	}
	return `{"proxy_engine_request": {` + e + "}, " + strings.Join(further, ", ") + "}"
}

func (v *volume) socket() string {
	return filepath.Join(v.n.dir, "root/unix-domain-socket", v.name+".nbd")
}
