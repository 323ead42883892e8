package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
)

// scenarioA2: the processes of an attached volume are listed in instanceEngines and
// instanceReplicas of the instance managers of their nodes, never in instances, with the fields of
// the proposal, and listen at the ports that are told; when the volume is detached they are listed
// no more.
func scenarioA2(t *testing.T, c *cluster) {
	c.create("a2", 64*mib, 3)
	c.attach("a2", "node-1", 3)
	defer c.remove("a2")
	c.eventually("instances are listed", func(ctx context.Context) error { return c.listed(ctx, t, "a2", "node-1") })
	c.detach("a2")
	c.eventually("instances are listed no more", func(ctx context.Context) error {
		for _, m := range c.instanceManagers() {
			for name := range m.Status.InstanceEngines {
				return fmt.Errorf("%s lists engine %s", m.Name, name)
			}
			for name := range m.Status.InstanceReplicas {
				return fmt.Errorf("%s lists replica %s", m.Name, name)
			}
		}
		return nil
	})
}

// listed checks all instance managers on a cluster that has one attached volume.
func (c *cluster) listed(ctx context.Context, t *testing.T, volume, engineNode string) error {
	var replicas longhorn.ReplicaList
	if err := c.kube.List(ctx, &replicas, client.InNamespace(namespace)); err != nil {
		return err
	}
	wanted := map[string]string{volume + "-e-0": engineNode}
	for _, r := range replicas.Items {
		wanted[r.Name] = r.Spec.NodeID
	}
	taken := map[string]string{} // address to instance
	for _, m := range c.instanceManagers() {
		s := m.Status
		if len(s.Instances) > 0 {
			t.Fatalf("%s uses the old field instances: %v", m.Name, s.Instances)
		}
		for kind, processes := range map[longhorn.InstanceType]map[string]longhorn.InstanceProcess{
			"engine": s.InstanceEngines, "replica": s.InstanceReplicas} {
			ports := map[longhorn.InstanceType]int{"engine": 1, "replica": 15}[kind]
			for name, p := range processes {
				if wanted[name] != m.Spec.NodeID {
					return fmt.Errorf("%s %s is listed on %s, want %q", kind, name, m.Spec.NodeID, wanted[name])
				}
				delete(wanted, name)
				if err := asProposed(name, kind, ports, &p); err != nil {
					return err
				}
				for port := p.Status.PortStart; port <= p.Status.PortEnd; port++ {
					address := net.JoinHostPort(s.IP, strconv.Itoa(port))
					if other := taken[address]; other != "" {
						t.Fatalf("%s belongs to %s and %s", address, other, name)
					}
					taken[address] = name
				}
				at := s.IP
				if kind == "replica" {
					at = s.StorageIP
				}
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(at, strconv.Itoa(p.Status.PortStart)))
				if err != nil {
					return fmt.Errorf("%s is listed as running: %w", name, err)
				}
				conn.Close()
			}
		}
		if s.IP == "" || s.OwnerID != m.Spec.NodeID || s.CurrentState != "running" || s.APIVersion != 4 ||
			s.APIMinVersion != 1 || s.ProxyAPIVersion != 5 || s.ProxyAPIMinVersion != 1 {
			return fmt.Errorf("%s: %s, ip %q owner %q api %d/%d proxy %d", m.Name, s.CurrentState, s.IP, s.OwnerID,
				s.APIVersion, s.APIMinVersion, s.ProxyAPIVersion)
		}
	}
	if len(wanted) > 0 {
		return fmt.Errorf("not listed: %v", wanted)
	}
	return nil
}

// order is the form of an InstanceProcess's spec.order, which is our addition.
var order = regexp.MustCompile(`^[0-9a-f-]{36}/[1-9][0-9]*$`)

