// Package testcluster starts real standalone clusters for tests.
//
// A cluster is the program bin/ankole-standalone in a process of its own, on a loopback network and
// ports that no other test uses, with all state in a temporary folder. Its API server, controllers
// and scheduler are the real ones, its nodes run Pods as processes. Tests lose nodes (KillNode),
// lose everything (Kill9, Restart) and stop in good order (Stop); whatever a test does, its end
// ends the cluster.
//
//	c := testcluster.Start(t, testcluster.Options{Nodes: 2})
//	client, err := kubernetes.NewForConfig(c.RESTConfig(t))
package testcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/host/patience"
	"ankole.storage/test/lack"
	"ankole.storage/test/logs"
	"ankole.storage/test/wait"
)

const (
	// ProgramName is the program that is started.
	ProgramName = "ankole-standalone"
	// BinVariable names the folder of built programs, else bin/ at the top of the module is taken.
	BinVariable = "ANKOLE_BIN"
	// KeepVariable, when set, keeps the folders of clusters for a look afterwards.
	KeepVariable = "ANKOLE_KEEP"

	// readyTimeout for a start on a machine shared with other tests.
	readyTimeout = 10 * time.Minute
	// stopTimeout is above the program's own bound on stopping.
	stopTimeout = 90 * time.Second
	pollEvery   = 20 * time.Millisecond
	// startTries: random addresses collide with another test's once in a while.
	startTries = 4
	// logTail is how much of the cluster's own log a failed test shows.
	logTail = 8 << 10
)

// Options of a cluster.
type Options struct {
	Nodes   int    // default 3
	Manager bool   // deploy the manager too; needs its programs built
	Images  string // directory of images, default those made of the built programs
	// PodNetworks are the names (namespace/name) of further networks for Pods that ask for one.
	PodNetworks []string
	// Plaintext has the managers make no certificate: for instance managers that know none, and tests
	// of a certificate that comes later.
	Plaintext bool
	// Backups has the default backup target be a directory of the cluster, as for users.
	Backups bool
	// NodeGrace without heartbeat until a node is NotReady; default 20 s.
	NodeGrace time.Duration
	// StopGrace bounds Pod termination at stop; default 10 s.
	StopGrace time.Duration
	// Args are further flags of the program.
	Args []string
	// Dir keeps the state; default a temporary folder, removed at the end.
	Dir string
	// Permit are patterns of what the cluster's processes may write although no process should,
	// such as the restarts of containers that the test kills; see package logs and Cluster.Permit.
	Permit []string
}

// Node of a running cluster.
type Node struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Root    string `json:"root"`    // what Pods see as the host's /
	Devices string `json:"devices"` // what Pods see as /dev/longhorn
}

// Info is what the program says when it is ready.
type Info struct {
	PID        int    `json:"pid"`
	Dir        string `json:"dir"`
	Kubeconfig string `json:"kubeconfig"`
	KubeAPI    string `json:"kubeAPI"`
	API        string `json:"api"`
	// TokenFile has the token for the REST API; empty without a manager.
	TokenFile string `json:"tokenFile"`
	// LoginPage is the file of the page that logs a browser in.
	LoginPage      string  `json:"loginPage"`
	Nodes          []Node  `json:"nodes"`
	StartupSeconds float64 `json:"startupSeconds"`
}

// Cluster is a cluster under test.
type Cluster struct {
	Info
	program string
	args    []string
	cmd     *exec.Cmd
	stdin   io.Closer
	done    chan struct{}
	output  *tailBuffer
	watch   *logs.Watch
}

// errAddress means that some address was taken: another pick may work.
var errAddress = errors.New("address in use")

// errLate means that a wait for the program ran out.
var errLate = errors.New("too late")

func noteLate(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errLate) {
		wait.RanOut(t, ProgramName)
	}
}

// Program finds the built program.
func Program() (string, error) {
	dir := os.Getenv(BinVariable)
	if dir == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "bin")
	}
	path := filepath.Join(dir, ProgramName)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not built (expected at %s; build it, or name its folder in %s)", ProgramName, path,
			BinVariable)
	}
	return path, nil
}

// moduleRoot is the folder of the main module, seen from a test's working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(data, []byte("module ankole.storage\n")) {
			return dir, nil
		}
	}
	return "", errors.New("not inside the ankole.storage module")
}

