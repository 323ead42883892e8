package admission

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestNewObjectsAreCompleted: names and labels that the webhook gives, whatever was asked for.
func TestNewObjectsAreCompleted(t *testing.T) {
	image := &v1beta2.EngineImage{}
	image.Name, image.Spec.Image = "mine", " ankole/engine:dev\n"
	volume := func(mode v1beta2.AccessMode) *v1beta2.Volume {
		return newVolume(func(v *v1beta2.Volume) { v.Spec.AccessMode = mode })
	}
	replica := &v1beta2.Replica{}
	replica.Name, replica.Spec.VolumeName, replica.Spec.NodeID = "demo-r-1", "demo", strings.Repeat("n", 70)
	for _, tt := range []struct {
		what, plural string
		object       client.Object
		name         string
		labels       map[string]string
	}{
		{"an engine image", "engineimages", image, "ei-5c11872e", map[string]string{
			"longhorn.io/engine-image": "ei-5c11872e", "longhorn.io/component": "engine-image"}},
		{"a replica on a node with a long name", "replicas", replica, "demo-r-1", map[string]string{
			"longhornnode": strings.Repeat("n", 54) + "-8f240156"}},
		{"a volume", "volumes", volume(""), "demo", map[string]string{
			"longhornvolume": "demo", "longhorn.io/volume-access-mode": "rwo"}},
		{"a shared volume", "volumes", volume("rwx"), "demo", map[string]string{"longhorn.io/volume-access-mode": "rwx"}},
	} {
		text, err := completed(t, worldOf(t), tt.plural, nil, tt.object)
		if err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		var got struct {
			Metadata struct {
				Name   string            `json:"name"`
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if got.Metadata.Name != tt.name {
			t.Errorf("%s: name %s, want %s", tt.what, got.Metadata.Name, tt.name)
		}
		for key, want := range tt.labels {
			if got.Metadata.Labels[key] != want {
				t.Errorf("%s: label %s is %q, want %q", tt.what, key, got.Metadata.Labels[key], want)
			}
		}
	}
}
