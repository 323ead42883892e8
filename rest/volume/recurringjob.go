package volume

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

var recurringJobs = serve.Kind[lh.RecurringJob, *lh.RecurringJob, resource.RecurringJob]{
	TypeID: resource.TypeRecurringJob, What: "recurring job", View: recurringJobView,
	List: func() (client.ObjectList, *[]lh.RecurringJob) {
		l := &lh.RecurringJobList{}
		return l, &l.Items
	},
}

func recurringJobView(q *serve.Request, j *lh.RecurringJob) resource.RecurringJob {
	s := &j.Spec
	return resource.RecurringJob{Resource: q.Envelope(resource.TypeRecurringJob, j.Name, resource.WhenAlways),
		Name: j.Name, Task: string(s.Task), Cron: s.Cron, Groups: s.Groups, Retain: s.Retain, Concurrency: s.Concurrency,
		Labels: s.Labels, Parameters: s.Parameters, RetainAge: s.RetainAge, RetentionPolicy: string(s.RetentionPolicy),
		ExecutionCount: j.Status.ExecutionCount}
}

// fillRecurringJob takes from the input what can be changed later, too.
func fillRecurringJob(s *lh.RecurringJobSpec, in *resource.RecurringJob) {
	s.Cron, s.Groups, s.Retain, s.Concurrency = in.Cron, in.Groups, in.Retain, in.Concurrency
	s.Labels, s.Parameters = in.Labels, in.Parameters
	s.RetainAge, s.RetentionPolicy = in.RetainAge, lh.RetentionPolicy(in.RetentionPolicy)
}

func createRecurringJob(q *serve.Request) (any, error) {
	var in resource.RecurringJob
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := naming.CorrectName(in.Name)
	j := &lh.RecurringJob{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: q.Objects.Namespace},
		Spec: lh.RecurringJobSpec{Name: name, Task: lh.RecurringJobTask(in.Task)}}
	fillRecurringJob(&j.Spec, &in)
	admission.CompleteRecurringJob(j)
	err := admission.CheckRecurringJob(nil, j, 0)
	if err == nil {
		err = q.Objects.Create(q.Context(), j)
	}
	if err != nil {
		return nil, fmt.Errorf("unable to create recurring job %s: %w", in.Name, err)
	}
	return recurringJobs.Named(q, name)
}

// updateRecurringJob replaces everything but name and task, which the input may have and which are
// ignored.
func updateRecurringJob(q *serve.Request) (any, error) {
	var in resource.RecurringJob
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	err := conflict.Retry(func() error {
		var j lh.RecurringJob
		if err := q.Objects.Get(q.Context(), name, &j); err != nil {
			return err
		}
		old := j.DeepCopy()
		fillRecurringJob(&j.Spec, &in)
		admission.CompleteRecurringJob(&j)
		if err := admission.CheckRecurringJob(old, &j, 0); err != nil {
			return err
		}
		return q.Objects.Client.Update(q.Context(), &j)
	})
	if err != nil {
		return nil, fmt.Errorf("unable to update recurring job %s: %w", name, err)
	}
	return recurringJobs.Named(q, name)
}

// deleteRecurringJob deletes a job and takes its label off the volumes that follow it. The job goes
// first: where this is interrupted, labels of a job that does not exist are left, which mean
// nothing. Asked again it takes them off, too.
func deleteRecurringJob(q *serve.Request) (any, error) {
	name := q.Params["name"]
	j := &lh.RecurringJob{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: q.Objects.Namespace}}
	missing := q.Objects.Client.Delete(q.Context(), j)
	if client.IgnoreNotFound(missing) != nil {
		return nil, fmt.Errorf("unable to delete recurring job %s: %w", name, missing)
	}
	if err := dropJob(q, q.Context(), naming.LabelRecurringJobPrefix+name); err != nil {
		return nil, fmt.Errorf("recurring job %s is deleted; delete it again to take its label off all volumes: %w", name, err)
	}
	if missing != nil {
		return nil, fmt.Errorf("unable to delete recurring job %s: %w", name, missing)
	}
	return nil, nil
}

// dropJob takes a label off all volumes.
func dropJob(q *serve.Request, ctx context.Context, label string) error {
	var volumes lh.VolumeList
	err := q.Objects.Live.List(ctx, &volumes, client.InNamespace(q.Objects.Namespace), client.HasLabels{label})
	if err != nil {
		return fmt.Errorf("listing volumes: %w", err)
	}
	for _, v := range volumes.Items {
		if _, follows := v.Labels[label]; !follows {
			continue // a name that cannot be a label selects everything
		}
		err := editVolume(q, v.Name, func(v *lh.Volume) error {
			delete(v.Labels, label)
			return nil
		})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	return nil
}
