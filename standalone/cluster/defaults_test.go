package cluster

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestDefaults: those of a cluster that is there stay, and go where anonymous access changes.
func TestDefaults(t *testing.T) {
	for name, row := range map[string]struct {
		there string
		want  map[string]string
	}{
		"a new cluster": {"", defaultSettings},
		"as it was made with": {"api-anonymous-access: " + anonymousAccess + "\nauto-salvage: false\nten: \"10\"\n",
			map[string]string{"auto-salvage": "false", "ten": "10"}},
		"of an earlier build": {"api-anonymous-access: all\nten: \"10\"\n", nil},
	} {
		client := fake.NewClientset()
		if row.there != "" {
			client = fake.NewClientset(&v1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "longhorn-default-setting", Namespace: "n"},
				Data:       map[string]string{"default-setting.yaml": row.there}})
		}
		c := &Cluster{client: client}
		if got, err := c.defaults(t.Context(), "n"); err != nil || !maps.Equal(got, row.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, row.want)
		}
	}
}
