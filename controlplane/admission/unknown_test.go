package admission

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	webhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"ankole.storage/api/longhorn/v1beta2"
)

// patched lets the mutation answer a review as the API server does, and returns what is stored.
func patched(t *testing.T, w world, plural string, op admissionv1.Operation, old, sent string) string {
	t.Helper()
	answer := w.reviewMutation(t.Context(), webhook.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: op, Resource: metav1.GroupVersionResource{Group: v1beta2.Group, Resource: plural},
		OldObject: runtime.RawExtension{Raw: []byte(old)}, Object: runtime.RawExtension{Raw: []byte(sent)}}})
	if !answer.Allowed {
		t.Fatalf("%s: %s", plural, answer.Result.Message)
	}
	text, err := json.Marshal(answer.Patches)
	if err != nil {
		t.Fatal(err)
	}
	p, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := p.Apply([]byte(sent))
	if err != nil {
		t.Fatalf("%s: %v\n%s", plural, err, text)
	}
	return string(stored)
}

// TestUnknownFieldsStay: in an upgrade a newer manager and an older one are asked, whoever is
// reached. The older one completes an object and leaves alone what it does not know.
func TestUnknownFieldsStay(t *testing.T) {
	const unknown = `{"limit":9007199254740993,"empty":""}`
	w := worldOf(t, standing()...)
	volume := `{"metadata":{"name":"new","namespace":"longhorn-system"},"spec":{"size":"3145728","frontend":"blockdev",` +
		`"fromTomorrow":` + unknown + `},"status":{"fromTomorrow":1}}`
	stored := patched(t, w, "volumes", admissionv1.Create, "", volume)
	for _, want := range []string{`"fromTomorrow":` + unknown, `"size":"4194304"`, `"numberOfReplicas":3`,
		`"status":{"fromTomorrow":1}`, `"finalizers":["longhorn.io"]`} {
		if !strings.Contains(stored, want) {
			t.Errorf("a new volume lacks %s: %s", want, stored)
		}
	}
	if again := patched(t, w, "volumes", admissionv1.Update, stored, stored); !strings.Contains(again, unknown) {
		t.Errorf("a changed volume lacks what is not known: %s", again)
	}
	node := `{"metadata":{"name":"n1","namespace":"longhorn-system"},"spec":{"name":"n1","disks":{"d":{"path":"/data",` +
		`"tags":["b","a"],"fromTomorrow":` + unknown + `}}}}`
	if stored := patched(t, w, "nodes", admissionv1.Update, node, node); !strings.Contains(stored, unknown) ||
		!strings.Contains(stored, `"finalizers":["longhorn.io"]`) {
		t.Errorf("a node's disk lacks what is not known, or the node what it is completed by: %s", stored)
	}
}

// TestKeepUnknown: what was taken away on purpose stays away, and elements of a list that is
// another one by now are left alone.
func TestKeepUnknown(t *testing.T) {
	for name, c := range map[string][4]string{
		"taken away":       {`{"a":1,"b":2}`, `{"a":1,"b":2}`, `{"a":1}`, `{"a":1}`},
		"not known":        {`{"a":1,"b":2}`, `{"a":1}`, `{"a":3,"c":4}`, `{"a":3,"b":2,"c":4}`},
		"below":            {`{"a":{"b":1,"c":2}}`, `{"a":{"b":1}}`, `{"a":{"b":3}}`, `{"a":{"b":3,"c":2}}`},
		"empty":            {`{"a":{},"b":"","c":null}`, `{}`, `{"b":"x"}`, `{"a":{},"b":"x","c":null}`},
		"of another kind":  {`{"a":{"b":1}}`, `{"a":"b"}`, `{"a":"b"}`, `{"a":"b"}`},
		"in a list":        {`{"a":[{"b":1,"c":2}]}`, `{"a":[{"b":1}]}`, `{"a":[{"b":1}]}`, `{"a":[{"b":1,"c":2}]}`},
		"in a longer list": {`{"a":[{"b":1,"c":2}]}`, `{"a":[{"b":1}]}`, `{"a":[{"b":0},{"b":1}]}`, `{"a":[{"b":0},{"b":1}]}`},
	} {
		var sent, before, after map[string]any
		for i, into := range []*map[string]any{&sent, &before, &after} {
			if err := decode([]byte(c[i]), into); err != nil {
				t.Fatal(err)
			}
		}
		keepUnknown(sent, before, after)
		if text, err := json.Marshal(after); err != nil || string(text) != c[3] {
			t.Errorf("%s: %s, want %s (%v)", name, text, c[3], err)
		}
	}
}
