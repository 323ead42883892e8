package recurringjob

import (
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// kind is the kind of the objects, in references to them.
const kind = "RecurringJob"

// seen is what decide looks at besides the job.
type seen struct {
	// CronJob is that of the job's name, nil if there is none.
	CronJob  *batchv1.CronJob
	Settings podSettings
	// Owner is the node of the leading manager.
	Owner string
	// Left is an attachment with a ticket of a run that has ended, nil if there is none.
	Left *Leftover
}

// Leftover is a ticket whose run has ended without taking it back.
type Leftover struct {
	Attachment *v1beta2.VolumeAttachment
	Ticket     string
}

// Without is the change that takes the ticket out.
func (l Leftover) Without() loop.Change {
	c := l.Attachment.DeepCopy()
	c.Spec.AttachmentTickets = maps.Clone(c.Spec.AttachmentTickets)
	delete(c.Spec.AttachmentTickets, l.Ticket)
	return loop.Update{Object: c}
}

// decide is the decision table of docs/guide/recurring-jobs.md.
func decide(now time.Time, j *v1beta2.RecurringJob, s seen) loop.Decision {
	if j.DeletionTimestamp != nil {
		return loop.Decision{} // what it owns is collected
	}
	j.Status.OwnerID = s.Owner
	ready := v1beta2.Condition{Type: v1beta2.RecurringJobConditionReady, Status: v1beta2.ConditionTrue}
	if j.Spec.Task == v1beta2.RecurringJobTaskSystemBackup {
		ready.Status, ready.Reason = v1beta2.ConditionFalse, v1beta2.RecurringJobReasonSystemBackupsMissing
		ready.Message = "task " + string(j.Spec.Task) + " waits: this version has no system backups, so the CronJob is suspended"
	}
	change, obstacle := keepCronJob(j, s)
	if obstacle != "" {
		ready.Status, ready.Reason, ready.Message = v1beta2.ConditionFalse, v1beta2.RecurringJobReasonNameTaken, obstacle
	}
	j.Status.Conditions, _ = v1beta2.SetCondition(j.Status.Conditions, ready, now)
	if change == nil && s.Left != nil {
		change = s.Left.Without()
	}
	return loop.Decision{Do: change}
}

// keepCronJob makes the CronJob what the job asks for.
func keepCronJob(j *v1beta2.RecurringJob, s seen) (change loop.Change, obstacle string) {
	wanted, have := cronJobFor(j, s.Settings), s.CronJob
	switch {
	case have == nil:
		return loop.Create{Object: wanted}, ""
	case have.DeletionTimestamp != nil:
		return nil, "" // another one is made when it is gone
	case !metav1.IsControlledBy(have, j):
		if of := metav1.GetControllerOf(have); of != nil && of.Kind == kind {
			return loop.Delete{Object: have}, "" // of a former job of the name
		}
		return nil, "CronJob " + have.Name + " is none of the job's; delete it, or name the job otherwise"
	}
	u := have.DeepCopy()
	if u.Labels == nil {
		u.Labels = map[string]string{}
	}
	maps.Copy(u.Labels, wanted.Labels)
	asked := wanted.Annotations[naming.AnnotationLastCronJobSpec]
	if maps.Equal(u.Labels, have.Labels) && have.Annotations[naming.AnnotationLastCronJobSpec] == asked {
		return nil, ""
	}
	if u.Annotations == nil {
		u.Annotations = map[string]string{}
	}
	u.Annotations[naming.AnnotationLastCronJobSpec] = asked
	u.Spec = wanted.Spec
	return loop.Update{Object: u}, ""
}
