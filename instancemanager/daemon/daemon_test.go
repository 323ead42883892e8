package daemon_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"ankole.storage/api/rpc/imrpc"
	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/host/mtls"
	"ankole.storage/instancemanager/client"
	"ankole.storage/instancemanager/daemon"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/instancemanager/witness"
	"ankole.storage/instancemanager/witness/relayclient"
	"ankole.storage/test/logs"
	"ankole.storage/test/wait"
)

const daemonMarker = "ANKOLE_TEST_DAEMON"

// TestMain makes the test binary an instance, or the instance manager itself, so that it can be
// killed.
func TestMain(m *testing.M) {
	instancetest.Main()
	if os.Getenv(daemonMarker) != "" {
		os.Unsetenv(daemonMarker)
		reportUsage()
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		context.AfterFunc(ctx, stop)
		os.Exit(daemon.Main(ctx))
	}
	os.Exit(m.Run())
}

// program is a running instance manager.
type program struct {
	cmd    *exec.Cmd
	client *client.Client
	ip     string
	socket string
	ended  chan error
}

// spec asks for an instance.
func (p *program) spec(t *testing.T, name, mode string, host string, ports int, args ...string) *imrpc.ProcessSpec {
	t.Helper()
	s := instancetest.Spec(t, name, mode, host, ports, args...)
	s.Binary = instancetest.Engine
	return s
}

// launch starts the instance manager as a Pod would, with a directory for logs, and waits until it
// serves.
func launch(t *testing.T, env ...string) *program {
	t.Helper()
	return launchWith(t, []string{"--logs-dir", t.TempDir()}, env...)
}

func launchWith(t *testing.T, flags []string, env ...string) *program {
	t.Helper()
	return launchSecured(t, nil, flags, env...)
}

// launchSecured is launchWith, with a client that uses d.
func launchSecured(t *testing.T, d *mtls.Dialer, flags []string, env ...string) *program {
	t.Helper()
	return launchAt(t, instancetest.Host(), d, flags, env...)
}

// launchAt is launchSecured, at an address of the caller's choice.
func launchAt(t *testing.T, ip string, d *mtls.Dialer, flags []string, env ...string) *program {
	t.Helper()
	return launchWriting(t, nil, ip, d, flags, env...)
}

// launchWriting is launchAt, with an output of the caller's choice, nil for the test's log.
func launchWriting(t *testing.T, output *os.File, ip string, d *mtls.Dialer, flags []string, env ...string) *program {
	t.Helper()
	p := begin(t, output, ip, append([]string{"--allow-plaintext", "tests"}, flags...), env...)
	p.dial(t, d)
	return p
}

// dial waits until the instance manager serves, by d.
func (p *program) dial(t *testing.T, d *mtls.Dialer) {
	t.Helper()
	var err error
	if p.client, err = client.Dial(p.ip+":8500", d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.client.Close() })
	wait.Until(t, "the instance manager serves", func() bool { return p.client.Check(t.Context()) == nil })
}

// begin starts the instance manager, and does not wait until it serves.
func begin(t *testing.T, output *os.File, ip string, flags []string, env ...string) *program {
	t.Helper()
	dir, err := os.MkdirTemp("", "im") // short: unix sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &program{ip: ip, socket: filepath.Join(dir, "w", "s.sock"), ended: make(chan error, 1)}
	p.cmd = exec.Command(instancetest.Binary(t),
		append([]string{"--debug", "daemon", "--listen", "0.0.0.0:8500", "--witness-socket", p.socket}, flags...)...)
	p.cmd.Env = append(append(os.Environ(), daemonMarker+"=1", "POD_IP="+p.ip, "POD_NAME=im-test",
		instancetest.Installed(t)), env...)
	var stderr io.Reader = strings.NewReader("")
	if output != nil {
		p.cmd.Stdout, p.cmd.Stderr = output, output
	} else if stderr, err = p.cmd.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	logged := make(chan struct{})
	var said strings.Builder
	go func() {
		defer close(logged)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			t.Log(lines.Text())
			fmt.Fprintln(&said, lines.Text())
		}
	}()
	go func() {
		<-logged
		p.ended <- p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-logged
		faults, err := logs.Search("instance manager", strings.NewReader(said.String()))
		if err != nil || len(faults) > 0 {
			t.Errorf("the instance manager wrote what no process may: %v, %v", faults, err)
		}
	})
	return p
}