// asProposed compares a listed process with the proposal's example: these fields, and no more but
// the UUID of later releases, the order, and the program of an engine.
func asProposed(name string, kind longhorn.InstanceType, ports int, p *longhorn.InstanceProcess) error {
	want := longhorn.InstanceProcess{Spec: longhorn.InstanceProcessSpec{Name: name, DataEngine: p.Spec.DataEngine,
		Order: p.Spec.Order}}
	if kind == "engine" {
		want.Spec.Binary = naming.EngineBinaryInPod(engineDefault)
	}
	want.Status = longhorn.InstanceProcessStatus{Type: kind, State: "running", PortStart: p.Status.PortStart,
		PortEnd: p.Status.PortStart + ports - 1,
		UUID:    p.Status.UUID, Conditions: p.Status.Conditions}
	known := []longhorn.DataEngineType{"", longhorn.DataEngineTypeV1}
	if !reflect.DeepEqual(*p, want) || p.Status.PortStart < 10000 || p.Status.PortEnd > 20000 || p.Status.UUID == "" ||
		!slices.Contains(known, p.Spec.DataEngine) || !order.MatchString(p.Spec.Order) {
		return fmt.Errorf("%s %s: %+v, want %+v", kind, name, *p, want)
	}
	return nil
}

// scenarioA11: the instance manager of an attached volume's engine is killed under I/O. Its engine
// dies with it. The block device stays, since the manager of the node holds it too: whoever has it
// open notices a pause, and I/O goes on with the engine of the next instance manager, with
// everything that was acknowledged. No process of before is left. The other half of the scenario,
// an instance manager that has only a replica, is in scenarioF2.
func scenarioA11(t *testing.T, c *cluster) {
	const volume = "a11"
	c.create(volume, 64*mib, 3)
	defer c.remove(volume)
	endpoint := c.attach(volume, "node-1", 3)
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		lack.Skip(t, "only a block device outlives its engine, and this host offers none: the endpoint is ", endpoint)
	}
	d := c.device(endpoint)
	w := rig.NewWriter(d, 64*mib, 11)
	stop := make(chan struct{})
	done := w.Run(stop)
	w.AwaitMore(t, 300)
	before := c.epoch(volume)
	pids := holding(c.Info.Dir, "--volume-name\x00"+volume)
	mine := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return !c.runsOn(pid, "node-1") })
	if len(pids) != 4 || len(mine) != 2 {
		t.Fatalf("processes of the volume: %v, of them on node-1: %v; want 4, and the engine and a replica", pids, mine)
	}
	w.TakePause(time.Now())
	c.kill("daemon\x00--listen\x00" + c.Nodes[0].Address)
	w.AwaitMore(t, 300)
	t.Logf("longest pause %v", w.TakePause(time.Now()))
	close(stop)
	if err := <-done; err != nil {
		t.Fatalf("the user of the device got: %v", err)
	}
	c.awaitEpoch(volume, before+1)
	again := c.awaitUsable(volume, "node-1", 3)
	if again != endpoint {
		t.Errorf("the endpoint was %s and is %s", endpoint, again)
	}
	c.eventually("nothing is left of the processes that died with their instance manager", func(context.Context) error {
		now := holding(c.Info.Dir, "--volume-name\x00"+volume)
		for _, pid := range mine {
			if slices.Contains(now, pid) {
				return fmt.Errorf("process %d is still there", pid)
			}
		}
		if len(now) != 4 {
			return fmt.Errorf("processes %v", now)
		}
		return nil
	})
	w.Verify(t, d)
	if err := errors.Join(d.Flush(), d.Close()); err != nil {
		t.Fatal(err)
	}
	c.detach(volume)
	c.identical(volume, 3)
}

// runsAt tells whether a process was started with an address of its own at a host.
func runsAt(pid int, host string) bool {
	cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(cmd), "\x00--listen\x00"+host+":")
}

// runsOn tells whether a process was started with an address of its own at one of those that the
// instance managers of a node have: that of the cluster's network, and that of the storage network.
func (c *cluster) runsOn(pid int, node string) bool {
	c.t.Helper()
	return slices.ContainsFunc(c.instanceManagers(), func(m longhorn.InstanceManager) bool {
		return m.Spec.NodeID == node && (runsAt(pid, m.Status.IP) || runsAt(pid, m.Status.StorageIP))
	})
}

// epoch of a volume's engine.
func (c *cluster) epoch(volume string) int64 {
	return c.awaitMembership(volume, "an epoch", func(*longhorn.Membership) bool { return true }).Epoch
}
