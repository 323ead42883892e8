package rest

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

var backingImages = kind[lh.BackingImage, *lh.BackingImage, resource.BackingImage]{
	typeID: resource.TypeBackingImage, what: "backing image", view: backingImageView,
	list: func() (client.ObjectList, *[]lh.BackingImage) {
		l := &lh.BackingImageList{}
		return l, &l.Items
	},
}

// fileNotStarted is what a client reads of a copy that is wanted and of which nothing is known yet.
const fileNotStarted = "File processing is not started"

func backingImageView(q *request, b *lh.BackingImage) resource.BackingImage {
	spec, s := &b.Spec, &b.Status
	out := resource.BackingImage{Resource: q.envelope(resource.TypeBackingImage, b.Name, resource.WhenAlways),
		Name: b.Name, UUID: s.UUID, SourceType: string(spec.SourceType), Parameters: spec.SourceParameters,
		ExpectedChecksum: spec.Checksum, CurrentChecksum: s.Checksum, MinNumberOfCopies: spec.MinNumberOfCopies,
		NodeSelector: spec.NodeSelector, DiskSelector: spec.DiskSelector,
		DiskFileStatusMap: map[string]resource.BackingImageDiskFileStatus{}, Size: s.Size, VirtualSize: s.VirtualSize,
		Secret: spec.Secret, SecretNamespace: spec.SecretNamespace, DataEngine: string(spec.DataEngine)}
	for disk, wanted := range spec.DiskFileSpecMap {
		out.DiskFileStatusMap[disk] = resource.BackingImageDiskFileStatus{Message: fileNotStarted,
			DataEngine: string(wanted.DataEngine)}
	}
	for disk, f := range s.DiskFileStatusMap {
		out.DiskFileStatusMap[disk] = resource.BackingImageDiskFileStatus{State: string(f.State), Progress: f.Progress,
			Message: f.Message, LastStateTransitionTime: f.LastStateTransitionTime, DataEngine: string(f.DataEngine)}
	}
	if b.DeletionTimestamp != nil {
		out.DeletionTimestamp = b.DeletionTimestamp.UTC().Format(timeText)
	}
	return out
}
