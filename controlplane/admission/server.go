package admission

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	webhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"ankole.storage/controlplane/admission/serving"
)

// NewServer returns the webhook server. live must read past every cache: a rule judged on
// yesterday's objects is no rule. settings may be a cache; it is asked where only the controllers'
// own work is judged, or a field that was left empty for long is filled in.
func NewServer(live, settings client.Reader, namespace string) *serving.Server {
	w := world{Reader: live, cached: settings, namespace: namespace}
	return &serving.Server{
		Validation: &webhook.Webhook{Handler: webhook.HandlerFunc(w.reviewValidation)},
		Mutation:   &webhook.Webhook{Handler: webhook.HandlerFunc(w.reviewMutation)},
	}
}

func (w world) reviewValidation(ctx context.Context, req webhook.Request) webhook.Response {
	h, err := byPlural(req.Resource.Resource)
	if err != nil {
		return webhook.Allowed("")
	}
	if err := h.validate(ctx, w, req.Operation, req.OldObject.Raw, req.Object.Raw); err != nil {
		return refused(req, err)
	}
	return webhook.Allowed("")
}

func (w world) reviewMutation(ctx context.Context, req webhook.Request) webhook.Response {
	h, err := byPlural(req.Resource.Resource)
	if err != nil {
		return webhook.Allowed("")
	}
	completed, err := h.mutate(ctx, w, req.Operation, req.OldObject.Raw, req.Object.Raw)
	if err != nil {
		return refused(req, err)
	}
	if completed == nil {
		return webhook.Allowed("")
	}
	text, err := withStatusOf(req.Object.Raw, completed)
	if err != nil {
		return refused(req, err)
	}
	return webhook.PatchResponseFromRaw(req.Object.Raw, text)
}

// withStatusOf encodes the completed object, with the status left as it was sent: the patch is
// about the rest. It goes through JSON and not through the unstructured converter, which does not
// know numbers that travel as strings.
func withStatusOf(sent []byte, completed client.Object) ([]byte, error) {
	text, err := json.Marshal(completed)
	if err != nil {
		return nil, err
	}
	var fields, original map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(text, &fields), json.Unmarshal(sent, &original)); err != nil {
		return nil, err
	}
	delete(fields, "status")
	if status, ok := original["status"]; ok {
		fields["status"] = status
	}
	return json.Marshal(fields)
}

func refused(req webhook.Request, err error) webhook.Response {
	r := asRejection(err)
	slog.Info("refused", "operation", string(req.Operation), "resource", req.Resource.Resource, "name", req.Name,
		"user", req.UserInfo.Username, "reason", string(r.Reason), "message", r.Message)
	return webhook.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed: false,
		Result: &metav1.Status{
			Status: metav1.StatusFailure, Reason: r.Reason, Message: r.Message, Code: r.Code(),
		},
	}}
}
