package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	restclient "ankole.storage/rest/client"
)

// evictedReplicas is how many replicas the node has that scenarioF18 evicts. ANKOLE_F18_REPLICAS
// says otherwise; a soak takes 60.
const evictedReplicas = 12

// scenarioF18: evictions, drains and placement at their limits. While much is wanted at once, no
// limit is exceeded at any time, each volume keeps a good copy, and everything comes to its end.
func scenarioF18(t *testing.T, c *cluster) {
	t.Run("placement", func(t *testing.T) { c.eightAtOnce(t) })
	t.Run("eviction", func(t *testing.T) { c.evictMany(t) })
	t.Run("drains", func(t *testing.T) { c.drainTwo(t) })
}

// eightAtOnce creates eight volumes at the same moment on a disk that has room for four.
func (c *cluster) eightAtOnce(t *testing.T) {
	const volumes, room, size = 8, 4, 64 * mib
	c.onlyOn("node-1")
	defer c.onlyOn("node-1", "node-2", "node-3", "node-4")
	c.setting("storage-over-provisioning-percentage", "100")
	n := c.node("node-1")
	if len(n.Spec.Disks) != 1 {
		t.Fatalf("node-1 has %d disks", len(n.Spec.Disks))
	}
	var name string
	var reserved int64
	for disk, spec := range n.Spec.Disks {
		name, reserved = disk, spec.StorageReserved
	}
	d := n.Status.DiskStatus[name]
	reserve := func(bytes int64) {
		c.patchNode("node-1", fmt.Sprintf(`{"spec":{"disks":{%q:{"storageReserved":%d}}}}`, name, bytes))
	}
	defer reserve(reserved)
	reserve(d.StorageMaximum - d.StorageScheduled - room*size - size/2)
	names := c.createMany("f18-a", volumes, size, 1)
	defer c.removeMany(names)
	within := func(most int) (placed int) {
		for _, v := range names {
			placed += len(c.nodesOf(v)) - c.unplaced(v)
		}
		if placed > most {
			t.Fatalf("%d volumes are placed, and there is room for %d", placed, most)
		}
		return placed
	}
	c.eventually("four volumes are placed, four say why not", func(context.Context) error {
		refused := 0
		for _, v := range names {
			if cond := c.volume(v).Conditions["Scheduled"]; cond.Status == "False" &&
				strings.Contains(cond.Message, "insufficient storage") {
				refused++
			}
		}
		if placed := within(room); placed != room || refused != volumes-room {
			return fmt.Errorf("%d are placed, %d refused", placed, refused)
		}
		return nil
	})
	reserve(reserved)
	c.eventually("all volumes are placed", func(context.Context) error {
		if placed := within(volumes); placed != volumes {
			return fmt.Errorf("%d are", placed)
		}
		return nil
	})
}

// evictMany evicts a node with the only replicas of many volumes.
func (c *cluster) evictMany(t *testing.T) {
	const limit, size = 2, 32 * mib
	volumes := evictedReplicas
	if s := os.Getenv("ANKOLE_F18_REPLICAS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		volumes = n
	}
	c.setting("concurrent-replica-rebuild-per-node-limit", strconv.Itoa(limit))
	c.onlyOn("node-4")
	names := c.createMany("f18-e", volumes, size, 1)
	defer c.removeMany(names)
	for _, v := range names {
		if at := c.placeOf(v); at != "node-4" {
			t.Fatalf("volume %s is on %s", v, at)
		}
	}
	c.onlyOn("node-1", "node-2", "node-3", "node-4")
	filled := c.fillVolume(names[0], 18)
	c.attachOnce(names[1:2*volumes/3], "node-1") // the others never have had content
	started, had := time.Now(), map[string]bool{}
	replicas, rebuilds := c.recordReplicas(), c.recordRebuilds()
	c.patchNode("node-4", `{"spec":{"allowScheduling":false,"evictionRequested":true}}`)
	defer c.patchNode("node-4", `{"spec":{"allowScheduling":true,"evictionRequested":false}}`)
	c.within(time.Duration(volumes)*20*time.Second, "node-4 is empty", func(ctx context.Context) error {
		left, err := c.lookAtEviction(ctx, names, had)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d of %d volumes are not done", left, volumes)
		}
		return err
	})
	took := time.Since(started)
	replicas.check(t)
	most := rebuilds.most(t, replicas.nodes())
	for node, n := range most {
		if n > limit {
			t.Errorf("%d rebuilds at once on %s, the limit is %d", n, node, limit)
		}
	}
	if rebuilds.engines() == 0 {
		t.Error("no rebuild was seen")
	}
	t.Logf("%d replicas left in %s, %d engines rebuilt, at once on a node: %v", volumes, took,
		rebuilds.engines(), most)
	holds(t, c, c.attach(names[0], "node-1", 1), filled, "the volume that moved has another content")
	c.detach(names[0])
}

