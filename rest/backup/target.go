package backup

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// targetSpec reads what a client wants of a backup target. The interval is whole seconds here and a
// duration in the object.
func targetSpec(in *resource.BackupTarget) (lh.BackupTargetSpec, error) {
	seconds, err := strconv.ParseInt(in.PollInterval, 10, 32)
	if err != nil || seconds < 0 {
		return lh.BackupTargetSpec{}, fmt.Errorf("invalid backup target polling interval %q: write a number of seconds, 0 for none",
			in.PollInterval)
	}
	return lh.BackupTargetSpec{BackupTargetURL: in.BackupTargetURL, CredentialSecret: in.CredentialSecret,
		PollInterval: (time.Duration(seconds) * time.Second).String()}, nil
}

// createBackupTarget answers with the target there is if there is one of that name, unchanged.
func createBackupTarget(q *serve.Request) (any, error) {
	var in resource.BackupTarget
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	spec, err := targetSpec(&in)
	t := &lh.BackupTarget{ObjectMeta: metav1.ObjectMeta{Name: in.Name, Namespace: q.Objects.Namespace}, Spec: spec}
	if err == nil {
		err = admission.CheckBackupTarget(nil, t, admission.TargetFacts{}) // what needs the cluster is left to admission
	}
	if err == nil {
		err = q.Objects.Create(q.Context(), t)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("unable to create backup target %s: %w", in.Name, err)
	}
	return backupTargets.Named(q, in.Name)
}

// updateBackupTarget changes the target that the input names; the path's name does not count.
func updateBackupTarget(q *serve.Request) (any, error) {
	var in resource.BackupTarget
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	spec, err := targetSpec(&in)
	if err == nil {
		err = conflict.Retry(func() error {
			var t lh.BackupTarget
			if err := q.Objects.Get(q.Context(), in.Name, &t); err != nil {
				return err
			}
			spec.SyncRequestedAt = t.Spec.SyncRequestedAt
			if samePlace(t.Spec, spec) {
				return nil
			}
			t.Spec = spec
			return q.Objects.Client.Update(q.Context(), &t)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("unable to update backup target %s: %w", in.Name, err)
	}
	return backupTargets.Named(q, in.Name)
}

// samePlace says whether nothing differs, intervals however they are written.
func samePlace(a, b lh.BackupTargetSpec) bool {
	x, errX := time.ParseDuration(cmp.Or(a.PollInterval, "0"))
	y, errY := time.ParseDuration(cmp.Or(b.PollInterval, "0"))
	return a.BackupTargetURL == b.BackupTargetURL && a.CredentialSecret == b.CredentialSecret && errX == nil &&
		errY == nil && x == y
}

// deleteBackupTarget leaves what is in the store.
func deleteBackupTarget(q *serve.Request) (any, error) {
	t := &lh.BackupTarget{ObjectMeta: metav1.ObjectMeta{Name: q.Params["name"], Namespace: q.Objects.Namespace}}
	if err := q.Objects.Client.Delete(q.Context(), t); err != nil {
		return nil, fmt.Errorf("unable to delete backup target %s: %w", t.Name, err)
	}
	return nil, nil
}
