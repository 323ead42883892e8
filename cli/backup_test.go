package cli

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// backups are a target, and what it has of a volume: a backup, and one that has failed.
func backups() []client.Object {
	of := map[string]string{"backup-volume": "demo", "backup-target": "default"}
	target := &lh.BackupTarget{ObjectMeta: resttest.Meta("default"), Spec: lh.BackupTargetSpec{
		BackupTargetURL: "s3://b@r/", CredentialSecret: "aws-secret", PollInterval: "300s"}}
	target.Status.Available = true
	volume := &lh.BackupVolume{ObjectMeta: resttest.Meta("demo-1a2b3c4d"), Spec: lh.BackupVolumeSpec{VolumeName: "demo",
		BackupTargetName: "default"}}
	whole := &lh.Backup{ObjectMeta: resttest.Meta("backup-1"), Spec: lh.BackupSpec{SnapshotName: "s1"},
		Status: lh.BackupStatus{State: lh.BackupStateCompleted, Progress: 100, VolumeName: "demo"}}
	failed := &lh.Backup{ObjectMeta: resttest.Meta("backup-2"), Spec: lh.BackupSpec{SnapshotName: "s2"},
		Status: lh.BackupStatus{State: lh.BackupStateError, Progress: 40, Error: "no space in the store"}}
	volume.Labels, whole.Labels, failed.Labels = of, of, of
	return []client.Object{target, volume, whole, failed}
}

// TestBackupIsFollowed: the command waits for the backup that it has ordered, and not for those of
// the same snapshot that were there before; what has become of it is told.
func TestBackupIsFollowed(t *testing.T) {
	for name, want := range map[string]struct {
		state lh.BackupState
		result
	}{
		"complete": {lh.BackupStateCompleted, result{exitOK, "of snapshot s1 of volume demo is complete\n", ""}},
		"failed":   {lh.BackupStateError, result{exitError, "", "of snapshot s1 has failed: the disk has burnt"}},
	} {
		snapshot := &lh.Snapshot{ObjectMeta: resttest.Meta("s1"), Spec: lh.SnapshotSpec{Volume: "demo"},
			Status: lh.SnapshotStatus{ReadyToUse: true, CreationTime: "2026-11-29T08:00:00Z"}}
		b := newBed(t, append(append(cluster(), backups()...), snapshot)...)
		var demo lh.Volume
		b.change("demo", &demo, func() { demo.Spec.BackupTargetName, demo.Spec.BackupBlockSize = "default", 2<<20 })
		ordered, ended := context.WithCancel(t.Context())
		var controllers sync.WaitGroup
		controllers.Go(func() {
			for ordered.Err() == nil {
				var all lh.BackupList
				if err := b.client.List(t.Context(), &all, client.InNamespace(lh.Namespace)); err != nil {
					t.Error(err)
					return
				}
				for i := range all.Items {
					o := &all.Items[i]
					if o.Name == "backup-1" || o.Name == "backup-2" {
						continue
					}
					var now lh.Backup
					b.change(o.Name, &now, func() {
						now.Status = lh.BackupStatus{State: want.state, VolumeName: "demo", SnapshotName: "s1",
							Error: "the disk has burnt", LastSyncedAt: metav1.Now()}
					})
					return
				}
				runtime.Gosched()
			}
		})
		if r := b.run("backup", "create", "demo", "s1", "--timeout", "30s"); r.status != want.status ||
			!strings.HasSuffix(r.out, want.out) || !strings.Contains(r.err, want.err) {
			t.Errorf("%s: %+v", name, r)
		}
		ended()
		controllers.Wait()
	}
}

