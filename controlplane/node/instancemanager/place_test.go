package instancemanager

import (
	"maps"
	"testing"

	"ankole.storage/controlplane/setting"
)

// TestPodFollowsTheNodeSelector: the setting's selector is the Pod's.
func TestPodFollowsTheNodeSelector(t *testing.T) {
	s := SettingsFrom(setting.Values{"system-managed-components-node-selector": "disk:fast;zone:a"}, "sa")
	got := podFor(manager(""), s, 0).Spec.NodeSelector
	if want := map[string]string{"disk": "fast", "zone": "a"}; !maps.Equal(got, want) {
		t.Errorf("node selector %v, want %v", got, want)
	}
}
