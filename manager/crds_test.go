package manager

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2/crd"
	"ankole.storage/controlplane/object/naming"
)

// TestLaterDefinitionsStay: in a rolling upgrade an older manager may be started anew after a newer
// one has installed its definitions. Nobody's fields are lost by that.
func TestLaterDefinitionsStay(t *testing.T) {
	all, err := crd.All()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ by, version, kind, after string }{
		{"v1.3.0", "v1.2.0", "Newer", "v1.3.0"},
		{"v1.3.0", "v1.3.0", "own", "v1.3.0"},
		{"v1.3.0", "v1.10.0", "own", "v1.10.0"},
		{"v1.3.0", "dev", "own", "v1.3.0"},
		{"", "v1.2.0", "own", "v1.2.0"},
		{"", "dev", "own", ""},
	} {
		present, own := all[0].DeepCopy(), all[0].Spec.Names.Kind
		present.Spec.Names.Kind = "Newer"
		if tt.by != "" {
			present.Annotations = map[string]string{naming.AnnotationInstalledBy: tt.by}
		}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(present).Build()
		if err := installCRD(t.Context(), c, all[0].DeepCopy(), tt.version); err != nil {
			t.Fatal(err)
		}
		var after apiextensionsv1.CustomResourceDefinition
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(present), &after); err != nil {
			t.Fatal(err)
		}
		if tt.kind == "own" {
			tt.kind = own
		}
		if by := after.Annotations[naming.AnnotationInstalledBy]; after.Spec.Names.Kind != tt.kind || by != tt.after {
			t.Errorf("installed by %q, then by %q: kind %s, installed by %q; want %s, %q", tt.by, tt.version,
				after.Spec.Names.Kind, by, tt.kind, tt.after)
		}
	}
}