// attachOnce attaches volumes, all at the same time, and detaches them.
func (c *cluster) attachOnce(names []string, node string) {
	c.t.Helper()
	at := map[string]string{}
	for _, v := range names {
		at[v] = node
	}
	c.attachAll(at)
	for _, v := range names {
		c.detach(v)
	}
}

// attachAll attaches volumes to nodes, all at the same time, and returns their endpoints.
func (c *cluster) attachAll(at map[string]string) map[string]string {
	c.t.Helper()
	for v, node := range at {
		c.askToAttach(v, node)
	}
	endpoints := map[string]string{}
	for v, node := range at {
		endpoints[v] = c.awaitUsable(v, node, 1)
	}
	return endpoints
}

// lookAtEviction counts the volumes that have not left node-4 or are not detached again. It fails
// the test when a volume that has had a good copy is without one.
func (c *cluster) lookAtEviction(ctx context.Context, names []string, had map[string]bool) (left int, err error) {
	c.t.Helper()
	var replicas longhorn.ReplicaList
	var volumes longhorn.VolumeList
	if err := errors.Join(c.kube.List(ctx, &replicas, client.InNamespace(namespace)),
		c.kube.List(ctx, &volumes, client.InNamespace(namespace))); err != nil {
		return 0, err
	}
	good, stays, state := map[string]bool{}, map[string]bool{}, map[string]string{}
	for _, r := range replicas.Items {
		if r.Spec.HealthyAt != "" && r.Spec.FailedAt == "" && r.DeletionTimestamp == nil {
			good[r.Spec.VolumeName] = true
		}
		stays[r.Spec.VolumeName] = stays[r.Spec.VolumeName] || r.Spec.NodeID == "node-4"
	}
	for _, v := range volumes.Items {
		state[v.Name] = string(v.Status.State)
	}
	for _, v := range names {
		if had[v] && !good[v] {
			c.t.Fatalf("volume %s has no good copy", v)
		}
		had[v] = good[v]
		if stays[v] || state[v] != string(longhorn.VolumeStateDetached) {
			left++
		}
	}
	return left, nil
}

// rebuildLog is what engines said of their rebuilds, each status in the order of the API server: a
// rebuild of little content is over between two looks.
type rebuildLog struct {
	mu     sync.Mutex
	states []rebuildState
	ended  bool
}

// rebuildState is one status of an engine: the replicas that it rebuilds, and whether it tells of a
// rebuild, which may be over.
type rebuildState struct {
	engine  string
	running []string
	told    bool
}

// recordRebuilds begins a log, which ends with the test.
func (c *cluster) recordRebuilds() *rebuildLog {
	c.t.Helper()
	l := &rebuildLog{}
	c.follow(&longhorn.EngineList{}, func(kind watch.EventType, o runtime.Object) {
		l.mu.Lock()
		defer l.mu.Unlock()
		e, ok := o.(*longhorn.Engine)
		if !ok {
			l.ended = true
			return
		}
		s := rebuildState{engine: e.Name, told: len(e.Status.RebuildStatus) > 0}
		for replica, mode := range e.Status.ReplicaModeMap {
			if mode == longhorn.ReplicaModeWO && kind != watch.Deleted {
				s.running = append(s.running, replica)
			}
		}
		l.states = append(l.states, s)
	})
	return l
}

