package volume_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/lack"
	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
)

const (
	// clusterWait bounds every wait on a real cluster; machines that run tests are slow and shared.
	clusterWait = 3 * time.Minute
	// nodeGrace is how long a silent node counts as up here.
	nodeGrace = 6 * time.Second
)

// real is a standalone cluster: a real API server, real controllers and real processes.
type real struct {
	*testcluster.Cluster
	t *testing.T
	c client.Client
}

const ns = "longhorn-system"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func startReal(t *testing.T, nodes int) *real {
	t.Helper()
	lack.RealTime(t, "a cluster whose nodes count as lost after 6 s")
	if testing.Short() {
		lack.Later(t, "starts a real cluster; not with -short")
	}
	r := &real{
		Cluster: testcluster.Start(t, testcluster.Options{Nodes: nodes, Manager: true, NodeGrace: nodeGrace}),
		t:       t,
	}
	scheme := runtime.NewScheme()
	must(t, v1beta2.AddToScheme(scheme))
	var err error
	r.c, err = client.New(r.RESTConfig(t), client.Options{Scheme: scheme})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.dump())
		}
	})
	return r
}

func (r *real) eventually(what string, cond func() error) {
	r.t.Helper()
	wait.Within(r.t, clusterWait, what, cond)
}

func (r *real) get(o client.Object, name string) error {
	return r.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, o)
}

// change edits an object until no other writer comes between.
func (r *real) change(o client.Object, name string, edit func()) {
	r.t.Helper()
	r.eventually("change "+name, func() error {
		if err := r.get(o, name); err != nil {
			return err
		}
		edit()
		return r.c.Update(context.Background(), o)
	})
}

func (r *real) attach(volume, node string) {
	var a v1beta2.VolumeAttachment
	r.change(&a, volume, func() {
		a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{}
		if node != "" {
			a.Spec.AttachmentTickets["test"] = v1beta2.AttachmentTicket{ID: "test", NodeID: node,
				Type: v1beta2.AttacherTypeLonghornAPI}
		}
	})
}

func (r *real) replicas(volume string) []v1beta2.Replica {
	var l v1beta2.ReplicaList
	must(
		r.t,
		r.c.List(context.Background(), &l, client.InNamespace(ns), client.MatchingLabels{"longhornvolume": volume}),
	)
	return l.Items
}

func (r *real) dump() string {
	var out string
	var vs v1beta2.VolumeList
	var es v1beta2.EngineList
	_, _ = r.c.List(context.Background(), &vs), r.c.List(context.Background(), &es) // as much as there is
	for _, v := range vs.Items {
		out += fmt.Sprintf("volume %s wanted on %q at %q: %s %s %v\n", v.Name, v.Spec.NodeID, v.Status.CurrentNodeID,
			v.Status.State, v.Status.Robustness, v.Status.Conditions)
		for _, rep := range r.replicas(v.Name) {
			out += fmt.Sprintf("  replica %s on %s desire=%s state=%s failed=%q healthy=%q deleted=%v\n", rep.Name,
				rep.Spec.NodeID, rep.Spec.DesireState, rep.Status.CurrentState, rep.Spec.FailedAt, rep.Spec.HealthyAt,
				rep.DeletionTimestamp != nil)
		}
	}
	for _, e := range es.Items {
		out += fmt.Sprintf("engine %s on %q desire=%s state=%s modes=%v members=%v\n", e.Name, e.Spec.NodeID,
			e.Spec.DesireState, e.Status.CurrentState, e.Status.ReplicaModeMap, e.Status.Membership)
	}
	return out
}

// newVolume creates a volume and waits until it can be attached.
func (r *real) newVolume(name string, replicas int) {
	r.t.Helper()
	r.eventually("create the volume", func() error { // the default backup target must exist first
		return r.c.Create(context.Background(), &v1beta2.Volume{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: v1beta2.VolumeSpec{Size: 64 << 20, NumberOfReplicas: replicas,
				Frontend: v1beta2.VolumeFrontendBlockDev, StaleReplicaTimeout: 1},
		})
	})
	r.await(name, "detached, its replicas placed", func(v *v1beta2.Volume) bool {
		placed := !slices.ContainsFunc(r.replicas(name), func(rep v1beta2.Replica) bool { return rep.Spec.NodeID == "" })
		return v.Status.State == v1beta2.VolumeStateDetached && placed && len(r.replicas(name)) == replicas
	})
}

// await waits for something about a volume.
func (r *real) await(volume, what string, ok func(*v1beta2.Volume) bool) {
	r.t.Helper()
	r.eventually("volume "+volume+" "+what, func() error {
		var v v1beta2.Volume
		if err := r.get(&v, volume); err != nil || ok(&v) {
			return err
		}
		return fmt.Errorf("%s %s on %q", v.Status.State, v.Status.Robustness, v.Status.CurrentNodeID)
	})
}

