package admission

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestJudgedWithoutWebhooks: what is written through the client is completed and judged though no
// API server asks a webhook.
func TestJudgedWithoutWebhooks(t *testing.T) {
	b := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(standing()...).Build()
	c := Judged(b, b, b, namespace, Origins{})
	ctx := t.Context()
	fresh := func(name string) *v1beta2.Volume {
		v := named(&v1beta2.Volume{}, name, nil, nil)
		v.Spec.Size, v.Spec.Frontend = gib, v1beta2.VolumeFrontendBlockDev
		return v
	}
	refused := func(what string, err error, words ...string) {
		t.Helper()
		if err == nil || !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
			return
		}
		for _, w := range append(words, "denied the request") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q", what, err, w)
			}
		}
	}
	v := fresh("fresh")
	if err := c.Create(ctx, v); err != nil {
		t.Fatal(err)
	}
	var stored v1beta2.Volume
	if err := b.Get(ctx, client.ObjectKeyFromObject(v), &stored); err != nil {
		t.Fatal(err)
	}
	if stored.Spec.Image != "engine:1" || v.Spec.Image != "engine:1" || stored.Labels["longhornvolume"] != "fresh" ||
		len(stored.Finalizers) != 1 {
		t.Errorf("the volume is stored with image %q, labels %v, finalizers %v", stored.Spec.Image, stored.Labels,
			stored.Finalizers)
	}
	refused("a volume of no size", c.Create(ctx, named(&v1beta2.Volume{}, "none", nil, nil)), "invalid volume size")
	v.Spec.NumberOfReplicas = 99
	refused("too many replicas", c.Update(ctx, v), "99")
	engine := named(&v1beta2.Engine{}, "one-e-0", nil, nil)
	if err := b.Get(ctx, client.ObjectKeyFromObject(engine), engine); err != nil {
		t.Fatal(err)
	}
	engine.Spec.Active = true
	if err := b.Update(ctx, engine); err != nil {
		t.Fatal(err)
	}
	refused("an engine that serves", c.Delete(ctx, engine), "serves volume one")
	// What nobody judges, and what is not there, is left to the API server.
	pod := named(&corev1.Pod{}, "pod", nil, nil)
	for what, err := range map[string]error{"create": c.Create(ctx, pod), "update": c.Update(ctx, pod),
		"delete": c.Delete(ctx, pod)} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s of a Pod: %v", what, err)
		}
	}
	if err := c.Update(ctx, fresh("absent")); !apierrors.IsNotFound(err) {
		t.Errorf("an update of what is not there: %v", err)
	}
	if err := c.Delete(ctx, fresh("absent")); !apierrors.IsNotFound(err) {
		t.Errorf("a deletion of what is not there: %v", err)
	}
}

// TestDeletionNeedsNoLabels: an object whose name is no label's value, made while nobody judged,
// can be deleted: its finalizer comes off in an update that puts no such label on it.
func TestDeletionNeedsNoLabels(t *testing.T) {
	long := strings.Repeat("x", 70)
	w := worldOf(t, standing()...)
	for plural, make := range map[string]func() client.Object{
		"volumes":  func() client.Object { return named(&v1beta2.Volume{}, long, nil, nil) },
		"replicas": func() client.Object { return named(&v1beta2.Replica{}, long, nil, nil) },
		"nodes":    func() client.Object { return named(&v1beta2.Node{}, long, nil, nil) },
		"instancemanagers": func() client.Object {
			return named(&v1beta2.InstanceManager{}, long, nil, func(im *v1beta2.InstanceManager) { im.Spec.NodeID = long })
		},
		"orphans":   func() client.Object { return named(&v1beta2.Orphan{}, long, nil, nil) },
		"snapshots": func() client.Object { return named(&v1beta2.Snapshot{}, long, nil, nil) },
	} {
		old, changed := deleting(make()), deleting(make())
		old.SetFinalizers(finalizer)
		after, err := completed(t, w, plural, old, changed)
		if err != nil {
			t.Errorf("%s: %v", plural, err)
			continue
		}
		var left metav1.PartialObjectMetadata
		if err := json.Unmarshal(after, &left); err != nil {
			t.Fatal(err)
		}
		for key, value := range left.Labels {
			if len(validation.IsValidLabelValue(value)) > 0 {
				t.Errorf("%s: label %s is %s", plural, key, value)
			}
		}
		if len(left.Finalizers) > 0 {
			t.Errorf("%s: finalizers %v", plural, left.Finalizers)
		}
	}
}
