package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	restclient "ankole.storage/rest/client"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
)

const (
	// kubeletDelay is how long the kubelet takes from the deletion of a Pod to its SIGTERM: longer
	// than an engine waits for the device that another one serves.
	kubeletDelay = 10 * time.Second
	// replicaStall is how long a replica of another volume stands still while its instance manager
	// ends.
	replicaStall = 4 * time.Second
)

// slowTest is a cluster with volumes that are used on node-1 and have their replicas elsewhere, and
// with one of another node that has a replica on node-1.
type slowTest struct {
	*cluster
	volumes   []string
	endpoints map[string]string
	loads     map[string]*rig.Load
}

// TestSlowKubelet deletes the Pod of the instance manager that serves engines, while one of the
// next image runs beside it, on a node whose kubelet is late and whose replica of another volume
// stands still. Each engine is replaced, and its block device is the same afterwards.
func TestSlowKubelet(t *testing.T) {
	lack.RealTime(t, "pauses of seconds, which are measured")
	t.Parallel()
	s := &slowTest{cluster: startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace}),
		endpoints: map[string]string{}, loads: map[string]*rig.Load{}}
	s.managersRun()
	s.use()
	ks := kubernetesOf(t, s.cluster)
	s.offerImage(ks, nextImage)
	s.awaitSecondHolder("node-1")

	epochs, devices := s.epochs(), s.devices()
	foreign, instances := s.holding("foreign", "node-1"), s.instances(s.address("node-1"))
	s.HangNode(t, 1)
	pod := s.instanceManagerOf("node-1")
	if err := ks.CoreV1().Pods(namespace).Delete(t.Context(), pod, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.serve(kubeletDelay)
	if left := living(instances); len(left) != len(instances) {
		t.Fatalf("of the processes %v on node-1 %v are left, although its kubelet is late", instances, left)
	}
	s.stall(foreign, replicaStall)
	s.ResumeNode(t, 1)
	s.replaced(epochs, devices)
	s.awaitUsable("foreign", "node-2", 3)
	for _, name := range s.volumes {
		s.loads[name].Finish()
	}
}

// use makes the volumes and has them used.
func (s *slowTest) use() {
	for _, node := range []string{"node-2", "node-3"} {
		s.patchNode(node, `{"spec":{"tags":["far"]}}`)
	}
	at := map[string]string{"foreign": "node-2"}
	s.create("foreign", 32*mib, 3)
	for i := range 6 {
		name := fmt.Sprintf("slow%d", i)
		if _, err := s.rest.CreateVolume(context.Background(), restclient.VolumeSpec{Name: name,
			Size: strconv.Itoa(32 * mib), NumberOfReplicas: 2, NodeSelector: []string{"far"}}); err != nil {
			s.t.Fatal(err)
		}
		s.volumes = append(s.volumes, name)
		at[name] = "node-1"
	}
	s.attachAll(at)
	s.awaitUsable("foreign", "node-2", 3)
	for _, name := range s.volumes {
		s.endpoints[name] = s.awaitUsable(name, "node-1", 2)
		if strings.HasPrefix(s.endpoints[name], "nbd+unix:") {
			lack.Skip(s.t, "only a block device outlives its engine, and this host offers none: ", s.endpoints[name])
		}
		s.loads[name] = rig.StartLoad(s.t, s.device(s.endpoints[name]), 32*mib, 4)
	}
	for _, l := range s.loads {
		l.AwaitMore(s.t, 100)
	}
}

// epochs are those of the memberships, once all members are there.
func (s *slowTest) epochs() map[string]int64 {
	epochs := map[string]int64{}
	for _, name := range s.volumes {
		epochs[name] = s.awaitMembership(name, "both members",
			func(m *longhorn.Membership) bool { return len(m.Members) == 2 }).Epoch
	}
	return epochs
}

// devices are the identities of the block devices.
func (s *slowTest) devices() map[string]string {
	devices := map[string]string{}
	for _, name := range s.volumes {
		devices[name] = s.engineOf(name).Status.DeviceID
	}
	return devices
}

// holding are the processes of a volume's replica on a node.
func (s *slowTest) holding(volume, node string) (pids []int) {
	s.t.Helper()
	for _, dir := range s.replicaDirs(volume) {
		for _, n := range s.Nodes {
			if n.Name == node && strings.HasPrefix(dir, n.Root+"/") {
				pids = append(pids, holding(s.Info.Dir, filepath.Base(dir))...)
			}
		}
	}
	if len(pids) == 0 {
		s.t.Fatalf("no process holds the replica of %s on %s", volume, node)
	}
	return pids
}

// stall has processes stand still for a time.
func (s *slowTest) stall(pids []int, d time.Duration) {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			s.t.Fatal(err)
		}
		time.AfterFunc(d, func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	}
}

// serve watches the engines serve for a time.
func (s *slowTest) serve(d time.Duration) {
	s.t.Helper()
	for _, l := range s.loads {
		l.TakePause(time.Now())
	}
	for until := time.Now().Add(d); time.Now().Before(until); {
		for name, l := range s.loads {
			l.AwaitMore(s.t, 20)
			if st := s.engineOf(name).Status.CurrentState; st != longhorn.InstanceStateRunning {
				s.t.Fatalf("the engine of %s serves, and is %s", name, st)
			}
		}
	}
	for name, l := range s.loads {
		s.t.Logf("%s: longest pause while the kubelet is late: %v", name, l.TakePause(time.Now()))
	}
}

// replaced waits until other engines serve the same devices.
func (s *slowTest) replaced(epochs map[string]int64, devices map[string]string) {
	s.t.Helper()
	for _, name := range s.volumes {
		s.awaitMembership(name, "another engine's members", func(m *longhorn.Membership) bool {
			return len(m.Members) == 2 && m.Epoch > epochs[name]
		})
		if again := s.awaitUsable(name, "node-1", 2); again != s.endpoints[name] {
			s.t.Errorf("%s: the endpoint was %s and is %s", name, s.endpoints[name], again)
		}
		s.loads[name].AwaitMore(s.t, 100)
		s.t.Logf("%s: longest pause while its engine is replaced: %v", name, s.loads[name].TakePause(time.Now()))
	}
	s.eventually("devices are known", func(context.Context) error {
		for name, id := range devices {
			if now := s.engineOf(name).Status.DeviceID; now != id {
				return fmt.Errorf("%s: the device was %s and is %q: whoever had it open got errors", name, id, now)
			}
		}
		return nil
	})
}
