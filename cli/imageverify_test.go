package cli

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
)

// verifiedImage plays the controllers: each verification of golden that is ordered is over at once,
// the first one with the first of what is given, and so on.
func (b *bed) verifiedImage(ctx context.Context, each ...lh.BackupVerification) {
	for n := 0; n < len(each) && ctx.Err() == nil; runtime.Gosched() {
		var i lh.BackupBackingImage
		key := client.ObjectKey{Namespace: lh.Namespace, Name: "golden-1a2b3c4d"}
		if err := b.client.Get(context.Background(), key, &i); err != nil {
			b.t.Error(err)
			return
		}
		asked := i.Spec.VerifyRequestedAt
		if asked.IsZero() || i.Status.Verification != nil && i.Status.Verification.RequestedAt.Equal(&asked) {
			continue
		}
		ver := each[n]
		ver.RequestedAt, ver.StartedAt, ver.EndedAt = asked, asked, asked
		b.change(i.Name, &i, func() { i.Status.Verification = &ver })
		n++
	}
}

// TestImageBackupVerify: what is wrong is listed, with the images that it hurts, and tells by the
// exit status; with --repair the result is that of the verification behind it.
func TestImageBackupVerify(t *testing.T) {
	sound := lh.BackupVerification{Blocks: 3, Backups: []lh.VerifiedBackup{{Name: "golden"}}}
	hurt := lh.BackupVerification{Blocks: 3, FaultCount: 2,
		Backups: []lh.VerifiedBackup{{Name: "golden", Faults: 2}, {Name: "x", Faults: 1}}, Faults: []lh.BackupFault{
			{Kind: "missing", Object: "x/y/ab.blk", Backups: []string{"golden", "x"}, BackupCount: 2},
			{Kind: "damaged", Object: "x/y/cd.blk", Backups: []string{"golden"}, BackupCount: 1}}}
	const table = "IMAGE KIND OBJECT IMAGES HURT golden missing ab.blk golden, x golden damaged cd.blk golden"
	const fine = "1 backup of backing images: all sound, 3 blocks were read"
	for name, c := range map[string]struct {
		args  string
		found []lh.BackupVerification
		want  result
	}{
		"sound":          {"golden-1a2b3c4d", []lh.BackupVerification{sound}, result{exitOK, fine, ""}},
		"all":            {"", []lh.BackupVerification{sound}, result{exitOK, fine, ""}},
		"hurt":           {"", []lh.BackupVerification{hurt}, result{exitError, table, "images that are hurt: 2"}},
		"repaired":       {"--repair", []lh.BackupVerification{hurt, sound}, result{exitOK, fine, ""}},
		"not waited for": {"--wait=false", nil, result{exitOK, "verification of 1 backup ordered", ""}},
		"none":           {"none", nil, result{exitError, "", "ankole backing-image-backup list"}},
		"elsewhere":      {"--target other", nil, result{exitError, "", "ankole backing-image-backup list"}},
	} {
		whole := imageBackup("golden-1a2b3c4d", "golden", lh.BackupStateCompleted)
		whole.Status.BackupCreatedAt = "2026-01-02T03:04:05Z"
		b := newBed(t, append(backups(), whole, imageBackup("new-1a2b3c4d", "new", lh.BackupStateInProgress))...)
		ended, end := context.WithCancel(t.Context())
		var controllers sync.WaitGroup
		controllers.Go(func() { b.verifiedImage(ended, c.found...) })
		args := append([]string{"backing-image-backup", "verify", "--timeout", "30s"}, strings.Fields(c.args)...)
		r := b.run(args...)
		if got := strings.Join(strings.Fields(r.out), " "); r.status != c.want.status || got != c.want.out ||
			!strings.Contains(r.err, c.want.err) {
			t.Errorf("%s: %d %q %q, want %+v", name, r.status, got, r.err, c.want)
		}
		end()
		controllers.Wait()
	}
}
