package k8stest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/host/patience"
	restclient "ankole.storage/rest/client"
	"ankole.storage/test/bed/cluster"
	"ankole.storage/test/bed/plan"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

const (
	mib       = 1 << 20
	namespace = "longhorn-system"
	// longest bounds every wait for a condition; machines that run tests are slow and shared.
	longest = 4 * time.Minute
	// logTail is how much of each log a failed test shows.
	logTail = 3000
	// tools is the image of workloads.
	tools = "ankole/toolbox:dev"
)

// scenarios run one after the other on a cluster, and each leaves it whole; those of a group share
// one. Two clusters run side by side.
var scenarios = []struct {
	group string
	of    []scenario
}{
	{"Claims", []scenario{
		{"A1", scenarioA1},
		{"Plugin", kubectlPlugin},
		{"Guide", guidePages},
		{"BlockDeviceInPod", blockDeviceInPod},
		{"F11", scenarioF11},
		{"RawBlock", rawBlock},
		{"Migratable", migratableBlock},
		{"Encrypted", encryptedClaim},
		{"BootsFromImage", bootsFromImage},
		{"D5", scenarioD5},
		{"A9", scenarioA9},
		{"Reboot", rebootInOrder},
		{"RebuiltElsewhere", rebuiltElsewhere},
		{"Database", workloadDatabase},
	}},
	{"Faults", []scenario{
		{"ReplicaLost", replicaLost},
		{"F2", scenarioF2},
		{"F3", scenarioF3},
		{"F14", scenarioF14},
		{"F16", scenarioF16},
		{"A10", scenarioA10},
		{"DrainsAtOnce", drainsAtOnce},
		{"B9", scenarioB9},
		{"ForeignManager", foreignManager},
		{"NodeLost", nodeLost},
		{"C5", scenarioC5},
		{"WorkloadsMove", workloadsMove},
	}},
}

type scenario struct {
	name string
	run  func(*bed)
}

// TestKubernetes installs the system on three real nodes, for each group of scenarios, and runs
// them. What they used of the rights of the system's accounts is judged together with TestChart, if
// everything has run.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	for _, group := range scenarios {
		t.Run(group.group, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			b.install()
			ran := 0
			for _, s := range group.of {
				t.Run(s.name, func(t *testing.T) {
					ran++
					b.in(t, func() { s.run(b) })
				})
			}
			if ran == len(group.of) {
				reviewed.add(b)
			}
		})
	}
}

// TestIdleCost measures what the system costs at rest. Nothing else runs beside it.
func TestIdleCost(t *testing.T) {
	b := start(t)
	b.install()
	idleCost(b)
}

// bed is a running cluster with clients.
type bed struct {
	plan.Plan
	t       *testing.T
	program string
	ks      kubernetes.Interface
	kube    client.Client
	rest    *restclient.Client
	token   string // what the managers are shown
}

// Networks of beds: as no other run on the machine is likely to choose, and no two of this one.
var (
	firstNetwork = rand.IntN(networks)
	begun        atomic.Int64
)

const networks = 120

func network() string {
	n := (firstNetwork + int(begun.Add(1))) % networks
	return fmt.Sprintf("10.%d.0.0", 130+n)
}

