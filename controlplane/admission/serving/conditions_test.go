package serving

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// TestWhatWebhooksAreAskedAbout: the API server's own code decides by the conditions of the
// webhooks which requests it asks about.
func TestWhatWebhooksAreAskedAbout(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	if err := Register(t.Context(), c, "ns", "", nil, []both{"settings"}); err != nil {
		t.Fatal(err)
	}
	var v admissionregistrationv1.ValidatingWebhookConfiguration
	if err := c.Get(t.Context(), client.ObjectKey{Name: naming.WebhookValidatorConfiguration}, &v); err != nil {
		t.Fatal(err)
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	matcher := webhook.NewValidatingWebhookAccessor("uid", v.Name, &v.Webhooks[0]).GetCompiledMatcher(compiler)
	object := func(deleted bool, finalizers ...any) *unstructured.Unstructured {
		meta := map[string]any{"name": "x", "namespace": "ns"}
		if deleted {
			meta["deletionTimestamp"] = "2026-01-02T03:04:05Z"
		}
		if len(finalizers) > 0 {
			meta["finalizers"] = finalizers
		}
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "longhorn.io/v1beta2", "kind": "X",
			"metadata": meta}}
	}
	const ours, namespaces = "longhorn.io", "system:serviceaccount:kube-system:namespace-controller"
	for _, r := range []struct {
		name, resource string
		op             admission.Operation
		old, changed   *unstructured.Unstructured
		who            string
		asked          bool
	}{
		{"creation", "volumes", admission.Create, nil, object(false), "joe", true},
		{"update", "volumes", admission.Update, object(false, ours), object(false, ours), "joe", true},
		{"a finalizer off what is not deleted", "volumes", admission.Update, object(false, ours), object(false), "joe", true},
		{"one of two finalizers", "volumes", admission.Update, object(true, ours, "b"), object(true, "b"), "joe", true},
		{"the last finalizer", "volumes", admission.Update, object(true, ours), object(true), "joe", false},
		{"a person deletes a setting", "settings", admission.Delete, object(false), nil, "joe", true},
		{"a setting goes with its namespace", "settings", admission.Delete, object(false), nil, namespaces, false},
		{"an engine goes with its namespace", "engines", admission.Delete, object(false), nil, namespaces, true},
	} {
		kind := v1beta2.GroupVersion.WithKind("X")
		var old, changed runtime.Object
		if r.old != nil {
			old = r.old
		}
		if r.changed != nil {
			changed = r.changed
		}
		attributes := admission.NewAttributesRecord(changed, old, kind, "ns", "x",
			v1beta2.GroupVersion.WithResource(r.resource), "", r.op, &metav1.UpdateOptions{}, false,
			&user.DefaultInfo{Name: r.who})
		result := matcher.Match(t.Context(), &admission.VersionedAttributes{Attributes: attributes, VersionedObject: changed,
			VersionedOldObject: old, VersionedKind: kind}, nil, nil)
		if result.Error != nil || result.Matches != r.asked {
			t.Errorf("%s: asked %v, %v (%s); want %v", r.name, result.Matches, result.Error, result.FailedConditionName, r.asked)
		}
	}
}
