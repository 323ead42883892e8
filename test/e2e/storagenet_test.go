package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
	"ankole.storage/test/rig"
)

// storageNetworks are the further networks of the cluster of TestCluster.
var storageNetworks = []string{"kube-system/demo-10-30-0-0", "space/other"}

const (
	networkSetting   = "storage-network"
	networksAsked    = "k8s.v1.cni.cncf.io/networks"
	networksGot      = "k8s.v1.cni.cncf.io/network-status"
	storageInterface = "lhnet1"
)

// networkTest has a storage network set and taken away.
type networkTest struct {
	*cluster
	ks kubernetes.Interface
}

// onNetwork makes a scenario of what is about the storage network. Each ends with the setting
// empty.
func onNetwork(run func(*networkTest, *testing.T)) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		n := &networkTest{c, kubernetesOf(t, c)}
		n.await("before", "")
		run(n, t)
		n.set("")
		n.await("afterwards", "")
	}
}

// set sets the setting, once it may be.
func (n *networkTest) set(network string) {
	n.t.Helper()
	n.eventually("storage network "+network, func(ctx context.Context) error {
		_, err := n.rest.SetSetting(ctx, networkSetting, network)
		return err
	})
}

// await waits until every instance manager runs in a Pod on this network, with the address that the
// network gave to the Pod, and the setting says that it is applied. It returns the Pods by node.
func (n *networkTest) await(what, network string) (pods map[string]types.UID) {
	n.t.Helper()
	n.eventually("storage network "+network+" "+what, func(ctx context.Context) error {
		pods = map[string]types.UID{}
		for _, m := range n.instanceManagers() {
			pod, err := n.ks.CoreV1().Pods(namespace).Get(ctx, m.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := n.onNetwork(&m, pod, network); err != nil {
				return err
			}
			pods[m.Spec.NodeID] = pod.UID
		}
		if len(pods) != len(n.Nodes) {
			return fmt.Errorf("%d instance managers run", len(pods))
		}
		s, err := n.rest.Setting(ctx, networkSetting)
		if err == nil && (!s.Applied || s.Value != network) {
			err = fmt.Errorf("%s is %q, applied %v", s.Name, s.Value, s.Applied)
		}
		return err
	})
	return pods
}

// onNetwork returns nil if an instance manager runs in this Pod and on this network.
func (n *networkTest) onNetwork(m *longhorn.InstanceManager, pod *corev1.Pod, network string) error {
	if m.Status.CurrentState != "running" || pod.DeletionTimestamp != nil || pod.Status.PodIP != m.Status.IP {
		return fmt.Errorf("%s is %s", m.Name, m.Status.CurrentState)
	}
	asked, wanted := pod.Annotations[networksAsked], ""
	if space, name, ok := strings.Cut(network, "/"); ok {
		wanted = fmt.Sprintf(`[{"namespace":%q,"name":%q,"interface":%q}]`, space, name, storageInterface)
	}
	if asked != wanted {
		return fmt.Errorf("Pod %s asks for %q, want %q", pod.Name, asked, wanted)
	}
	if want := n.storageIP(m.Spec.NodeID, network); m.Status.StorageIP != want {
		return fmt.Errorf("%s has storage IP %q, want %q", m.Name, m.Status.StorageIP, want)
	}
	if network == "" {
		return nil
	}
	var got []struct {
		Name, Interface string
		IPs             []string
	}
	if err := json.Unmarshal([]byte(pod.Annotations[networksGot]), &got); err != nil {
		return err
	}
	if len(got) != 2 || got[1].Name != network || got[1].Interface != storageInterface ||
		got[1].IPs[0] != m.Status.StorageIP || m.Status.StorageIP == m.Status.IP {
		return fmt.Errorf("Pod %s got %+v, the instance manager has %s", pod.Name, got, m.Status.StorageIP)
	}
	return nil
}

// storageIP is the address of a node's Pods on a network, the node's own for the cluster's.
func (n *networkTest) storageIP(node, network string) string {
	own := n.address(node)
	if network == "" {
		return own
	}
	_, last, _ := strings.Cut(strings.TrimPrefix(own, "127."), ".")
	_, last, _ = strings.Cut(last, ".")
	return n.PodNetwork(network) + last
}

// scenarioC4: the setting is empty at first, of category danger zone, and refuses what is no name
// of a network. It can be changed only while every volume is detached; the refusal names the
// others.
func (n *networkTest) scenarioC4(t *testing.T) {
	s, err := n.rest.Setting(t.Context(), networkSetting)
	if err != nil || s.Value != "" || s.Definition.Default != "" || s.Definition.Category != "danger Zone" {
		t.Errorf("setting %+v, %v", s, err)
	}
	const volume = "c4"
	n.create(volume, 32*mib, 1)
	endpoint := n.attach(volume, "node-1", 1)
	for value, want := range map[string]string{
		"net":              "must be in <NAMESPACE>/<NETWORK-ATTACHMENT-DEFINITION> format",
		"a/b/c":            "must be in <NAMESPACE>/<NETWORK-ATTACHMENT-DEFINITION> format",
		"Kube_System/demo": "must be in <NAMESPACE>/<NETWORK-ATTACHMENT-DEFINITION> format",
		storageNetworks[0]: "1 volumes are not detached: " + volume + " attached; detach all volumes first",
	} {
		_, err := n.rest.SetSetting(t.Context(), networkSetting, value)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("value %q by REST: %v, want %q", value, err, want)
		}
		var object longhorn.Setting
		key := types.NamespacedName{Namespace: namespace, Name: networkSetting}
		if err := n.kube.Get(t.Context(), key, &object); err != nil {
			t.Fatal(err)
		}
		object.Value = value
		if err := n.kube.Update(t.Context(), &object); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("value %q by the webhook: %v, want %q", value, err, want)
		}
	}
	n.await("after refusals", "")
	sum := fillWith(t, n.cluster, endpoint, 4)
	n.detach(volume)
	n.set(storageNetworks[0])
	endpoint = n.attach(volume, "node-1", 1)
	holds(t, n.cluster, endpoint, sum, "the volume has other content")
	n.detach(volume)
	n.remove(volume)
}

