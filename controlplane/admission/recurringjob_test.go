package admission

import (
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// jobOf is a job that nothing is wrong with, but what edit does to it.
func jobOf(name string, edit func(*v1beta2.RecurringJobSpec)) *v1beta2.RecurringJob {
	return named(&v1beta2.RecurringJob{}, name, nil, func(j *v1beta2.RecurringJob) {
		j.Spec = v1beta2.RecurringJobSpec{Name: name, Task: "snapshot", Cron: "0 3 * * *", Retain: 7, Concurrency: 2,
			RetainAge: "0s", RetentionPolicy: "count-based", Groups: []string{}, Labels: map[string]string{},
			Parameters: map[string]string{}}
		if edit != nil {
			edit(&j.Spec)
		}
	})
}

// TestRecurringJobs has the rules of new and changed jobs.
func TestRecurringJobs(t *testing.T) {
	type spec = v1beta2.RecurringJobSpec
	w, plural := worldOf(t, valueOf("recurring-job-max-retention", "50")), "recurringjobs"
	task := func(name string, retain int, policy string) func(*spec) {
		return func(s *spec) {
			s.Task, s.Retain = v1beta2.RecurringJobTask(name), retain
			s.RetentionPolicy, s.RetainAge = v1beta2.RetentionPolicy(policy), "72h"
		}
	}
	labels := func(key, value string) func(*spec) {
		return func(s *spec) { s.Labels = map[string]string{key: value} }
	}
	parameter := func(key, value string) func(*spec) {
		return func(s *spec) { s.Parameters = map[string]string{key: value} }
	}
	for _, tt := range []struct {
		name string
		edit func(*spec)
		want string
	}{
		{"whole", nil, ""},
		{"no name", func(s *spec) { s.Name = "" }, "spec.name is empty"},
		{"long name", func(s *spec) { s.Name = strings.Repeat("n", 41) }, "more than 40 characters"},
		{"no task", func(s *spec) { s.Task = "" }, "unknown task"},
		{"unknown task", func(s *spec) { s.Task = "snap" }, `unknown task "snap"`},
		{"no cron", func(s *spec) { s.Cron = "" }, "invalid cron format"},
		{"six fields", func(s *spec) { s.Cron = "0 0 3 * * *" }, "invalid cron format (0 0 3 * * *)"},
		{"shorthand", func(s *spec) { s.Cron = "@daily" }, ""},
		{"longest name", func(s *spec) { s.Name = strings.Repeat("n", 40) }, ""},
		{"no concurrency", func(s *spec) { s.Concurrency = 0 }, "at least 1"},
		{"least concurrency", func(s *spec) { s.Concurrency = 1 }, ""},
		{"as much as is allowed", func(s *spec) { s.Retain = 50 }, ""},
		{"more than is allowed", func(s *spec) { s.Retain = 51 }, "retain value should be less than or equal to 50"},
		{"less than nothing kept", func(s *spec) { s.Retain = -1 }, "retain -1 should not be negative"},
		{"clean-up keeps less than nothing", task("snapshot-cleanup", -1, "count-based"), "should not be negative"},
		{"never due", func(s *spec) { s.Cron = "0 0 31 2 *" }, "is never due"},
		{"nothing kept", func(s *spec) { s.Retain = 0 }, "should retain at least 1"},
		{"clean-up keeps nothing", task("snapshot-cleanup", 0, "count-based"), ""},
		{"trim keeps nothing", task("filesystem-trim", 0, "count-based"), ""},
		{"deletion may keep nothing", task("snapshot-delete", 0, "count-based"), ""},
		{"aged snapshots", task("snapshot", 0, "age-based"), ""},
		{"aged backups", task("backup-force-create", 0, "age-based"), ""},
		{"aged clean-up", task("snapshot-cleanup", 0, "age-based"), "cannot have retention policy age-based"},
		{"aged trim", task("filesystem-trim", 0, "age-based"), "cannot have retention policy age-based"},
		{"aged deletion", task("snapshot-delete", 0, "age-based"), "cannot have retention policy age-based"},
		{"unknown policy", task("snapshot", 1, "forever"), `unknown retention policy "forever"`},
		{"no age", func(s *spec) { s.RetainAge = "long" }, "is no duration"},
		{"negative age", func(s *spec) { s.RetainAge = "-1h" }, "should not be negative"},
		{"group", func(s *spec) { s.Groups = []string{"default", "a.b_c-d"} }, ""},
		{"bad group", func(s *spec) { s.Groups = []string{"default", "a b"} }, `invalid group name "a b"`},
		{"empty group", func(s *spec) { s.Groups = []string{""} }, `invalid group name ""`},
		{"label", func(s *spec) { s.Labels = map[string]string{"a": "b"} }, ""},
		{"key with =", func(s *spec) { s.Labels = map[string]string{"a=": "b"} }, "contains ="},
		{"key that no label has", labels("a b", "c"), `invalid key "a b" of a label`},
		{"empty key", labels("", "c"), `invalid key "" of a label`},
		{"qualified key", labels("example.org/a", "c"), ""},
		{"label without a value", labels("a", ""), "label a has no value"},
		{"key of the system", labels("KubernetesStatus", "x"), "label KubernetesStatus is reserved for the system"},
		{"another key of the system", labels("ranchervm-base-image", "x"), "label ranchervm-base-image is reserved"},
		{"value with =", func(s *spec) { s.Labels = map[string]string{"a": "=b"} }, "contains ="},
		{"interval", parameter("full-backup-interval", "5"), ""},
		{"no interval", parameter("full-backup-interval", "0"), ""},
		{"interval that is no number", parameter("full-backup-interval", "often"), "should be a number of backups"},
		{"negative interval", parameter("full-backup-interval", "-5"), "should be a number of backups"},
		{"backup policy", parameter("volume-backup-policy", "if-not-present"), ""},
		{"backups always", parameter("volume-backup-policy", "always"), ""},
		{"backups never", parameter("volume-backup-policy", "disabled"), ""},
		{"unknown backup policy", parameter("volume-backup-policy", "sometimes"), "should be always"},
		{"unknown parameter", parameter("speed", "5"), `unknown parameter "speed"`},
	} {
		expect(t, tt.name+", new", CheckRecurringJob(nil, jobOf("job", tt.edit), 50), tt.want)
		expect(t, tt.name+", changed", CheckRecurringJob(jobOf("job", nil), jobOf("job", tt.edit), 50), tt.want)
	}
	tooMany := jobOf("job", func(s *spec) { s.Retain = 51 })
	expect(t, "setting, new", asked(t, w, plural, nil, tooMany), "less than or equal to 50")
	expect(t, "setting, changed", asked(t, w, plural, jobOf("job", nil), tooMany), "less than or equal to 50")
	expect(t, "another cron", asked(t, w, plural, jobOf("job", nil),
		jobOf("job", func(s *spec) { s.Cron = "daily" })), "invalid cron format (daily)")
	expect(t, "name in capitals", asked(t, w, plural, nil, jobOf("Job", nil)), "")
	expect(t, "name of one letter", asked(t, w, plural, nil, jobOf("j", nil)), "invalid name j for recurring job")
	expect(t, "older name", asked(t, w, plural, jobOf("j", nil), jobOf("j", nil)), "")
	for _, name := range jobTasks {
		expect(t, string(name), asked(t, w, plural, nil, jobOf("job", task(string(name), 1, "count-based"))), "")
	}
	many := func(s *spec) { s.Retain, s.Cron = 99, "@hourly" }
	expect(t, "kept since the setting was higher", asked(t, w, plural, jobOf("job", func(s *spec) { s.Retain = 99 }),
		jobOf("job", many)), "")
	w.Reader = failing{w.Reader, new(int)}
	expect(t, "nothing can be read", asked(t, w, plural, nil, jobOf("job", nil)), "down")
}

// TestStoredLabelsOfJobsStay: a label that a job had before keeps nothing else from being changed,
// unless its value is another.
func TestStoredLabelsOfJobsStay(t *testing.T) {
	job := func(cron string, labels ...string) *v1beta2.RecurringJob {
		return jobOf("job", func(s *v1beta2.RecurringJobSpec) {
			s.Cron = cron
			for i := 0; i < len(labels); i += 2 {
				s.Labels[labels[i]] = labels[i+1]
			}
		})
	}
	w, stored := worldOf(t), job("@daily", "a b", "c", "e", "", "KubernetesStatus", "x")
	for _, tt := range []struct {
		name string
		job  *v1beta2.RecurringJob
		want string
	}{
		{"all kept", job("@hourly", "a b", "c", "e", "", "KubernetesStatus", "x"), ""},
		{"all taken away", job("@hourly"), ""},
		{"one more", job("@daily", "a b", "c", "d", "e"), ""},
		{"one more that is wrong", job("@daily", "a b", "c", "d", ""), "label d has no value"},
		{"another value", job("@daily", "a b", "d"), `invalid key "a b"`},
	} {
		expect(t, tt.name, asked(t, w, "recurringjobs", stored, tt.job), tt.want)
	}
}

// TestRecurringJobsAreCompleted: what a job leaves out is filled in when it is made and later; what
// it says stays.
func TestRecurringJobsAreCompleted(t *testing.T) {
	w, plural := worldOf(t), "recurringjobs"
	var none *v1beta2.RecurringJob
	job := func(name string, spec v1beta2.RecurringJobSpec) *v1beta2.RecurringJob {
		return named(&v1beta2.RecurringJob{}, name, nil, func(j *v1beta2.RecurringJob) { j.Spec = spec })
	}
	filled := func(j *v1beta2.RecurringJob, name string, retain int) {
		s := &j.Spec
		j.Name, s.Name, s.Retain, s.Concurrency = name, name, retain, 10
		s.Groups, s.Labels, s.Parameters = []string{}, map[string]string{}, map[string]string{}
		s.RetainAge, s.RetentionPolicy = "0s", "count-based"
	}
	long := strings.Repeat("x", 50)
	short := strings.Repeat("x", 31) + "-a25e013f" // of the SHA-512 of the whole
	for _, tt := range []struct {
		name           string
		task           v1beta2.RecurringJobTask
		retain, filled int
		become         string
	}{
		{"Job", "snapshot", 0, 1, "job"},
		{long, "snapshot", 0, 1, short},
		{"job", "backup", -4, 1, "job"},
		{"job", "backup-force-create", 4, 4, "job"},
		{"job", "system-backup", 0, 1, "job"},
		{"job", "snapshot-cleanup", 4, 0, "job"},
		{"job", "filesystem-trim", 4, 0, "job"},
		{"job", "snapshot-delete", -4, 0, "job"},
		{"job", "snapshot-delete", 4, 4, "job"},
	} {
		for _, name := range []string{"", tt.name} {
			sent := job(tt.name, v1beta2.RecurringJobSpec{Name: name, Task: tt.task, Retain: tt.retain})
			completes(t, tt.name+" "+string(tt.task), w, plural, none, sent,
				func(j *v1beta2.RecurringJob) { filled(j, tt.become, tt.filled) })
		}
	}
	bare := job("job", v1beta2.RecurringJobSpec{Task: "snapshot", RetainAge: "0h"})
	completes(t, "changed", w, plural, bare, bare, func(j *v1beta2.RecurringJob) { filled(j, "job", 1) })
	whole := jobOf("job", func(s *v1beta2.RecurringJobSpec) {
		s.Name, s.RetainAge, s.RetentionPolicy, s.Groups = "other", "72h", "age-based", []string{"g"}
		s.Labels, s.Parameters = map[string]string{"a": "b"}, map[string]string{"full-backup-interval": "1"}
	})
	completes(t, "whole", w, plural, none, whole, func(*v1beta2.RecurringJob) {})
	completes(t, "whole and changed", w, plural, whole, whole, func(*v1beta2.RecurringJob) {})
	for _, age := range []string{"-1h", "soon"} { // which are refused
		wrong := jobOf("job", func(s *v1beta2.RecurringJobSpec) { s.RetainAge = age })
		completes(t, "age "+age, w, plural, none, wrong, func(*v1beta2.RecurringJob) {})
	}
	capital := jobOf("Job", nil) // no name changes once there is an object
	completes(t, "name in capitals", w, plural, capital, capital, func(*v1beta2.RecurringJob) {})
}
