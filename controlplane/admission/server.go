package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	webhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"ankole.storage/controlplane/admission/serving"
)

// NewServer returns the webhook server. live must read past every cache: a rule judged on
// yesterday's objects is no rule. settings may be a cache; it is asked where only the controllers'
// own work is judged, or a field that was left empty for long is filled in.
func NewServer(live, settings client.Reader, namespace string, origins Origins) *serving.Server {
	w := world{Reader: live, cached: settings, namespace: namespace, origins: origins}
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
	if req.Operation == admissionv1.Delete {
		if lost := h.lost(ctx, w, req.OldObject.Raw); lost != "" {
			return webhook.Allowed("").WithWarnings(lost)
		}
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
	text, err := completed.text(req.Object.Raw)
	if err != nil {
		return refused(req, err)
	}
	return webhook.PatchResponseFromRaw(req.Object.Raw, text)
}

// completion is an object as it was sent, and as it is completed.
type completion struct {
	// before is what this program understands of what was sent.
	before runtime.Object
	after  client.Object
}

// text encodes the completed object for a patch of what was sent. The status is left as it was
// sent: the patch is about the rest. So is whatever this program does not know: a newer one does,
// in an upgrade during which both are asked. It goes through JSON and not through the unstructured
// converter, which does not know numbers that travel as strings.
func (c *completion) text(sent []byte) ([]byte, error) {
	understood, err := json.Marshal(c.before)
	completed, aerr := json.Marshal(c.after)
	if err := errors.Join(err, aerr); err != nil {
		return nil, err
	}
	var original, before, after map[string]any
	if err := errors.Join(decode(sent, &original), decode(understood, &before), decode(completed, &after)); err != nil {
		return nil, err
	}
	keepUnknown(original, before, after)
	delete(after, "status")
	if status, ok := original["status"]; ok {
		after["status"] = status
	}
	return json.Marshal(after)
}

// decode reads JSON and leaves numbers as they are written.
func decode(text []byte, into *map[string]any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// keepUnknown puts the fields of an object that was sent, and that were not understood, into what
// it has become; it does so with objects below it too. One that was understood and is missing now
// was taken away on purpose.
func keepUnknown(sent, before, after map[string]any) {
	for name, value := range sent {
		known, understood := before[name]
		now, stays := after[name]
		switch {
		case !understood && !stays:
			after[name] = value
		case understood && stays:
			keepUnknownBelow(value, known, now)
		}
	}
}

func keepUnknownBelow(sent, before, after any) {
	switch s := sent.(type) {
	case map[string]any:
		b, known := before.(map[string]any)
		if a, stays := after.(map[string]any); known && stays {
			keepUnknown(s, b, a)
		}
	case []any:
		b, _ := before.([]any)
		a, _ := after.([]any)
		if len(b) != len(s) || !reflect.DeepEqual(a, b) {
			return // its elements may be others by now
		}
		for i := range s {
			keepUnknownBelow(s[i], b[i], a[i])
		}
	}
}

func refused(req webhook.Request, err error) webhook.Response {
	r := asRejection(err)
	slog.Info("refused", "operation", string(req.Operation), "resource", req.Resource.Resource, "name", req.Name,
		"user", req.UserInfo.Username, "reason", string(r.Reason), "message", r.Error())
	return webhook.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed: false,
		Result: &metav1.Status{
			Status: metav1.StatusFailure, Reason: r.Reason, Message: r.Error(), Code: r.Code(),
		},
	}}
}
