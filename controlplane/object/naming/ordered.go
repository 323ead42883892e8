package naming

import "regexp"

// OrderedByCSI are the labels of a snapshot that the CSI driver has ordered: a VolumeSnapshot
// stands on it.
func OrderedByCSI() map[string]string { return map[string]string{labelOrderedBy: orderedByCSI} }

// ForBackupByCSI are those of a snapshot that it has ordered to back it up: the VolumeSnapshot
// stands on the backup.
func ForBackupByCSI() map[string]string { return map[string]string{labelOrderedBy: forBackupByCSI} }

const (
	labelOrderedBy = LabelPrefix + "ordered-by"
	orderedByCSI   = "csi"
	forBackupByCSI = "csi-backup"
)

// snapshotterName is how the sidecar csi-snapshotter names what it orders: by the UID of the
// VolumeSnapshot.
var snapshotterName = regexp.MustCompile(`^snapshot-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// IsOrderedByCSI reports whether a VolumeSnapshot stands on a snapshot of a name and of labels. The
// name tells it of those that another program or an earlier version has ordered, without the label.
func IsOrderedByCSI(name string, labels map[string]string) bool {
	by, told := labels[labelOrderedBy]
	return by == orderedByCSI || !told && snapshotterName.MatchString(name)
}
