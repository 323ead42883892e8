package e2e

import (
	"context"
	"encoding/json"
	"errors"
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
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engine"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/host/mtls"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
)

// beforeProxy and withProxy are images of instance managers.
const (
	beforeProxy = "ankole/instance-manager:dev"
	withProxy   = "ankole/instance-manager:next"
)

// TestC3 has the engine of a volume in an instance manager of before the proxy, as it is while
// managers are upgraded, beside one of today's: it attaches, loses a replica and rebuilds it, is
// backed up and restored, and every operation on its engine works, all by the engine binary on the
// engine's node.
func TestC3(t *testing.T) {
	t.Parallel()
	frozen := rig.Frozen(t, rig.BeforeProxy, "instance-manager")
	images := t.TempDir()
	makeImage(t, images, naming.CanonicalImage(beforeProxy),
		withoutPlaintextFlag(t, filepath.Join(frozen, "instance-manager")), "instance-manager")
	makeImage(t, images, naming.CanonicalImage(withProxy), rig.Program(t, "instance-manager"), "instance-manager")
	c := &cluster{Cluster: testcluster.Start(t,
		testcluster.Options{Manager: true, Plaintext: true, Images: images, NodeGrace: nodeGrace}), t: t}
	c.connect()
	t.Cleanup(func() {
		if t.Failed() {
			c.dump()
		}
	})
	c.setting("replica-replenishment-wait-interval", "5")
	c.create("c3", 64*mib, 3)
	c.askToAttach("c3", "node-1")
	c.eventually("the engine runs in an instance manager of before the proxy", func(ctx context.Context) error {
		var e longhorn.Engine
		err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "c3-e-0"}, &e)
		if err == nil && e.Status.CurrentState != longhorn.InstanceStateRunning {
			err = fmt.Errorf("it is %s", e.Status.CurrentState)
		}
		return err
	})
	c.tellManagers(kubernetesOf(t, c), beforeProxy, withProxy) // one comes beside it, and runs engine binaries
	d := c.device(c.awaitUsable("c3", "node-1", 3))
	old := 0
	for _, m := range c.managers() {
		if m.Spec.Image != beforeProxy {
			continue
		}
		old++
		if m.Status.ProxyAPIVersion != 0 || m.Status.APIVersion != 4 {
			t.Fatalf("%s reports API %d and proxy %d: not the build that was meant", m.Name, m.Status.APIVersion,
				m.Status.ProxyAPIVersion)
		}
	}
	if old != len(c.Nodes) {
		t.Fatalf("%d instance managers are of before the proxy: this tests nothing", old)
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
	everyOperation(t, c, "c3")
	c.storeByBinary("c3", t.TempDir())
	c.detach("c3")
	c.identical("c3", 3)
}

// withoutPlaintextFlag is a program that is given no flag for plaintext: the build does not know
// it, and serves nothing else.
func withoutPlaintextFlag(t *testing.T, program string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "instance-manager")
	text := "#!/bin/sh\nn=$#\nwhile [ $n -gt 0 ]; do\n\ta=$1\n\tshift\n\tn=$((n - 1))\n" +
		"\tif [ \"$a\" = --allow-plaintext ]; then\n\t\tshift\n\t\tn=$((n - 1))\n\telse\n\t\tset -- \"$@\" \"$a\"\n\tfi\ndone\n" +
		"exec '" + program + "' \"$@\"\n"
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// storeByBinary backs a volume up to a directory, restores it from there and removes the backup;
// the store is asked, and told, by the engine binary too.
func (c *cluster) storeByBinary(volume, store string) {
	ctx := context.Background()
	c.target("vfs://" + store)
	defer c.target("")
	want := fillDevice(c.t, c, c.attach(volume, "node-1", 3))
	b := c.complete(volume, c.backUp(volume, "stored"))
	c.restoreAndCompare(volume+"-restored", b.URL, want)
	if err := c.rest.DeleteBackup(ctx, b.Name); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("the backup is removed from the store", func(context.Context) error {
		if left := records(store); strings.Contains(left, b.Name) {
			return errors.New(left)
		}
		return nil
	})
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
