package recurringjob

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

var testNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func testJob() *v1beta2.RecurringJob {
	return &v1beta2.RecurringJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hourly.snap", UID: "uid"},
		Spec: v1beta2.RecurringJobSpec{Name: "hourly.snap", Task: v1beta2.RecurringJobTaskSnapshot, Cron: "@hourly",
			Groups: []string{"default"}, Retain: 2, Concurrency: 1},
	}
}

func testSettings() podSettings {
	return settingsFrom(setting.Values{
		setting.RegistrySecret: "pull", setting.PriorityClass: "first", setting.TaintToleration: "a=b:NoSchedule",
		setting.SystemManagedComponentsNodeSelector: "disk:ssd", setting.SystemManagedPodsImagePullPolicy: "always",
		setting.RecurringSuccessfulJobsHistoryLimit: "3", setting.RecurringFailedJobsHistoryLimit: "4",
	}, "manager:1", "account")
}

// settle makes decisions until there is no change left, as the loop does, and returns the changes.
func settle(t *testing.T, j *v1beta2.RecurringJob, s *seen) []string {
	t.Helper()
	var did []string
	for range 10 {
		d := decide(testNow, j, *s)
		if d.Do == nil {
			return did
		}
		did = append(did, d.Do.String())
		switch c := d.Do.(type) {
		case loop.Create:
			s.CronJob = c.Object.(*batchv1.CronJob)
		case loop.Update:
			if made, ok := c.Object.(*batchv1.CronJob); ok {
				s.CronJob = made
			} else {
				s.Left = nil
			}
		case loop.Delete:
			s.CronJob = nil
		}
	}
	t.Fatalf("it does not settle: %v", did)
	return nil
}

// TestDecide: the CronJob follows the job, whoever had its name before.
func TestDecide(t *testing.T) {
	of := func(kind, uid string) *batchv1.CronJob {
		yes := true
		return &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hourly.snap",
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "hourly.snap", UID: "x", Controller: &yes}}}}
	}
	ending := cronJobFor(testJob(), testSettings())
	ending.DeletionTimestamp = &metav1.Time{Time: testNow}
	for _, tt := range []struct {
		name   string
		have   *batchv1.CronJob
		edit   func(*v1beta2.RecurringJob, *seen)
		want   string
		status v1beta2.ConditionStatus
		reason string
	}{
		{name: "new", want: "create *v1.CronJob ns/hourly.snap", status: "True"},
		{name: "settled", have: cronJobFor(testJob(), testSettings()), status: "True"},
		{name: "another schedule", have: cronJobFor(testJob(), testSettings()),
			edit: func(j *v1beta2.RecurringJob, _ *seen) { j.Spec.Cron = "@daily" },
			want: "update *v1.CronJob ns/hourly.snap", status: "True"},
		{name: "another image", have: cronJobFor(testJob(), testSettings()),
			edit: func(_ *v1beta2.RecurringJob, s *seen) { s.Settings.image = "manager:2" },
			want: "update *v1.CronJob ns/hourly.snap", status: "True"},
		{name: "retain is the run's affair", have: cronJobFor(testJob(), testSettings()),
			edit: func(j *v1beta2.RecurringJob, _ *seen) { j.Spec.Retain = 9 }, status: "True"},
		{name: "label lost", have: cronJobFor(testJob(), testSettings()),
			edit: func(_ *v1beta2.RecurringJob, s *seen) { s.CronJob.Labels = nil },
			want: "update *v1.CronJob ns/hourly.snap", status: "True"},
		{name: "of a former job", have: of("RecurringJob", "x"),
			want: "delete *v1.CronJob ns/hourly.snap; create *v1.CronJob ns/hourly.snap", status: "True"},
		{name: "of somebody else", have: of("Deployment", "x"), status: "False",
			reason: v1beta2.RecurringJobReasonNameTaken},
		{name: "nobody's", have: &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "hourly.snap"}}, status: "False",
			reason: v1beta2.RecurringJobReasonNameTaken},
		{name: "on its way out", have: ending, status: "True"},
		{name: "backups", edit: func(j *v1beta2.RecurringJob, _ *seen) { j.Spec.Task = v1beta2.RecurringJobTaskBackup },
			want: "create *v1.CronJob ns/hourly.snap", status: "True"},
		{name: "system backups", edit: func(j *v1beta2.RecurringJob, _ *seen) {
			j.Spec.Task = v1beta2.RecurringJobTaskSystemBackup
		}, want: "create *v1.CronJob ns/hourly.snap", status: "False",
			reason: v1beta2.RecurringJobReasonSystemBackupsMissing},
		{name: "a run has left its ticket", have: cronJobFor(testJob(), testSettings()),
			edit: func(_ *v1beta2.RecurringJob, s *seen) { s.Left = leftTicket() },
			want: "update *v1beta2.VolumeAttachment ns/v", status: "True"},
		{name: "deleted", status: "Unknown", edit: func(j *v1beta2.RecurringJob, _ *seen) {
			j.DeletionTimestamp = &metav1.Time{Time: testNow}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j, s := testJob(), seen{CronJob: tt.have, Settings: testSettings(), Owner: "n1"}
			if tt.edit != nil {
				tt.edit(j, &s)
			}
			if got := strings.Join(settle(t, j, &s), "; "); got != tt.want {
				t.Errorf("changes %q, want %q", got, tt.want)
			}
			c := v1beta2.FindCondition(j.Status.Conditions, v1beta2.RecurringJobConditionReady)
			if c.Status != tt.status || c.Reason != tt.reason {
				t.Errorf("condition %+v", c)
			}
			if owned := tt.name != "deleted"; owned != (j.Status.OwnerID == "n1") {
				t.Errorf("owner %q", j.Status.OwnerID)
			}
		})
	}
}

