package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/object/naming"
)

// Judged returns a client that completes and judges what is written through it as the webhooks do,
// before it is sent: whoever serves strangers does not depend on the API server's asking, which it
// does not where the configurations of the webhooks are gone. live reads past every cache; settings
// may be a cache.
func Judged(c client.Client, live, settings client.Reader, namespace string, origins Origins) client.Client {
	return judged{Client: c, w: world{Reader: live, cached: settings, namespace: namespace, origins: origins}}
}

type judged struct {
	client.Client
	w world
}

// Create completes and judges an object, and makes it.
func (j judged) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := j.review(ctx, admissionv1.Create, nil, o); err != nil {
		return err
	}
	return j.Client.Create(ctx, o, opts...)
}

// Update completes and judges an object beside what it is now, and writes it.
func (j judged) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	old, err := j.present(ctx, o)
	if err != nil {
		return err
	}
	if old != nil {
		if err := j.review(ctx, admissionv1.Update, old, o); err != nil {
			return err
		}
	}
	return j.Client.Update(ctx, o, opts...)
}

// Delete judges whether an object may go, and deletes it.
func (j judged) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	old, err := j.present(ctx, o)
	if err != nil {
		return err
	}
	if old != nil {
		if err := j.review(ctx, admissionv1.Delete, old, nil); err != nil {
			return err
		}
	}
	return j.Client.Delete(ctx, o, opts...)
}

// present is an object as it is now; nil if there is none, or of a kind that nobody judges.
func (j judged) present(ctx context.Context, o client.Object) (client.Object, error) {
	if of(o) == nil {
		return nil, nil
	}
	old := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	err := j.w.Get(ctx, client.ObjectKeyFromObject(o), old)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return old, err
}

// of is who answers reviews of an object; nil for nobody.
func of(o client.Object) handler {
	for _, h := range handlers {
		if h.covers(o) {
			return h
		}
	}
	return nil
}

// review completes o, and refuses it in the words of the webhooks.
func (j judged) review(ctx context.Context, op admissionv1.Operation, old, o client.Object) error {
	subject := o
	if o == nil {
		subject = old
	}
	h := of(subject)
	if h == nil {
		return nil
	}
	before, err := text(old)
	if err != nil {
		return err
	}
	after, err := text(o)
	if err != nil {
		return err
	}
	completed, err := h.mutate(ctx, j.w, op, before, after)
	if err != nil {
		return denied(naming.WebhookMutator, err)
	}
	if completed != nil {
		reflect.ValueOf(o).Elem().Set(reflect.ValueOf(completed.after).Elem())
		if after, err = text(o); err != nil {
			return err
		}
	}
	if err := h.validate(ctx, j.w, op, before, after); err != nil {
		return denied(naming.WebhookValidator, err)
	}
	return nil
}

// text is an object as it comes in a review; nothing for nil.
func text(o client.Object) ([]byte, error) {
	if o == nil {
		return nil, nil
	}
	out, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode %T %s: %w", o, o.GetName(), err)
	}
	return out, nil
}

// denied is a refusal as the API server passes on that of a webhook.
func denied(webhook string, err error) error {
	r := asRejection(err)
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: r.Reason, Code: r.Code(),
		Message: fmt.Sprintf("admission webhook %q denied the request: %s", webhook, r.Error())}}
}

func (k kind[T]) covers(o client.Object) bool {
	_, ok := o.(T)
	return ok
}
