package cli

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

func jobCluster() []client.Object {
	return append(cluster(),
		&lh.RecurringJob{ObjectMeta: resttest.Meta("nightly"), Spec: lh.RecurringJobSpec{Name: "nightly", Task: "snapshot",
			Cron: "0 3 * * *", Groups: []string{"default", "gold"}, Retain: 7, Concurrency: 10,
			Labels: map[string]string{"by": "night"}, RetentionPolicy: lh.RetentionPolicyCountBased, RetainAge: "0s"},
			Status: lh.RecurringJobStatus{ExecutionCount: 12}},
		&lh.RecurringJob{ObjectMeta: resttest.Meta("trim"), Spec: lh.RecurringJobSpec{Name: "trim", Task: "filesystem-trim",
			Cron: "@weekly", Concurrency: 1, RetentionPolicy: lh.RetentionPolicyCountBased}},
		&lh.RecurringJob{ObjectMeta: resttest.Meta("young"), Spec: lh.RecurringJobSpec{Name: "young", Task: "snapshot",
			Cron: "@hourly", Concurrency: 1, Retain: 1, RetentionPolicy: lh.RetentionPolicyAgeBased, RetainAge: "72h"}})
}

func TestRecurringJobTables(t *testing.T) {
	b := newBed(t, jobCluster()...)
	if r := b.run("recurring-job", "attach", "demo", "gold", "--group"); r.status != exitOK ||
		r.out != "volume demo follows group gold\n" {
		t.Fatalf("%+v", r)
	}
	if r := b.run("recurring-job", "attach", "demo", "nightly"); r.status != exitOK ||
		r.out != "volume demo follows job nightly\n" {
		t.Fatalf("%+v", r)
	}
	for name, args := range map[string][]string{
		"recurring-job-list":      {"recurring-job", "list"},
		"recurring-job-list-wide": {"recurring-job", "list", "-o", "wide"},
		"recurring-job-show":      {"recurring-job", "show", "nightly"},
		"recurring-job-show-yaml": {"recurring-job", "show", "nightly", "-o", "yaml"},
		"recurring-job-of":        {"recurring-job", "of", "demo"},
	} {
		r := b.run(args...)
		if r.status != exitOK || r.err != "" {
			t.Fatalf("%s: status %d, %s", name, r.status, r.err)
		}
		golden(t, name, strings.ReplaceAll(r.out, b.url, "SERVER"))
	}
	if r := b.run("recurring-job", "detach", "demo", "nightly"); r.status != exitOK ||
		r.out != "volume demo does not follow job nightly\n" {
		t.Errorf("%+v", r)
	}
	if r := b.run("recurring-job", "of", "demo", "-o", "name"); r.out != "recurring-job/gold\n" {
		t.Errorf("%+v", r)
	}
	if r := newBed(t).run("recurring-job", "list"); r.out != "" || !strings.Contains(r.err, "create one with") {
		t.Errorf("no jobs: %+v", r)
	}
}

// stored is a job as the server keeps it.
func (b *bed) stored(name string) (j lh.RecurringJob) {
	b.t.Helper()
	if err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: lh.Namespace, Name: name}, &j); err != nil {
		b.t.Fatal(err)
	}
	return j
}

func TestRecurringJobChanges(t *testing.T) {
	b := newBed(t, jobCluster()...)
	r := b.run("recurring-job", "create", "hourly", "--task", "snapshot", "--cron", "@hourly", "--retain", "3",
		"--concurrency", "2", "--label", "a=b", "--label", "c=d")
	if r.status != exitOK || !strings.Contains(r.out, "ankole recurring-job attach VOLUME hourly") {
		t.Fatalf("%+v", r)
	}
	if s := b.stored("hourly").Spec; s.Task != "snapshot" || s.Cron != "@hourly" || s.Retain != 3 || s.Concurrency != 2 ||
		s.Labels["a"] != "b" || s.Labels["c"] != "d" || s.RetentionPolicy != "count-based" {
		t.Errorf("%+v", s)
	}
	r = b.run("recurring-job", "create", "grouped", "--task", "snapshot-delete", "--cron", "@daily", "--group", "a",
		"--group", "b")
	if r.status != exitOK || r.out != "recurring job grouped created for volumes of group a, b\n" {
		t.Errorf("%+v", r)
	}
	if r := b.run("recurring-job", "update", "nightly", "--retain-age", "48h"); r.status != exitOK ||
		r.out != "recurring job nightly changed\n" {
		t.Fatalf("%+v", r)
	}
	if s := b.stored("nightly").Spec; s.RetainAge != "48h" || s.RetentionPolicy != "age-based" || s.Cron != "0 3 * * *" ||
		len(s.Groups) != 2 || s.Labels["by"] != "night" || s.Task != "snapshot" || s.Concurrency != 10 {
		t.Errorf("%+v", s)
	}
	if r := b.run("recurring-job", "delete", "nightly", "--yes"); r.status != exitOK ||
		r.out != "recurring job nightly deleted\n" {
		t.Errorf("%+v", r)
	}
}

func TestRecurringJobErrorsNameTheNextStep(t *testing.T) {
	b := newBed(t, jobCluster()...)
	for _, c := range []struct {
		args   string
		status int
		text   string
	}{
		{"recurring-job show nope", 1, "recurring-job nope not found; list recurring-jobs with: ankole recurring-job list"},
		{"recurring-job update nope --retain 1", 1, "recurring-job nope not found"},
		{"recurring-job delete nope", 1, "recurring-job nope not found"},
		{"recurring-job attach demo nope", 1, "recurring-job nope not found"},
		{"recurring-job attach nope nightly", 1, "volume nope not found"},
		{"recurring-job of nope", 1, "volume nope not found"},
		{"recurring-job of", 2, "the volume's name is missing"},
		{"recurring-job attach demo", 2, "the job's name is missing"},
		{"recurring-job create x1 --cron @daily", 2, "the task is missing"},
		{"recurring-job create x1 --task snapshot", 2, "the schedule is missing"},
		{"recurring-job create --task snapshot --cron @daily", 2, "the job's name is missing"},
		{"recurring-job create x1 --task snapshot --cron @daily --label x", 2, "write KEY=VALUE"},
		{"recurring-job create x1 --task snapshot --cron @daily --retain 1 --retain-age 1h", 2, "exclude each other"},
		{"recurring-job create nightly --task snapshot --cron @daily", 1, "already exists"},
		{"recurring-job update nightly", 2, "nothing to change"},
		{"recurring-job update nightly --label by", 2, "write KEY=VALUE"},
	} {
		r := b.run(strings.Fields(c.args)...)
		if r.status != c.status || !strings.Contains(r.err, c.text) || r.out != "" {
			t.Errorf("%s: status %d, %q, %q; want %d and %q", c.args, r.status, r.out, r.err, c.status, c.text)
		}
	}
}
