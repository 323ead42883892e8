// Package index names the ways in which controllers find objects without looking at all of them: by
// volume, by node, by disk. A list by label goes through every object of the kind; one by index
// costs what it returns. The leader's cache keeps the indexes.
package index

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume/clone"
	"ankole.storage/controlplane/volume/concern"
)

// Fields of the indexes.
const (
	volume   = "volume"
	node     = "node"
	disk     = "disk"
	source   = "source"
	claim    = "claim"
	image    = "backingImage"
	within   = "instanceManager"
	state    = "state"
	cordoned = "cordoned"
	rest     = "rest"
)

// unsettled is the only value of field rest.
const unsettled = "no"

// Index is one way to find objects of a kind.
type Index struct {
	Object client.Object
	Field  string
	Of     client.IndexerFunc
}

// of makes an index from a function of the kind. Empty values are not found.
func of[O client.Object](object O, field string, values func(O) []string) Index {
	return Index{object, field, func(o client.Object) []string {
		var out []string
		for _, v := range values(o.(O)) {
			if v != "" {
				out = append(out, v)
			}
		}
		return out
	}}
}

// All are the indexes that the leader's cache has, and that a test's client needs.
func All() []Index {
	return []Index{
		of(&v1beta2.Replica{}, volume, func(r *v1beta2.Replica) []string { return []string{r.Spec.VolumeName} }),
		of(&v1beta2.Replica{}, node, func(r *v1beta2.Replica) []string { return []string{r.Spec.NodeID} }),
		of(&v1beta2.Replica{}, disk, func(r *v1beta2.Replica) []string { return []string{r.Spec.DiskID} }),
		of(&v1beta2.Replica{}, image, func(r *v1beta2.Replica) []string { return []string{r.Spec.BackingImage} }),
		of(&v1beta2.Engine{}, volume, func(e *v1beta2.Engine) []string { return []string{e.Spec.VolumeName} }),
		of(&v1beta2.Snapshot{}, volume, func(s *v1beta2.Snapshot) []string { return []string{s.Spec.Volume} }),
		// The node where it is to run, and the one where it runs still.
		of(&v1beta2.Engine{}, node, func(e *v1beta2.Engine) []string {
			if e.Spec.NodeID == e.Status.OwnerID {
				return []string{e.Spec.NodeID}
			}
			return []string{e.Spec.NodeID, e.Status.OwnerID}
		}),
		of(&v1beta2.Engine{}, within, func(e *v1beta2.Engine) []string {
			if e.Status.InstanceManagerName == e.Status.DeviceIn {
				return []string{e.Status.DeviceIn}
			}
			return []string{e.Status.InstanceManagerName, e.Status.DeviceIn}
		}),
		of(&v1beta2.Replica{}, within, func(r *v1beta2.Replica) []string { return []string{r.Status.InstanceManagerName} }),
		of(&v1beta2.Volume{}, state, func(v *v1beta2.Volume) []string { return []string{string(v.Status.State)} }),
		of(&v1beta2.Volume{}, rest, func(v *v1beta2.Volume) []string {
			if concern.Rests(v) {
				return nil
			}
			return []string{unsettled}
		}),
		of(&v1beta2.Volume{}, source, func(v *v1beta2.Volume) []string { return []string{clone.Source(v)} }),
		of(&v1beta2.InstanceManager{}, node, func(im *v1beta2.InstanceManager) []string { return []string{im.Spec.NodeID} }),
		of(&v1beta2.VolumeAttachment{}, node, func(a *v1beta2.VolumeAttachment) []string {
			var nodes []string
			for _, t := range a.Spec.AttachmentTickets {
				nodes = append(nodes, t.NodeID)
			}
			return nodes
		}),
		of(&v1beta2.Node{}, disk, func(n *v1beta2.Node) []string {
			var disks []string
			for _, d := range n.Status.DiskStatus {
				disks = append(disks, d.DiskUUID)
			}
			return disks
		}),
	}
}

