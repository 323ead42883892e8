package rest

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

var (
	systemBackups = kind[lh.SystemBackup, *lh.SystemBackup, resource.SystemBackup]{
		typeID: resource.TypeSystemBackup, what: "system backup", view: systemBackupView,
		list: func() (client.ObjectList, *[]lh.SystemBackup) {
			l := &lh.SystemBackupList{}
			return l, &l.Items
		},
	}
	systemRestores = kind[lh.SystemRestore, *lh.SystemRestore, resource.SystemRestore]{
		typeID: resource.TypeSystemRestore, what: "system restore", view: systemRestoreView,
		list: func() (client.ObjectList, *[]lh.SystemRestore) {
			l := &lh.SystemRestoreList{}
			return l, &l.Items
		},
	}
	// supportBundles are at paths of two segments, of which the second is the object's name.
	supportBundles = kind[lh.SupportBundle, *lh.SupportBundle, resource.SupportBundle]{
		typeID: resource.TypeSupportBundle, what: "support bundle", view: supportBundleView,
		list: func() (client.ObjectList, *[]lh.SupportBundle) {
			l := &lh.SupportBundleList{}
			return l, &l.Items
		},
	}
)

// failure is the condition of a type while it is True, nothing otherwise.
func failure(conditions []lh.Condition, conditionType string) lh.Condition {
	if c := lh.FindCondition(conditions, conditionType); c.Status == lh.ConditionTrue {
		return c
	}
	return lh.Condition{}
}

func systemBackupView(q *request, b *lh.SystemBackup) resource.SystemBackup {
	s := &b.Status
	return resource.SystemBackup{Resource: q.envelope(resource.TypeSystemBackup, b.Name, resource.WhenAlways),
		Name: b.Name, VolumeBackupPolicy: string(b.Spec.VolumeBackupPolicy), Version: s.Version,
		ManagerImage: s.ManagerImage, State: string(s.State), CreatedAt: s.CreatedAt.UTC().Format(timeText),
		Error: failure(s.Conditions, lh.SystemBackupConditionError).Message}
}

func systemRestoreView(q *request, r *lh.SystemRestore) resource.SystemRestore {
	return resource.SystemRestore{Resource: q.envelope(resource.TypeSystemRestore, r.Name, resource.WhenAlways),
		Name: r.Name, SystemBackup: r.Spec.SystemBackup, State: string(r.Status.State),
		CreatedAt: r.CreationTimestamp.UTC().Format(timeText),
		Error:     failure(r.Status.Conditions, lh.SystemRestoreConditionError).Message}
}

// supportBundleView has the node as id, as the paths of bundles begin with it.
func supportBundleView(q *request, b *lh.SupportBundle) resource.SupportBundle {
	node := orText(b.Status.OwnerID, b.Spec.NodeID)
	wrong := failure(b.Status.Conditions, lh.SupportBundleConditionError)
	return resource.SupportBundle{Resource: q.envelope(resource.TypeSupportBundle, node, resource.WhenAlways),
		NodeID: node, Name: b.Name, State: string(b.Status.State), ErrorMessage: wrong.Reason + ": " + wrong.Message,
		ProgressPercentage: b.Status.Progress}
}
