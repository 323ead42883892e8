// Package clone says what the spec and status of a volume mean that is filled with a snapshot of
// another one: of which, whether the copy is still to be made, and what it takes meanwhile. The
// controllers of volumes, engines and attachments read it; docs/design/clone.md has the states.
//
// All functions are pure.
package clone

import (
	"time"

	"github.com/google/uuid"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

const (
	// MostAttempts is how often a copy is tried.
	MostAttempts = 10
	// firstPause is doubled with each failed attempt.
	firstPause = 30 * time.Second
)

// Copying says whether a volume is to be filled and does not hold the whole content yet: nobody but
// the copy may use it.
func Copying(v *v1beta2.Volume) bool {
	switch v.Status.CloneStatus.State {
	case v1beta2.VolumeCloneStateCopyCompletedUnhealthy, v1beta2.VolumeCloneStateCompleted:
		return false
	}
	return v.Spec.DataSource != ""
}

// GivenUp says whether the copy has failed so often that it is not tried again.
func GivenUp(v *v1beta2.Volume) bool {
	s := &v.Status.CloneStatus
	return Copying(v) && s.State == v1beta2.VolumeCloneStateFailed && s.AttemptCount >= MostAttempts
}

// Replicas is how many replicas a volume is to have now: one while it is being filled, so that the
// content crosses the network once to a single disk and the others are made from there.
func Replicas(v *v1beta2.Volume) int {
	if Copying(v) {
		return min(1, v.Spec.NumberOfReplicas)
	}
	return v.Spec.NumberOfReplicas
}

// Source names the volume that a volume is filled from; empty if it is no clone.
func Source(v *v1beta2.Volume) string {
	volume, _, ok := naming.ParseCloneSource(v.Spec.DataSource)
	if !ok {
		return ""
	}
	return volume
}

// Snapshot names the snapshot that a volume is filled with: the one its data source names, or else
// the one that is taken for it.
func Snapshot(v, source *v1beta2.Volume) string {
	_, snapshot, _ := naming.ParseCloneSource(v.Spec.DataSource)
	if snapshot == "" {
		return SnapshotName(string(source.UID), string(v.UID))
	}
	return snapshot
}

// SnapshotName is the name of the snapshot that is taken for a clone, given the UIDs of both
// volumes: the same at each attempt, another one for volumes of the same names.
func SnapshotName(source, target string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(source+"/"+target)).String()
}

// Needs says whether the copy into a volume needs the source volume attached: it begins or goes on.
// The volume itself is attached first.
func Needs(v *v1beta2.Volume, source string) bool {
	if Source(v) != source || v.DeletionTimestamp != nil || !Copying(v) ||
		v.Status.Robustness == v1beta2.VolumeRobustnessFaulted {
		return false
	}
	switch v.Status.CloneStatus.State {
	case v1beta2.VolumeCloneStateNone:
		return v.Status.State == v1beta2.VolumeStateAttached
	case v1beta2.VolumeCloneStateInitiated:
		return true
	}
	return false
}

// Holds says whether a snapshot of the source volume is still to be read, or read again, for a
// volume: deleting it would end the copy.
func Holds(v *v1beta2.Volume, source, snapshot string) bool {
	_, named, _ := naming.ParseCloneSource(v.Spec.DataSource)
	return Source(v) == source && (named == snapshot || v.Status.CloneStatus.Snapshot == snapshot) &&
		v.DeletionTimestamp == nil && Copying(v) && !GivenUp(v)
}

// Pause is how long to wait after a failed attempt, given the number of attempts with it.
func Pause(attempts int) time.Duration {
	return firstPause << min(max(attempts, 0), MostAttempts)
}