func leftTicket() *Leftover {
	a := &v1beta2.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"}}
	a.Spec.Volume = "v"
	a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"mine": {ID: "mine"}, "other": {ID: "other"}}
	return &Leftover{Attachment: a, Ticket: "mine"}
}

// TestLeftover: only the ticket goes.
func TestLeftover(t *testing.T) {
	l := leftTicket()
	got := l.Without().(loop.Update).Object.(*v1beta2.VolumeAttachment)
	if len(got.Spec.AttachmentTickets) != 1 || got.Spec.AttachmentTickets["other"].ID != "other" {
		t.Errorf("left: %v", got.Spec.AttachmentTickets)
	}
	if len(l.Attachment.Spec.AttachmentTickets) != 2 {
		t.Error("the cache's object was changed")
	}
}

// TestCronJob: what clients and operators of the reference know of the CronJob.
func TestCronJob(t *testing.T) {
	c := cronJobFor(testJob(), testSettings())
	labels := map[string]string{"recurring-job.longhorn.io": "hourly.snap"}
	pod := c.Spec.JobTemplate.Spec.Template
	for what, have := range map[string]map[string]string{"CronJob": c.Labels, "Job": c.Spec.JobTemplate.Labels,
		"Pod": pod.Labels} {
		if len(have) != 1 || have["recurring-job.longhorn.io"] != labels["recurring-job.longhorn.io"] {
			t.Errorf("%s has labels %v", what, have)
		}
	}
	if c.Name != "hourly.snap" || !metav1.IsControlledBy(c, testJob()) {
		t.Errorf("name %s, owners %v", c.Name, c.OwnerReferences)
	}
	if !strings.Contains(c.Annotations["longhorn.io/last-applied-cronjob-spec"], `"schedule":"@hourly"`) {
		t.Errorf("annotations %v", c.Annotations)
	}
	if c.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent || *c.Spec.JobTemplate.Spec.BackoffLimit != 3 ||
		*c.Spec.SuccessfulJobsHistoryLimit != 3 || *c.Spec.FailedJobsHistoryLimit != 4 || *c.Spec.Suspend {
		t.Errorf("specification %+v", c.Spec)
	}
	p := pod.Spec
	if p.ServiceAccountName != "account" || p.PriorityClassName != "first" || len(p.Tolerations) != 1 ||
		p.NodeSelector["disk"] != "ssd" || p.ImagePullSecrets[0].Name != "pull" ||
		p.RestartPolicy != corev1.RestartPolicyOnFailure {
		t.Errorf("Pod %+v", p)
	}
	run := p.Containers[0]
	if run.Name != "hourly-snap" || run.Image != "manager:1" || run.ImagePullPolicy != corev1.PullAlways ||
		strings.Join(run.Command, " ") != "longhorn-manager recurring-job hourly.snap" {
		t.Errorf("container %+v", run)
	}
	token := p.Volumes[0].Projected.Sources[0].ServiceAccountToken
	file := run.VolumeMounts[0].MountPath + "/" + token.Path
	if file != TokenFile || token.Audience != "longhorn-backend" {
		t.Errorf("it has a token for %s in %s", token.Audience, file)
	}
	if c := run.SecurityContext; !*c.RunAsNonRoot || *c.RunAsUser == 0 || *c.AllowPrivilegeEscalation ||
		!*c.ReadOnlyRootFilesystem || len(c.Capabilities.Drop) != 1 || c.Capabilities.Drop[0] != "ALL" {
		t.Errorf("it may on its node: %+v", c)
	}
}

// TestFollows: labels choose jobs and groups; without any a volume is in group default.
func TestFollows(t *testing.T) {
	for _, tt := range []struct {
		labels map[string]string
		groups string
		want   bool
	}{
		{nil, "default", true},
		{nil, "nightly", false},
		{map[string]string{naming.LabelVolume: "v"}, "nightly,default", true},
		{map[string]string{"recurring-job.longhorn.io/hourly.snap": "enabled"}, "", true},
		{map[string]string{"recurring-job.longhorn.io/hourly.snap": "disabled"}, "", false},
		{map[string]string{"recurring-job.longhorn.io/other": "enabled"}, "default", false},
		{map[string]string{"recurring-job.longhorn.io/source": "enabled"}, "default", true},
		{map[string]string{"recurring-job-group.longhorn.io/nightly": "enabled"}, "nightly", true},
		{map[string]string{"recurring-job-group.longhorn.io/nightly": "enabled"}, "default", false},
		{map[string]string{"recurring-job-group.longhorn.io/default": "enabled"}, "default", true},
	} {
		j := testJob()
		j.Spec.Groups = strings.Split(tt.groups, ",")
		if got := Follows(&v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Labels: tt.labels}}, j); got != tt.want {
			t.Errorf("labels %v, groups %s: %v", tt.labels, tt.groups, got)
		}
	}
}
