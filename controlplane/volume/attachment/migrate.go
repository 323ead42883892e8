package attachment

import (
	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// This file is the part of live migration that follows from tickets: when one begins, is confirmed
// or rolled back. docs/design/migration.md has the table.

// migrate decides about a volume's migration; ok is false where the ordinary rules decide.
func migrate(a *v1beta2.VolumeAttachment, s seen) (d loop.Decision, ok bool) {
	v := s.Volume
	attached := v.Status.State == v1beta2.VolumeStateAttached && v.Spec.NodeID != "" &&
		v.DeletionTimestamp == nil && v.Status.Robustness != v1beta2.VolumeRobustnessFaulted
	to := v.Spec.MigrationNodeID
	if !v.Spec.Migratable || !attached {
		return d, false
	}
	if to == "" {
		if to = target(a, s); to == "" {
			return d, false
		}
		c := v.DeepCopy()
		c.Spec.MigrationNodeID = to
		return migrationStep(c, naming.EventStart, "Migrating volume "+v.Name+" from node "+v.Spec.NodeID+" to node "+to),
			true
	}
	if !hasCSITicket(a, to) {
		c := v.DeepCopy()
		c.Spec.MigrationNodeID = ""
		return migrationStep(c, naming.EventStop, "The migration of volume "+v.Name+" to node "+to+" is rolled back"), true
	}
	if why, _ := detachReason(a, s); why == "" {
		return d, false // the source is in use
	}
	if v.Status.CurrentMigrationNodeID != to {
		return d, true // its device is about to come
	}
	c := v.DeepCopy()
	c.Spec.NodeID, c.Spec.MigrationNodeID = to, ""
	return migrationStep(c, naming.EventStart, "The migration of volume "+v.Name+" to node "+to+" is confirmed"), true
}

func migrationStep(c *v1beta2.Volume, reason, message string) loop.Decision {
	return loop.Decision{Do: loop.Update{Object: c}, Events: []loop.Event{{On: c, Reason: reason, Message: message}}}
}

// target is the node that a volume is to migrate to, empty for none.
func target(a *v1beta2.VolumeAttachment, s seen) string {
	v := s.Volume
	whole := v.Status.Robustness == v1beta2.VolumeRobustnessHealthy ||
		v.Status.Robustness == v1beta2.VolumeRobustnessDegraded
	upgrading := v.Spec.Image != "" && v.Spec.Image != v.Status.CurrentImage
	if !whole || upgrading || v.Status.CurrentNodeID != v.Spec.NodeID || v.Status.CurrentMigrationNodeID != "" ||
		!hasCSITicket(a, v.Spec.NodeID) {
		return ""
	}
	for _, t := range tickets(a, v) {
		if t.Type == v1beta2.AttacherTypeCSI && t.NodeID != v.Spec.NodeID && obstacle(t, s) == "" {
			return t.NodeID
		}
	}
	return ""
}

func hasCSITicket(a *v1beta2.VolumeAttachment, node string) bool {
	for _, t := range a.Spec.AttachmentTickets {
		if t.Type == v1beta2.AttacherTypeCSI && t.NodeID == node {
			return true
		}
	}
	return false
}

// undecided says whether two nodes claim a detached volume that can migrate: its migration has
// failed, and only the end of one ticket says where its user is.
func undecided(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) bool {
	n := 0
	for _, t := range a.Spec.AttachmentTickets {
		if t.Type == v1beta2.AttacherTypeCSI {
			n++
		}
	}
	return v.Spec.Migratable && n > 1
}
