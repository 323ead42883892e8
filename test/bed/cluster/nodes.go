package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/standalone/control"
	"ankole.storage/standalone/kube"
	"ankole.storage/standalone/pki"
	"ankole.storage/test/bed/host"
	"ankole.storage/test/bed/node"
	"ankole.storage/test/bed/plan"
)

const (
	// NodeCommand is the program's command that is a node's first process.
	NodeCommand = "node-init"
	// shutDownTimeout is above what a node gives its processes.
	shutDownTimeout = 20 * time.Second
	pollEvery       = 100 * time.Millisecond
)

// running is a node that runs.
type running struct {
	cmd  *exec.Cmd
	done chan struct{}
	// meant says that its end was asked for.
	meant bool
	// stdin stays open: its end would say that the bed is gone.
	stdin io.Closer
}

// parent starts processes from one thread that lives as long as it is not closed: the kernel kills
// the children when the thread ends that started them, and Go ends threads at will.
type parent struct {
	requests chan func()
	wg       sync.WaitGroup
}

func newParent() *parent {
	p := &parent{requests: make(chan func())}
	p.wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for f := range p.requests {
			f()
		}
	})
	return p
}

func (p *parent) start(cmd *exec.Cmd) error {
	done := make(chan error)
	p.requests <- func() { done <- cmd.Start() }
	return <-done
}

func (p *parent) close() {
	close(p.requests)
	p.wg.Wait()
}

// startNode starts node k: namespaces, interfaces, control group, then what is inside.
func (b *Bed) startNode(ctx context.Context, k int) error {
	name := b.cfg.NodeName(k)
	fail := func(err error) error { return fmt.Errorf("node %s: %w", name, err) }
	if err := os.MkdirAll(b.cfg.NodePath(k), 0o755); err != nil {
		return fail(err)
	}
	if err := host.MakeDisk(b.cfg.NodePath(k, "disk"), b.cfg.DiskBytes); err != nil {
		return fail(err)
	}
	inside, err := b.nodeConfig(k)
	if err != nil {
		return fail(err)
	}
	group := b.cfg.NodeCgroup(k) + "/system"
	if err := host.MakeCgroup(group); err != nil {
		return fail(err)
	}
	log, err := os.OpenFile(b.cfg.NodePath(k, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), b.program, NodeCommand)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS |
			syscall.CLONE_NEWIPC,
		Pdeathsig: syscall.SIGKILL,
		Setsid:    true,
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fail(err)
	}
	if err := b.parent.start(cmd); err != nil {
		return fail(err)
	}
	r := &running{cmd: cmd, done: make(chan struct{}), stdin: stdin}
	b.mu.Lock()
	b.nodes[k] = r
	b.mu.Unlock()
	go b.watch(k, r)
	if err := host.EnterCgroup(group, cmd.Process.Pid); err != nil {
		return fail(err)
	}
	if err := host.Plug(b.cfg.Plan, k, cmd.Process.Pid); err != nil {
		return fail(err)
	}
	if err := os.WriteFile(b.cfg.NodePath(k, pidFile), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return fail(err)
	}
	if err := json.NewEncoder(stdin).Encode(inside); err != nil {
		return fail(fmt.Errorf("%w; see %s", err, log.Name()))
	}
	return nil
}

// watch waits for the end of a node.
func (b *Bed) watch(k int, r *running) {
	err := r.cmd.Wait()
	b.mu.Lock()
	meant := r.meant
	b.mu.Unlock()
	close(r.done)
	if !meant {
		select {
		case b.ended <- fmt.Errorf("node %s has ended: %w; see %s", b.cfg.NodeName(k), err, b.cfg.NodePath(k, "node.log")):
		default:
		}
	}
}