// scenarioC5: the Pods of instance managers and of backing image managers are made anew, each with
// the annotation and its address on the network.
func (n *networkTest) scenarioC5(t *testing.T) {
	before := n.await("before", "")
	n.imagesFollow(func() { n.set(storageNetworks[0]) })
	for node, pod := range n.await("set", storageNetworks[0]) {
		if pod == before[node] {
			t.Errorf("the Pod on %s is the same as before", node)
		}
	}
}

// scenarioC6: engine and replicas have a storage IP of the network, which is not their IP; the
// engine's replica address map has it, and every connection between them uses it; a backing image
// of the volume is received there too (C12).
func (n *networkTest) scenarioC6(t *testing.T) {
	n.set(storageNetworks[0])
	n.await("set", storageNetworks[0])
	const volume = "c6"
	n.create(volume, 32*mib, 3)
	endpoint := n.attach(volume, "node-2", 3)
	sum := fillWith(t, n.cluster, endpoint, 6)
	n.dataOn(volume, storageNetworks[0])
	n.exportOn(volume, storageNetworks[0], sum)
	n.detach(volume)
	n.set("")
	n.await("cleared", "")
	endpoint = n.attach(volume, "node-3", 3)
	n.dataOn(volume, "")
	n.exportOn(volume, "", sum)
	holds(t, n.cluster, endpoint, sum, "the volume has other content")
	n.detach(volume)
	n.remove(volume)
}

// dataOn requires that an attached volume's engine and replicas have the addresses of this network,
// and that the engine is connected to its replicas there and nowhere else.
func (n *networkTest) dataOn(volume, network string) {
	n.t.Helper()
	e := n.engine(volume)
	if want := n.storageIP(e.Spec.NodeID, network); e.Status.StorageIP != want || e.Status.IP != n.address(e.Spec.NodeID) {
		n.t.Errorf("engine %s has storage IP %s and IP %s, want %s", e.Name, e.Status.StorageIP, e.Status.IP, want)
	}
	replicas := n.replicasOf(volume)
	known := map[string]bool{}
	for _, r := range replicas {
		at := n.storageIP(r.Spec.NodeID, network)
		if r.Status.StorageIP != at || r.Status.IP != n.address(r.Spec.NodeID) {
			n.t.Errorf("replica %s has storage IP %s and IP %s, want %s", r.Name, r.Status.StorageIP, r.Status.IP, at)
		}
		address := net.JoinHostPort(at, strconv.Itoa(r.Status.Port))
		if e.Spec.ReplicaAddressMap[r.Name] != address || e.Status.CurrentReplicaAddressMap[r.Name] != address {
			n.t.Errorf("replica %s is at %s; the engine's spec has %s, its status %s", r.Name, address,
				e.Spec.ReplicaAddressMap[r.Name], e.Status.CurrentReplicaAddressMap[r.Name])
		}
		known[address] = true
		known[net.JoinHostPort(at, strconv.Itoa(r.Status.Port+1))] = true // data
	}
	data := 0
	for _, pid := range holding(n.Info.Dir, "--engine-instance-name\x00"+e.Name) {
		for _, to := range connectionsOf(n.t, pid) {
			if known[to] {
				data++
			} else if _, port, _ := net.SplitHostPort(to); len(port) == 5 && port[0] == '1' {
				n.t.Errorf("engine %s is connected to %s, which is no address of its replicas: %v", e.Name, to, known)
			}
		}
	}
	if data < len(replicas) {
		n.t.Errorf("engine %s has %d connections to its %d replicas", e.Name, data, len(replicas))
	}
}

