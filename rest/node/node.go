package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

func listNodes(q *serve.Request) (any, error) {
	views, err := nodeViews(q)
	if err != nil {
		return nil, err
	}
	return serve.Collection(q, resource.TypeNode, views), nil
}

func nodeViews(q *serve.Request) ([]resource.Node, error) {
	var nodes lh.NodeList
	if err := q.Objects.List(q.Context(), &nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	addresses, err := managerAddresses(q.Context(), q.Objects)
	if err != nil {
		return nil, err
	}
	encrypted, err := anyEncrypted(q.Context(), q.Objects)
	if err != nil {
		return nil, err
	}
	serve.SortByName(nodes.Items)
	var views []resource.Node
	for i := range nodes.Items {
		views = append(views, nodeView(q, &nodes.Items[i], addresses, encrypted))
	}
	return views, nil
}

func getNode(q *serve.Request) (any, error) {
	var n lh.Node
	if err := q.Objects.Get(q.Context(), q.Params["name"], &n); err != nil {
		return nil, fmt.Errorf("failed to get node %s: %w", q.Params["name"], err)
	}
	addresses, err := managerAddresses(q.Context(), q.Objects)
	if err != nil {
		return nil, err
	}
	encrypted, err := anyEncrypted(q.Context(), q.Objects)
	if err != nil {
		return nil, err
	}
	return nodeView(q, &n, addresses, encrypted), nil
}

// anyEncrypted says whether there is an encrypted volume: only then a node has to be able to open
// one.
func anyEncrypted(ctx context.Context, o *serve.Objects) (bool, error) {
	var volumes lh.VolumeList
	if err := o.ListShared(ctx, &volumes); err != nil {
		return false, fmt.Errorf("listing volumes: %w", err)
	}
	return slices.ContainsFunc(volumes.Items, func(v lh.Volume) bool { return v.Spec.Encrypted }), nil
}

// managerAddresses maps a node to the IP of the manager Pod on it.
func managerAddresses(ctx context.Context, o *serve.Objects) (map[string]string, error) {
	var pods corev1.PodList
	err := o.Reader.List(ctx, &pods, client.InNamespace(o.Namespace),
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

func nodeView(q *serve.Request, n *lh.Node, addresses map[string]string, encrypted bool) resource.Node {
	out := resource.Node{Resource: q.Envelope(resource.TypeNode, n.Name, resource.WhenAlways), Name: n.Name,
		Address:         addresses[n.Name],
		AllowScheduling: n.Spec.AllowScheduling, EvictionRequested: n.Spec.EvictionRequested,
		Disks: map[string]resource.DiskInfo{}, Conditions: serve.ConditionMap(n.Status.Conditions),
		Tags:   append([]string{}, n.Spec.Tags...),
		Region: n.Status.Region, Zone: n.Status.Zone, InstanceManagerCPURequest: n.Spec.InstanceManagerCPURequest,
		EngineManagerCPURequest: n.Spec.EngineManagerCPURequest, ReplicaManagerCPURequest: n.Spec.ReplicaManagerCPURequest,
		AutoEvicting: n.Status.AutoEvicting}
	for name, d := range n.Spec.Disks {
		out.Disks[name] = diskView(d, n.Status.DiskStatus[name])
	}
	out.WaitsFor = findings.Node(&out, encrypted)
	return out
}

func diskView(d lh.DiskSpec, s lh.DiskStatus) resource.DiskInfo {
	out := resource.DiskInfo{Path: d.Path, DiskType: string(d.DiskType), DiskDriver: string(d.DiskDriver),
		AllowScheduling: d.AllowScheduling, EvictionRequested: d.EvictionRequested, StorageReserved: d.StorageReserved,
		Tags: append([]string{}, d.Tags...), Conditions: serve.ConditionMap(s.Conditions),
		StorageAvailable: s.StorageAvailable,
		StorageScheduled: s.StorageScheduled, StorageMaximum: s.StorageMaximum, ScheduledReplica: s.ScheduledReplica,
		ScheduledBackingImage: s.ScheduledBackingImage, DiskUUID: s.DiskUUID}
	if len(s.HealthData) > 0 {
		out.HealthData = map[string]any{}
		for device, h := range s.HealthData {
			out.HealthData[device] = h
		}
	}
	if !s.HealthDataLastCollectedAt.IsZero() {
		out.HealthDataLastCollectedAt = s.HealthDataLastCollectedAt.UTC().Format(serve.TimeText)
	}
	return out
}

func updateNode(q *serve.Request) (any, error) {
	var in resource.NodeInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	return changeNode(q, "node", func(n *lh.Node) {
		n.Spec.AllowScheduling, n.Spec.EvictionRequested = in.AllowScheduling, in.EvictionRequested
		n.Spec.Tags, n.Spec.InstanceManagerCPURequest = in.Tags, in.InstanceManagerCPURequest
		if in.EngineManagerCPURequest != nil {
			n.Spec.EngineManagerCPURequest = *in.EngineManagerCPURequest
		}
		if in.ReplicaManagerCPURequest != nil {
			n.Spec.ReplicaManagerCPURequest = *in.ReplicaManagerCPURequest
		}
	})
}

func updateDisks(q *serve.Request) (any, error) {
	var in resource.DiskUpdateInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	return changeNode(q, "disks of node", func(n *lh.Node) {
		n.Spec.Disks = map[string]lh.DiskSpec{}
		for name, d := range in.Disks {
			n.Spec.Disks[name] = lh.DiskSpec{Path: d.Path, DiskType: lh.DiskType(d.DiskType),
				DiskDriver: lh.DiskDriver(d.DiskDriver), AllowScheduling: d.AllowScheduling,
				EvictionRequested: d.EvictionRequested, StorageReserved: d.StorageReserved, Tags: d.Tags}
		}
	})
}

// changeNode applies a change to the node of the path, again when somebody else wrote in between,
// and answers with the node. what is changed as messages say it. Rules that need a look at the
// cluster are left to admission.
func changeNode(q *serve.Request, what string, change func(*lh.Node)) (any, error) {
	name := q.Params["name"]
	err := conflict.Retry(func() error {
		var n lh.Node
		if err := q.Objects.Get(q.Context(), name, &n); err != nil {
			return err
		}
		old := n.DeepCopy()
		change(&n)
		admission.MutateNode(&n)
		if err := admission.CheckNode(old, &n, admission.NodeFacts{}); err != nil {
			return admission.Unnamed(err)
		}
		return q.Objects.Client.Update(q.Context(), &n)
	})
	if err != nil {
		return nil, fmt.Errorf("failed to update %s %s: %w", what, name, err)
	}
	return getNode(q)
}

func deleteNode(q *serve.Request) (any, error) {
	name := q.Params["name"]
	err := removeNode(q.Context(), q.Objects, name)
	if err != nil {
		return nil, fmt.Errorf("failed to delete node %s: %w", name, err)
	}
	return nil, nil
}

// deleteNode deletes a node that is gone, takes no replicas and has none.
func removeNode(ctx context.Context, o *serve.Objects, name string) error {
	var n lh.Node
	if err := o.Get(ctx, name, &n); err != nil {
		return err
	}
	var engines lh.EngineList
	var replicas lh.ReplicaList
	if err := errors.Join(o.List(ctx, &engines), o.List(ctx, &replicas)); err != nil {
		return err
	}
	var f admission.NodeFacts
	f.TakeOn(name, replicas.Items, engines.Items)
	if err := admission.CheckNodeDeletion(&n, f); err != nil {
		return err
	}
	return o.Client.Delete(ctx, &n)
}

// Tags returns the distinct tags of disks and of nodes, in the order they are first seen.
func Tags(ctx context.Context, o *serve.Objects) (disk, node []string, err error) {
	var nodes lh.NodeList
	if err := o.List(ctx, &nodes); err != nil {
		return nil, nil, fmt.Errorf("listing nodes: %w", err)
	}
	serve.SortByName(nodes.Items)
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

func listDiskTags(q *serve.Request) (any, error) {
	disk, _, err := Tags(q.Context(), q.Objects)
	return tagList(q, "disk", disk), err
}

func listNodeTags(q *serve.Request) (any, error) {
	_, node, err := Tags(q.Context(), q.Objects)
	return tagList(q, "node", node), err
}

func tagList(q *serve.Request, kind string, tags []string) *resource.Collection[resource.Tag] {
	var views []resource.Tag
	for _, t := range tags {
		views = append(views, resource.Tag{Resource: resource.Resource{ID: t, Type: resource.TypeTag,
			Links: map[string]string{"self": q.Self}, Actions: map[string]string{}}, Name: t, TagType: kind})
	}
	return serve.Collection(q, resource.TypeTag, views)
}
