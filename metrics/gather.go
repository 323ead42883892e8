package metrics

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
)

// world is everything that is reported, as the leader's cache has it. Nothing in it may be changed.
type world struct {
	volumes       lh.VolumeList
	engines       lh.EngineList
	replicas      lh.ReplicaList
	snapshots     lh.SnapshotList
	nodes         lh.NodeList
	managers      lh.InstanceManagerList
	targets       lh.BackupTargetList
	backupVolumes lh.BackupVolumeList
	backups       lh.BackupList
	images        lh.BackingImageList
	imageBackups  lh.BackupBackingImageList
	// pods are those of instance managers and managers, machines the nodes of Kubernetes.
	pods     corev1.PodList
	machines corev1.NodeList
}

// read lists it all.
func read(ctx context.Context, r client.Reader, namespace string) (*world, error) {
	w := &world{}
	in := client.InNamespace(namespace)
	for _, l := range []struct {
		list    client.ObjectList
		options []client.ListOption
	}{
		{&w.volumes, []client.ListOption{in}}, {&w.engines, []client.ListOption{in}},
		{&w.replicas, []client.ListOption{in}}, {&w.snapshots, []client.ListOption{in}},
		{&w.nodes, []client.ListOption{in}}, {&w.managers, []client.ListOption{in}},
		{&w.targets, []client.ListOption{in}}, {&w.backupVolumes, []client.ListOption{in}},
		{&w.backups, []client.ListOption{in}}, {&w.images, []client.ListOption{in}},
		{&w.imageBackups, []client.ListOption{in}},
		{&w.pods, []client.ListOption{in, client.HasLabels{naming.LabelComponent}}},
		{&w.machines, nil},
	} {
		if err := r.List(ctx, l.list, append(l.options, client.UnsafeDisableDeepCopy)...); err != nil {
			return nil, fmt.Errorf("list %T: %w", l.list, err)
		}
	}
	return w, nil
}

// gathering makes figures of a world.
type gathering struct {
	*world
	*Figures
	// leader is the node of the leader, which stands for what no node owns.
	leader string
	// states are the newest of engines; may be nil.
	states States
	// known are the names of the nodes.
	known map[string]bool
	// proxies are the addresses of the instance managers' proxies, by name.
	proxies map[string]string
	// claims are the values of pvc and pvc_namespace, by name of the volume.
	claims map[string][2]string
}

// gather reads the objects and returns what is reported about them. It is called with the leader's
// cache: the objects are not copied.
func gather(ctx context.Context, r client.Reader, namespace, leader string, states States) (*Figures, error) {
	w, err := read(ctx, r, namespace)
	if err != nil {
		return nil, err
	}
	g := &gathering{world: w, Figures: &Figures{}, leader: leader, states: states, known: map[string]bool{},
		claims: map[string][2]string{}}
	for i := range w.nodes.Items {
		g.known[w.nodes.Items[i].Name] = true
		g.Nodes = append(g.Nodes, w.nodes.Items[i].Name)
	}
	g.proxies = g.proxyAddresses()
	g.gatherVolumes()
	g.gatherEngines()
	g.gatherReplicas()
	g.gatherSnapshots()
	g.gatherNodes()
	g.gatherPods()
	g.gatherBackups()
	g.gatherImages()
	g.add("longhorn_node_count_total", float64(len(w.nodes.Items)))
	return g.Figures, nil
}

// owner returns the first of the nodes that there is; the leader's for objects that no node owns.
func (g *gathering) owner(nodes ...string) string {
	for _, n := range nodes {
		if g.known[n] {
			return n
		}
	}
	return g.leader
}

// stateOf is what an engine has told last; nil if nothing is known.
func (g *gathering) stateOf(e *lh.Engine) *engineclient.State {
	if g.states == nil || e.Status.CurrentState != lh.InstanceStateRunning {
		return nil
	}
	return g.states(e.Name)
}