// OfKubernetes are the indexes of Kubernetes' own kinds: claims of volumes, cordoned nodes, Pods of
// agents.
func OfKubernetes() []Index {
	return []Index{
		of(&corev1.Node{}, cordoned, func(n *corev1.Node) []string {
			if n.Spec.Unschedulable {
				return []string{"yes"}
			}
			return nil
		}),
		of(&corev1.Pod{}, node, func(p *corev1.Pod) []string {
			if p.Labels[naming.LabelApp] == naming.AppManager {
				return []string{p.Spec.NodeName}
			}
			return nil
		}),
		of(&corev1.PersistentVolume{}, volume, VolumeOf),
		of(&corev1.PersistentVolume{}, claim, func(pv *corev1.PersistentVolume) []string {
			if ref := pv.Spec.ClaimRef; ref != nil && pv.Spec.CSI != nil && pv.Spec.CSI.Driver == naming.CSIDriver {
				return []string{ref.Namespace + "/" + ref.Name}
			}
			return nil
		}),
		of(&corev1.Pod{}, claim, ClaimsOf),
	}
}

// VolumeOf names the volume that a PersistentVolume stands for, if it is of this system.
func VolumeOf(pv *corev1.PersistentVolume) []string {
	if csi := pv.Spec.CSI; csi != nil && csi.Driver == naming.CSIDriver {
		return []string{csi.VolumeHandle}
	}
	return nil
}

// ClaimsOf names the PersistentVolumeClaims of a Pod's namespace that it uses.
func ClaimsOf(p *corev1.Pod) (claims []string) {
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			claims = append(claims, p.Name+"-"+v.Name) // as Kubernetes names the claim that it makes for the Pod
		}
	}
	return claims
}

// Register has a cache keep the indexes, before it starts.
func Register(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range append(All(), OfKubernetes()...) {
		if err := indexer.IndexField(ctx, i.Object, i.Field, i.Of); err != nil {
			return fmt.Errorf("index %T by %s: %w", i.Object, i.Field, err)
		}
	}
	return nil
}

// OfVolume selects the Replicas, Engines or Snapshots of a volume.
func OfVolume(name string) client.ListOption { return client.MatchingFields{volume: name} }

// OnNode selects the Replicas, Engines or InstanceManagers of a node, or the VolumeAttachments with
// a ticket for it.
func OnNode(name string) client.ListOption { return client.MatchingFields{node: name} }

// Within selects the Engines whose process, or block device, an instance manager has, or the
// Replicas whose process it has, by their status.
func Within(manager string) client.ListOption { return client.MatchingFields{within: manager} }

// OnDisk selects the Replicas on a disk, or the Nodes that report it.
func OnDisk(uuid string) client.ListOption { return client.MatchingFields{disk: uuid} }

// Cordoned selects the Nodes of Kubernetes that take no more Pods.
func Cordoned() client.ListOption { return client.MatchingFields{cordoned: "yes"} }

// ManagerOn selects the Pods of the agent of a node.
func ManagerOn(name string) client.ListOption { return client.MatchingFields{node: name} }

// Attached selects the Volumes in that state.
func Attached() client.ListOption {
	return client.MatchingFields{state: string(v1beta2.VolumeStateAttached)}
}

// Unsettled selects the Volumes that do not rest (concern.Rests).
func Unsettled() client.ListOption { return client.MatchingFields{rest: unsettled} }

// ClonedFrom selects the Volumes whose data source is a volume or a snapshot of it.
func ClonedFrom(name string) client.ListOption { return client.MatchingFields{source: name} }

// StandsFor selects the PersistentVolumes of a volume.
func StandsFor(name string) client.ListOption { return client.MatchingFields{volume: name} }

// ClaimedBy selects the PersistentVolumes of this system that are bound to a claim, or were.
func ClaimedBy(namespace, name string) client.ListOption {
	return client.MatchingFields{claim: namespace + "/" + name}
}

// UsesClaim selects the Pods of a namespace that use a claim.
func UsesClaim(name string) client.ListOption { return client.MatchingFields{claim: name} }

// OnImage selects the Replicas that stand on a backing image.
func OnImage(name string) client.ListOption { return client.MatchingFields{image: name} }
