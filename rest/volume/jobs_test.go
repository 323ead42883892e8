package volume_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
)

// jobs lists what a collection of jobs holds: "name" or "name (group)".
func (f *fixture) jobs(a apitest.Answer) string {
	f.T.Helper()
	if a.Status != http.StatusOK || a.JSON["type"] != "collection" || a.JSON["resourceType"] != resource.TypeVolumeJob {
		f.T.Fatalf("%d %s", a.Status, a.Text)
	}
	var out []string
	for _, x := range a.JSON["data"].([]any) {
		job := x.(map[string]any)
		if job["id"] != job["name"] || job["type"] != resource.TypeVolumeJob || job["links"] == nil {
			f.T.Errorf("envelope of %v", job)
		}
		text := fmt.Sprint(job["name"])
		if job["isGroup"] == true {
			text += " (group)"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// TestRecurringJobsOfAClaim: what the labels of the volume's claim say is changed there.
func TestRecurringJobsOfAClaim(t *testing.T) {
	objects := resttest.Volume("demo")
	objects[0].(*lh.Volume).Status.KubernetesStatus = lh.KubernetesStatus{PVName: "pv", Namespace: "app", PVCName: "data"}
	source := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "data",
		Labels: map[string]string{"recurring-job.longhorn.io/source": "enabled"}},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	f := newFixture(t, resttest.Cluster(append(objects, source)...)...)
	before := f.State()
	for _, action := range []string{"recurringJobAdd", "recurringJobDelete"} {
		f.Refused(f.Do("POST", "/v1/volumes/demo?action="+action, `{"name":"nightly"}`), 500,
			"kubectl -n app label pvc data recurring-job.longhorn.io/nightly=enabled")
	}
	if f.State() != before {
		t.Error("something has changed")
	}
	source.Labels = nil
	if err := f.Client.Update(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	if have := f.jobs(f.Do("POST", "/v1/volumes/demo?action=recurringJobAdd", `{"name":"nightly"}`)); have != "nightly" {
		t.Errorf("follows %q", have)
	}
}

// TestRecurringJobsOfAVolume adds, lists and removes the jobs and groups that a volume follows.
// They are labels, whether the jobs exist or not.
func TestRecurringJobsOfAVolume(t *testing.T) {
	objects := resttest.Volume("demo")
	objects[0].SetLabels(map[string]string{"mine": "enabled", "recurring-job.longhorn.io/off": "disabled"})
	f := newFixture(t, resttest.Cluster(objects...)...)
	post := func(action, body string) apitest.Answer { return f.Do("POST", "/v1/volumes/demo?action="+action, body) }
	for _, tt := range []struct{ action, body, want string }{
		{"recurringJobList", "", ""},
		{"recurringJobAdd", `{"name":"nightly","isGroup":false}`, "nightly"},
		{"recurringJobAdd", `{"name":"all","isGroup":true}`, "nightly, all (group)"},
		{"recurringJobAdd", `{"Name":"daily"}`, "daily, nightly, all (group)"},
		{"recurringJobAdd", `{"name":"daily"}`, "daily, nightly, all (group)"},
		{"recurringJobAdd", `{"name":"daily","isGroup":true}`, "daily, nightly, all (group), daily (group)"},
		{"recurringJobDelete", `{"name":"daily"}`, "nightly, all (group), daily (group)"},
		{"recurringJobDelete", `{"name":"daily"}`, "nightly, all (group), daily (group)"},
		{"recurringJobDelete", `{"name":"all","isGroup":true}`, "nightly, daily (group)"},
		{"recurringJobList", "{", "nightly, daily (group)"}, // no body is read
	} {
		if have := f.jobs(post(tt.action, tt.body)); have != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.action, tt.body, have, tt.want)
		}
	}
	var v lh.Volume
	f.Read("demo", &v)
	want := map[string]string{"mine": "enabled", "recurring-job.longhorn.io/off": "disabled",
		"recurring-job.longhorn.io/nightly": "enabled", "recurring-job-group.longhorn.io/daily": "enabled"}
	if fmt.Sprint(v.Labels) != fmt.Sprint(want) {
		t.Errorf("labels %v, want %v", v.Labels, want)
	}
	for _, action := range []string{"recurringJobAdd", "recurringJobDelete"} {
		for body, why := range map[string]string{`{}`: "no recurring job named", `{"name":"a b"}`: "invalid name",
			`{"name":"a/b"}`: "invalid name", "": "EOF"} {
			f.Refused(post(action, body), 500, why)
		}
		f.Refused(f.Do("POST", "/v1/volumes/nope?action="+action, `{"name":"a"}`), 404, "not found")
	}
	f.Refused(f.Do("POST", "/v1/volumes/nope?action=recurringJobList", ""), 404, "not found")
	bare := newFixture(t, resttest.Cluster(resttest.Volume("bare")...)...)
	if have := bare.jobs(bare.Do("POST", "/v1/volumes/bare?action=recurringJobAdd", `{"name":"a"}`)); have != "a" {
		t.Errorf("a volume without labels follows %q", have)
	}
	before := v.ResourceVersion
	post("recurringJobAdd", `{"name":"nightly"}`)
	post("recurringJobDelete", `{"name":"absent"}`)
	if f.Read("demo", &v); v.ResourceVersion != before {
		t.Error("what changes nothing wrote the volume")
	}
}