// Start starts a cluster and waits until it is ready. The test is skipped, saying so, if the
// program is not built and nobody said that it must be (by setting ANKOLE_BIN).
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	program, err := Program()
	if err != nil {
		if os.Getenv(BinVariable) == "" {
			lack.Skip(t, fmt.Sprintf("needs a cluster: %v", err))
		}
		t.Fatal(err)
	}
	dir := o.Dir
	if dir == "" {
		// Not t.TempDir: sockets below it must stay within the kernel's 107 bytes.
		if dir, err = os.MkdirTemp("", "ankole-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeUnlessKept(t, dir) })
	}
	for try := 1; ; try++ {
		c := &Cluster{program: program, args: o.arguments(dir), watch: &logs.Watch{}}
		for _, p := range o.Permit {
			c.watch.Permit(p)
		}
		err := c.launch(dir)
		if err == nil {
			t.Cleanup(func() { c.finish(t) })
			return c
		}
		if !errors.Is(err, errAddress) || try == startTries {
			noteLate(t, err)
			t.Fatalf("start cluster: %v", err)
		}
		_ = os.Remove(filepath.Join(dir, "ports.json"))
	}
}

func removeUnlessKept(t testing.TB, dir string) {
	if os.Getenv(KeepVariable) != "" {
		t.Logf("cluster folder kept: %s", dir)
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Errorf("remove cluster folder: %v", err)
	}
}

func (o *Options) arguments(dir string) []string {
	nodes := o.Nodes
	if nodes == 0 {
		nodes = 3
	}
	args := []string{
		"--dir", dir, "--nodes", strconv.Itoa(nodes), "--node-network", freeNetwork(),
		"--api-port", strconv.Itoa(freePort()), "--device-dir", filepath.Join(dir, "dev"),
		"--ready-file", filepath.Join(dir, "ready.json"), "--exit-with-stdin", "--unsafe-no-fsync",
	}
	if !o.Manager {
		args = append(args, "--no-manager")
	}
	if o.Plaintext {
		args = append(args, "--mutual-tls=false")
	}
	if !o.Backups {
		args = append(args, "--backup-directory", "none")
	}
	if o.Images != "" {
		args = append(args, "--images", o.Images)
	}
	if o.NodeGrace != 0 {
		args = append(args, "--node-grace", patience.Of(o.NodeGrace).String())
	}
	if o.StopGrace != 0 {
		args = append(args, "--stop-grace", o.StopGrace.String())
	}
	for _, name := range o.PodNetworks {
		args = append(args, "--pod-network", name+"="+freeNetwork())
	}
	return append(args, o.Args...)
}

// PodNetwork returns the first three numbers of the addresses of a network of Options.PodNetworks,
// with a dot after each.
func (c *Cluster) PodNetwork(name string) string {
	for _, a := range c.args {
		if network, ok := strings.CutPrefix(a, name+"="); ok {
			return strings.TrimSuffix(network, "0")
		}
	}
	return ""
}

// freeNetwork picks a loopback network whose first node address nobody listens on.
func freeNetwork() string {
	for {
		net24 := fmt.Sprintf("127.%d.%d.", 16+rand.IntN(238), 1+rand.IntN(253))
		l, err := net.Listen("tcp", net24+"1:10250")
		if err == nil {
			_ = l.Close()
			return net24 + "0"
		}
	}
}

