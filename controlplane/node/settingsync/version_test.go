package settingsync

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// TestVersionOfTheAPI: the setting that says which version of the API is stored has it as a label
// too, from the start and if it was made without.
func TestVersionOfTheAPI(t *testing.T) {
	s := object("crd-api-version", "longhorn.io/v1beta2", nil)
	in := seen{HasFixed: true, Fixed: "longhorn.io/v1beta2"}
	d := decide(time.Time{}, s, in)
	u, ok := d.Do.(loop.Update)
	if !ok {
		t.Fatalf("does %v", d.Do)
	}
	s = u.Object.(*v1beta2.Setting)
	value := s.Labels["longhorn.io/crd-api-version"]
	if value != "v1beta2" || len(validation.IsValidLabelValue(value)) > 0 || s.Value != "longhorn.io/v1beta2" {
		t.Errorf("value %q, labels %v", s.Value, s.Labels)
	}
	if d := decide(time.Time{}, s, in); d.Do != nil {
		t.Errorf("does not settle: %v", d.Do)
	}
	if d := decide(time.Time{}, object("auto-salvage", "true", nil), seen{}); d.Do != nil {
		t.Errorf("another setting: does %v", d.Do)
	}
}