// engines is how many engines have told of a rebuild.
func (l *rebuildLog) engines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := map[string]bool{}
	for _, s := range l.states {
		if s.told {
			told[s.engine] = true
		}
	}
	return len(told)
}

// most is how many rebuilds each node had at once; nodes are those of the replicas.
func (l *rebuildLog) most(t *testing.T, nodes map[string]string) map[string]int {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		t.Fatal("the log of engines has ended")
	}
	most, running := map[string]int{}, map[string][]string{}
	for _, s := range l.states {
		running[s.engine] = s.running
		now := map[string]int{}
		for _, replicas := range running {
			for _, r := range replicas {
				now[nodes[r]]++
			}
		}
		for node, n := range now {
			most[node] = max(most[node], n)
		}
	}
	return most
}

// drainTwo drains the two nodes that have all copies of some volumes at once: one of them is held.
func (c *cluster) drainTwo(t *testing.T) {
	ks := kubernetesOf(t, c)
	c.onlyOn("node-2", "node-3")
	defer c.onlyOn("node-1", "node-2", "node-3", "node-4")
	names := c.createMany("f18-d", 6, 16*mib, 2)
	defer c.removeMany(names)
	for _, v := range names {
		c.eventually("two copies of "+v, func(context.Context) error {
			if at := c.nodesOf(v); strings.Join(at, " ") != "node-2 node-3" {
				return fmt.Errorf("on %v", at)
			}
			return nil
		})
	}
	d := &drainer{cluster: c, ks: ks, volume: names[0]}
	c.attach(names[0], "node-1", 2)
	c.detach(names[0])
	outer := c.t
	c.t = t
	defer func() { c.t = outer }()
	d.twoAtOnce()
}

// onlyOn has replicas placed on these nodes only.
func (c *cluster) onlyOn(nodes ...string) {
	c.t.Helper()
	for _, n := range c.Nodes {
		allowed := false
		for _, name := range nodes {
			allowed = allowed || name == n.Name
		}
		c.patchNode(n.Name, fmt.Sprintf(`{"spec":{"allowScheduling":%v}}`, allowed))
	}
}

func (c *cluster) node(name string) *longhorn.Node {
	c.t.Helper()
	var n longhorn.Node
	if err := c.kube.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &n); err != nil {
		c.t.Fatal(err)
	}
	return &n
}

// createMany creates volumes at the same moment.
func (c *cluster) createMany(prefix string, n int, size int64, replicas int) (names []string) {
	c.t.Helper()
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		name := fmt.Sprintf("%s-%d", prefix, i)
		names = append(names, name)
		all.Go(func() {
			_, errs[i] = c.rest.CreateVolume(context.Background(),
				restclient.VolumeSpec{Name: name, Size: strconv.FormatInt(size, 10), NumberOfReplicas: replicas})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
	return names
}

// removeMany deletes volumes and waits for all of them.
func (c *cluster) removeMany(names []string) {
	c.t.Helper()
	for _, v := range names {
		if err := c.rest.DeleteVolume(context.Background(), v); err != nil {
			c.t.Error(err)
		}
	}
	for _, v := range names {
		c.eventually("delete "+v, func(ctx context.Context) error {
			var got longhorn.Volume
			err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v}, &got)
			if err == nil {
				return fmt.Errorf("state %s", got.Status.State)
			}
			return client.IgnoreNotFound(err)
		})
	}
}

// unplaced counts the replicas of a volume that have no node.
func (c *cluster) unplaced(volume string) (n int) {
	for _, at := range c.nodesOf(volume) {
		if at == "" {
			n++
		}
	}
	return n
}

// fillVolume writes a volume while it is attached, and gives the hash of its content.
func (c *cluster) fillVolume(volume string, seed byte) [32]byte {
	c.t.Helper()
	endpoint := c.attach(volume, "node-1", 1)
	hash := fillWith(c.t, c, endpoint, seed)
	c.detach(volume)
	return hash
}
