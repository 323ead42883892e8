package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/keys/peerkeys"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/process/engine"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/host/mtls"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
)

// TestC3 runs instance managers of before the proxy under the present managers: volumes attach,
// lose a replica and rebuild it, and every operation on engines works, all by the engine binary on
// the engine's node.
func TestC3(t *testing.T) {
	t.Parallel()
	frozen := rig.Frozen(t, rig.BeforeProxy, "instance-manager")
	images := t.TempDir()
	makeImage(t, images, "ankole-instance-manager-dev", filepath.Join(frozen, "instance-manager"), "instance-manager")
	c := &cluster{Cluster: testcluster.Start(t,
		testcluster.Options{Manager: true, Plaintext: true, Images: images, NodeGrace: nodeGrace}), t: t}
	c.connect()
	t.Cleanup(func() {
		if t.Failed() {
			c.dump()
		}
	})
	if _, err := c.rest.SetSetting(context.Background(), "replica-replenishment-wait-interval", "5"); err != nil {
		t.Fatal(err)
	}
	c.create("c3", 64*mib, 3)
	d := c.device(c.attach("c3", "node-1", 3))
	for _, m := range c.managers() {
		if m.Status.ProxyAPIVersion != 0 || m.Status.APIVersion != 4 {
			t.Fatalf("%s reports API %d and proxy %d: not the build that was meant", m.Name, m.Status.APIVersion,
				m.Status.ProxyAPIVersion)
		}
		for _, port := range []string{"8501", "8503"} {
			if conn, err := net.Dial("tcp", net.JoinHostPort(m.Status.IP, port)); err == nil {
				conn.Close()
				t.Errorf("port %s of %s is open: this tests nothing", port, m.Name)
			}
		}
	}
	w := rig.StartLoad(t, d, 64*mib, 3)
	w.AwaitMore(t, 200)
	c.kill(c.directoryOn("c3", "node-3"))
	c.awaitMembership("c3", "a set with the replica rebuilt", func(m *longhorn.Membership) bool {
		return m.Generation >= 3 && len(m.Members) == 3
	})
	c.awaitUsable("c3", "node-1", 3)
	w.Finish()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n := sum(c.proxyConnections()); n != 0 {
		t.Errorf("%d connections to proxies that do not exist", n)
	}
	everyOperation(t, c, "c3")
	c.detach("c3")
	c.identical("c3", 3)
}

// scenarioC3 does by the proxy what TestC3 does by the binary.
func scenarioC3(t *testing.T, c *cluster) {
	c.create("c3", 64*mib, 3)
	defer c.remove("c3")
	fillDevice(t, c, c.attach("c3", "node-1", 3))
	everyOperation(t, c, "c3")
	c.detach("c3")
}

// scenarioC2: one connection to the proxy of each instance manager, however often it is used; one
// that died is made anew.
func scenarioC2(t *testing.T, c *cluster) {
	c.create("c2", 64*mib, 2)
	c.attach("c2", "node-1", 2)
	one := func(ctx context.Context) error {
		for address, n := range c.proxyConnections() {
			if n != 1 {
				return fmt.Errorf("%d connections to %s", n, address)
			}
		}
		return nil
	}
	c.eventually("one connection to each proxy", one)
	pods := c.pods()
	c.kill("daemon\x00--listen\x00" + c.Nodes[2].Address)
	c.eventually("another Pod on node-3", func(context.Context) error {
		now := c.pods()
		if now["node-3"] == "" || now["node-3"] == pods["node-3"] {
			return fmt.Errorf("process %q", now["node-3"])
		}
		return nil
	})
	c.eventually("one connection to each proxy again", one)
	c.awaitUsable("c2", "node-1", 2)
	c.detach("c2")
	c.remove("c2")
}

// pods names the process of each node's instance manager.
func (c *cluster) pods() map[string]string {
	out := map[string]string{}
	for _, n := range c.Nodes {
		for _, pid := range holding(c.Info.Dir, "daemon\x00--listen\x00"+n.Address+":8500") {
			out[n.Name] = strconv.Itoa(pid)
		}
	}
	return out
}

// proxyConnections counts the established connections to the proxy of each node.
func (c *cluster) proxyConnections() map[string]int {
	c.t.Helper()
	out := map[string]int{}
	names := map[string]string{}
	for _, n := range c.Nodes {
		address := net.JoinHostPort(n.Address, "8501")
		out[address] = 0
		ip := net.ParseIP(n.Address).To4()
		names[fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], 8501)] = address
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		c.t.Fatal(err)
	}
	const remote, state, established = 2, 3, "01"
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > state && names[f[remote]] != "" && f[state] == established {
			out[names[f[remote]]]++
		}
	}
	return out
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// managers lists the instance managers.
func (c *cluster) managers() []longhorn.InstanceManager {
	c.t.Helper()
	var list longhorn.InstanceManagerList
	if err := c.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// makeImage makes a directory that stands for a container image of one program.
func makeImage(t *testing.T, images, name, program, command string) {
	t.Helper()
	dir := filepath.Join(images, name)
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "bin", command)); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string][]string{"entrypoint": {}, "cmd": {command}, "env": {}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "image.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// dialer reaches instance managers as managers do, with the certificate of a cluster that has one.
func (c *cluster) dialer() *mtls.Dialer {
	c.t.Helper()
	kube, err := client.New(c.RESTConfig(c.t), client.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	source := mtls.Open("", slog.Default())
	source.FetchWith(peerkeys.Read(kube, namespace))
	return mtls.NewDialer(source, &instancemanager.Pods{Client: kube, Namespace: namespace}, slog.Default())
}

// engineClient returns what managers use, and the engine of a volume.
func (c *cluster) engineClient(volume string) (engineclient.EngineClient, engineclient.Target) {
	c.t.Helper()
	dialer := c.dialer()
	proxies := engineclient.NewProxies(func(address string) (*grpc.ClientConn, error) {
		return imclient.Conn(address, dialer)
	})
	c.t.Cleanup(proxies.Close)
	for _, m := range c.managers() {
		err := proxies.Ensure(context.Background(), engineclient.Manager{
			Name: m.Name, IP: m.Status.IP, Node: m.Spec.NodeID, ProxyAPIVersion: m.Status.ProxyAPIVersion})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	binary := engineclient.NewBinary(proxies, proxies, "ankole/engine:dev")
	c.t.Cleanup(binary.Close)
	var list longhorn.EngineList
	if err := c.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		c.t.Fatal(err)
	}
	for i := range list.Items {
		if e := &list.Items[i]; e.Spec.VolumeName == volume {
			if t, ok := engine.Target(e); ok {
				return engineclient.NewRouter(proxies, binary), t
			}
		}
	}
	c.t.Fatalf("volume %s has no running engine", volume)
	return nil, engineclient.Target{}
}
