package naming

import (
	"crypto/sha256"
	"encoding/hex"
)

// BackingImageManagerName returns the name of the manager of the backing images on a disk, and of
// its Pod.
func BackingImageManagerName(image, diskUUID string) string {
	sum := sha256.Sum224([]byte(image + "-" + diskUUID))
	return "bim-" + hex.EncodeToString(sum[:])
}

// BackingImageDataSourcePodName returns the name of the Pod that makes the first file of a backing
// image.
func BackingImageDataSourcePodName(image string) string { return "backing-image-ds-" + image }

// BackingImageLabels returns the labels of a BackingImage.
func BackingImageLabels() map[string]string { return componentLabels(ComponentBackingImage, nil) }

// BackingImageManagerLabels returns the labels of a BackingImageManager and of its Pod.
func BackingImageManagerLabels(node, diskUUID string) map[string]string {
	return componentLabels(ComponentBackingImageManager,
		map[string]string{LabelOnNode: NodeLabel(node), LabelOnDisk: diskUUID})
}

// BackingImageDataSourceLabels returns the labels of a BackingImageDataSource and of its Pod.
func BackingImageDataSourceLabels(image, node, diskUUID string) map[string]string {
	return componentLabels(ComponentBackingImageDataSource, map[string]string{
		LabelBackingImageDataSource: image, LabelOnNode: NodeLabel(node), LabelOnDisk: diskUUID})
}
