package backuptarget

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

const (
	// againFirst is the pause after a look that has failed, which doubles with each one up to
	// againAfter: right after a start there may be no node yet that could look.
	againFirst, againAfter = 2 * time.Second, time.Minute
	// sameMoment is how near the writing of a record may be to the look at it for the look to have
	// missed a change: times have whole seconds, and two clocks.
	sameMoment = 2 * time.Second
)

// decide is the first table of docs/design/backups.md.
func decide(now time.Time, t *v1beta2.BackupTarget, s seen) loop.Decision {
	p := &pass{now: now, t: t, s: s}
	if t.DeletionTimestamp != nil {
		return p.giveUp()
	}
	if d := p.takeDefault(); d.Do != nil {
		return d
	}
	if t.Spec.BackupTargetURL == "" {
		t.Status.OwnerID = s.Owner
		p.available("the backup target has no URL: it is turned off")
		t.Status.LastSyncedAt = metav1.Time{}
		return loop.Decision{Do: p.dropAll()}
	}
	t.Status.OwnerID = s.Owner
	if s.Look.Runs() {
		return loop.Decision{} // its end wakes
	}
	if s.Look.Is(p.order()) {
		if d := p.take(); d.Do != nil {
			return d
		}
	}
	left, ever := p.due()
	switch {
	case !ever:
		return loop.Decision{}
	case left > 0:
		return loop.Decision{After: left}
	}
	return loop.Decision{Do: loop.Call{What: "list the volumes of backup target " + t.Name,
		Order: lookOrder{p.order()}}}
}

// pass is one judgement of a backup target.
type pass struct {
	now time.Time
	t   *v1beta2.BackupTarget
	s   seen
}

// order is a look at the store as the object names it.
func (p *pass) order() string {
	return string(p.t.UID) + " " + p.t.Spec.BackupTargetURL + " " + p.t.Spec.CredentialSecret
}

// interval is the pause between polls; 0: there are none.
func (p *pass) interval() time.Duration {
	d, err := time.ParseDuration(p.t.Spec.PollInterval)
	if err != nil {
		return 0
	}
	return d
}

// requested says whether somebody has asked for a look since the last one began.
func (p *pass) requested() bool {
	asked, last := p.t.Spec.SyncRequestedAt, p.t.Status.LastSyncedAt
	return !asked.IsZero() && !asked.Time.Before(last.Time)
}

// due says when the next look is due: after left, or never.
func (p *pass) due() (left time.Duration, ever bool) {
	poll, asked := p.interval(), p.requested() || p.t.Status.LastSyncedAt.IsZero()
	switch l := p.s.Look; {
	case !l.Is(p.order()) && (asked || poll > 0 || !p.t.Status.Available):
		return 0, true // of this URL, and by this process, there was none yet
	case l.Is(p.order()) && l.Err != nil && (asked || poll > 0):
		return l.Ended.Add(again(l.Failures)).Sub(p.now), true
	case l.Is(p.order()) && p.requested():
		return l.Began.Add(time.Second).Sub(p.now), true // requests have whole seconds
	case poll > 0:
		return l.Began.Add(poll).Sub(p.now), true
	}
	return 0, false
}

// again is the pause after so many looks in a row that have failed.
func again(failures int) time.Duration {
	const most = 5 // doubles
	return min(againFirst<<min(max(failures-1, 0), most), againAfter)
}

// available tells that the store can be used, or why not.
func (p *pass) available(problem string) {
	c := v1beta2.Condition{Type: v1beta2.BackupTargetConditionUnavailable, Status: v1beta2.ConditionFalse}
	if problem != "" {
		c.Status, c.Reason, c.Message = v1beta2.ConditionTrue, v1beta2.BackupTargetReasonUnavailable, problem
	}
	p.t.Status.Available = problem == ""
	p.t.Status.Conditions, _ = v1beta2.SetCondition(p.t.Status.Conditions, c, p.now)
}

// take makes of a look what follows from it, once: lastSyncedAt is written when all of it is done.
func (p *pass) take() loop.Decision {
	l := p.s.Look
	p.available(store.Refusal(l.Err))
	if change := p.role(); change != nil {
		return loop.Decision{Do: change} // without it there may be no other look that succeeds
	}
	began := metav1.NewTime(l.Began.Truncate(time.Second))
	if l.Err != nil || p.t.Status.LastSyncedAt.Equal(&began) {
		return loop.Decision{}
	}
	change := store.Drop(p.s.Volumes, func(v *v1beta2.BackupVolume) bool {
		_, there := l.Result.Volumes[v.Spec.VolumeName]
		younger := !v.CreationTimestamp.Time.Before(began.Time) || !v.Spec.SyncRequestedAt.Time.Before(began.Time)
		return !there && !younger // than the look
	})
	for _, volume := range slices.Sorted(maps.Keys(l.Result.Volumes)) {
		if change == nil {
			change = p.follow(volume, l.Result.Volumes[volume], began)
		}
	}
	if change == nil {
		change = p.followImages(began)
	}
	if change == nil {
		p.t.Status.LastSyncedAt = began
	}
	return loop.Decision{Do: change}
}

// role notes which role of AWS the Secret names, for Pods that are to have it; nil if it is noted.
func (p *pass) role() loop.Change {
	role := p.s.Look.Result.Role
	if role == nil || *role == p.t.Annotations[naming.AnnotationAWSRole] {
		return nil
	}
	c := p.t.DeepCopy()
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, naming.AnnotationAWSRole, *role)
	if *role == "" {
		delete(c.Annotations, naming.AnnotationAWSRole)
	}
	return loop.Update{Object: c}
}

// follow makes the object of a volume that the store has, or has it look where the record has
// changed since it did.
func (p *pass) follow(volume string, modified time.Time, began metav1.Time) loop.Change {
	i := slices.IndexFunc(p.s.Volumes, func(v v1beta2.BackupVolume) bool { return v.Spec.VolumeName == volume })
	if i < 0 {
		v := &v1beta2.BackupVolume{ObjectMeta: metav1.ObjectMeta{Namespace: p.t.Namespace,
			Name: naming.BackupVolumeName(volume, p.t.Name), Finalizers: []string{v1beta2.Finalizer},
			Labels: map[string]string{naming.LabelBackupVolume: volume, naming.LabelBackupTarget: p.t.Name}},
			Spec: v1beta2.BackupVolumeSpec{BackupTargetName: p.t.Name, VolumeName: volume, SyncRequestedAt: began}}
		return loop.Create{Object: v}
	}
	v := &p.s.Volumes[i]
	looked, seen := v.Status.LastSyncedAt, v.Status.LastModificationTime
	unchanged := seen.Time.Equal(modified.Truncate(time.Second)) && looked.Sub(modified).Abs() > sameMoment
	if v.DeletionTimestamp != nil || unchanged || !v.Spec.SyncRequestedAt.Time.Before(began.Time) {
		return nil
	}
	c := v.DeepCopy()
	c.Spec.SyncRequestedAt = began
	return loop.Update{Object: c}
}

// giveUp lets a deleted target go when the objects of what it has are gone. The store keeps what it
// has.
func (p *pass) giveUp() loop.Decision {
	if len(p.s.Volumes)+len(p.s.Images) > 0 {
		return loop.Decision{Do: p.dropAll()}
	}
	c := p.t.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{}
	}
	return loop.Decision{Do: loop.Update{Object: c}}
}
