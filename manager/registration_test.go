package manager

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/admission/serving"
	"ankole.storage/controlplane/object/naming"
)

// TestWebhooksAreRegisteredAgain: configurations that somebody deletes or changes are as before at
// once, with the authority that is valid then.
func TestWebhooksAreRegisteredAgain(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	informers := &informertest.FakeInformers{Scheme: scheme}
	follow := func(o client.Object) interface {
		Delete(metav1.Object)
		Update(_, _ metav1.Object)
	} {
		i, err := informers.FakeInformerFor(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	validators, mutators := follow(validating), follow(mutating)
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	p := &control{base: base{live: c}, cfg: Config{Common: Common{Namespace: "ns"}}}
	synctest.Test(t, func(t *testing.T) {
		keys, err := serving.EnsureKeys(t.Context(), c, "ns", serving.Names("ns", ""), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := serving.Register(t.Context(), c, "ns", "", keys.AuthorityPEM, admission.Rules()); err != nil {
			t.Fatal(err)
		}
		read := func(o client.Object, name string) error {
			return c.Get(t.Context(), client.ObjectKey{Name: name}, o)
		}
		if err := errors.Join(read(validating, naming.WebhookValidatorConfiguration),
			read(mutating, naming.WebhookMutatorConfiguration)); err != nil {
			t.Fatal(err)
		}
		rules := len(validating.Webhooks[0].Rules)
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- p.keepRegistered(ctx, informers) }()
		synctest.Wait()
		if err := c.Delete(ctx, mutating); err != nil {
			t.Fatal(err)
		}
		mutators.Delete(mutating)
		synctest.Wait()
		if err := read(mutating, naming.WebhookMutatorConfiguration); err != nil {
			t.Errorf("deleted: %v", err)
		}
		before := validating.DeepCopy()
		validating.Webhooks[0].Rules = nil
		ignore := admissionregistrationv1.Ignore
		validating.Webhooks[0].FailurePolicy = &ignore
		if err := c.Update(ctx, validating); err != nil {
			t.Fatal(err)
		}
		validators.Update(before, validating)
		synctest.Wait()
		err = read(validating, naming.WebhookValidatorConfiguration)
		w := validating.Webhooks[0]
		if err != nil || len(w.Rules) != rules || *w.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("changed: %v, %+v", err, w)
		}
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}