// start runs a bed for the test, on a network that no other test is likely to use, and checks at
// the end that nothing of it is left on the machine. Its nodes have the images of the system, and
// more, which are files that tools/upstream.sh makes.
func start(t *testing.T, more ...string) *bed {
	t.Helper()
	if os.Geteuid() != 0 {
		lack.Skip(t, "real nodes need root")
	}
	for _, p := range []string{"containerd", "runc", "nft", "/usr/lib/cni/bridge"} {
		if _, err := exec.LookPath(p); err != nil {
			lack.Skip(t, p+" is missing; tools/test.sh k8s installs what is needed")
		}
	}
	bin := os.Getenv("ANKOLE_BIN")
	if bin == "" {
		bin = "../../../bin"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ankole-bed-") // below /tmp, which nodes see as the machine does
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Plan{Dir: dir, Nodes: 3, Network: network()}.Validate()
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{Plan: p, t: t, program: filepath.Join(bin, "ankole-bed")}
	archive := func(name string) string { return filepath.Join(bin, "images", name+".tar") }
	cmd := exec.Command(b.program, "--dir", dir, "--network", p.Network, "up", "--exit-with-stdin", "--unsafe-no-fsync",
		"--node-grace", "15s", "--ready-file", filepath.Join(dir, "ready"), "--pause-image", archive("pause"),
		"--image", archive("manager"), "--image", archive("instance-manager"), "--image", archive("engine"),
		"--image", archive("backing-image-manager"), "--image", archive("csi"),
		"--image", archive("toolbox"), "--image", archive("csi-attacher"),
		"--image", archive("csi-provisioner"), "--image", archive("csi-resizer"), "--image", archive("csi-snapshotter"),
		"--image", archive("snapshot-controller"), "--image", archive("postgres"),
		"--dns", filepath.Join(bin, "addons", "ankole-dns"))
	for _, name := range more {
		cmd.Args = append(cmd.Args, "--image", filepath.Join(bin, "upstream", name+".tar"))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() { b.end(stdin, done, &out) })
	b.await("the cluster is up", func(context.Context) error {
		select {
		case <-done:
			t.Fatalf("the cluster has ended:\n%s", out.String())
		default:
		}
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err
	})
	t.Logf("cluster up after %.1f s", time.Since(began).Seconds())
	b.connect()
	return b
}

// end stops the bed, and looks for what is left of it.
func (b *bed) end(stdin io.Closer, done <-chan struct{}, out *bytes.Buffer) {
	if b.t.Failed() {
		b.dump()
	}
	_ = stdin.Close()
	<-done
	if b.t.Failed() {
		b.t.Logf("the cluster said:\n%s", out.String())
	}
	left, err := cluster.Left(b.Plan)
	if err != nil || len(left) > 0 {
		b.t.Errorf("left of the cluster: %v (%v)", left, err)
	}
	if os.Getenv("ANKOLE_KEEP") != "" {
		b.t.Logf("the cluster's folder is kept: %s", b.Dir)
		return
	}
	if err := os.RemoveAll(b.Dir); err != nil {
		b.t.Error(err)
	}
}

func (b *bed) connect() {
	b.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", b.Path("kubeconfig"))
	if err != nil {
		b.t.Fatal(err)
	}
	cfg.QPS = -1
	s := runtime.NewScheme()
	if err := longhorn.AddToScheme(s); err != nil {
		b.t.Fatal(err)
	}
	if b.kube, err = client.New(cfg, client.Options{Scheme: s}); err != nil {
		b.t.Fatal(err)
	}
	if b.ks, err = kubernetes.NewForConfig(cfg); err != nil {
		b.t.Fatal(err)
	}
}

// kubectl runs kubectl, and returns what it says.
func (b *bed) kubectl(args ...string) (string, error) {
	cmd := exec.Command(b.program, append([]string{"kubectl", "--kubeconfig", b.Path("kubeconfig")}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// install applies the plain manifest as a user does, and waits until all runs.
func (b *bed) install() {
	b.t.Helper()
	began := time.Now()
	// What many clusters have: the kinds of volume snapshots, and their controller.
	b.kubectlOK("apply", "--server-side", "-f", filepath.Join(filepath.Dir(b.program), "addons", "snapshots"))
	b.kubectlOK("apply", "--server-side", "-f", "../../../deploy/longhorn.yaml")
	b.installed()
	b.took("installed and ready", began)
	b.secured()
	b.took("installed, until all instance managers have shown a certificate", began)
}

// installed waits for the manager and instance manager of every node, and the CSI driver.
func (b *bed) installed() {
	b.t.Helper()
	b.await("managers run on all nodes", func(ctx context.Context) error {
		d, err := b.ks.AppsV1().DaemonSets(namespace).Get(ctx, "longhorn-manager", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.NumberReady != int32(b.Nodes) {
			return fmt.Errorf("ready on %d of %d nodes", d.Status.NumberReady, b.Nodes)
		}
		controllers, err := b.ks.AppsV1().Deployments(namespace).Get(ctx, "longhorn-controller", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if controllers.Status.ReadyReplicas < *controllers.Spec.Replicas {
			return fmt.Errorf("%d of %d controllers are ready", controllers.Status.ReadyReplicas, *controllers.Spec.Replicas)
		}
		return nil
	})
	if b.token == "" {
		b.token = b.administrator()
	}
	b.reach()
	b.managersRun()
	b.driverRuns()
}

// driverRuns waits until the kubelet of every node knows the CSI driver, and one Pod of each
// sidecar runs.
func (b *bed) driverRuns() {
	b.t.Helper()
	b.await("the CSI driver is registered on every node", func(ctx context.Context) error {
		nodes, err := b.ks.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		n := 0
		for _, node := range nodes.Items {
			n += len(node.Spec.Drivers)
		}
		if n != b.Nodes {
			return fmt.Errorf("on %d of %d nodes", n, b.Nodes)
		}
		deployments, err := b.ks.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, d := range deployments.Items {
			if d.Status.ReadyReplicas == 0 {
				return fmt.Errorf("deployment %s has no Pod that is ready", d.Name)
			}
		}
		return nil
	})
}

// administrator makes an account that may do everything with the system, as a user of its API does,
// and returns a token of it.
func (b *bed) administrator() string {
	b.t.Helper()
	for _, args := range [][]string{{"create", "serviceaccount", "administrator"}, {"create", "rolebinding",
		"administrator", "--clusterrole=longhorn-admin", "--serviceaccount=" + namespace + ":administrator"}} {
		if out, err := b.kubectl(append([]string{"-n", namespace}, args...)...); err != nil {
			b.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	out, err := b.kubectl("-n", namespace, "create", "token", "administrator", "--audience=longhorn-backend",
		"--duration=24h")
	if err != nil {
		b.t.Fatalf("kubectl create token: %v\n%s", err, out)
	}
	return strings.TrimSpace(out)
}

// reach makes a new client, each of whose connections goes to a controller that is ready by then,
// and not on those nodes. What nodes without power say of themselves is old.
func (b *bed) reach(not ...string) {
	b.t.Helper()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		pods, err := b.ks.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=longhorn-ui"})
		if err != nil {
			return nil, err
		}
		err = errors.New("no controller to talk to")
		for _, p := range pods.Items {
			if slices.Contains(not, p.Spec.NodeName) || p.Status.PodIP == "" || p.DeletionTimestamp != nil ||
				!condition.PodReady(&p) {
				continue
			}
			var conn net.Conn
			d := net.Dialer{Timeout: 3 * time.Second}
			if conn, err = d.DialContext(ctx, network, net.JoinHostPort(p.Status.PodIP, "9500")); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
	var err error
	b.rest, err = restclient.NewOptions("https://longhorn-backend."+namespace+":9500",
		restclient.Options{Tokens: restclient.Token(b.token), TLS: restclient.AuthorityFile(b.authority()), Dial: dial})
	if err != nil {
		b.t.Fatal(err)
	}
}

// await waits until cond returns nil.
func (b *bed) await(what string, cond func(ctx context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Of(longest))
	defer cancel()
	var last error
	wait.Within(b.t, longest, what, func() error {
		if err := cond(ctx); err == nil || last == nil || ctx.Err() == nil { // what is cut short says nothing
			last = err
		}
		return last
	})
}

// instanceManagers lists them.
func (b *bed) instanceManagers() []longhorn.InstanceManager {
	b.t.Helper()
	var list longhorn.InstanceManagerList
	if err := b.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		b.t.Fatal(err)
	}
	return list.Items
}

// managerOf is the instance manager of a node.
func (b *bed) managerOf(node string) *longhorn.InstanceManager {
	b.t.Helper()
	for _, m := range b.instanceManagers() {
		if m.Spec.NodeID == node {
			return &m
		}
	}
	b.t.Fatalf("node %s has no instance manager", node)
	return nil
}

// managersRun waits until each node has an instance manager that runs, takes replicas, and lacks
// nothing.
func (b *bed) managersRun() {
	b.t.Helper()
	b.await("an instance manager runs on every node", func(ctx context.Context) error {
		running := map[string]bool{}
		for _, m := range b.instanceManagers() {
			if m.Status.CurrentState == longhorn.InstanceManagerStateRunning {
				running[m.Spec.NodeID] = true
			}
		}
		if len(running) != b.Nodes {
			return fmt.Errorf("they run on %d nodes", len(running))
		}
		nodes, err := b.rest.Nodes(ctx)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if c := n.Conditions[longhorn.NodeConditionSchedulable]; len(n.Disks) == 0 || c.Status != "True" {
				return fmt.Errorf("node %s with %d disks: %+v", n.Name, len(n.Disks), c)
			}
			for name, d := range n.Disks {
				if c := d.Conditions["Schedulable"]; c.Status != "True" {
					return fmt.Errorf("disk %s of node %s: %+v", name, n.Name, c)
				}
			}
			if err := environment(n.Conditions); err != nil {
				return fmt.Errorf("node %s: %w", n.Name, err)
			}
		}
		return nil
	})
}
