package rest_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/longhorn/v1beta2/crd"
	"ankole.storage/rest/access"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
)

// operations are all that the server serves and that is not open to everybody.
func operations(s *serve.Server) (all []string) {
	for path, t := range apitest.Routes(s.Table()) {
		if t.Open {
			continue
		}
		for method := range t.Methods {
			all = append(all, method+" "+path)
		}
		for action := range t.Actions {
			all = append(all, action+" "+path)
		}
		if t.Raw != nil && !strings.Contains(path, "{stream}") {
			all = append(all, "GET "+path)
		}
	}
	for name := range apitest.Tables().Streams {
		all = append(all, "stream "+name)
	}
	slices.Sort(all)
	return all
}

// TestEveryOperationNeedsARight: the table of rights has every method, action and stream that is
// served, and nothing else; its kinds exist, and what changes something needs a verb that does.
func TestEveryOperationNeedsARight(t *testing.T) {
	f := newFixture(t)
	all := operations(f.Server)
	if len(all) < 100 {
		t.Fatalf("only %d operations: is the table read?", len(all))
	}
	for _, operation := range all {
		if _, ok := apitest.Tables().Rights[operation]; !ok {
			t.Errorf("%s needs no right: add it to the table", operation)
		}
	}
	reading := []string{"snapshotList", "snapshotGet", "snapshotCRList", "snapshotCRGet", "recurringJobList", "backupList",
		"backupListByVolume", "backupGet", "GET", "stream"}
	kinds := plurals(t)
	for operation, needs := range apitest.Tables().Rights {
		if !slices.Contains(all, operation) {
			t.Errorf("%s is not served", operation)
		}
		verb, _, _ := strings.Cut(operation, " ")
		if len(needs) == 0 || needs[0].Reads() != slices.Contains(reading, verb) {
			t.Errorf("%s needs the right to %s", operation, needs)
		}
		for _, need := range needs {
			if !slices.Contains([]string{"", "get", "list", "watch", "create", "update", "delete"}, need.Verb) {
				t.Errorf("%s: %q is no verb", operation, need.Verb)
			}
			kind, part, _ := strings.Cut(need.Resource, "/")
			if need.Verb != "" && need.Group == lh.Group && (!slices.Contains(kinds, kind) || part != "" && part != "status") {
				t.Errorf("%s: there is no kind %q", operation, need.Resource)
			}
			if need.Name != "" &&
				(need.Name != serve.NamedObject || !strings.Contains(operation, serve.NamedObject)) {
				t.Errorf("%s: name %q", operation, need.Name)
			}
			if need.Verb == "" && !strings.HasPrefix(operation, "GET /v1/schemas") &&
				!strings.HasPrefix(operation, "GET /v1/apiversions") && operation != "GET /v1" {
				t.Errorf("%s may be done by everybody who is let in", operation)
			}
		}
	}
}

// plurals are the resources of the group.
func plurals(t *testing.T) (out []string) {
	t.Helper()
	all, err := crd.All()
	if err != nil || len(all) < 20 {
		t.Fatalf("%d CRDs, %v", len(all), err)
	}
	for _, c := range all {
		out = append(out, c.Spec.Names.Plural)
	}
	return out
}

func TestNeedsOf(t *testing.T) {
	table := apitest.Tables()
	for operation, want := range map[string]access.Need{
		"GET /v1/volumes":           {Verb: "list", Group: lh.Group, Resource: "volumes"},
		"DELETE /v1/volumes/{name}": {Verb: "delete", Group: lh.Group, Resource: "volumes", Name: "demo"},
		"attach /v1/volumes/{name}": {Verb: "update", Group: lh.Group, Resource: "volumeattachments", Name: "demo"},
		"updateReplicaCount /v1/volumes/{name}": {Verb: "update", Group: lh.Group, Resource: "volumes",
			Name: "demo"},
		"GET /v1/events": {Verb: "list", Resource: "events"},
		"GET /v1":        {},
	} {
		if got, ok := table.Needs(operation, "demo"); len(got) != 1 || got[0] != want || !ok {
			t.Errorf("%s: %+v", operation, got)
		}
	}
	if _, ok := table.Needs("PUT /v1/volumes/{name}", "demo"); ok {
		t.Error("an operation that is not declared needs nothing")
	}
}

// TestClaimsOfVolumesNeedAllRights: who may make claims alone, as everybody may who edits some
// namespace, gets no volume of somebody else's by one; neither without the right to see the volume.
func TestClaimsOfVolumesNeedAllRights(t *testing.T) {
	const claims, update, create, get = "create persistentvolumeclaims", "update persistentvolumes",
		"create persistentvolumes", "get volumes/demo"
	f := guarded(t, &resttest.Reviews{Rights: map[string][]string{"editor": {claims, get},
		"blind": {claims, update, create}, "maker": {create, get}, "owner": {claims, update, get}}}, "none", apitest.Same)
	for _, tt := range []struct {
		user, path string
		status     int
	}{
		{"blind", pvCreate, 403}, {"editor", pvCreate, 403}, {"maker", pvCreate, 200},
		{"blind", pvcCreate, 403}, {"editor", pvcCreate, 403}, {"maker", pvcCreate, 403}, {"owner", pvcCreate, 200},
	} {
		if tt.path == pvcCreate {
			f.phase(corev1.VolumeReleased, "former")
		}
		if a := f.Do("POST", tt.path, `{"namespace":"u"}`, apitest.Bearer(tt.user)...); a.Status != tt.status {
			t.Errorf("%s %s: %d %s", tt.user, tt.path, a.Status, a.Text)
		}
	}
}
