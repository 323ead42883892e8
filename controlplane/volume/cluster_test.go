package volume_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/testcluster"
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

func startReal(t *testing.T, nodes int) *real {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real cluster; not with -short")
	}
	r := &real{Cluster: testcluster.Start(t, testcluster.Options{Nodes: nodes, Manager: true, NodeGrace: nodeGrace}), t: t}
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
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(clusterWait)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not within %v: %v", what, clusterWait, err)
		}
		<-tick.C
	}
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
			a.Spec.AttachmentTickets["test"] = v1beta2.AttachmentTicket{ID: "test", NodeID: node, Type: v1beta2.AttacherTypeLonghornAPI}
		}
	})
}

func (r *real) replicas(volume string) []v1beta2.Replica {
	var l v1beta2.ReplicaList
	must(r.t, r.c.List(context.Background(), &l, client.InNamespace(ns), client.MatchingLabels{"longhornvolume": volume}))
	return l.Items
}

// awaitState waits for state and robustness on a node.
func (r *real) awaitState(volume, node string, robustness v1beta2.VolumeRobustness) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("volume %s %s on %s", volume, robustness, node), func() error {
		var v v1beta2.Volume
		if err := r.get(&v, volume); err != nil {
			return err
		}
		if v.Status.State != v1beta2.VolumeStateAttached || v.Status.CurrentNodeID != node || v.Status.Robustness != robustness {
			return fmt.Errorf("%s %s on %q", v.Status.State, v.Status.Robustness, v.Status.CurrentNodeID)
		}
		return nil
	})
}

func (r *real) dump() string {
	var out string
	var vs v1beta2.VolumeList
	var es v1beta2.EngineList
	_, _ = r.c.List(context.Background(), &vs), r.c.List(context.Background(), &es) // as much as there is
	for _, v := range vs.Items {
		out += fmt.Sprintf("volume %s wanted on %q at %q: %s %s %v\n", v.Name, v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State, v.Status.Robustness, v.Status.Conditions)
		for _, rep := range r.replicas(v.Name) {
			out += fmt.Sprintf("  replica %s on %s desire=%s state=%s failed=%q healthy=%q deleted=%v\n", rep.Name, rep.Spec.NodeID, rep.Spec.DesireState, rep.Status.CurrentState, rep.Spec.FailedAt, rep.Spec.HealthyAt, rep.DeletionTimestamp != nil)
		}
	}
	for _, e := range es.Items {
		out += fmt.Sprintf("engine %s on %q desire=%s state=%s modes=%v members=%v\n", e.Name, e.Spec.NodeID, e.Spec.DesireState, e.Status.CurrentState, e.Status.ReplicaModeMap, e.Status.Membership)
	}
	return out
}

// TestRealNodeLoss: the loss of a node with a replica, of the node with the engine, and the end of a volume, on real processes.
func TestRealNodeLoss(t *testing.T) {
	r := startReal(t, 4)
	var wait v1beta2.Setting
	r.change(&wait, "replica-replenishment-wait-interval", func() { wait.Value = "5" })
	r.eventually("create the volume", func() error { // the default backup target must exist first
		return r.c.Create(context.Background(), &v1beta2.Volume{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "real"},
			Spec:       v1beta2.VolumeSpec{Size: 64 << 20, NumberOfReplicas: 3, Frontend: v1beta2.VolumeFrontendBlockDev, StaleReplicaTimeout: 1},
		})
	})
	r.eventually("volume detached", func() error {
		var v v1beta2.Volume
		if err := r.get(&v, "real"); err != nil || v.Status.State == v1beta2.VolumeStateDetached {
			return err
		}
		return fmt.Errorf("state %q", v.Status.State)
	})
	r.attach("real", "node-1")
	r.awaitState("real", "node-1", v1beta2.VolumeRobustnessHealthy)

	// A node without the engine is lost: its replica is replaced on the node that is free.
	victim := 0
	for _, rep := range r.replicas("real") {
		for k := 2; k <= 4; k++ {
			if rep.Spec.NodeID == testcluster.NodeName(k) {
				victim = k
			}
		}
	}
	r.KillNode(t, victim)
	r.awaitState("real", "node-1", v1beta2.VolumeRobustnessDegraded)
	r.awaitState("real", "node-1", v1beta2.VolumeRobustnessHealthy)
	if n := len(r.replicas("real")); n != 4 {
		t.Fatalf("%d replica objects after the replacement, want 4\n%s", n, r.dump())
	}
	r.StartNode(t, victim)

	// The engine's node is lost: the volume stays until its ticket moves.
	r.KillNode(t, 1)
	r.eventually("robustness unknown", func() error {
		var v v1beta2.Volume
		if err := r.get(&v, "real"); err != nil || v.Status.Robustness == v1beta2.VolumeRobustnessUnknown {
			return err
		}
		return fmt.Errorf("robustness %s", v.Status.Robustness)
	})
	to := testcluster.NodeName(victim) // up again
	r.attach("real", to)
	r.eventually("attached to "+to, func() error {
		var v v1beta2.Volume
		if err := r.get(&v, "real"); err != nil || (v.Status.State == v1beta2.VolumeStateAttached && v.Status.CurrentNodeID == to) {
			return err
		}
		return fmt.Errorf("%s on %q", v.Status.State, v.Status.CurrentNodeID)
	})
	r.StartNode(t, 1)
	r.awaitState("real", to, v1beta2.VolumeRobustnessHealthy)
	r.eventually("three replicas", func() error {
		if n := len(r.replicas("real")); n != 3 {
			return fmt.Errorf("%d replica objects", n)
		}
		return nil
	})

	must(t, r.c.Delete(context.Background(), &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "real"}}))
	r.eventually("nothing left", func() error {
		var v v1beta2.Volume
		if err := client.IgnoreNotFound(r.get(&v, "real")); err != nil || v.Name != "" {
			return fmt.Errorf("volume %s: %w", v.Status.State, err)
		}
		for _, n := range r.Nodes {
			dirs, err := filepath.Glob(filepath.Join(n.Root, "var/lib/longhorn/replicas/real-*"))
			if err != nil || len(dirs) > 0 {
				return fmt.Errorf("data left on %s: %v %w", n.Name, dirs, err)
			}
			if entries, err := os.ReadDir(n.Devices); err == nil && len(entries) > 0 {
				return fmt.Errorf("device %s is left on %s", entries[0].Name(), n.Name)
			}
		}
		return nil
	})
}
