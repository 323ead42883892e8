package backup

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// mostBandwidth is what an order may name, in MiB per second.
const mostBandwidth = 1 << 20

// verifiable is an object whose backups can be verified.
type verifiable struct {
	object client.Object
	// what it is, in refusals; whose backups these are stands in view.
	what string
	view resource.BackupVerification
	// notYet is why there is nothing to verify; empty if there is.
	notYet string
	// requestedAt and bandwidthLimit are the fields of its spec; latest is of its status.
	requestedAt    *metav1.Time
	bandwidthLimit *int64
	latest         *lh.BackupVerification
}

// ofVolume are those of a volume.
func ofVolume(v *lh.BackupVolume) verifiable {
	return verifiable{object: v, what: "backup volume", view: resource.BackupVerification{BackupVolume: v.Name,
		Volume: v.Spec.VolumeName, Target: v.Spec.BackupTargetName}, requestedAt: &v.Spec.VerifyRequestedAt,
		bandwidthLimit: &v.Spec.VerifyBandwidthLimit, latest: v.Status.Verification}
}

// ofImage is that of a backing image.
func ofImage(b *lh.BackupBackingImage) verifiable {
	v := verifiable{object: b, what: "backup backing image", view: resource.BackupVerification{BackupBackingImage: b.Name,
		BackingImage: b.Spec.BackingImage, Target: b.Spec.BackupTargetName}, requestedAt: &b.Spec.VerifyRequestedAt,
		bandwidthLimit: &b.Spec.VerifyBandwidthLimit, latest: b.Status.Verification}
	if b.Status.BackupCreatedAt == "" {
		v.notYet = "the backup is not complete"
	}
	return v
}

// getVerification tells of the latest verification.
func getVerification[T any, P interface {
	*T
	client.Object
}](of func(P) verifiable) serve.Handler {
	return func(q *serve.Request) (any, error) {
		o := P(new(T))
		if err := q.Objects.Get(q.Context(), q.Params["name"], o); err != nil {
			return nil, err
		}
		return of(o).verification(), nil
	}
}

// orderVerification orders one. It is answered at once. One that is asked for and not over yet is
// taken for it, so that it does not begin again.
func orderVerification[T any, P interface {
	*T
	client.Object
}](of func(P) verifiable) serve.Handler {
	return func(q *serve.Request) (any, error) {
		var in resource.VerifyBackupsInput
		if err := q.Decode(&in); err != nil {
			return nil, err
		}
		name, o := q.Params["name"], P(new(T))
		refuse := func(why error) error { return fmt.Errorf("unable to verify %s %s: %w", of(o).what, name, why) }
		if in.BandwidthLimit < 0 || in.BandwidthLimit > mostBandwidth {
			return nil, refuse(fmt.Errorf("bandwidthLimit %d is not between 0 and %d MiB per second", in.BandwidthLimit,
				mostBandwidth))
		}
		err := conflict.Retry(func() error {
			if err := q.Objects.Get(q.Context(), name, o); err != nil {
				return err
			}
			v := of(o)
			if err := v.check(q.Context(), q.Objects); err != nil {
				return err
			}
			*v.bandwidthLimit = in.BandwidthLimit
			if state := v.verification().State; state == resource.VerificationNone || state == resource.VerificationDone {
				*v.requestedAt = after(*v.requestedAt, time.Now())
			}
			return q.Objects.Client.Update(q.Context(), o)
		})
		if err != nil {
			return nil, refuse(err)
		}
		return of(o).verification(), nil
	}
}

// after is now in whole seconds, as objects have times, and later than before.
func after(before metav1.Time, now time.Time) metav1.Time {
	now = now.Truncate(time.Second)
	if !now.After(before.Time) {
		now = before.Add(time.Second)
	}
	return metav1.NewTime(now)
}

// check refuses what could not begin.
func (v verifiable) check(ctx context.Context, o *serve.Objects) error {
	var t lh.BackupTarget
	err := o.Get(ctx, v.view.Target, &t)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("its backup target %q does not exist", v.view.Target)
	case err != nil:
		return err
	case v.object.GetDeletionTimestamp() != nil:
		return fmt.Errorf("the %s is being deleted", v.what)
	case t.Spec.BackupTargetURL == "":
		return fmt.Errorf("backup target %s has no URL: set it first", t.Name)
	case !t.Status.Available:
		return fmt.Errorf("backup target %s is not available: %s", t.Name,
			lh.FindCondition(t.Status.Conditions, lh.BackupTargetConditionUnavailable).Message)
	case v.notYet != "":
		return fmt.Errorf("%s", v.notYet)
	}
	return nil
}

// verification is the latest one, as clients see it.
func (v verifiable) verification() *resource.BackupVerification {
	out, ver, asked := v.view, v.latest, *v.requestedAt
	out.State, out.RequestedAt = resource.VerificationNone, rfc3339(asked)
	out.Backups, out.Faults = []resource.VerifiedBackup{}, []resource.BackupFault{}
	switch {
	case !asked.IsZero() && (ver == nil || !ver.RequestedAt.Equal(&asked)):
		out.State = resource.VerificationWaiting
		return &out
	case ver == nil:
		return &out
	case ver.Ended():
		out.State = resource.VerificationDone
	default:
		out.State = resource.VerificationInProgress
	}
	out.StartedAt, out.EndedAt = rfc3339(ver.StartedAt), rfc3339(ver.EndedAt)
	out.Progress, out.Blocks, out.ReadBytes = ver.Progress, ver.Blocks, ver.ReadBytes
	out.FaultCount, out.Error = ver.FaultCount, ver.Error
	for _, b := range ver.Backups {
		out.Backups = append(out.Backups, resource.VerifiedBackup{Name: b.Name, Faults: b.Faults})
	}
	for _, f := range ver.Faults {
		out.Faults = append(out.Faults, resource.BackupFault{Kind: f.Kind, Object: f.Object, Message: f.Message,
			Backups: append([]string{}, f.Backups...), BackupCount: f.BackupCount})
	}
	return &out
}

// rfc3339 is a time as text; empty: there is none.
func rfc3339(t metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
