package controller

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
)

// handle is the id of a snapshot: where its content is, in the volume's replicas, in a backup or in
// a backing image.
type handle struct {
	volume string
	// One of both: the snapshot of the volume, or its backup.
	snapshot, backup string
	// image, which may be one of no volume; nil: it is none.
	image *client.BackingImageSpec
}

// Schemes of ids; the reference has had another name for backups.
const (
	schemeSnapshot  = "snap://"
	schemeBackup    = "bak://"
	schemeOldBackup = "bs://"
)

// String is the id.
func (h handle) String() string {
	if h.image != nil {
		return request.ImageID(*h.image)
	}
	if h.backup != "" {
		return schemeBackup + h.volume + "/" + h.backup
	}
	return schemeSnapshot + h.volume + "/" + h.snapshot
}

// parseHandle reads the id of a snapshot. What is no id names a snapshot that there is not.
func parseHandle(id string) (handle, error) {
	if id == "" {
		return handle{}, request.Refuse("no snapshot id is given")
	}
	if request.IsImageID(id) {
		image, err := request.ParseImageID(id)
		if err != nil {
			return handle{}, status.Errorf(codes.NotFound, "there is no such snapshot: %v", err)
		}
		return handle{image: &image}, nil
	}
	for _, scheme := range []string{schemeBackup, schemeOldBackup} {
		rest, is := strings.CutPrefix(id, scheme)
		if volume, backup, _ := strings.Cut(rest, "/"); is && naming.CheckName(volume) == nil &&
			naming.CheckName(backup) == nil {
			return handle{volume: volume, backup: backup}, nil
		}
	}
	volume, snapshot, ok := naming.ParseCloneSource(id)
	if !ok || snapshot == "" || naming.CheckName(volume) != nil {
		return handle{}, status.Errorf(codes.NotFound, "there is no snapshot %q: ids look like snap://<volume>/<snapshot> "+
			"or bak://<volume>/<backup>", id)
	}
	return handle{volume: volume, snapshot: snapshot}, nil
}

// snapshotClass is where a class of snapshots has their content kept.
type snapshotClass struct {
	// backup: in a backup, made in a mode.
	backup bool
	mode   string
	// image: in a backing image; nil: it is not. Else in the volume's replicas.
	image *client.BackingImageSpec
}

// parseSnapshotClass judges the parameters of a VolumeSnapshotClass.
func parseSnapshotClass(given map[string]string) (class snapshotClass, err error) {
	kind, mode := given["type"], given["backupMode"]
	switch kind {
	case "snap":
		return snapshotClass{}, nil
	case "", "bak", "bs":
		class = snapshotClass{backup: true, mode: mode}
	case "bi":
		image, err := request.ImageOfClass(given)
		return snapshotClass{image: &image}, err
	default:
		return class, request.Refuse("type %q of a VolumeSnapshotClass is none of snap, bak, bi", kind)
	}
	if mode != "" && mode != string(lh.BackupModeFull) && mode != string(lh.BackupModeIncremental) {
		return class, request.Refuse("backupMode %q of a VolumeSnapshotClass is neither full nor incremental", mode)
	}
	return class, nil
}
