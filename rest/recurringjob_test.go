package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
)

// nightly is a job with every field filled.
func nightly() *lh.RecurringJob {
	return &lh.RecurringJob{ObjectMeta: resttest.Meta("nightly"), Spec: lh.RecurringJobSpec{Name: "nightly",
		Task: "backup", Cron: "0 3 * * *", Groups: []string{"default", "db"}, Retain: 7, Concurrency: 2,
		Labels: map[string]string{"who": "us"}, Parameters: map[string]string{"full-backup-interval": "5"},
		RetainAge: "72h", RetentionPolicy: "age-based"},
		Status: lh.RecurringJobStatus{ExecutionCount: 3, OwnerID: "node-1"}}
}

// TestRecurringJobView: every field, in the names that clients know; no owner is shown.
func TestRecurringJobView(t *testing.T) {
	bare := &lh.RecurringJob{ObjectMeta: resttest.Meta("a-bare-one")}
	f := newFixture(t, resttest.Cluster(nightly(), bare)...)
	list := f.Get("/v1/recurringjobs")
	data := list["data"].([]any)
	if list["resourceType"] != resource.TypeRecurringJob || len(data) != 2 ||
		data[0].(map[string]any)["id"] != "a-bare-one" {
		t.Fatalf("list %v", list)
	}
	job := f.Get("/v1/recurringjobs/nightly")
	if !reflect.DeepEqual(job, data[1]) {
		t.Errorf("alone %v, in the list %v", job, data[1])
	}
	want := map[string]any{"id": "nightly", "type": "recurringJob", "actions": map[string]any{},
		"links": map[string]any{"self": f.URL + "/v1/recurringjobs/nightly"},
		"name":  "nightly", "task": "backup", "cron": "0 3 * * *", "groups": []any{"default", "db"}, "retain": 7.0,
		"concurrency": 2.0, "labels": map[string]any{"who": "us"}, "parameters": map[string]any{"full-backup-interval": "5"},
		"retainAge": "72h", "retentionPolicy": "age-based", "executionCount": 3.0, "ownerID": ""}
	if !reflect.DeepEqual(job, want) {
		t.Errorf("job  %v\nwant %v", job, want)
	}
	f.Refused(f.Do("GET", "/v1/recurringjobs/nope", ""), 404, "failed to get recurring job nope")
	empty := newFixture(t)
	if data, ok := empty.Get("/v1/recurringjobs")["data"].([]any); !ok || len(data) != 0 {
		t.Errorf("no jobs: %v", data)
	}
}

