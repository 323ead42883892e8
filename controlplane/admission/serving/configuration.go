package serving

import (
	"bytes"
	"context"
	"net/url"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// reviewTimeout in seconds bounds a review; rules read a few objects.
const reviewTimeout = 10

// Names returns what the server's certificate must be valid for: the webhooks, and the REST API of
// the same process, by its Service and through a forwarded port.
func Names(namespace, webhookURL string) []string {
	names := []string{naming.ServiceAdmissionWebhook + "." + namespace + ".svc"}
	for _, service := range []string{naming.ServiceAdmissionWebhook, naming.ServiceBackend, naming.ServiceFrontend} {
		names = append(names, service, service+"."+namespace)
	}
	for _, service := range []string{naming.ServiceBackend, naming.ServiceFrontend} {
		names = append(names, service+"."+namespace+".svc", service+"."+namespace+".svc.cluster.local")
	}
	names = append(names, "localhost", "127.0.0.1", "::1")
	if u, err := url.Parse(webhookURL); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	return names
}

// Resource names a kind and the operations on it that go to the two webhooks.
type Resource interface {
	Resource() string
	Validates() []admissionregistrationv1.OperationType
	Mutates() []admissionregistrationv1.OperationType
}

// Register writes the two webhook configurations. Every manager does so at its start; they write
// the same.
func Register[R Resource](ctx context.Context, c client.Client, namespace, webhookURL string, authority []byte,
	resources []R) error {
	var validate, mutate []admissionregistrationv1.RuleWithOperations
	for _, r := range resources {
		if ops := r.Validates(); len(ops) > 0 {
			validate = append(validate, rule(r.Resource(), ops))
		}
		if ops := r.Mutates(); len(ops) > 0 {
			mutate = append(mutate, rule(r.Resource(), ops))
		}
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: naming.WebhookValidatorConfiguration},
	}
	err := upsert(ctx, c, validating, func() {
		w := validatingWebhook(validating.Webhooks)
		w.ClientConfig = clientConfig(namespace, webhookURL, naming.WebhookValidationPath, authority)
		w.Rules = validate
		validating.Webhooks = []admissionregistrationv1.ValidatingWebhook{w}
	})
	if err != nil {
		return err
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: naming.WebhookMutatorConfiguration},
	}
	return upsert(ctx, c, mutating, func() {
		w := mutatingWebhook(mutating.Webhooks)
		w.ClientConfig = clientConfig(namespace, webhookURL, naming.WebhookMutationPath, authority)
		w.Rules = mutate
		mutating.Webhooks = []admissionregistrationv1.MutatingWebhook{w}
	})
}

// Registered says whether the webhooks that the API server knows are those of this authority: then
// it may ask any manager that serves.
func Registered(ctx context.Context, c client.Reader, authority []byte) (bool, error) {
	var m admissionregistrationv1.MutatingWebhookConfiguration
	err := c.Get(ctx, client.ObjectKey{Name: naming.WebhookMutatorConfiguration}, &m)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return len(m.Webhooks) == 1 && bytes.Equal(m.Webhooks[0].ClientConfig.CABundle, authority), nil
}

// upsert creates an object or updates it where set changes something.
func upsert(ctx context.Context, c client.Client, o client.Object, set func()) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		set()
		return c.Create(ctx, o)
	}
	if err != nil {
		return err
	}
	before := o.DeepCopyObject()
	set()
	if equality.Semantic.DeepEqual(before, o) {
		return nil
	}
	return c.Update(ctx, o)
}

// validatingWebhook starts from the present webhook, so that what the API server fills in stays as
// it is.
func validatingWebhook(present []admissionregistrationv1.ValidatingWebhook) admissionregistrationv1.ValidatingWebhook {
	var w admissionregistrationv1.ValidatingWebhook
	if len(present) == 1 {
		w = present[0]
	}
	w.Name = naming.WebhookValidator
	w.FailurePolicy, w.MatchPolicy, w.SideEffects = policies()
	w.MatchConditions = conditions()
	w.AdmissionReviewVersions = []string{"v1"}
	w.TimeoutSeconds = seconds(reviewTimeout)
	return w
}

func mutatingWebhook(present []admissionregistrationv1.MutatingWebhook) admissionregistrationv1.MutatingWebhook {
	var w admissionregistrationv1.MutatingWebhook
	if len(present) == 1 {
		w = present[0]
	}
	w.Name = naming.WebhookMutator
	w.FailurePolicy, w.MatchPolicy, w.SideEffects = policies()
	w.MatchConditions = conditions()
	w.AdmissionReviewVersions = []string{"v1"}
	w.TimeoutSeconds = seconds(reviewTimeout)
	return w
}

// conditions leave out what has to be possible when nobody answers any more, as when the namespace
// is deleted and the managers with it: the last finalizer of an object that is being deleted comes
// off, and settings, which nobody else may delete, go with their namespace.
func conditions() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{
		{Name: "last-finalizer-stays", Expression: "request.operation != 'UPDATE' || " +
			"!has(oldObject.metadata.deletionTimestamp) || " +
			"(has(object.metadata.finalizers) && size(object.metadata.finalizers) > 0)"},
		{Name: "not-settings-with-their-namespace", Expression: "request.operation != 'DELETE' || " +
			"request.resource.resource != 'settings' || " +
			"request.userInfo.username != 'system:serviceaccount:kube-system:namespace-controller'"},
	}
}

func policies() (*admissionregistrationv1.FailurePolicyType, *admissionregistrationv1.MatchPolicyType,
	*admissionregistrationv1.SideEffectClass) {
	fail, exact, none := admissionregistrationv1.Fail, admissionregistrationv1.Exact,
		admissionregistrationv1.SideEffectClassNone
	return &fail, &exact, &none
}

func seconds(n int32) *int32 { return &n }

func rule(plural string, ops []admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	scope := admissionregistrationv1.NamespacedScope
	return admissionregistrationv1.RuleWithOperations{
		Operations: ops,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{v1beta2.Group}, APIVersions: []string{v1beta2.Version},
			Resources: []string{plural}, Scope: &scope,
		},
	}
}

func clientConfig(namespace, webhookURL, path string, authority []byte) admissionregistrationv1.WebhookClientConfig {
	if webhookURL != "" {
		whole := webhookURL + path
		return admissionregistrationv1.WebhookClientConfig{URL: &whole, CABundle: authority}
	}
	port := int32(naming.PortAdmissionWebhook)
	return admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{
			Namespace: namespace, Name: naming.ServiceAdmissionWebhook, Path: &path, Port: &port,
		},
		CABundle: authority,
	}
}
