package serving

import (
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// both is a resource whose creation and change go to both webhooks.
type both string

func (r both) Resource() string { return string(r) }

func (both) Validates() []admissionregistrationv1.OperationType {
	return []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"}
}

func (both) Mutates() []admissionregistrationv1.OperationType {
	return []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}
}

// TestConfigurationsAsClientsKnowThem holds names, paths and policies of both webhooks, and that
// writes of a status are not reviewed.
func TestConfigurationsAsClientsKnowThem(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	if err := Register(t.Context(), c, "longhorn-system", "", []byte("ca"), []both{"volumes", "nodes"}); err != nil {
		t.Fatal(err)
	}
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	m := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "longhorn-webhook-validator"}, v); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "longhorn-webhook-mutator"}, m); err != nil {
		t.Fatal(err)
	}
	if len(v.Webhooks) != 1 || len(m.Webhooks) != 1 {
		t.Fatalf("%d and %d webhooks", len(v.Webhooks), len(m.Webhooks))
	}
	vw, mw := v.Webhooks[0], m.Webhooks[0]
	for _, w := range []struct {
		name, want, path string
		config           admissionregistrationv1.WebhookClientConfig
		fail             *admissionregistrationv1.FailurePolicyType
		match            *admissionregistrationv1.MatchPolicyType
		effects          *admissionregistrationv1.SideEffectClass
		versions         []string
		rules            []admissionregistrationv1.RuleWithOperations
		operations       []admissionregistrationv1.OperationType
	}{
		{vw.Name, "validator.longhorn.io", "/v1/webhook/validation", vw.ClientConfig, vw.FailurePolicy, vw.MatchPolicy,
			vw.SideEffects, vw.AdmissionReviewVersions, vw.Rules, both("").Validates()},
		{mw.Name, "mutator.longhorn.io", "/v1/webhook/mutation", mw.ClientConfig, mw.FailurePolicy, mw.MatchPolicy,
			mw.SideEffects, mw.AdmissionReviewVersions, mw.Rules, both("").Mutates()},
	} {
		if w.name != w.want || *w.fail != "Fail" || *w.match != "Exact" || *w.effects != "None" ||
			!slices.Equal(w.versions, []string{"v1"}) {
			t.Errorf("%s: %s, policies %s, %s, %s, versions %v", w.want, w.name, *w.fail, *w.match, *w.effects, w.versions)
		}
		if s := w.config.Service; s == nil || s.Namespace != "longhorn-system" || s.Name != "longhorn-admission-webhook" ||
			*s.Port != 9502 || *s.Path != w.path || string(w.config.CABundle) != "ca" {
			t.Errorf("%s: %+v", w.want, w.config)
		}
		for i, want := range []string{"volumes", "nodes"} {
			// A subresource would be "volumes/status".
			if i >= len(w.rules) || !slices.Equal(w.rules[i].Resources, []string{want}) ||
				!slices.Equal(w.rules[i].APIGroups, []string{"longhorn.io"}) ||
				!slices.Equal(w.rules[i].APIVersions, []string{"v1beta2"}) || *w.rules[i].Scope != "Namespaced" ||
				!slices.Equal(w.rules[i].Operations, w.operations) {
				t.Errorf("%s: rules %+v", w.want, w.rules)
			}
		}
	}
}
