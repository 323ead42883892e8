package rest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/condition"
	"ankole.storage/controlplane/conflict"
	"ankole.storage/controlplane/naming"
	"ankole.storage/rest/resource"
)

func listNodes(q *request) (any, error) {
	views, err := q.nodeViews()
	if err != nil {
		return nil, err
	}
	return collection(q, resource.TypeNode, views), nil
}

func (q *request) nodeViews() ([]resource.Node, error) {
	var nodes lh.NodeList
	if err := q.server.list(q.Context(), &nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	addresses, err := q.server.managerAddresses(q.Context())
	if err != nil {
		return nil, err
	}
	byName(nodes.Items)
	var views []resource.Node
	for i := range nodes.Items {
		views = append(views, nodeView(q, &nodes.Items[i], addresses))
	}
	return views, nil
}

func getNode(q *request) (any, error) {
	var n lh.Node
	if err := q.server.get(q.Context(), q.params["name"], &n); err != nil {
		return nil, fmt.Errorf("failed to get node %s: %w", q.params["name"], err)
	}
	addresses, err := q.server.managerAddresses(q.Context())
	if err != nil {
		return nil, err
	}
	return nodeView(q, &n, addresses), nil
}

// managerAddresses maps a node to the IP of the manager Pod on it.
func (s *Server) managerAddresses(ctx context.Context) (map[string]string, error) {
	var pods corev1.PodList
	err := s.cfg.Reader.List(ctx, &pods, client.InNamespace(s.cfg.Namespace),
		client.MatchingLabels{naming.LabelApp: naming.AppManager})
	if err != nil {
		return nil, fmt.Errorf("listing manager pods: %w", err)
	}
	out := map[string]string{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Status.PodIP != "" {
			out[p.Spec.NodeName] = p.Status.PodIP
		}
	}
	return out, nil
}

func nodeView(q *request, n *lh.Node, addresses map[string]string) resource.Node {
	out := resource.Node{Resource: q.envelope(resource.TypeNode, n.Name, resource.WhenAlways), Name: n.Name,
		Address:         addresses[n.Name],
		AllowScheduling: n.Spec.AllowScheduling, EvictionRequested: n.Spec.EvictionRequested,
		Disks: map[string]resource.DiskInfo{}, Conditions: conditionMap(n.Status.Conditions), Tags: orEmpty(n.Spec.Tags),
		Region: n.Status.Region, Zone: n.Status.Zone, InstanceManagerCPURequest: n.Spec.InstanceManagerCPURequest,
		EngineManagerCPURequest: n.Spec.EngineManagerCPURequest, ReplicaManagerCPURequest: n.Spec.ReplicaManagerCPURequest,
		AutoEvicting: n.Status.AutoEvicting}
	for name, d := range n.Spec.Disks {
		out.Disks[name] = diskView(d, n.Status.DiskStatus[name])
	}
	return out
}

func diskView(d lh.DiskSpec, s lh.DiskStatus) resource.DiskInfo {
	out := resource.DiskInfo{Path: d.Path, DiskType: string(d.DiskType), DiskDriver: string(d.DiskDriver),
		AllowScheduling: d.AllowScheduling, EvictionRequested: d.EvictionRequested, StorageReserved: d.StorageReserved,
		Tags: orEmpty(d.Tags), Conditions: conditionMap(s.Conditions), StorageAvailable: s.StorageAvailable,
		StorageScheduled: s.StorageScheduled, StorageMaximum: s.StorageMaximum, ScheduledReplica: s.ScheduledReplica,
		ScheduledBackingImage: s.ScheduledBackingImage, DiskUUID: s.DiskUUID}
	if len(s.HealthData) > 0 {
		out.HealthData = map[string]any{}
		for device, h := range s.HealthData {
			out.HealthData[device] = h
		}
	}
	if !s.HealthDataLastCollectedAt.IsZero() {
		out.HealthDataLastCollectedAt = s.HealthDataLastCollectedAt.UTC().Format(timeText)
	}
	return out
}

func updateNode(q *request) (any, error) {
	var in resource.NodeInput
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	name := q.params["name"]
	if err := checkTagNames(in.Tags); err != nil {
		return nil, fmt.Errorf("failed to update node %s: %w", name, err)
	}
	if in.EvictionRequested && in.AllowScheduling {
		return nil, fmt.Errorf("failed to update node %s: need to disable scheduling on node %s for node eviction, or "+
			"cancel eviction to enable scheduling", name, name)
	}
	return q.changeNode(name, func(n *lh.Node) error {
		n.Spec.AllowScheduling, n.Spec.EvictionRequested = in.AllowScheduling, in.EvictionRequested
		n.Spec.Tags, n.Spec.InstanceManagerCPURequest = naming.Tags(in.Tags), in.InstanceManagerCPURequest
		if in.EngineManagerCPURequest != nil {
			n.Spec.EngineManagerCPURequest = *in.EngineManagerCPURequest
		}
		if in.ReplicaManagerCPURequest != nil {
			n.Spec.ReplicaManagerCPURequest = *in.ReplicaManagerCPURequest
		}
		return nil
	})
}

func updateDisks(q *request) (any, error) {
	var in resource.DiskUpdateInput
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	name := q.params["name"]
	disks, err := newDisks(name, in.Disks)
	if err != nil {
		return nil, fmt.Errorf("failed to update disks of node %s: %w", name, err)
	}
	return q.changeNode(name, func(n *lh.Node) error {
		if err := checkDisks(n, disks); err != nil {
			return err
		}
		n.Spec.Disks = disks
		return nil
	})
}

// changeNode applies a change to a node, again when somebody else wrote in between, and answers
// with the node.
func (q *request) changeNode(name string, change func(*lh.Node) error) (any, error) {
	err := conflict.Retry(func() error {
		var n lh.Node
		if err := q.server.get(q.Context(), name, &n); err != nil {
			return err
		}
		if err := change(&n); err != nil {
			return err
		}
		return q.server.cfg.Client.Update(q.Context(), &n)
	})
	if err != nil {
		return nil, fmt.Errorf("failed to update node %s: %w", name, err)
	}
	return getNode(q)
}

// newDisks converts and checks a set of disks by itself.
func newDisks(node string, in map[string]resource.DiskUpdate) (map[string]lh.DiskSpec, error) {
	out := map[string]lh.DiskSpec{}
	paths := map[string]string{}
	for _, name := range sortedKeys(in) {
		d := in[name]
		if d.DiskType == "" {
			d.DiskType = string(lh.DiskTypeFilesystem)
		}
		clean := path.Clean(d.Path)
		switch {
		case d.Path == "" || !strings.HasPrefix(clean, "/"):
			return nil, fmt.Errorf("disk %s has the path %q; give an absolute path", name, d.Path)
		case d.DiskType != string(lh.DiskTypeFilesystem):
			return nil, fmt.Errorf("disk %s has type %q; only %q is supported", name, d.DiskType, lh.DiskTypeFilesystem)
		case d.StorageReserved < 0:
			return nil, fmt.Errorf("the storageReserved setting of disk %s is not valid: %d bytes, should be positive",
				name, d.StorageReserved)
		case d.EvictionRequested && d.AllowScheduling:
			return nil, fmt.Errorf("need to disable scheduling on disk %s of node %s for disk eviction, or cancel "+
				"eviction to enable scheduling", name, node)
		case paths[clean] != "":
			return nil, fmt.Errorf("duplicate disk paths on node %s: disks %s and %s are both at %s", node,
				paths[clean], name, clean)
		}
		if err := checkTagNames(d.Tags); err != nil {
			return nil, fmt.Errorf("disk %s: %w", name, err)
		}
		paths[clean] = name
		out[name] = lh.DiskSpec{Path: d.Path, DiskType: lh.DiskType(d.DiskType), DiskDriver: lh.DiskDriver(d.DiskDriver),
			AllowScheduling: d.AllowScheduling, EvictionRequested: d.EvictionRequested, StorageReserved: d.StorageReserved,
			Tags: naming.Tags(d.Tags)}
	}
	return out, nil
}

// checkDisks refuses a change of a node's set of disks that would strand data.
func checkDisks(n *lh.Node, disks map[string]lh.DiskSpec) error {
	if !slices.Equal(sortedKeys(n.Spec.Disks), sortedKeys(n.Status.DiskStatus)) {
		return fmt.Errorf("spec and status of disks on node %s are being syncing and please retry later", n.Name)
	}
	for _, name := range sortedKeys(n.Spec.Disks) {
		old, status := n.Spec.Disks[name], n.Status.DiskStatus[name]
		updated, kept := disks[name]
		switch {
		case !kept && (old.AllowScheduling || status.StorageScheduled != 0 || len(status.ScheduledReplica) > 0):
			return fmt.Errorf("delete disk %s on node %s error: Please disable the disk %s first and remove all "+
				"replicas and backing images first", name, n.Name, name)
		case kept && old.DiskType != "" && old.DiskType != updated.DiskType:
			return fmt.Errorf("disk %s on node %s: the disk type is not allow to change from %s to %s", name, n.Name,
				old.DiskType, updated.DiskType)
		}
	}
	return nil
}

// checkTagNames refuses tags that could not be label keys.
func checkTagNames(tags []string) error {
	var bad []string
	for _, t := range tags {
		if problems := naming.TagProblems(t); len(problems) > 0 {
			bad = append(bad, fmt.Sprintf("tag %q: %s", t, strings.Join(problems, "; ")))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("at least one error encountered while validating tags: %s", strings.Join(bad, ", "))
	}
	return nil
}

func deleteNode(q *request) (any, error) {
	name := q.params["name"]
	err := q.server.deleteNode(q.Context(), name)
	if err != nil {
		return nil, fmt.Errorf("failed to delete node %s: %w", name, err)
	}
	return nil, nil
}

// deleteNode deletes a node that is gone, takes no replicas and has none.
func (s *Server) deleteNode(ctx context.Context, name string) error {
	var n lh.Node
	if err := s.get(ctx, name, &n); err != nil {
		return err
	}
	var engines lh.EngineList
	var replicas lh.ReplicaList
	if err := errors.Join(s.list(ctx, &engines), s.list(ctx, &replicas)); err != nil {
		return err
	}
	used := 0
	for _, e := range engines.Items {
		if e.Spec.NodeID == name {
			used++
		}
	}
	for _, r := range replicas.Items {
		if r.Spec.NodeID == name {
			used++
		}
	}
	ready := lh.FindCondition(n.Status.Conditions, lh.NodeConditionReady)
	if !condition.NodeRemovable(&n) || n.Spec.AllowScheduling || used > 0 {
		return fmt.Errorf("could not delete node %s with node ready condition is %s, reason is %s, node schedulable "+
			"%t, and %d replica and engine running on it: "+
			"disable scheduling, move what runs there and remove the Kubernetes node first", name, ready.Status,
			ready.Reason, n.Spec.AllowScheduling, used)
	}
	return s.cfg.Client.Delete(ctx, &n)
}

// tags returns the distinct tags of disks and of nodes, in the order they are first seen.
func (s *Server) tags(ctx context.Context) (disk, node []string, err error) {
	var nodes lh.NodeList
	if err := s.list(ctx, &nodes); err != nil {
		return nil, nil, fmt.Errorf("listing nodes: %w", err)
	}
	byName(nodes.Items)
	add := func(into *[]string, tags []string) {
		for _, t := range tags {
			if !slices.Contains(*into, t) {
				*into = append(*into, t)
			}
		}
	}
	for _, n := range nodes.Items {
		add(&node, n.Spec.Tags)
		for _, name := range slices.Sorted(maps.Keys(n.Spec.Disks)) {
			add(&disk, n.Spec.Disks[name].Tags)
		}
	}
	return disk, node, nil
}

func listDiskTags(q *request) (any, error) {
	disk, _, err := q.server.tags(q.Context())
	return tagList(q, "disk", disk), err
}

func listNodeTags(q *request) (any, error) {
	_, node, err := q.server.tags(q.Context())
	return tagList(q, "node", node), err
}

func tagList(q *request, kind string, tags []string) *resource.Collection[resource.Tag] {
	var views []resource.Tag
	for _, t := range tags {
		views = append(views, resource.Tag{Resource: resource.Resource{ID: t, Type: resource.TypeTag,
			Links: map[string]string{"self": q.self}, Actions: map[string]string{}}, Name: t, TagType: kind})
	}
	return collection(q, resource.TypeTag, views)
}
