package findings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ankole.storage/rest/resource"
)

// UnknownPercent is a progress that cannot be measured.
const UnknownPercent = -1

// restoreText says how far the slowest replica of a volume that is being restored is.
func restoreText(v *resource.Volume) (percent int, text string) {
	percent, text = UnknownPercent, "being restored"
	for i, r := range v.RestoreStatus {
		if i == 0 || r.Progress < percent {
			percent = r.Progress
		}
	}
	if c := v.Conditions["Restore"]; c.Status == "False" && c.Message != "" {
		text += " again, after: " + c.Message
	}
	return percent, text
}

// DeployedNodes says on how many nodes an image can be started, of those that it is to be on.
func DeployedNodes(i resource.EngineImage) string {
	ready := 0
	for _, deployed := range i.NodeDeploymentMap {
		if deployed {
			ready++
		}
	}
	return fmt.Sprintf("%d of %d", ready, len(i.NodeDeploymentMap))
}

// InSync counts the replicas that an engine has in sync.
func InSync(v *resource.Volume) int {
	n := 0
	for _, r := range v.Replicas {
		if r.Mode == "RW" {
			n++
		}
	}
	return n
}

// HeldBackup is the backup that a volume took last.
func HeldBackup(v *resource.Volume) string {
	for _, c := range v.Controllers {
		if c.LastRestoredBackup != "" {
			return c.LastRestoredBackup
		}
	}
	return ""
}

// SourceText is a data source as a person writes it: VOLUME or VOLUME/SNAPSHOT.
func SourceText(source string) string {
	return strings.TrimPrefix(strings.TrimPrefix(source, "vol://"), "snap://")
}

// CloneText says how far the filling of a volume from another one is; ok is false if there is
// nothing to be said.
func CloneText(v *resource.Volume) (percent int, text string, ok bool) {
	s := v.CloneStatus
	if v.DataSource == "" || s.State == "completed" || s.State == "copy-completed-awaiting-healthy" {
		return 0, "", false
	}
	text = "being cloned from " + SourceText(v.DataSource)
	if s.State == "failed" {
		text += fmt.Sprintf(", attempt %d has failed", s.AttemptCount)
		if s.NextAllowedAttemptAt != "" {
			text += ", the next one begins at " + s.NextAllowedAttemptAt
		}
		return UnknownPercent, text, true
	}
	return s.Progress, text, true
}

// Describe says in a few words where a volume stands, and how far a rebuild is.
func Describe(v *resource.Volume) (percent int, text string) {
	if percent, text, ok := CloneText(v); ok {
		return percent, text
	}
	if v.RestoreRequired && (!v.Standby || HeldBackup(v) != v.LastBackup) {
		return restoreText(v)
	}
	percent = UnknownPercent
	text = v.State
	switch v.State {
	case "attached":
		text += ", " + v.Robustness
		if p, ok := Rebuilding(*v); ok {
			percent = p
			text += ", rebuilding"
		}
		if v.CurrentImage != "" && v.Image != v.CurrentImage {
			text += ", " + v.Conditions["EngineUpgrade"].Message
		}
	case "attaching":
		running := 0
		for _, r := range v.Replicas {
			if r.Running {
				running++
			}
		}
		text += fmt.Sprintf(", %d of %d replicas running", running, v.NumberOfReplicas)
	default:
		if n := Note(*v); n != "" {
			text += ", " + n
		}
	}
	return percent, text
}

// Rebuilding returns the progress of the slowest rebuild under way.
func Rebuilding(v resource.Volume) (percent int, ok bool) {
	percent = 100
	for _, r := range v.RebuildStatus {
		if r.IsRebuilding {
			percent, ok = min(percent, r.Progress), true
		}
	}
	return percent, ok
}

// AttachedTo is the node of the running engine, or else the one a ticket asks for.
func AttachedTo(v resource.Volume) string {
	if at := runsOn(&v); at != "" {
		return at
	}
	for _, id := range slices.Sorted(maps.Keys(v.VolumeAttachment.Attachments)) {
		return v.VolumeAttachment.Attachments[id].NodeID + " (wanted)"
	}
	return ""
}

// Note is what a person should know of a volume that is not as it should be.
func Note(v resource.Volume) string {
	if c, ok := v.Conditions["Scheduled"]; ok && c.Status == "False" {
		return "not all replicas are scheduled: " + c.Message
	}
	if v.State == "attached" || v.State == "detached" {
		return v.NotReadyMessage
	}
	return ""
}