// nodeConfig makes the certificates of node k and says what it is told.
func (b *Bed) nodeConfig(k int) (node.Config, error) {
	p := b.cfg.Plan
	name, addr := p.NodeName(k), p.NodeAddress(k)
	serving, err := b.pki.Server("kubelet-"+name, addr, name)
	if err != nil {
		return node.Config{}, err
	}
	kubeconfig := func(user string, groups ...string) (string, error) {
		var pair pki.Pair
		if pair, err = b.pki.Client(user+"-"+name, "system:"+user, groups...); err != nil {
			return "", err
		}
		path := p.Path("pki", user+"-"+name+".kubeconfig")
		return path, kube.WriteKubeconfig(path, b.kubeCfg, pair, true)
	}
	c := node.Config{Name: name, Program: b.program, Dir: p.NodePath(k), Disk: p.NodePath(k, "disk"), Address: addr,
		Gateway: p.Host(), PodNetwork: p.PodNetwork(k), AllPods: p.PodNetworks(), StorageName: plan.StorageNetwork,
		Cgroup: p.NodeCgroup(k), CAFile: b.pki.CAFile(), KubeletCertificate: serving.CertFile, KubeletKey: serving.KeyFile,
		NetworksKubeconfig: p.Path("kubeconfig"), PauseImage: b.cfg.PauseImage}
	if b.cfg.DNS != "" {
		c.DNS, c.Domain = p.Host(), domain
	}
	c.StorageSegment, c.StorageFirst, c.StorageLast = p.Storage(k)
	for j := 1; j <= p.Nodes; j++ {
		if j != k {
			c.Neighbours = append(c.Neighbours, node.Remote{PodNetwork: p.PodNetwork(j), Address: p.NodeAddress(j)})
		}
	}
	if c.KubeletKubeconfig, err = kubeconfig("node:"+name, "system:nodes"); err != nil {
		return c, err
	}
	c.ProxyKubeconfig, err = kubeconfig("kube-proxy")
	return c, err
}

// awaitNodes waits until all nodes are Ready. After a reboot of the bed they were Ready before:
// their leases tell, since a node without heartbeat becomes NotReady first.
func (b *Bed) awaitNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		missing, err := b.notReady(ctx)
		if err == nil && len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nodes are not Ready within %v: %s (%w); see %s", readyTimeout, strings.Join(missing, ", "),
				errors.Join(err, ctx.Err()), b.cfg.Path("nodes"))
		case err := <-b.ended:
			return err
		case <-tick.C:
		}
	}
}

func (b *Bed) notReady(ctx context.Context) ([]string, error) {
	list, err := b.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	ready := map[string]bool{}
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue && c.LastHeartbeatTime.After(b.began) {
				ready[n.Name] = true
			}
		}
	}
	var missing []string
	for k := 1; k <= b.cfg.Nodes; k++ {
		if name := b.cfg.NodeName(k); !ready[name] {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// command does what a test or "ankole-bed node" asks for.
func (b *Bed) command(ctx context.Context, r control.Request) error {
	number, ok := strings.CutPrefix(r.Node, "node-")
	k, err := strconv.Atoi(number)
	if !ok || err != nil || k < 1 || k > b.cfg.Nodes {
		return fmt.Errorf("there is no node %q", r.Node)
	}
	b.mu.Lock()
	have := b.nodes[k]
	b.mu.Unlock()
	switch r.Command {
	case control.NodeStop, control.NodeKill:
		if have == nil {
			return fmt.Errorf("node %s does not run", r.Node)
		}
		return b.endNode(k, r.Command == control.NodeStop)
	case control.NodeStart:
		if have != nil {
			return fmt.Errorf("node %s runs", r.Node)
		}
		return b.startNode(ctx, k)
	}
	return fmt.Errorf("unknown command %q", r.Command)
}

// abortAfter is how long after its end a node may wait for devices that nobody serves any more.
const abortAfter = 2 * time.Second

// endNode ends node k, in order or as a loss of power does, and waits until nothing of it is left.
func (b *Bed) endNode(k int, inOrder bool) error {
	b.mu.Lock()
	r := b.nodes[k]
	if r != nil {
		r.meant = true
	}
	b.mu.Unlock()
	if r == nil {
		return nil
	}
	if inOrder {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-r.done:
		case <-time.After(shutDownTimeout):
		}
	}
	devices, err := host.MountedBy(b.cfg.NodeCgroup(k))
	if err != nil {
		return err
	}
	_ = r.cmd.Process.Kill()
	select {
	case <-r.done:
	case <-time.After(abortAfter): // see host.AbortUnmounted
		if err := host.Abort(devices); err != nil {
			return fmt.Errorf("end the devices of node %s: %w", b.cfg.NodeName(k), err)
		}
		<-r.done
	}
	_ = r.stdin.Close()
	b.mu.Lock()
	delete(b.nodes, k)
	b.mu.Unlock()
	return errors.Join(os.Remove(b.cfg.NodePath(k, pidFile)), host.RemoveInterface(b.cfg.Veth(k, false)),
		host.RemoveInterface(b.cfg.Veth(k, true)), host.RemoveCgroup(b.cfg.NodeCgroup(k)), detachDead())
}

func (b *Bed) stopNodes() {
	var wg sync.WaitGroup
	for k := 1; k <= b.cfg.Nodes; k++ {
		wg.Go(func() {
			if err := b.endNode(k, true); err != nil {
				b.log.Warn("something is left of a node", "node", b.cfg.NodeName(k), "error", err)
			}
		})
	}
	wg.Wait()
}