// create starts an instance and waits until it runs.
func (p *program) create(t *testing.T, name, mode string, args ...string) {
	t.Helper()
	if _, err := p.client.ProcessCreate(t.Context(), p.spec(t, name, mode, "0.0.0.0", 1, args...)); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, name+" runs", func() bool {
		r, err := p.client.ProcessGet(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStatus().GetState() == "running"
	})
}

// instances returns the numbers of the processes whose parent is the instance manager.
func (p *program) instances(t *testing.T) []int {
	t.Helper()
	return childrenOf(t, p.cmd.Process.Pid)
}

func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, pid)
		}
	}
	return children
}

func (p *program) awaitEnd(t *testing.T) error {
	t.Helper()
	return wait.Receive(t, "the end of the instance manager", p.ended)
}

func awaitDead(t *testing.T, pids []int) {
	t.Helper()
	wait.Until(t, "all instances are dead", func() bool {
		return !slices.ContainsFunc(pids, instancetest.Alive)
	})
}

// TestKilled: SIGKILL of the instance manager leaves no instance, not even one that ignores
// signals.
func TestKilled(t *testing.T) {
	p := launch(t)
	p.create(t, "demo-r-1", instancetest.Serve)
	p.create(t, "demo-r-2", instancetest.Stubborn)
	p.create(t, "demo-e-0", instancetest.Stubborn)
	pids := p.instances(t)
	if len(pids) != 3 {
		t.Fatalf("instances %v", pids)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.awaitEnd(t); err == nil {
		t.Error("killed, but it ended well")
	}
	awaitDead(t, pids)
}

// TestStraysOfAKilledOne: a child that has left its instance's group outlives a killed instance
// manager; the next one on the same address and logs ends it before it serves, and nobody else's.
func TestStraysOfAKilledOne(t *testing.T) {
	logs, ip := t.TempDir(), instancetest.Host()
	first := launchAt(t, ip, nil, []string{"--logs-dir", logs})
	first.create(t, "demo-e-0", instancetest.Stray)
	other := launch(t)
	other.create(t, "demo-e-0", instancetest.Stray)
	stray, theirs := first.strayOf(t, "demo-e-0"), other.strayOf(t, "demo-e-0")
	t.Cleanup(func() { _ = syscall.Kill(theirs, syscall.SIGKILL) }) // nobody comes after the other one to end it
	pids := first.instances(t)
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.awaitEnd(t) // it was killed
	awaitDead(t, pids)
	if !instancetest.Alive(stray) {
		t.Fatal("the stray is dead already; this test tests nothing")
	}
	launchAt(t, ip, nil, []string{"--logs-dir", logs})
	awaitDead(t, []int{stray})
	if !instancetest.Alive(theirs) {
		t.Error("the stray of another instance manager is dead")
	}
}

// strayOf reads the number of an instance's child from its log.
func (p *program) strayOf(t *testing.T, name string) (pid int) {
	t.Helper()
	wait.Until(t, name+" names its child", func() bool {
		err := p.client.ProcessLog(t.Context(), name, client.LogOptions{}, func(line string) error {
			if text, ok := strings.CutPrefix(line, "child "); ok {
				pid, _ = strconv.Atoi(text) // 0 shows
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return pid != 0
	})
	return pid
}

// TestStopped: SIGTERM stops the instances and ends with status 0.
func TestStopped(t *testing.T) {
	p := launch(t)
	p.create(t, "demo-r-1", instancetest.Serve)
	p.create(t, "demo-e-0", instancetest.Serve)
	pids := p.instances(t)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.awaitEnd(t); err != nil {
		t.Error(err)
	}
	awaitDead(t, pids)
	if _, err := os.Lstat(p.socket); err == nil {
		t.Error("the witness socket is left")
	}
}

// TestSecondDaemon: an address in use is refused with a clear message, and the first one is not
// disturbed.
func TestSecondDaemon(t *testing.T) {
	p := launch(t)
	p.create(t, "demo-r-1", instancetest.Serve)
	second := exec.Command(instancetest.Binary(t), "daemon", "--allow-plaintext", "tests", "--listen", "0.0.0.0:8500",
		"--logs-dir", t.TempDir())
	second.Env = append(os.Environ(), daemonMarker+"=1", "POD_IP="+p.ip)
	out, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "listen at "+p.ip+":8500: ") {
		t.Errorf("%v: %s", err, out)
	}
	third := exec.Command(instancetest.Binary(t), "daemon", "--allow-plaintext", "tests",
		"--listen", "0.0.0.0:8510", "--logs-dir", t.TempDir(),
		"--witness-socket", p.socket)
	third.Env = second.Env
	out, err = third.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another process listens at "+p.socket) {
		t.Errorf("%v: %s", err, out)
	}
	if r, err := p.client.ProcessGet(t.Context(), "demo-r-1"); err != nil || r.GetStatus().GetState() != "running" {
		t.Errorf("%v %v", r, err)
	}
}

// TestBadFlags are refused before anything starts.
func TestBadFlags(t *testing.T) {
	for _, row := range []struct {
		args []string
		env  string
		says string
	}{
		{[]string{"daemon", "--port-range", "9-1"}, "TLS_DIR=/none", "port range \"9-1\""},
		{[]string{"daemon", "--listen", "nowhere"}, "TLS_DIR=/none", "want HOST:PORT"},
		{[]string{"daemon", "--logs-dir", "/dev/null/x", "--listen", "127.0.0.1:0"}, "TLS_DIR=/none", "--logs-dir"},
		{[]string{"daemon", "--logs-dir", ""}, "", "--logs-dir is empty"},
		{[]string{"daemon"}, "TLS_DIR=", "no certificate: name its directory"},
		{[]string{"daemon"}, "POD_IP=here", "POD_IP \"here\""},
		{[]string{"daemon"}, "ANKOLE_MOUNTS=x", "ANKOLE_MOUNTS is not a JSON object"},
		{[]string{"daemon", "extra"}, "", "unknown command"},
		{[]string{"deamon"}, "", "unknown command"},
	} {
		cmd := exec.Command(instancetest.Binary(t), row.args...)
		cmd.Env = append(os.Environ(), daemonMarker+"=1", row.env)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), row.says) {
			t.Errorf("%v: %v: %s", row.args, err, out)
		}
	}
}

