package recurringjob

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting/stored"
)

// Config is what the reconciler is told.
type Config struct {
	Namespace string
	// NodeName is the node this manager runs on.
	NodeName string
	// Image is the manager's, which runs the jobs under ServiceAccount.
	Image, ServiceAccount string
}

// Reconciler looks after RecurringJob objects. Use New.
type Reconciler struct {
	cfg    Config
	client client.Client
	// live reads past the cache.
	live client.Reader
}

// New returns the reconciler.
func New(cfg Config) *Reconciler { return &Reconciler{cfg: cfg} }

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.WithClient(mgr.GetClient(), mgr.GetAPIReader())
	return loop.Setup(mgr, r.cfg.Namespace, r.Controller())
}

// WithClient gives the reconciler its clients where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client, live client.Reader) *Reconciler {
	r.client, r.live = c, live
	return r
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.RecurringJob, seen] {
	return loop.Controller[*v1beta2.RecurringJob, seen]{
		Name:       naming.EventSource("recurring-job"),
		New:        func() *v1beta2.RecurringJob { return &v1beta2.RecurringJob{} },
		Gather:     r.gather,
		Decide:     decide,
		Conditions: conditions,
		Gone:       r.gone,
		Watches: []loop.Watch{
			loop.Watching(&batchv1.CronJob{}, loop.BySameName[*batchv1.CronJob]()),
			loop.WatchingChanges(&corev1.Pod{}, loop.Changed(Running), loop.ByLabel[*corev1.Pod](naming.LabelRecurringJobOwner)),
			loop.WatchingChanges(&v1beta2.VolumeAttachment{}, func(before, after *v1beta2.VolumeAttachment) bool {
				return !equality.Semantic.DeepEqual(before.Spec, after.Spec)
			}, holders),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
		},
	}
}

func conditions(j *v1beta2.RecurringJob) []loop.Condition {
	return loop.Conditions(j.Status.Conditions)
}

// Running says whether a Pod may still work.
func Running(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// holders names the jobs whose runs have tickets of a volume.
func holders(a *v1beta2.VolumeAttachment) []string {
	var out []string
	for _, t := range a.Spec.AttachmentTickets {
		if job := t.Parameters[v1beta2.AttachmentParameterRecurringJob]; job != "" {
			out = append(out, job)
		}
	}
	return out
}

func (r *Reconciler) onSetting(s *v1beta2.Setting) []string {
	if !slices.Contains(shaping, s.Name) {
		return nil
	}
	var list v1beta2.RecurringJobList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is stopping
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out
}

func (r *Reconciler) gather(ctx context.Context, j *v1beta2.RecurringJob) (seen, error) {
	values, err := stored.Read(ctx, r.client, j.Namespace)
	if err != nil {
		return seen{}, err
	}
	s := seen{Settings: settingsFrom(values, r.cfg.Image, r.cfg.ServiceAccount), Owner: r.cfg.NodeName}
	var c batchv1.CronJob
	switch err := r.client.Get(ctx, client.ObjectKeyFromObject(j), &c); {
	case err == nil:
		s.CronJob = &c
	case !apierrors.IsNotFound(err):
		return seen{}, fmt.Errorf("read CronJob %s: %w", j.Name, err)
	}
	s.Left, err = r.leftover(ctx, j.Name)
	return s, err
}

// leftover finds a ticket of a job whose run has ended, nil if there is none.
func (r *Reconciler) leftover(ctx context.Context, job string) (*Leftover, error) {
	var list v1beta2.VolumeAttachmentList
	if err := r.client.List(ctx, &list, client.InNamespace(r.cfg.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list volume attachments: %w", err)
	}
	for i := range list.Items {
		a := &list.Items[i]
		for _, id := range slices.Sorted(maps.Keys(a.Spec.AttachmentTickets)) {
			p := a.Spec.AttachmentTickets[id].Parameters
			if p[v1beta2.AttachmentParameterRecurringJob] != job {
				continue
			}
			switch runs, err := r.runs(ctx, p[v1beta2.AttachmentParameterPod]); {
			case err != nil:
				return nil, err
			case !runs:
				return &Leftover{Attachment: a, Ticket: id}, nil
			}
		}
	}
	return nil, nil
}

// runs says whether the Pod of a run may still work. That it does not is asked of the API server:
// the cache of Pods may be behind that of attachments.
func (r *Reconciler) runs(ctx context.Context, pod string) (bool, error) {
	for _, reader := range []client.Reader{r.client, r.live} {
		var p corev1.Pod
		switch err := reader.Get(ctx, client.ObjectKey{Namespace: r.cfg.Namespace, Name: pod}, &p); {
		case err == nil && Running(&p):
			return true, nil
		case client.IgnoreNotFound(err) != nil:
			return false, fmt.Errorf("read Pod %s: %w", pod, err)
		}
	}
	return false, nil
}

// gone takes back what runs of a job that is deleted have left. The end of a Pod that still works
// wakes the job's name again.
func (r *Reconciler) gone(ctx context.Context, key client.ObjectKey) {
	for {
		left, err := r.leftover(ctx, key.Name)
		if err == nil && left != nil {
			err = r.client.Update(ctx, left.Without().(loop.Update).Object)
			if err == nil {
				slog.Info("took back the attachment ticket of a deleted recurring job", "job", key.Name,
					"volume", left.Attachment.Spec.Volume)
			}
		}
		if err != nil {
			slog.Warn("cannot take back the attachment tickets of a deleted recurring job; its volumes are looked at again "+
				"when they change", "job", key.Name, "err", err)
		}
		if err != nil || left == nil {
			return
		}
	}
}
