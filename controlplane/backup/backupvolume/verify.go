package backupvolume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
)

const (
	// partTakes is how long a part of a verification takes at least, if there is as much: its result
	// is written to the object, and what a leader that ends loses is one part.
	partTakes = 20 * time.Second
	// turnAfter is how long one waits for its turn while another volume of the target is verified.
	turnAfter = 5 * time.Second
	// mostFaults bounds those that the object lists.
	mostFaults = 100
)

// partName is the order of the next part of a volume's verification: of none other that begins in
// the same second, whose requests are a second apart.
func partName(v *v1beta2.BackupVolume) string {
	ver := v.Status.Verification
	return strings.Join([]string{v.Name, string(v.UID), ver.StartedAt.UTC().Format(time.RFC3339),
		ver.RequestedAt.UTC().Format(time.RFC3339), ver.Next}, " ")
}

// partOf is the backup volume of such an order.
func partOf(order string) string {
	name, _, _ := strings.Cut(order, " ")
	return name
}

// nextPart is what is to be read next. The bandwidth is that of who has asked, else the setting's.
func nextPart(v *v1beta2.BackupVolume, settings setting.Values) engineclient.VerifyPart {
	return engineclient.VerifyPart{After: v.Status.Verification.Next, For: partTakes,
		BandwidthMiB: cmp.Or(v.Spec.VerifyBandwidthLimit, int64(settings.Int(setting.BackupVerifyBandwidthLimit)))}
}

// part begins the next part of the verification that the status shows.
func (r *Reconciler) part(v *v1beta2.BackupVolume, t *v1beta2.BackupTarget, settings setting.Values) {
	volume, part := v.Spec.VolumeName, nextPart(v, settings)
	r.parts.Begin(t.Name, partName(v), func(ctx context.Context) (*engineclient.Verified, error) {
		url, err := store.BackupURL(t.Spec.BackupTargetURL, volume, "")
		if err != nil {
			return nil, err
		}
		st, err := r.cfg.Access.Open(ctx, t)
		if err != nil {
			return nil, err
		}
		return st.BackupVerify(ctx, url, part, st.Credentials)
	})
}

// verify has the store's part of the volume verified where that is asked for or due. Of the
// decisions for one target one part is under way at a time, so that its bandwidth is that of one.
//
// Crash window: a part whose result is lost is read again.
func (p *pass) verify() loop.Decision {
	v, e := p.v, p.s.Part
	if p.s.Target == nil || p.s.Target.Spec.BackupTargetURL == "" {
		return loop.Decision{}
	}
	begin, left := p.verifyDue()
	ver := v.Status.Verification
	switch {
	case begin:
		v.Status.Verification = &v1beta2.BackupVerification{RequestedAt: v.Spec.VerifyRequestedAt, StartedAt: p.second()}
		return loop.Decision{}
	case ver == nil || ver.Ended():
		return loop.Decision{After: left}
	case !e.Is(partName(v)):
	case e.Err == nil:
		return p.takePart(e.Result)
	case errors.Is(e.Err, engineclient.ErrNotFound):
		ver.Error, ver.EndedAt = store.Refusal(e.Err), p.second()
		return loop.Decision{}
	case p.now.Before(e.Ended.Add(againAfter)):
		ver.Error = store.Refusal(e.Err)
		return loop.Decision{After: e.Ended.Add(againAfter).Sub(p.now)}
	}
	if e.Runs() {
		return loop.Decision{After: turnAfter}
	}
	return loop.Decision{Do: loop.Call{What: "verify backup volume " + v.Name, Order: orderVerify}}
}

// verifyDue says whether a verification is to begin now, or after left; 0: nobody knows when.
func (p *pass) verifyDue() (now bool, left time.Duration) {
	ver, asked := p.v.Status.Verification, p.v.Spec.VerifyRequestedAt
	switch {
	case !asked.IsZero() && (ver == nil || !ver.RequestedAt.Equal(&asked)):
		return true, 0
	case p.s.Every == 0 || ver != nil && !ver.Ended() || p.v.Status.LastSyncedAt.IsZero():
		return false, 0
	case ver == nil:
		return true, 0
	}
	left = ver.EndedAt.Add(p.s.Every).Sub(p.now)
	return left <= 0, max(left, 0)
}

// second is the time as objects keep it.
func (p *pass) second() metav1.Time { return metav1.NewTime(p.now.Truncate(time.Second)) }

// takePart adds what a part has found to the status.
func (p *pass) takePart(found *engineclient.Verified) loop.Decision {
	ver := p.v.Status.Verification
	if ver.Next == "" { // the first part
		for _, name := range found.Backups {
			ver.Backups = append(ver.Backups, v1beta2.VerifiedBackup{Name: name})
		}
	}
	for name, n := range found.Hurt {
		i := slices.IndexFunc(ver.Backups, func(b v1beta2.VerifiedBackup) bool { return b.Name == name })
		if i < 0 {
			i = len(ver.Backups)
			ver.Backups = append(ver.Backups, v1beta2.VerifiedBackup{Name: name})
		}
		ver.Backups[i].Faults += int64(n)
	}
	slices.SortFunc(ver.Backups, func(a, b v1beta2.VerifiedBackup) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range found.Faults[:min(len(found.Faults), mostFaults-len(ver.Faults))] {
		ver.Faults = append(ver.Faults, v1beta2.BackupFault{Kind: f.Kind, Object: f.Object, Message: f.Error,
			Backups: f.Backups, BackupCount: int64(f.BackupCount)})
	}
	ver.FaultCount += int64(found.FaultCount)
	ver.Blocks, ver.ReadBytes = ver.Blocks+int64(found.Blocks), ver.ReadBytes+found.ReadBytes
	ver.Next, ver.Error, ver.Progress = found.Next, "", 100
	if found.Next != "" {
		ver.Progress = min(99, 100*found.Done/max(found.Total, 1))
		return loop.Decision{}
	}
	ver.EndedAt = p.second()
	return loop.Decision{Events: []loop.Event{verdict(p.v)}}
}

// verdict is the event at the end.
func verdict(v *v1beta2.BackupVolume) loop.Event {
	ver, of := v.Status.Verification, "of volume "+v.Spec.VolumeName+" on backup target "+v.Spec.BackupTargetName
	if ver.FaultCount == 0 {
		return loop.Event{Reason: naming.EventVerified,
			Message: fmt.Sprintf("All %d backups %s are sound: %d blocks were read", len(ver.Backups), of, ver.Blocks)}
	}
	var hurt []string
	for _, b := range ver.Backups {
		if b.Faults > 0 {
			hurt = append(hurt, b.Name)
		}
	}
	const shown = 10
	names := strings.Join(hurt[:min(len(hurt), shown)], ", ")
	if len(hurt) > shown {
		names += ", …"
	}
	return loop.Event{Warning: true, Reason: naming.EventDamaged, Message: fmt.Sprintf("%d objects %s are damaged or "+
		"missing; backups that are hurt: %d %s; back the volume up again: what it still holds is written again",
		ver.FaultCount, of, len(hurt), names)}
}
