package orphan

import (
	"testing"
	"time"

	"ankole.storage/controlplane/setting"
)

// TestAutoDeletionFollowsItsSettings: the kinds that are named, after the grace period.
func TestAutoDeletionFollowsItsSettings(t *testing.T) {
	for _, tt := range []struct {
		kinds, grace    string
		data, instances bool
		want            time.Duration
	}{
		{"", "", false, false, 5 * time.Minute},
		{"replica-data", "0", true, false, 0},
		{"instance;replica-data", "10", true, true, 10 * time.Second},
	} {
		v := setting.Values{setting.OrphanResourceAutoDeletion: tt.kinds,
			setting.OrphanResourceAutoDeletionGracePeriod: tt.grace}
		data, grace := autoDeletion(v, setting.OrphanKindReplicaData)
		instances, _ := autoDeletion(v, setting.OrphanKindInstance)
		if data != tt.data || instances != tt.instances || grace != tt.want {
			t.Errorf("%q, %q: %t, %t, %v", tt.kinds, tt.grace, data, instances, grace)
		}
	}
}