// TestStartsEnginesAlone: whoever asks, an instance manager starts nothing but engines of images,
// and tells them nothing that decides what they are.
func TestStartsEnginesAlone(t *testing.T) {
	p := launch(t)
	for name, change := range map[string]func(*imrpc.ProcessSpec){
		"a shell": func(s *imrpc.ProcessSpec) { s.Binary, s.Args = "/bin/sh", []string{"-c", "id"} },
		"an engine with other programs": func(s *imrpc.ProcessSpec) {
			s.Environment = map[string]string{"PATH": t.TempDir()}
		},
	} {
		s := p.spec(t, "demo-e-0", instancetest.Env, "", 0)
		change(s)
		if r, err := p.client.ProcessCreate(t.Context(), s); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		if r, err := p.client.ProcessGet(t.Context(), "demo-e-0"); status.Code(err) != codes.NotFound {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

// TestMounts: with a mount map, binaries and logs are found where it says, and instances inherit
// it.
func TestMounts(t *testing.T) {
	real := t.TempDir()
	if err := os.MkdirAll(filepath.Join(real, "ankole-engine-dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", instancetest.Binary(t),
		filepath.Join(real, "ankole-engine-dev", "longhorn")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mounts := `ANKOLE_MOUNTS={"/engine-binaries":"` + real + `","/host":"` + real + `/root"}`
	p := launchWith(t, nil, mounts)
	spec := instancetest.Spec(t, "demo-e-0", instancetest.Env, "", 0)
	spec.Binary = "/engine-binaries/ankole-engine-dev/longhorn"
	r, err := p.client.ProcessCreate(t.Context(), spec)
	if err != nil || r.GetStatus().GetState() == "error" {
		t.Fatal(r, err)
	}
	for _, want := range []string{mounts, "POD_IP=" + p.ip, "POD_NAME=im-test", "ANKOLE_WITNESS=unix:" + p.socket} {
		p.awaitLine(t, "demo-e-0", want)
	}
	// Without --logs-dir the logs go below the node's root, not to the machine's own directory.
	if _, err := os.Stat(filepath.Join(real, "root/var/log/instances/demo-e-0.log")); err != nil {
		t.Error(err)
	}
}

// awaitLine waits until an instance has written a line.
func (p *program) awaitLine(t *testing.T, name, want string) {
	t.Helper()
	wait.Until(t, want, func() bool {
		found := false
		if err := p.client.ProcessLog(t.Context(), name, client.LogOptions{}, func(l string) error {
			found = found || l == want
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return found
	})
}

// TestUnusableCertificates: managers of the same cluster have the same broken secret, so plaintext
// is what they talk.
func TestUnusableCertificates(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("nothing"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	launch(t, "TLS_DIR="+dir) // waits for a plaintext health check
}

// oneRecord is a manager that knows one membership.
type oneRecord struct{}

func (oneRecord) Get(_ context.Context, r *witnessv1.GetRequest) (*witnessv1.Membership, error) {
	return &witnessv1.Membership{Epoch: 7, Engine: r.GetEngineName()}, nil
}

func (oneRecord) CompareAndSwap(_ context.Context,
	r *witnessv1.CompareAndSwapRequest) (*witnessv1.CompareAndSwapResponse, error) {
	return &witnessv1.CompareAndSwapResponse{Swapped: true, Current: r.GetNext()}, nil
}

// TestWitness: a question on the socket that instances are given reaches a controller attached at
// 8500, and the node's agent attached at the socket on the host.
func TestWitness(t *testing.T) {
	dir := t.TempDir()
	p := launch(t, instancetest.Installed(t, filepath.Dir(witness.RelaySocket("")), dir))
	agent, err := client.Local(filepath.Join(dir, filepath.Base(witness.RelaySocket("im-test"))))
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	conn, err := grpc.NewClient("unix:"+p.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, attached := range map[string]*grpc.ClientConn{"controller": p.client.Conn(), "agent": agent} {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- relayclient.Serve(ctx, attached, name, oneRecord{}) }()
		m, err := witnessv1.NewWitnessClient(conn).Get(t.Context(),
			&witnessv1.GetRequest{VolumeName: "demo", EngineName: "demo-e-0"})
		if err != nil || m.GetEpoch() != 7 || m.GetEngine() != "demo-e-0" {
			t.Errorf("%s: %v %v", name, m, err)
		}
		cancel()
		<-ended
	}
	if _, err := imrpc.NewProcessManagerServiceClient(agent).ProcessList(t.Context(),
		&imrpc.ProcessListRequest{}); err == nil {
		t.Error("processes can be listed on the agent's socket")
	}
	// The process service is not offered on the socket, nor the witness on the network.
	if _, err := imrpc.NewProcessManagerServiceClient(conn).ProcessList(t.Context(),
		&imrpc.ProcessListRequest{}); err == nil {
		t.Error("processes can be listed on the witness socket")
	}
	if _, err := witnessv1.NewWitnessClient(p.client.Conn()).Get(t.Context(), &witnessv1.GetRequest{}); err == nil {
		t.Error("the witness can be asked over the network")
	}
}