// freePort picks a port below the kernel's range for outgoing connections.
func freePort() int {
	for {
		port := 20001 + rand.IntN(11999)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
}

// launch starts the program and waits for its ready file.
func (c *Cluster) launch(dir string) error {
	ready := filepath.Join(dir, "ready.json")
	_ = os.Remove(ready)
	c.output = &tailBuffer{}
	c.cmd = exec.Command(c.program, c.args...)
	c.cmd.Stdout, c.cmd.Stderr = c.output, c.output
	c.cmd.Env = append(os.Environ(), "GOGC=300") // half of what clusters cost is Kubernetes; a sixth of that is garbage
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	c.stdin = stdin
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.done = make(chan struct{})
	go func() { _ = c.cmd.Wait(); close(c.done) }()
	deadline := time.NewTimer(readyTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if data, err := os.ReadFile(ready); err == nil {
			return json.Unmarshal(data, &c.Info)
		}
		select {
		case <-c.done:
			text := c.output.String()
			if strings.Contains(text, "in use by another program") || strings.Contains(text, "address already in use") {
				return fmt.Errorf("%w: %s", errAddress, text)
			}
			return fmt.Errorf("%s ended: %v\n%s", ProgramName, c.cmd.ProcessState, text)
		case <-deadline.C:
			c.end()
			return fmt.Errorf("%w: not ready within %s\n%s", errLate, readyTimeout, c.output.String())
		case <-tick.C:
		}
	}
}

// end kills the program if it still runs.
func (c *Cluster) end() {
	_ = c.cmd.Process.Kill()
	<-c.done
	_ = c.stdin.Close()
}

// finish stops the cluster at the end of a test and shows the end of its log if the test failed.
func (c *Cluster) finish(t testing.TB) {
	if err := c.stop(); err != nil {
		noteLate(t, err)
		t.Errorf("%v", err)
	}
	c.sweepDevices(t)
	c.checkLogs(t)
	if t.Failed() {
		t.Logf("output of %s:\n%s", ProgramName, c.output.String())
		t.Logf("end of its log:\n%s", fileTail(filepath.Join(c.Dir, "logs", "standalone.log")))
	}
}

// Restarts is the sign of a container that was started again, for Permit.
const Restarts = "container started"

// Permit announces what the cluster's processes will write although no process should, since the
// test is about to cause it: a pattern of the line in a log. What they have written until now must
// be in order.
func (c *Cluster) Permit(t testing.TB, pattern string) {
	t.Helper()
	c.checkLogs(t)
	c.watch.Permit(pattern)
}

// checkLogs reads the program's own logs, those of containers, and those of the instances of its
// nodes.
func (c *Cluster) checkLogs(t testing.TB) {
	t.Helper()
	c.watch.Check(t, filepath.Join(c.Dir, "logs"), filepath.Join(c.Dir, "nodes"))
}

// Stop ends the cluster as SIGTERM does and waits for that.
func (c *Cluster) Stop(t testing.TB) {
	t.Helper()
	if err := c.stop(); err != nil {
		noteLate(t, err)
		t.Fatal(err)
	}
}

func (c *Cluster) stop() error {
	select {
	case <-c.done:
		return nil
	default:
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
		_ = c.stdin.Close()
		return nil
	case <-time.After(stopTimeout):
		c.end()
		return fmt.Errorf("%w: %s did not stop within %s after SIGTERM:\n%s", errLate, ProgramName,
			stopTimeout, c.output.String())
	}
}

// Kill9 ends the program, and so the whole cluster, with SIGKILL.
func (c *Cluster) Kill9() {
	c.watch.Permit(Restarts)
	c.end()
}

// Freeze stops the program's clock without ending it: API server, scheduler, controllers of
// Kubernetes and the node agents answer nothing until Thaw, while the processes of Pods run on.
func (c *Cluster) Freeze(t testing.TB) {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze cluster: %v", err)
	}
}

// Thaw ends what Freeze began. It does nothing to a cluster that is not frozen.
func (c *Cluster) Thaw(t testing.TB) {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("thaw cluster: %v", err)
	}
}

// Restart starts a stopped or killed cluster again on the same folder and addresses.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	select {
	case <-c.done:
	default:
		t.Fatal("Restart of a running cluster; call Stop or Kill9 first")
	}
	c.watch.Permit(Restarts)
	if err := c.launch(c.Dir); err != nil {
		noteLate(t, err)
		t.Fatalf("restart cluster: %v", err)
	}
}

// Output is the end of what the program printed.
func (c *Cluster) Output() string { return c.output.String() }

// Arguments are the flags the program was started with.
func (c *Cluster) Arguments() []string { return append([]string{}, c.args...) }

// RESTConfig is a client configuration of the cluster's administrator.
func (c *Cluster) RESTConfig(t testing.TB) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}

// sweepDevices removes block devices whose engines were killed together with the cluster.
func (c *Cluster) sweepDevices(t testing.TB) {
	if !blockdev.Possible() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for _, n := range c.Nodes {
		if err := blockdev.Sweep(ctx, n.Devices); err != nil {
			t.Errorf("block devices are left in %s: %v", n.Devices, err)
		}
	}
}

// tailBuffer keeps the end of an output.
type tailBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - logTail; over > 0 {
		t.b = t.b[over:]
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

func fileTail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-logTail):])
}
