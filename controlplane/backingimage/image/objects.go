package image

import (
	"cmp"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// without takes an image from a manager, which then deletes the file.
func without(m *v1beta2.BackingImageManager, image string) loop.Change {
	c := m.DeepCopy()
	delete(c.Spec.BackingImages, image)
	return loop.Update{Object: c}
}

// copyWith is the image with copies on further disks.
func (p *pass) copyWith(disks ...string) *v1beta2.BackingImage {
	c := p.b.DeepCopy()
	if c.Spec.DiskFileSpecMap == nil {
		c.Spec.DiskFileSpecMap = map[string]v1beta2.BackingImageDiskFileSpec{}
	}
	for _, disk := range disks {
		if _, there := c.Spec.DiskFileSpecMap[disk]; !there {
			c.Spec.DiskFileSpecMap[disk] = v1beta2.BackingImageDiskFileSpec{DataEngine: v1beta2.DataEngineTypeV1}
		}
	}
	return c
}

func (p *pass) managerFor(d backingimage.Disk) *v1beta2.BackingImageManager {
	return &v1beta2.BackingImageManager{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.b.Namespace,
			Name:       naming.BackingImageManagerName(p.s.ManagerImage, d.UUID),
			Labels:     naming.BackingImageManagerLabels(d.Node, d.UUID),
			Finalizers: []string{v1beta2.Finalizer}},
		Spec: v1beta2.BackingImageManagerSpec{Image: p.s.ManagerImage, NodeID: d.Node, DiskUUID: d.UUID, DiskPath: d.Path,
			BackingImages: map[string]string{p.b.Name: p.b.Status.UUID}},
	}
}

func (p *pass) sourceFor(d backingimage.Disk, transferred bool) *v1beta2.BackingImageDataSource {
	yes, labels := true, naming.BackingImageDataSourceLabels(p.b.Name, d.Node, d.UUID)
	if p.b.Spec.SourceType == v1beta2.BackingImageSourceTypeExportFromVolume {
		labels[naming.LabelExportFromVolume] = p.b.Spec.SourceParameters[v1beta2.BackingImageParameterVolumeName]
	}
	return &v1beta2.BackingImageDataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.b.Namespace, Name: p.b.Name, Finalizers: []string{v1beta2.Finalizer},
			Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1beta2.GroupVersion.String(), Kind: "BackingImage",
				Name: p.b.Name, UID: p.b.UID, Controller: &yes, BlockOwnerDeletion: &yes}}},
		Spec: v1beta2.BackingImageDataSourceSpec{
			NodeID: d.Node, DiskUUID: d.UUID, DiskPath: d.Path, UUID: p.b.Status.UUID, SourceType: p.b.Spec.SourceType,
			Parameters: maps.Clone(p.b.Spec.SourceParameters), FileTransferred: transferred,
			// Once it is known what the image is, another content under its name is refused: a disk that
			// is away may have the former one.
			Checksum: cmp.Or(p.b.Spec.Checksum, p.b.Status.Checksum),
		},
	}
}
