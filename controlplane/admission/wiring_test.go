package admission

import (
	"errors"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestRules is the table of which kinds are checked and completed on what.
func TestRules(t *testing.T) {
	const three, two, ends = "[CREATE UPDATE DELETE]", "[CREATE UPDATE]", "[CREATE DELETE]"
	want := []struct{ kind, checked, completed string }{
		{"volumes", three, two}, {"engines", three, two}, {"replicas", three, two}, {"engineimages", ends, two},
		{"instancemanagers", three, two}, {"nodes", three, two}, {"settings", three, two},
		{"volumeattachments", three, two}, {"orphans", two, two}, {"snapshots", two, two}, {"recurringjobs", two, two},
		{"backuptargets", three, two}, {"backupvolumes", two, two}, {"backups", two, two},
		{"backupbackingimages", two, two},
		{"backingimages", three, two}, {"backingimagemanagers", "[]", two}, {"backingimagedatasources", "[]", two},
	}
	rules := Rules()
	if len(rules) != len(want) {
		t.Fatalf("%d rules, want %d", len(rules), len(want))
	}
	for i, w := range want {
		r := rules[i]
		if r.Resource() != w.kind || fmt.Sprint(r.Validates()) != w.checked || fmt.Sprint(r.Mutates()) != w.completed {
			t.Errorf("%s is checked on %v and completed on %v, want %s, %s and %s", r.Resource(), r.Validates(),
				r.Mutates(), w.kind, w.checked, w.completed)
		}
	}
}

// TestUnreadableObjectsAreRefused sends every kind what is no object, before and after a change.
func TestUnreadableObjectsAreRefused(t *testing.T) {
	const text, broken = `{"metadata":{"name":"x"}}`, `{`
	for _, h := range handlers {
		w := worldOf(t)
		want := "cannot read the " + h.rule().Plural
		for _, op := range h.rule().Mutate {
			_, err := h.mutate(t.Context(), w, op, []byte(text), []byte(broken))
			expect(t, "completed", err, want)
		}
		_, err := h.mutate(t.Context(), w, admissionv1.Update, []byte(broken), []byte(text))
		expect(t, "completed, former object", err, want)
		for _, op := range h.rule().Validate {
			if op != admissionv1.Delete {
				expect(t, "checked", h.validate(t.Context(), w, op, []byte(text), []byte(broken)), want)
			}
			if op != admissionv1.Create {
				expect(t, "checked, former object", h.validate(t.Context(), w, op, []byte(broken), []byte(text)), want)
			}
		}
	}
	if _, err := byPlural("pods"); err == nil {
		t.Error("there are rules for Pods")
	}
}

// TestChangesUnderDeletion: the finalizer of a node and of an attachment can be taken away whatever
// else is wrong; other changes are judged.
func TestChangesUnderDeletion(t *testing.T) {
	w := worldOf(t, standing()...)
	node := named(nodeWith(), "n-one", nil, nil)
	badNode := named(nodeWith(), "n-one", nil, func(n *v1beta2.Node) {
		n.Spec.EvictionRequested, n.Spec.AllowScheduling = true, true
	})
	attachment := named(&v1beta2.VolumeAttachment{}, "one", nil, func(a *v1beta2.VolumeAttachment) {
		a.Spec.Volume = "one"
	})
	badAttachment := named(&v1beta2.VolumeAttachment{}, "one", nil, func(a *v1beta2.VolumeAttachment) {
		a.Spec.Volume = "two"
	})
	for _, kind := range []struct {
		plural   string
		old, bad client.Object
		want     string
	}{
		{"nodes", node, badNode, "need to disable scheduling"},
		{"volumeattachments", attachment, badAttachment, "spec.volume cannot be changed"},
	} {
		for _, tt := range []struct {
			name          string
			deleted       bool
			before, after []string
			want          string
		}{
			{"taken away", true, finalizer, nil, ""},
			{"another one taken away", true, []string{"other", finalizer[0]}, finalizer, kind.want},
			{"not there before", true, nil, nil, kind.want},
			{"put there", true, nil, finalizer, kind.want},
			{"not under deletion", false, finalizer, nil, kind.want},
		} {
			old, changed := kind.old.DeepCopyObject().(client.Object), kind.bad.DeepCopyObject().(client.Object)
			old.SetFinalizers(tt.before)
			changed.SetFinalizers(tt.after)
			if tt.deleted {
				deleting(old)
				deleting(changed)
			}
			expect(t, kind.plural+": "+tt.name, asked(t, w, kind.plural, old, changed), tt.want)
		}
	}
	engine := named(&v1beta2.Engine{}, "e", nil, func(e *v1beta2.Engine) { e.Spec.DataEngine = "v1" })
	other := deleting(engine.DeepCopy())
	other.Spec.DataEngine = "v2"
	expect(t, "engine", asked(t, w, "engines", engine, other), "the data engine of engine e cannot be changed")
	replica := named(&v1beta2.Replica{}, "r", nil, func(r *v1beta2.Replica) { r.Spec.DataEngine = "v1" })
	changed := deleting(replica.DeepCopy())
	changed.Spec.DataEngine = "v2"
	expect(t, "replica", asked(t, w, "replicas", replica, changed), "the data engine of replica r cannot be changed")
	kept := node.DeepCopy()
	kept.Finalizers = finalizer
	if removesFinalizer(kept, node) || !removesFinalizer(kept, deleting(node.DeepCopy())) {
		t.Error("only an object under deletion may lose its finalizer")
	}
}

func TestRejectionCodes(t *testing.T) {
	for _, tt := range []struct {
		err    error
		reason metav1.StatusReason
		code   int32
	}{
		{invalid("x"), "Invalid", 422},
		{forbidden("x"), "Forbidden", 403},
		{errors.New("x"), "InternalError", 500},
		{fmt.Errorf("%w", invalid("x")), "Invalid", 422},
	} {
		if r := asRejection(tt.err); r.Reason != tt.reason || r.Code() != tt.code || r.Error() != "x" {
			t.Errorf("%v: %s %d %s", tt.err, r.Reason, r.Code(), r)
		}
	}
}

func TestInstanceManagers(t *testing.T) {
	whole := func(edit func(*v1beta2.InstanceManager)) *v1beta2.InstanceManager {
		return named(&v1beta2.InstanceManager{}, "im", map[string]string{}, func(im *v1beta2.InstanceManager) {
			im.OwnerReferences = []metav1.OwnerReference{{Name: "n"}}
			im.Spec.Type, im.Spec.DataEngine = "aio", "v1"
			edit(im)
		})
	}
	for name, tt := range map[string]struct {
		edit func(*v1beta2.InstanceManager)
		want string
	}{
		"whole":          {func(*v1beta2.InstanceManager) {}, ""},
		"no labels":      {func(im *v1beta2.InstanceManager) { im.Labels = nil }, "has no labels"},
		"no owner":       {func(im *v1beta2.InstanceManager) { im.OwnerReferences = nil }, "has no owner"},
		"no type":        {func(im *v1beta2.InstanceManager) { im.Spec.Type = "" }, "has no type"},
		"no data engine": {func(im *v1beta2.InstanceManager) { im.Spec.DataEngine = "" }, "has no data engine"},
	} {
		expect(t, name, CheckInstanceManager(whole(tt.edit)), tt.want)
	}
	// Nothing but the type is missing once a new one is completed. One of an older version that lacks
	// something can be changed all the same.
	w := worldOf(t, named(nodeWith(), "n", nil, nil))
	bare := named(&v1beta2.InstanceManager{}, "im", nil, func(im *v1beta2.InstanceManager) { im.Spec.NodeID = "n" })
	expect(t, "created", asked(t, w, "instancemanagers", nil, bare), "has no type")
	expect(t, "changed", asked(t, w, "instancemanagers", bare, bare), "")
}
