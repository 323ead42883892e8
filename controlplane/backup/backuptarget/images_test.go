package backuptarget

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// TestImages: an image that the store has gets an object, and one that it has no more loses it, but
// for what this cluster makes or has just made.
func TestImages(t *testing.T) {
	const m = time.Minute
	object := func(image string, edit func(*v1beta2.BackupBackingImage)) v1beta2.BackupBackingImage {
		b := v1beta2.BackupBackingImage{ObjectMeta: metav1.ObjectMeta{Name: naming.BackupImageName(image, "default"),
			CreationTimestamp: metav1.NewTime(t0.Add(-time.Hour))},
			Spec: v1beta2.BackupBackingImageSpec{BackingImage: image, BackupTargetName: "default"}}
		b.Status.State, b.Status.LastSyncedAt = v1beta2.BackupStateCompleted, metav1.NewTime(t0.Add(-time.Hour))
		if edit != nil {
			edit(&b)
		}
		return b
	}
	user := func(state v1beta2.BackupState) func(*v1beta2.BackupBackingImage) {
		return func(b *v1beta2.BackupBackingImage) { b.Spec.UserCreated, b.Status.State = true, state }
	}
	name := naming.BackupImageName("golden", "default")
	for _, tt := range []struct {
		what    string
		there   []string
		objects []v1beta2.BackupBackingImage
		want    string
	}{
		{"the store has none", []string{}, nil, ""},
		{"a new one", []string{"golden"}, nil, "create *v1beta2.BackupBackingImage ns/" + name},
		{"known", []string{"golden"}, []v1beta2.BackupBackingImage{object("golden", nil)}, ""},
		{"a name of no object", []string{"Golden_1"}, nil, ""},
		{"gone", []string{}, []v1beta2.BackupBackingImage{object("golden", nil)},
			"update *v1beta2.BackupBackingImage " + name},
		{"gone, and marked", []string{}, []v1beta2.BackupBackingImage{object("golden", func(b *v1beta2.BackupBackingImage) {
			b.Labels = map[string]string{naming.LabelDeleteObjectOnly: "true"}
		})}, "delete *v1beta2.BackupBackingImage " + name},
		{"of a user, gone", []string{}, []v1beta2.BackupBackingImage{object("golden", user(v1beta2.BackupStateCompleted))},
			"update *v1beta2.BackupBackingImage " + name},
		{"being made", []string{}, []v1beta2.BackupBackingImage{object("golden", user(v1beta2.BackupStateInProgress))}, ""},
		{"failed", []string{}, []v1beta2.BackupBackingImage{object("golden", user(v1beta2.BackupStateError))}, ""},
		{"just made", []string{}, []v1beta2.BackupBackingImage{object("golden", func(b *v1beta2.BackupBackingImage) {
			b.Status.LastSyncedAt = metav1.NewTime(t0)
		})}, ""},
		{"in progress elsewhere", []string{"golden"}, []v1beta2.BackupBackingImage{object("golden",
			func(b *v1beta2.BackupBackingImage) { b.Status.State = v1beta2.BackupStateInProgress })},
			"update *v1beta2.BackupBackingImage " + name},
		{"in progress elsewhere, and asked", []string{"golden"}, []v1beta2.BackupBackingImage{object("golden",
			func(b *v1beta2.BackupBackingImage) {
				b.Status.State, b.Spec.SyncRequestedAt = v1beta2.BackupStateInProgress, metav1.NewTime(t0)
			})}, ""},
		{"the binary cannot tell", nil, []v1beta2.BackupBackingImage{object("golden", nil)}, ""},
	} {
		look := looked(m, nil)
		look.Result.Images = tt.there
		b := target(nil)
		d := decide(t0, b, seen{Look: look, Images: tt.objects})
		if d.Do != nil && show(d) != tt.want || d.Do == nil && tt.want != "" {
			t.Errorf("%s: %q, want %q", tt.what, show(d), tt.want)
		}
		if done := !b.Status.LastSyncedAt.IsZero(); done != (tt.want == "") {
			t.Errorf("%s: the look is over: %v", tt.what, done)
		}
	}
	off := target(func(t *v1beta2.BackupTarget) { t.Spec.BackupTargetURL = "" })
	if d := decide(t0, off, seen{Images: []v1beta2.BackupBackingImage{object("golden", nil)}}); show(d) !=
		"update *v1beta2.BackupBackingImage "+name {
		t.Errorf("without a URL: %q", show(d))
	}
	gone := target(func(t *v1beta2.BackupTarget) { t.DeletionTimestamp = &metav1.Time{Time: t0} })
	if d := decide(t0, gone, seen{Images: []v1beta2.BackupBackingImage{object("golden", nil)}}); show(d) !=
		"update *v1beta2.BackupBackingImage "+name {
		t.Errorf("deleted: %q", show(d))
	}
}
