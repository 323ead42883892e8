package admission

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
)

var goldenSum = strings.Repeat("0a", 64)

// golden is an image that can be cloned.
func golden(edit func(*v1beta2.BackingImage)) *v1beta2.BackingImage {
	b := imageOf("golden", nil)
	b.Status.Checksum = goldenSum
	if edit != nil {
		edit(b)
	}
	return b
}

// encryptedGolden is one that is encrypted with Secret key.
func encryptedGolden() *v1beta2.BackingImage {
	return golden(func(b *v1beta2.BackingImage) { b.Spec.Secret, b.Spec.SecretNamespace = "key", namespace })
}

// cloneOf is a new image with these parameters besides the image that it is of.
func cloneOf(parameters map[string]string, edit func(*v1beta2.BackingImageSpec)) *v1beta2.BackingImage {
	return imageOf("iso", func(s *v1beta2.BackingImageSpec) {
		s.SourceType, s.SourceParameters = v1beta2.BackingImageSourceTypeClone, map[string]string{"backing-image": "golden"}
		maps.Copy(s.SourceParameters, parameters)
		if edit != nil {
			edit(s)
		}
	})
}

func expecting(sum string) func(*v1beta2.BackingImageSpec) {
	return func(s *v1beta2.BackingImageSpec) { s.Checksum = sum }
}

// TestClonedImages: an image can be cloned whose checksum is known, which the clone is to have.
func TestClonedImages(t *testing.T) {
	for _, tt := range []struct {
		there *v1beta2.BackingImage
		clone *v1beta2.BackingImage
		want  string
	}{
		{golden(nil), cloneOf(nil, nil), ""}, {golden(nil), cloneOf(nil, expecting(goldenSum)), ""},
		{golden(nil), cloneOf(nil, expecting(strings.Repeat("0b", 64))), "another one is expected"},
		{golden(nil), cloneOf(map[string]string{"backing-image": "other"}, nil), "there is no such backing image"},
		{golden(func(b *v1beta2.BackingImage) { b.Status.Checksum = "" }), cloneOf(nil, nil), "it has no checksum"},
		{golden(nil), cloneOf(map[string]string{"encryption": "rot13"}, nil), "encrypt, decrypt and ignore are possible"},
	} {
		expect(t, tt.want, asked(t, worldOf(t, tt.there), "backingimages", nil, tt.clone), tt.want)
	}
	made := cloneOf(map[string]string{"encryption": "ignore"}, nil)
	if err := worldOf(t, encryptedGolden()).completeClone(t.Context(), made); err != nil ||
		made.Spec.Checksum != goldenSum || made.Spec.Secret != "key" || made.Spec.SecretNamespace != namespace {
		t.Errorf("%+v, %v", made.Spec, err)
	}
}

// TestEncryptedImages is the table of docs/design/encrypted-images.md of what is refused.
func TestEncryptedImages(t *testing.T) {
	key := named(&corev1.Secret{}, "key", nil, nil)
	with := func(encryption string, more ...string) map[string]string {
		p := map[string]string{"encryption": encryption, "secret": "key", "secret-namespace": namespace}
		for i := 0; i < len(more); i += 2 {
			p[more[i]] = more[i+1]
		}
		return p
	}
	secret := func(name string) func(*v1beta2.BackingImageSpec) {
		return func(s *v1beta2.BackingImageSpec) { s.Secret, s.SecretNamespace = name, namespace }
	}
	young := golden(func(b *v1beta2.BackingImage) { b.Status.Checksum = "" })
	for _, tt := range []struct {
		name  string
		there *v1beta2.BackingImage
		clone *v1beta2.BackingImage
		want  string
	}{
		{"encrypt", golden(nil), cloneOf(with("encrypt"), nil), ""},
		{"encrypt, with spec.secret", golden(nil), cloneOf(with("encrypt"), secret("key")), ""},
		{"encrypt, with another spec.secret", golden(nil), cloneOf(with("encrypt"), secret("other")),
			"another Secret than spec.secret"},
		{"encrypt, a checksum", golden(nil), cloneOf(with("encrypt"), expecting(goldenSum)), ""},
		{"encrypt one that is not known", young, cloneOf(with("encrypt"), nil), ""},
		{"encrypt twice", encryptedGolden(), cloneOf(with("encrypt"), nil),
			"it is encrypted already, with the key in Secret key"},
		{"decrypt", encryptedGolden(), cloneOf(with("decrypt"), nil), ""},
		{"decrypt, with spec.secret", encryptedGolden(), cloneOf(with("decrypt"), secret("key")), "leave spec.secret out"},
		{"decrypt plain", golden(nil), cloneOf(with("decrypt"), nil), "it is not encrypted"},
		{"ignore", encryptedGolden(), cloneOf(nil, nil), ""},
		{"ignore, with the same secret", encryptedGolden(), cloneOf(nil, secret("key")), ""},
		{"ignore, with another", encryptedGolden(), cloneOf(nil, secret("other")),
			"encrypted with the key in Secret \"key\""},
		{"ignore, plain, with one", golden(nil), cloneOf(nil, secret("key")), "leave spec.secret out"},
		{"no secret", golden(nil), cloneOf(with("encrypt", "secret", ""), nil),
			"invalid parameter secret for source type clone"},
		{"no namespace", golden(nil), cloneOf(with("decrypt", "secret-namespace", ""), nil),
			"invalid parameter secret-namespace for source type clone"},
		{"no such secret", golden(nil), cloneOf(with("encrypt", "secret", "lost"), nil), "there is no Secret lost"},
		{"a secret that is not ours", golden(nil), cloneOf(with("encrypt", "secret", "theirs"), nil),
			"may not read Secret theirs: name it in value backingImageSecrets"},
		{"another namespace", golden(nil), cloneOf(with("encrypt", "secret-namespace", "default"), nil),
			"is in namespace default, and managers read those of " + namespace},
	} {
		c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(key, tt.there).Build(),
			interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if _, ok := o.(*corev1.Secret); ok && key.Name == "theirs" {
					return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, errors.New("no right"))
				}
				return c.Get(ctx, key, o, opts...)
			}})
		w := world{Reader: c, cached: c, namespace: namespace}
		expect(t, tt.name, asked(t, w, "backingimages", nil, tt.clone), tt.want)
	}
	for encryption, want := range map[string]string{"encrypt": "key", "decrypt": ""} {
		made := cloneOf(with(encryption), expecting(goldenSum))
		if err := worldOf(t, golden(nil)).completeClone(t.Context(), made); err != nil || made.Spec.Checksum != "" ||
			made.Spec.Secret != want {
			t.Errorf("%s: %+v, %v", encryption, made.Spec, err)
		}
	}
}
