package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// imageBytes are the bytes of each backing image on a disk.
type imageBytes map[string]int64

// bytesOf is what the files of a manager take on its disk, those that come too as far as that is
// known.
func bytesOf(m *v1beta2.BackingImageManager) imageBytes {
	all := imageBytes{}
	for name, f := range m.Status.BackingImageFileMap {
		all[name] = cmp.Or(f.RealSize, f.Size)
	}
	return all
}

// imagesChanged says whether a manager counts for another node, or its files take other room.
func imagesChanged(before, after *v1beta2.BackingImageManager) bool {
	return before.Spec.NodeID != after.Spec.NodeID || !maps.Equal(bytesOf(before), bytesOf(after))
}

// imagesOn are the backing images on the disks of a node, by the UUID of the disk.
func (r *Reconciler) imagesOn(ctx context.Context, n *v1beta2.Node) (map[string]imageBytes, error) {
	var list v1beta2.BackingImageManagerList
	if err := r.client.List(ctx, &list, client.InNamespace(n.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list backing image managers: %w", err)
	}
	all := map[string]imageBytes{}
	for i := range list.Items {
		m := &list.Items[i]
		if m.Spec.NodeID != n.Name {
			continue
		}
		if all[m.Spec.DiskUUID] == nil {
			all[m.Spec.DiskUUID] = imageBytes{}
		}
		maps.Copy(all[m.Spec.DiskUUID], bytesOf(m))
	}
	return all, nil
}
