package serve_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
)

// population is what a stream shows in a large cluster, and a change of one of the objects that
// clients see.
type population struct {
	objects []client.Object
	change  func(o client.Object, n int)
}

// many are so many objects, of which a text changes.
func many[T any, P serve.Object[T]](count int, name string, fill func(P), text func(P) *string) population {
	p := population{change: func(o client.Object, n int) { *text(o.(P)) = fmt.Sprint("change-", n) }}
	for i := range count {
		o := P(new(T))
		name := fmt.Sprintf("%s-%05d", name, i)
		o.SetName(name)
		o.SetNamespace(lh.Namespace)
		if fill != nil {
			fill(o)
		}
		p.objects = append(p.objects, o)
	}
	return p
}

// populations are what a cluster of 100 nodes with 1,000 volumes has, each volume with five
// backups.
func populations() map[string]population {
	all := map[string]population{
		"nodes": many(100, "node", func(n *lh.Node) { *n = *resttest.ReadyNode(n.Name) },
			func(n *lh.Node) *string { return &n.Status.Zone }),
		"engineimages": many(5, "ei", func(e *lh.EngineImage) {
			e.Status.NodeDeploymentMap = map[string]bool{}
			for i := range 100 {
				e.Status.NodeDeploymentMap[fmt.Sprintf("node-%05d", i)] = true
			}
		}, func(e *lh.EngineImage) *string { return &e.Status.NoRefSince }),
		"orphans":       many(500, "orphan", nil, func(o *lh.Orphan) *string { return &o.Spec.NodeID }),
		"recurringjobs": many(50, "job", nil, func(j *lh.RecurringJob) *string { return &j.Spec.Cron }),
		"backuptargets": many(3, "target", nil, func(b *lh.BackupTarget) *string { return &b.Spec.BackupTargetURL }),
		"backupvolumes": many(benchVolumes, "volume", nil,
			func(b *lh.BackupVolume) *string { return &b.Status.LastBackupName }),
		"backups": many(5*benchVolumes, "backup", func(b *lh.Backup) {
			b.Status.URL = "s3://backups@here/?backup=" + b.Name + "&volume=pvc-0ff1ce00-0000-4000-8000-000000000000"
			b.Status.Labels = map[string]string{"KubernetesStatus": `{"pvName":"x","namespace":"default"}`,
				"RecurringJob": "daily"}
		}, func(b *lh.Backup) *string { return &b.Status.Error }),
		"backupbackingimages": many(20, "image", nil, func(b *lh.BackupBackingImage) *string { return &b.Status.Error }),
		"backingimages": many(50, "image", func(b *lh.BackingImage) {
			b.Status.DiskFileStatusMap = map[string]lh.BackingImageDiskFileStatus{}
			for i := range 3 {
				b.Status.DiskFileStatusMap[fmt.Sprint("disk-", i)] = lh.BackingImageDiskFileStatus{State: "ready", Progress: 100}
			}
		}, func(b *lh.BackingImage) *string { return &b.Status.Checksum }),
		"systembackups":  many(20, "system", nil, func(b *lh.SystemBackup) *string { return &b.Status.Version }),
		"systemrestores": many(5, "restore", nil, func(r *lh.SystemRestore) *string { return &r.Spec.SystemBackup }),
		"events": many(2*benchVolumes, "event", func(e *corev1.Event) {
			e.InvolvedObject = corev1.ObjectReference{APIVersion: lh.GroupVersion.String(), Kind: "Volume", Name: e.Name}
			e.Type, e.Reason = corev1.EventTypeNormal, "Attached"
		}, func(e *corev1.Event) *string { return &e.Message }),
	}
	settings := population{change: func(o client.Object, n int) { o.(*lh.Setting).Value = fmt.Sprint(n) }}
	for _, d := range setting.Definitions() {
		settings.objects = append(settings.objects, &lh.Setting{ObjectMeta: resttest.Meta(d.Name), Value: d.Default})
	}
	all["settings"] = settings
	volumes := population{change: func(o client.Object, n int) {
		o.(*lh.Engine).Status.Endpoint = fmt.Sprint("/dev/longhorn/", n)
	}}
	attachments := population{change: func(o client.Object, n int) {
		o.(*lh.VolumeAttachment).Spec.AttachmentTickets = map[string]lh.AttachmentTicket{"": {NodeID: fmt.Sprint("node-", n)}}
	}}
	parts, engines := apitest.ManyVolumes(benchVolumes)
	for _, e := range engines {
		volumes.objects = append(volumes.objects, e)
	}
	for _, o := range parts {
		if a, ok := o.(*lh.VolumeAttachment); ok {
			attachments.objects = append(attachments.objects, a)
		}
	}
	all["volumes"], all["volumeattachments"] = volumes, attachments
	return all
}