// connectionsOf returns the addresses that a process is connected to by TCP from a port of its own
// choice.
func connectionsOf(t *testing.T, pid int) (to []string) {
	t.Helper()
	const established = "01"
	inodes := map[string]bool{}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is well-formed
	for _, fd := range fds {
		if s, err := os.Readlink(fd); err == nil && strings.HasPrefix(s, "socket:[") {
			inodes[strings.Trim(s, "socket:[]")] = true
		}
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != established || !inodes[f[9]] {
			continue
		}
		var a [4]byte
		var port int
		if _, err := fmt.Sscanf(f[2], "%02X%02X%02X%02X:%04X", &a[3], &a[2], &a[1], &a[0], &port); err != nil {
			t.Fatalf("%s: %v", f[2], err)
		}
		to = append(to, net.JoinHostPort(net.IP(a[:]).String(), strconv.Itoa(port)))
	}
	return to
}

// stays: the instance manager of a cordoned node stays on the network of before, since nothing is
// started there, and the setting is seen to wait for it; then the node is uncordoned.
func (n *networkTest) stays(node, before, network string) {
	n.t.Helper()
	d := &drainer{cluster: n.cluster, ks: n.ks}
	d.cordon(node, true)
	n.set(network)
	n.eventually("all but "+node+" have followed", func(ctx context.Context) error {
		for _, m := range n.instanceManagers() {
			pod, err := n.ks.CoreV1().Pods(namespace).Get(ctx, m.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			want := network
			if m.Spec.NodeID == node {
				want = before
			}
			if err := n.onNetwork(&m, pod, want); err != nil {
				return err
			}
		}
		s, err := n.rest.Setting(ctx, networkSetting)
		if err == nil && s.Applied {
			err = errors.New("the setting says that it is applied")
		}
		return err
	})
	d.cordon(node, false)
}

// scenarioC16: with another network the storage IPs are of that one; with none, the annotation is
// gone and they are the Pods' own.
func (n *networkTest) scenarioC16(t *testing.T) {
	const volume = "c16"
	n.create(volume, 32*mib, 2)
	var sum [32]byte
	for i, network := range append(storageNetworks, "") {
		if i == 1 {
			n.stays("node-3", storageNetworks[0], network)
		}
		n.set(network)
		n.await("chosen", network)
		endpoint := n.attach(volume, n.Nodes[i].Name, 2)
		n.dataOn(volume, network)
		if i == 0 {
			sum = fillWith(t, n.cluster, endpoint, 16)
		} else {
			holds(t, n.cluster, endpoint, sum, "with network "+network+" the volume has other content")
		}
		n.detach(volume)
	}
	n.remove(volume)
}

// withoutAddress (C6): where nobody gives the Pods an address on the network, no instance manager
// runs, and its condition says why. Nothing falls back to the cluster's network. When the setting
// is cleared, all is as before.
func withoutAddress(_ *testing.T, c *cluster) {
	if _, err := c.rest.SetSetting(c.t.Context(), networkSetting, "kube-system/missing"); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("no instance manager runs without an address", func(context.Context) error {
		list := c.instanceManagers()
		if len(list) != len(c.Nodes) {
			return fmt.Errorf("there are %d", len(list))
		}
		for _, m := range list {
			ready := longhorn.FindCondition(m.Status.Conditions, longhorn.InstanceManagerConditionPodReady)
			if m.Status.CurrentState == "running" || m.Status.StorageIP != "" || m.Status.IP != "" ||
				!strings.Contains(ready.Message, "the Pod has no address on the storage network (interface lhnet1)") {
				return fmt.Errorf("%s is %s at %q, %q: %s", m.Name, m.Status.CurrentState, m.Status.IP, m.Status.StorageIP,
					ready.Message)
			}
		}
		return nil
	})
	if _, err := c.rest.SetSetting(c.t.Context(), networkSetting, ""); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("every instance manager runs again", func(context.Context) error {
		list := c.instanceManagers()
		if len(list) != len(c.Nodes) {
			return fmt.Errorf("there are %d", len(list))
		}
		for _, m := range list {
			if m.Status.CurrentState != "running" || m.Status.StorageIP != m.Status.IP {
				return fmt.Errorf("%s is %s at %q, %q", m.Name, m.Status.CurrentState, m.Status.IP, m.Status.StorageIP)
			}
		}
		return nil
	})
}

// scenarioC10: the setting is changed at the moment of an attachment, again and again until both
// have come first. Either the change is refused, and the volume is on the former network, or it is
// accepted, and all of the volume is on the new one; no Pod goes in which a process runs.
func (n *networkTest) scenarioC10(t *testing.T) {
	const volume = "c10"
	n.create(volume, 32*mib, 3)
	endpoint := n.attach(volume, "node-1", 3)
	sum := fillWith(t, n.cluster, endpoint, 10)
	n.detach(volume)
	network := ""
	accepted, refused := 0, 0
	for i := 0; i < 8 || i < 30 && (accepted == 0 || refused == 0); i++ {
		next := storageNetworks[0]
		if network == next {
			next = ""
		}
		answer := make(chan error, 1)
		begin := make(chan struct{})
		tries := 5 * i % 12
		go func() {
			<-begin
			for range tries { // so that the change comes earlier or later than the attachment
				_, _ = n.rest.Setting(t.Context(), networkSetting)
			}
			_, err := n.rest.SetSetting(t.Context(), networkSetting, next)
			answer <- err
		}()
		close(begin)
		if _, err := n.rest.AttachVolume(t.Context(), volume, resource.AttachInput{HostID: "node-2"}); err != nil {
			t.Fatal(err)
		}
		switch err := <-answer; {
		case err == nil:
			network = next
			accepted++
		case strings.Contains(err.Error(), "volumes are not detached: "+volume):
			refused++
		default:
			t.Fatal(err)
		}
		endpoint = n.awaitUsable(volume, "node-2", 3)
		running := n.runningOn(volume, network)
		n.dataOn(volume, network)
		holds(t, n.cluster, endpoint, sum, "with network "+network+" the volume has other content")
		if now := n.runningOn(volume, network); !maps.Equal(now, running) {
			t.Errorf("Pods with running processes were %v and are %v", running, now)
		}
		n.detach(volume)
	}
	t.Logf("%d changes accepted, %d refused", accepted, refused)
	rig.AtLeast(t, "a change was accepted beside an attachment", accepted, 1)
	rig.AtLeast(t, "a change was refused beside an attachment", refused, 1)
	n.remove(volume)
}

// runningOn returns the Pods in which the volume's processes run, which must be of this network.
func (n *networkTest) runningOn(volume, network string) map[string]types.UID {
	n.t.Helper()
	pods := map[string]types.UID{}
	in := []string{n.engine(volume).Status.InstanceManagerName}
	for _, r := range n.replicasOf(volume) {
		in = append(in, r.Status.InstanceManagerName)
	}
	for _, name := range in {
		pod, err := n.ks.CoreV1().Pods(namespace).Get(n.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			n.t.Fatal(err)
		}
		if pod.DeletionTimestamp != nil || (network == "") != (pod.Annotations[networksAsked] == "") {
			n.t.Errorf("Pod %s, deleted %v, has networks %q; the setting says %q", name, pod.DeletionTimestamp,
				pod.Annotations[networksAsked], network)
		}
		pods[name] = pod.UID
	}
	return pods
}

// scenarioC13: the logs say of each connection on which network it is.
func (n *networkTest) scenarioC13(t *testing.T) {
	n.set(storageNetworks[0])
	n.await("set", storageNetworks[0])
	const volume = "c13"
	n.create(volume, 32*mib, 2)
	n.attach(volume, "node-1", 2)
	e := n.engine(volume)
	const management, data = `network="management network"`, `network="storage network kube-system/demo-10-30-0-0"`
	n.logged(e.Status.InstanceManagerName, `msg="engine is starting" volume=`+volume, data)
	n.logged(e.Status.InstanceManagerName, `msg="connection to an engine" address=`+
		net.JoinHostPort(e.Status.IP, strconv.Itoa(e.Status.Port)), management)
	for _, r := range n.replicasOf(volume) {
		n.logged(r.Status.InstanceManagerName, `msg="replica event" event=session text="engine `+e.Name, data)
	}
	for _, m := range n.instanceManagers() {
		for _, what := range []string{"connection to an instance manager", "connection to the proxy of an instance manager"} {
			n.logged("longhorn-controller-", `msg="`+what+`" instanceManager=`+m.Name, management)
		}
	}
	n.detach(volume)
	n.set("")
	n.await("cleared", "")
	n.attach(volume, "node-1", 2)
	n.logged(n.engine(volume).Status.InstanceManagerName, `msg="engine is starting" volume=`+volume, management)
	n.detach(volume)
	n.remove(volume)
}

// logged waits until the log of a Pod whose name begins so has a line with both of these.
func (n *networkTest) logged(pod, what, network string) {
	n.t.Helper()
	pattern := filepath.Join(n.Info.Dir, "nodes", "*", "logs", namespace+"_"+pod+"*", "*.log")
	n.eventually(fmt.Sprintf("log of %s: %s %s", pod, what, network), func(context.Context) error {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			return fmt.Errorf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, what) && strings.Contains(line, network) {
					return nil
				}
			}
		}
		return fmt.Errorf("no such line in %v", files)
	})
}
