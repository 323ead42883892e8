package admission

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

var recurringJobs = kind[*v1beta2.RecurringJob]{
	plural:     "recurringjobs",
	create:     func() *v1beta2.RecurringJob { return &v1beta2.RecurringJob{} },
	onValidate: createUpdate,
	onMutate:   createUpdate,
	mutator: func(_ context.Context, _ world, r request[*v1beta2.RecurringJob]) error {
		if r.created() {
			r.new.Name = naming.CorrectName(r.new.Name)
		}
		CompleteRecurringJob(r.new)
		return nil
	},
	checker: func(ctx context.Context, w world, r request[*v1beta2.RecurringJob]) error {
		if r.updated() && r.new.Spec.Retain == r.old.Spec.Retain {
			return CheckRecurringJob(r.old, r.new, 0)
		}
		values, err := w.settings(ctx)
		if err != nil {
			return err
		}
		return CheckRecurringJob(r.old, r.new, values.Int(setting.RecurringJobMaxRetention))
	},
}

// jobTasks are the tasks of recurring jobs.
var jobTasks = []v1beta2.RecurringJobTask{v1beta2.RecurringJobTaskSnapshot,
	v1beta2.RecurringJobTaskSnapshotForceCreate, v1beta2.RecurringJobTaskSnapshotCleanup,
	v1beta2.RecurringJobTaskSnapshotDelete, v1beta2.RecurringJobTaskBackup, v1beta2.RecurringJobTaskBackupForceCreate,
	v1beta2.RecurringJobTaskFilesystemTrim, v1beta2.RecurringJobTaskSystemBackup}

// defaultJobConcurrency is how many volumes a job that says nothing works on at a time.
const defaultJobConcurrency = 10

// noRetainAge is the age of a job that counts its results.
const noRetainAge = "0s"

// keepsNothing says whether a task has no results of its own, so that it keeps none.
func keepsNothing(task v1beta2.RecurringJobTask) bool {
	return task == v1beta2.RecurringJobTaskSnapshotCleanup || task == v1beta2.RecurringJobTaskFilesystemTrim
}

// CompleteRecurringJob fills in what a job may leave out. It gets no finalizer: its deletion takes
// nothing away from volumes but work.
func CompleteRecurringJob(j *v1beta2.RecurringJob) {
	s := &j.Spec
	if s.Name == "" || naming.CorrectName(s.Name) == j.Name {
		s.Name = j.Name
	}
	if s.Groups == nil {
		s.Groups = []string{}
	}
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	if s.Parameters == nil {
		s.Parameters = map[string]string{}
	}
	if s.Concurrency == 0 {
		s.Concurrency = defaultJobConcurrency
	}
	switch {
	case keepsNothing(s.Task):
		s.Retain = 0
	case s.Task == v1beta2.RecurringJobTaskSnapshotDelete:
		s.Retain = max(s.Retain, 0)
	default:
		s.Retain = max(s.Retain, 1)
	}
	orElse(&s.RetentionPolicy, v1beta2.RetentionPolicyCountBased)
	if age, err := time.ParseDuration(s.RetainAge); s.RetainAge == "" || err == nil && age == 0 {
		s.RetainAge = noRetainAge
	}
}

// CheckRecurringJob refuses a job that cannot be (old nil: creation). maxRetain is the setting
// recurring-job-max-retention, 0 where it is not to be asked.
func CheckRecurringJob(old, j *v1beta2.RecurringJob, maxRetain int) error {
	s := &j.Spec
	return firstOf(
		func() error {
			if old != nil {
				return nil
			}
			if err := naming.CheckName(j.Name); err != nil {
				return invalid("invalid name %s for recurring job: %v", j.Name, err)
			}
			return nil
		},
		func() error {
			switch {
			case s.Name == "":
				return invalid("recurring job %s: spec.name is empty", j.Name)
			case len(s.Name) > naming.MaxNameLength:
				return invalid("recurring job %s: spec.name %s has more than %d characters", j.Name, s.Name, naming.MaxNameLength)
			case !slices.Contains(jobTasks, s.Task):
				return invalid("recurring job %s has the unknown task %q", j.Name, s.Task)
			case s.Concurrency < 1:
				return invalid("recurring job %s works on %d volumes at a time, it should be at least 1", j.Name, s.Concurrency)
			case maxRetain > 0 && s.Retain > maxRetain:
				return invalid("retain value should be less than or equal to %d: recurring job %s has %d", maxRetain, j.Name,
					s.Retain)
			}
			if err := setting.CheckCron(s.Cron); err != nil {
				return invalid("invalid cron format (%s) of recurring job %s: %v", s.Cron, j.Name, err)
			}
			return nil
		},
		func() error { return checkRetention(j) },
		func() error { return checkJobGroups(j) },
		func() error { return checkJobLabels(old, j) },
		func() error { return checkJobParameters(j) },
	)
}