func TestRecurringJobCreate(t *testing.T) {
	f := newFixture(t)
	a := f.Do("POST", "/v1/recurringjobs", `{"Name":"Nightly","Task":"backup","Cron":"@daily","Retain":3,"Concurrency":4,
		"Groups":["db"],"Labels":{"who":"us"},"Parameters":{"full-backup-interval":"5"},"RetainAge":"1h",
		"RetentionPolicy":"count-based","ExecutionCount":9,"ownerID":"x","retries":3}`)
	if a.Status != http.StatusOK || a.JSON["type"] != resource.TypeRecurringJob || a.JSON["id"] != "nightly" {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	var j lh.RecurringJob
	f.Read("nightly", &j)
	want := lh.RecurringJobSpec{Name: "nightly", Task: "backup", Cron: "@daily", Retain: 3, Concurrency: 4,
		Groups: []string{"db"}, Labels: map[string]string{"who": "us"}, RetainAge: "1h", RetentionPolicy: "count-based",
		Parameters: map[string]string{"full-backup-interval": "5"}}
	if !reflect.DeepEqual(j.Spec, want) || j.Status.ExecutionCount != 0 || len(j.Status.Conditions) != 0 {
		t.Errorf("job %+v, want %+v", j, want)
	}
	long := strings.Repeat("x", 50)
	if a := f.Do("POST", "/v1/recurringjobs", `{"name":"`+long+`","task":"snapshot","cron":"@daily"}`); a.Status != 200 || len(a.JSON["name"].(string)) != 40 {
		t.Errorf("long name: %d %s", a.Status, a.Text)
	}
	const whole = `"task":"backup","cron":"@daily"`
	for body, why := range map[string]string{
		`{"name":"nightly",` + whole + `}`: "already exists",
		`{}`:                               "invalid name",
		`{"name":"a b"}`:                   "invalid name",
		`{"name":"job"}`:                   `unknown task ""`,
		`{"name":"job","task":"backup"}`:   "invalid cron format",
		`{"name":"job","retain":"7"}`:      "retain is a string; write a whole number",
		`{"name":"job",` + whole + `,"groups":["a b"]}`:                              `invalid group name "a b"`,
		`{"name":"job",` + whole + `,"labels":{"a b":"c"}}`:                          `invalid key "a b" of a label`,
		`{"name":"job",` + whole + `,"labels":{"a":""}}`:                             "label a has no value",
		`{"name":"job",` + whole + `,"labels":{"KubernetesStatus":"x"}}`:             "label KubernetesStatus is reserved",
		`{"name":"job",` + whole + `,"labels":{"a":"b","ranchervm-base-image":"c"}}`: "label ranchervm-base-image is reserved",
		"": "EOF",
	} {
		f.Refused(f.Do("POST", "/v1/recurringjobs", body), 500, why)
	}
}

// TestRecurringJobUpdate: a PUT replaces everything but name and task.
func TestRecurringJobUpdate(t *testing.T) {
	f := newFixture(t, nightly())
	a := f.Do("PUT", "/v1/recurringjobs/nightly", `{"name":"other","task":"snapshot","cron":"@hourly"}`)
	if a.Status != http.StatusOK || a.JSON["cron"] != "@hourly" || a.JSON["task"] != "backup" {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	var j lh.RecurringJob
	f.Read("nightly", &j)
	want := lh.RecurringJobSpec{Name: "nightly", Task: "backup", Cron: "@hourly", Retain: 1, Concurrency: 10,
		Groups: []string{}, Labels: map[string]string{}, Parameters: map[string]string{}, RetainAge: "0s",
		RetentionPolicy: "count-based"} // what was left out is as of a new job
	if !reflect.DeepEqual(j.Spec, want) {
		t.Errorf("job %+v, want %+v", j.Spec, want)
	}
	if j.Status.ExecutionCount != 3 {
		t.Errorf("status %+v", j.Status)
	}
	f.Refused(f.Do("PUT", "/v1/recurringjobs/nope", `{"cron":"@hourly"}`), 404, "unable to update recurring job nope")
	f.Refused(f.Do("PUT", "/v1/recurringjobs/nightly", `{"cron":"@hourly","labels":{"a":""}}`), 500,
		"label a has no value")
	if a := f.Do("PUT", "/v1/recurringjobs", "{}"); a.Status != http.StatusMethodNotAllowed {
		t.Errorf("PUT of the collection: %d", a.Status)
	}
}

// TestRecurringJobDelete: the job's label goes from all volumes, the labels of groups and of other
// jobs stay. A deletion that was interrupted is finished by another one.
func TestRecurringJobDelete(t *testing.T) {
	const nightlyLabel, otherLabel = "recurring-job.longhorn.io/nightly", "recurring-job.longhorn.io/other"
	const group = "recurring-job-group.longhorn.io/nightly"
	var objects []client.Object
	for i := range 3 {
		v := resttest.Volume(fmt.Sprintf("demo-%d", i))
		v[0].SetLabels(map[string]string{nightlyLabel: "enabled", otherLabel: "enabled", group: "enabled"})
		objects = append(objects, v...)
	}
	objects = append(objects, resttest.Volume("plain")...)
	var broken atomic.Bool
	broken.Store(true)
	funcs := interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object,
		opts ...client.UpdateOption) error {
		if o.GetName() == "plain" {
			t.Error("a volume that does not follow the job was written")
		}
		if broken.Load() && o.GetName() == "demo-1" {
			return errors.New("down")
		}
		return c.Update(ctx, o, opts...)
	}}
	f := newFixtureWith(t, funcs, func(*rest.Config) {}, append(objects, nightly())...)
	f.Refused(f.Do("DELETE", "/v1/recurringjobs/nightly", ""), 500, "delete it again to take its label off all volumes")
	f.Refused(f.Do("GET", "/v1/recurringjobs/nightly", ""), 404, "not found")
	broken.Store(false)
	f.Refused(f.Do("DELETE", "/v1/recurringjobs/nightly", ""), 404, "unable to delete recurring job nightly")
	for i := range 3 {
		var v lh.Volume
		f.Read(fmt.Sprintf("demo-%d", i), &v)
		if want := map[string]string{otherLabel: "enabled", group: "enabled"}; !reflect.DeepEqual(v.Labels, want) {
			t.Errorf("volume %d has labels %v", i, v.Labels)
		}
	}
	f.Refused(f.Do("DELETE", "/v1/recurringjobs/a%20b", ""), 404, "unable to delete recurring job a b")
	g := newFixture(t, nightly())
	if a := g.Do("DELETE", "/v1/recurringjobs/nightly?action=x", ""); a.Status != http.StatusOK || a.Text != "" {
		t.Errorf("%d %q", a.Status, a.Text)
	}
}

// TestRecurringJobFaults: what cannot be read or deleted is an error, and nothing is written then.
func TestRecurringJobFaults(t *testing.T) {
	down := errors.New("down")
	f := newFixtureWith(t, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return down },
	}, func(*rest.Config) {}, nightly())
	f.Refused(f.Do("DELETE", "/v1/recurringjobs/nightly", ""), 500, "unable to delete recurring job nightly: down")
	f.Refused(f.Do("PUT", "/v1/recurringjobs/nightly", ""), 500, "EOF")
	var reads atomic.Int32
	g := newFixtureWith(t, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return down },
	}, func(*rest.Config) {}, nightly())
	g.Refused(g.Do("DELETE", "/v1/recurringjobs/nightly", ""), 500, "listing volumes: down")
	g.Refused(g.Do("GET", "/v1/recurringjobs", ""), 500, "listing recurring jobs: down")
	h := newFixtureWith(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, ok := o.(*lh.Volume); ok {
				reads.Add(1)
			}
			return c.Get(ctx, key, o, opts...)
		},
	}, func(*rest.Config) {}, resttest.Volume("demo")...)
	h.Refused(h.Do("DELETE", "/v1/recurringjobs/a%20b", ""), 404, "not found")
	if n := reads.Load(); n != 0 {
		t.Errorf("%d volumes were read for a name that no volume can follow", n)
	}
}
