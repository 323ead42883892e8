package view

import (
	"fmt"
	"strings"

	"ankole.storage/cli/output"
	"ankole.storage/rest/resource"
)

// restoreText says how far the slowest replica of a volume that is being restored is.
func restoreText(v *resource.Volume) (percent int, text string) {
	percent, text = output.UnknownPercent, "being restored"
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
		return output.UnknownPercent, text, true
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
	percent = output.UnknownPercent
	text = v.State
	switch v.State {
	case "attached":
		text += ", " + v.Robustness
		if p, ok := rebuilding(*v); ok {
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

// WatchLine is the state of a volume in one line.
func WatchLine(v resource.Volume) string {
	text := fmt.Sprintf("%-9s  %-8s  replicas %s", v.State, v.Robustness, ReplicasText(v))
	if at := AttachedTo(v); at != "" {
		text += "  on " + at
	}
	if e := Endpoint(v); e != "" {
		text += "  " + e
	}
	if n := Note(v); n != "" {
		text += "  (" + output.OneLine(n) + ")"
	}
	return text
}