// checkRetention judges what says how long results are kept.
func checkRetention(j *v1beta2.RecurringJob) error {
	s := &j.Spec
	counted := !keepsNothing(s.Task) && s.Task != v1beta2.RecurringJobTaskSnapshotDelete
	age, err := time.ParseDuration(s.RetainAge)
	switch {
	case err != nil:
		return invalid("recurring job %s: retainAge %q is no duration such as 72h", j.Name, s.RetainAge)
	case age < 0:
		return invalid("recurring job %s: retainAge %s should not be negative", j.Name, s.RetainAge)
	case s.Retain < 0:
		return invalid("recurring job %s: retain %d should not be negative", j.Name, s.Retain)
	case s.RetentionPolicy == v1beta2.RetentionPolicyCountBased:
		if counted && s.Retain <= 0 {
			return invalid("recurring job %s with task %s should retain at least 1", j.Name, s.Task)
		}
	case s.RetentionPolicy != v1beta2.RetentionPolicyAgeBased:
		return invalid("recurring job %s has the unknown retention policy %q", j.Name, s.RetentionPolicy)
	case !counted:
		return invalid("recurring job %s with task %s cannot have retention policy age-based", j.Name, s.Task)
	}
	return nil
}

// checkJobGroups judges the groups of a job, which become part of a label's key.
func checkJobGroups(j *v1beta2.RecurringJob) error {
	for _, g := range j.Spec.Groups {
		if problems := naming.TagProblems(naming.LabelRecurringJobGroupPrefix + g); len(problems) > 0 {
			return invalid("invalid group name %q of recurring job %s: %s", g, j.Name, strings.Join(problems, "; "))
		}
	}
	return nil
}

// reservedLabels are what the system itself labels backups with.
var reservedLabels = []string{naming.LabelKubernetesStatus, "ranchervm-base-image"}

// checkJobLabels judges the labels that the snapshots and backups of a job get. One that is stored
// keeps nothing else from being changed, unless no engine could be given it.
func checkJobLabels(old, j *v1beta2.RecurringJob) error {
	var was map[string]string
	if old != nil {
		was = old.Spec.Labels
	}
	for _, k := range slices.Sorted(maps.Keys(j.Spec.Labels)) {
		v := j.Spec.Labels[k]
		if strings.Contains(k, "=") || strings.Contains(v, "=") {
			return invalid("recurring job %s: label %q with value %q contains =", j.Name, k, v)
		}
		if stored, there := was[k]; there && stored == v {
			continue
		}
		problems := naming.TagProblems(k)
		switch {
		case len(problems) > 0:
			return invalid("recurring job %s: invalid key %q of a label: %s", j.Name, k, strings.Join(problems, "; "))
		case v == "":
			return invalid("recurring job %s: label %s has no value", j.Name, k)
		case slices.Contains(reservedLabels, k):
			return invalid("recurring job %s: label %s is reserved for the system", j.Name, k)
		}
	}
	return nil
}

// checkJobParameters knows two parameters. One that a task does not use is not refused.
func checkJobParameters(j *v1beta2.RecurringJob) error {
	for k, v := range j.Spec.Parameters {
		switch k {
		case v1beta2.RecurringJobParameterFullBackupInterval:
			if n, err := strconv.Atoi(v); err != nil || n < 0 {
				return invalid("recurring job %s: parameter %s is %q, it should be a number of backups", j.Name, k, v)
			}
		case v1beta2.RecurringJobParameterVolumeBackupPolicy:
			switch v1beta2.VolumeBackupPolicy(v) {
			case v1beta2.VolumeBackupPolicyAlways, v1beta2.VolumeBackupPolicyIfNotPresent, v1beta2.VolumeBackupPolicyDisabled:
			default:
				return invalid("recurring job %s: parameter %s is %q, it should be always, if-not-present or disabled", j.Name, k, v)
			}
		default:
			return invalid("recurring job %s has the unknown parameter %q", j.Name, k)
		}
	}
	return nil
}
