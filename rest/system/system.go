package system

import (
	"cmp"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

var (
	systemBackups = serve.Kind[lh.SystemBackup, *lh.SystemBackup, resource.SystemBackup]{
		TypeID: resource.TypeSystemBackup, What: "system backup", View: systemBackupView,
		List: func() (client.ObjectList, *[]lh.SystemBackup) {
			l := &lh.SystemBackupList{}
			return l, &l.Items
		},
	}
	systemRestores = serve.Kind[lh.SystemRestore, *lh.SystemRestore, resource.SystemRestore]{
		TypeID: resource.TypeSystemRestore, What: "system restore", View: systemRestoreView,
		List: func() (client.ObjectList, *[]lh.SystemRestore) {
			l := &lh.SystemRestoreList{}
			return l, &l.Items
		},
	}
	// supportBundles are at paths of two segments, of which the second is the object's name.
	supportBundles = serve.Kind[lh.SupportBundle, *lh.SupportBundle, resource.SupportBundle]{
		TypeID: resource.TypeSupportBundle, What: "support bundle", View: supportBundleView,
		List: func() (client.ObjectList, *[]lh.SupportBundle) {
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

func systemBackupView(q *serve.Request, b *lh.SystemBackup) resource.SystemBackup {
	s := &b.Status
	return resource.SystemBackup{Resource: q.Envelope(resource.TypeSystemBackup, b.Name, resource.WhenAlways),
		Name: b.Name, VolumeBackupPolicy: string(b.Spec.VolumeBackupPolicy), Version: s.Version,
		ManagerImage: s.ManagerImage, State: string(s.State), CreatedAt: s.CreatedAt.UTC().Format(serve.TimeText),
		Error: failure(s.Conditions, lh.SystemBackupConditionError).Message}
}

func systemRestoreView(q *serve.Request, r *lh.SystemRestore) resource.SystemRestore {
	return resource.SystemRestore{Resource: q.Envelope(resource.TypeSystemRestore, r.Name, resource.WhenAlways),
		Name: r.Name, SystemBackup: r.Spec.SystemBackup, State: string(r.Status.State),
		CreatedAt: r.CreationTimestamp.UTC().Format(serve.TimeText),
		Error:     failure(r.Status.Conditions, lh.SystemRestoreConditionError).Message}
}

// supportBundleView has the node as id, as the paths of bundles begin with it.
func supportBundleView(q *serve.Request, b *lh.SupportBundle) resource.SupportBundle {
	node := cmp.Or(b.Status.OwnerID, b.Spec.NodeID)
	wrong := failure(b.Status.Conditions, lh.SupportBundleConditionError)
	return resource.SupportBundle{Resource: q.Envelope(resource.TypeSupportBundle, node, resource.WhenAlways),
		NodeID: node, Name: b.Name, State: string(b.Status.State), ErrorMessage: wrong.Reason + ": " + wrong.Message,
		ProgressPercentage: b.Status.Progress}
}