// verified plays the controllers: a verification of demo that is ordered is over at once, with what
// is given; the second one has the second, and so on.
func (b *bed) verified(ctx context.Context, each ...lh.BackupVerification) {
	for n := 0; n < len(each) && ctx.Err() == nil; runtime.Gosched() {
		var v lh.BackupVolume
		key := client.ObjectKey{Namespace: lh.Namespace, Name: "demo-1a2b3c4d"}
		if err := b.client.Get(context.Background(), key, &v); err != nil {
			b.t.Error(err)
			return
		}
		if asked := v.Spec.VerifyRequestedAt; !asked.IsZero() &&
			(v.Status.Verification == nil || !v.Status.Verification.RequestedAt.Equal(&asked)) {
			ver := each[n]
			ver.RequestedAt, ver.StartedAt = asked, asked
			if ver.EndedAt = asked; ver.Error != "" {
				ver.EndedAt = metav1.Time{}
			}
			b.change(v.Name, &v, func() { v.Status.Verification = &ver })
			n++
		}
	}
}

// TestBackupVerify: what is wrong is listed, with the backups that it hurts, and tells by the exit
// status.
func TestBackupVerify(t *testing.T) {
	sound := lh.BackupVerification{Blocks: 3, Backups: []lh.VerifiedBackup{{Name: "backup-1"}, {Name: "backup-0"}}}
	hurt := sound
	hurt.Backups = []lh.VerifiedBackup{{Name: "backup-1", Faults: 2}, {Name: "backup-0"}}
	hurt.FaultCount, hurt.Faults = 3, []lh.BackupFault{
		{Kind: "missing", Object: "x/y/ab.blk", Message: "gone", Backups: []string{"backup-1"}, BackupCount: 1},
		{Kind: "damaged", Object: "x/y/cd.blk", Backups: []string{"backup-1"}, BackupCount: 3},
		{Kind: "damaged", Object: "x/y/ef.blk"}}
	away := lh.BackupVerification{Error: "no route to host"}
	const table = "VOLUME KIND OBJECT BACKUPS HURT demo missing ab.blk backup-1 demo damaged cd.blk backup-1, and 2 more"
	const orphan = " demo damaged ef.blk none"
	const rest = " of 1 volume: all sound, 3 blocks were read"
	for name, c := range map[string]struct {
		args  string
		found []lh.BackupVerification
		want  result
	}{
		"sound":         {"demo", []lh.BackupVerification{sound}, result{exitOK, "2 backups" + rest, ""}},
		"of the target": {"", []lh.BackupVerification{sound}, result{exitOK, "2 backups" + rest, ""}},
		"of a backup":   {"backup-1", []lh.BackupVerification{sound}, result{exitOK, "1 backup" + rest, ""}},
		"hurt": {"demo", []lh.BackupVerification{hurt}, result{exitError, table + orphan,
			"3 objects damaged or missing; backups that are hurt: 1 of 2; have written again what volumes still hold with: " +
				"ankole backup verify --repair"}},
		"the backup is hurt": {"backup-1", []lh.BackupVerification{hurt}, result{exitError, table,
			"2 objects damaged or missing; backups that are hurt: 1 of 1"}},
		"away": {"demo", []lh.BackupVerification{away}, result{exitError, "",
			"the backups of volume demo on backup target default cannot be verified: no route to host"}},
		"not waited for": {"demo --wait=false", nil, result{exitOK, "verification of 1 backup volume ordered", ""}},
		"repaired, of a volume that is gone": {"demo --repair", []lh.BackupVerification{hurt}, result{exitError,
			table + orphan, "volume demo is not there any more: what is damaged cannot be written again"}},
	} {
		b := newBed(t, backups()...)
		ended, end := context.WithCancel(t.Context())
		var controllers sync.WaitGroup
		controllers.Go(func() { b.verified(ended, c.found...) })
		r := b.run(append([]string{"backup", "verify", "--timeout", "30s"}, strings.Fields(c.args)...)...)
		out := strings.Join(strings.Fields(r.out), " ")
		if r.status != c.want.status || out != c.want.out || !strings.Contains(r.err, c.want.err) {
			t.Errorf("%s: %+v", name, r)
		}
		end()
		controllers.Wait()
	}
}