// awaitState waits for state and robustness on a node.
func (r *real) awaitState(volume, node string, robustness v1beta2.VolumeRobustness) {
	r.t.Helper()
	r.await(volume, string(robustness)+" on "+node, func(v *v1beta2.Volume) bool {
		return v.Status.State == v1beta2.VolumeStateAttached && v.Status.CurrentNodeID == node &&
			v.Status.Robustness == robustness
	})
}

// holder is the number of a node from 2 on with a replica of the volume.
func (r *real) holder(volume string) int {
	r.t.Helper()
	for _, rep := range r.replicas(volume) {
		for k := 2; k <= len(r.Nodes); k++ {
			if rep.Spec.NodeID == testcluster.NodeName(k) {
				return k
			}
		}
	}
	r.t.Fatalf("no replica of volume %s outside node 1\n%s", volume, r.dump())
	return 0
}

// removed deletes a volume and waits until no object, directory or device of it is left.
func (r *real) removed(volume string) {
	r.t.Helper()
	must(r.t, r.c.Delete(context.Background(),
		&v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: volume}}))
	r.eventually("nothing left of volume "+volume, func() error {
		var v v1beta2.Volume
		if err := client.IgnoreNotFound(r.get(&v, volume)); err != nil || v.Name != "" {
			return fmt.Errorf("volume %s: %w", v.Status.State, err)
		}
		for _, n := range r.Nodes {
			dirs, err := filepath.Glob(filepath.Join(n.Root, "var/lib/longhorn/replicas", volume+"-*"))
			if err != nil || len(dirs) > 0 {
				return fmt.Errorf("data left on %s: %v %w", n.Name, dirs, err)
			}
			if _, err := os.Lstat(filepath.Join(n.Devices, volume)); err == nil {
				return fmt.Errorf("the device is left on %s", n.Name)
			}
		}
		return nil
	})
}

// TestRealNodeLoss: the loss of a node with a replica, of the node with the engine, and the end of
// a volume, on real processes.
func TestRealNodeLoss(t *testing.T) {
	r := startReal(t, 4)
	var wait v1beta2.Setting
	r.change(&wait, "replica-replenishment-wait-interval", func() { wait.Value = "5" })
	r.newVolume("real", 3)
	r.attach("real", "node-1")
	r.awaitState("real", "node-1", v1beta2.VolumeRobustnessHealthy)

	// A node without the engine is lost: its replica is replaced on the node that is free.
	victim := r.holder("real")
	r.KillNode(t, victim)
	r.awaitState("real", "node-1", v1beta2.VolumeRobustnessDegraded)
	r.awaitState("real", "node-1", v1beta2.VolumeRobustnessHealthy)
	if n := len(r.replicas("real")); n != 4 {
		t.Fatalf("%d replica objects after the replacement, want 4\n%s", n, r.dump())
	}
	r.StartNode(t, victim)

	// The engine's node is lost: the volume stays until its ticket moves.
	r.KillNode(t, 1)
	r.await("real", "of unknown robustness", func(v *v1beta2.Volume) bool {
		return v.Status.Robustness == v1beta2.VolumeRobustnessUnknown
	})
	to := testcluster.NodeName(victim) // up again
	r.attach("real", to)
	r.await("real", "attached to "+to, func(v *v1beta2.Volume) bool {
		return v.Status.State == v1beta2.VolumeStateAttached && v.Status.CurrentNodeID == to
	})
	r.StartNode(t, 1)
	r.awaitState("real", to, v1beta2.VolumeRobustnessHealthy)
	r.removed("real")
}

// TestRealLastReplicaLost: a volume loses the node with its only replica, and comes back with it.
func TestRealLastReplicaLost(t *testing.T) {
	r := startReal(t, 2)
	var wait v1beta2.Setting
	r.change(&wait, "block-device-wait", func() { wait.Value = "10" }) // else I/O waits for minutes first
	r.newVolume("single", 1)
	k := 1
	if r.replicas("single")[0].Spec.NodeID == testcluster.NodeName(1) {
		k = 2
	}
	r.attach("single", testcluster.NodeName(k))
	r.awaitState("single", testcluster.NodeName(k), v1beta2.VolumeRobustnessHealthy)
	r.KillNode(t, 3-k)
	r.await("single", "faulted", func(v *v1beta2.Volume) bool {
		return v.Status.Robustness == v1beta2.VolumeRobustnessFaulted
	})
	r.StartNode(t, 3-k)
	r.awaitState("single", testcluster.NodeName(k), v1beta2.VolumeRobustnessHealthy)
	r.await("single", "marked as salvaged", func(v *v1beta2.Volume) bool {
		return v.Status.LastAutoSalvagedAt != "" && v.Status.RemountRequestedAt != ""
	})
}
