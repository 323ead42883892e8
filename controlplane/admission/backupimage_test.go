package admission

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// TestBackupImages has the rules of backups of backing images, and what completes them.
func TestBackupImages(t *testing.T) {
	target := func(edit func(*v1beta2.BackupTarget)) *v1beta2.BackupTarget {
		return named(&v1beta2.BackupTarget{}, "default", nil, func(t *v1beta2.BackupTarget) {
			t.Spec.BackupTargetURL, t.Status.Available = "s3://b@r/p", true
			if edit != nil {
				edit(t)
			}
		})
	}
	order := func(edit func(*v1beta2.BackupBackingImageSpec)) *v1beta2.BackupBackingImage {
		return named(&v1beta2.BackupBackingImage{}, "golden-1a2b3c4d", nil, func(b *v1beta2.BackupBackingImage) {
			b.Spec = v1beta2.BackupBackingImageSpec{BackingImage: "golden", BackupTargetName: "default", UserCreated: true}
			if edit != nil {
				edit(&b.Spec)
			}
		})
	}
	other := order(nil)
	other.Name = "golden-2b3c4d5e"
	away := target(func(t *v1beta2.BackupTarget) { t.Status.Available = false })
	off := target(func(t *v1beta2.BackupTarget) { t.Spec.BackupTargetURL = "" })
	for _, tt := range []struct {
		name   string
		target *v1beta2.BackupTarget
		others []v1beta2.BackupBackingImage
		edit   func(*v1beta2.BackupBackingImageSpec)
		want   string
	}{
		{"whole", target(nil), nil, nil, ""},
		{"no image", target(nil), nil, func(s *v1beta2.BackupBackingImageSpec) { s.BackingImage = "" },
			"names no backing image"},
		{"no target", nil, nil, nil, "does not exist"},
		{"a target without a URL", off, nil, nil, "has no URL"},
		{"a target that is away", away, nil, nil, "is not available"},
		{"of the store, a target that is away", away, nil,
			func(s *v1beta2.BackupBackingImageSpec) { s.UserCreated = false }, ""},
		{"a second one", target(nil), []v1beta2.BackupBackingImage{*other}, nil, "golden-2b3c4d5e"},
		{"on another target", target(nil), []v1beta2.BackupBackingImage{*other},
			func(s *v1beta2.BackupBackingImageSpec) { s.BackupTargetName = "second" }, ""},
	} {
		expect(t, tt.name, CheckBackupImage(nil, order(tt.edit), tt.target, tt.others), tt.want)
	}
	changed := order(func(s *v1beta2.BackupBackingImageSpec) { s.BackingImage = "other" })
	expect(t, "another image", CheckBackupImage(order(nil), changed, nil, nil), "cannot be changed")
	expect(t, "unchanged", CheckBackupImage(order(nil), order(nil), nil, nil), "")
}

// TestRestoredImages: an image is restored from the target that has the backup.
func TestRestoredImages(t *testing.T) {
	at := named(&v1beta2.BackupTarget{}, "default", nil, func(t *v1beta2.BackupTarget) {
		t.Spec.BackupTargetURL = "s3://b@r/p/"
	})
	known := named(&v1beta2.BackupBackingImage{}, "golden-1a2b3c4d", nil, func(b *v1beta2.BackupBackingImage) {
		b.Spec.BackupTargetName, b.Status.URL = "default", "s3://b@r/p/?backingImage=golden"
		b.Status.Secret, b.Status.SecretNamespace = "key", "ns"
	})
	image := func(url, target, limit string) *v1beta2.BackingImage {
		return imageOf("iso", func(s *v1beta2.BackingImageSpec) {
			s.SourceType = v1beta2.BackingImageSourceTypeRestore
			s.SourceParameters = map[string]string{"backup-url": url, "backup-target-name": target, "concurrent-limit": limit}
		})
	}
	const url = "s3://b@r/p?backingImage=golden"
	for _, tt := range []struct {
		name string
		b    *v1beta2.BackingImage
		want string
	}{
		{"whole", image(url, "default", "3"), ""},
		{"no URL", image("", "default", ""), "invalid parameter backup-url for source type restore"},
		{"the URL of a volume's", image("s3://b@r/p?volume=v1&backup=b1", "default", ""), "invalid parameter backup-url"},
		{"a limit that is none", image(url, "default", "0"), "give a number from 1 on"},
		{"no such target", image(url, "second", ""), "backup target second does not exist"},
		{"a target that does not have it", image("s3://other@r/p?backingImage=golden", "default", ""),
			"which is not backup target"},
		{"nobody knows the target", image("s3://b@r/q?backingImage=golden", "", ""), "name its backup target"},
		{"its backup names the target", image(url, "", ""), ""},
	} {
		expect(t, tt.name, asked(t, worldOf(t, at, known), "backingimages", nil, tt.b), tt.want)
	}
	b := image(url, "", "")
	if err := worldOf(t, at, known).completeRestore(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if p := b.Spec.SourceParameters; p["backup-target-name"] != naming.BackupTarget || p["concurrent-limit"] == "" ||
		b.Spec.Secret != "key" || b.Spec.SecretNamespace != "ns" {
		t.Errorf("%v, %+v", p, b.Spec)
	}
	b = image(url, "second", "") // another one's backup
	if err := worldOf(t, at, known).completeRestore(t.Context(), b); err != nil || b.Spec.Secret != "" {
		t.Errorf("%+v, %v", b.Spec, err)
	}
}
