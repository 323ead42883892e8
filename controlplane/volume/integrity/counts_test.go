package integrity

import (
	"testing"

	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/metrics/metricstest"
)

func TestCounts(t *testing.T) {
	metricstest.Registered(t, "ankole_scrub_checks_total", "ankole_scrub_findings_total")
	complete := engineclient.Hash{State: "complete", Checksum: "1"}
	mended := complete
	mended.Repaired = 3
	for _, tt := range []struct {
		name              string
		parts             map[string]engineclient.Hash
		repaired, damaged float64
		result            string
	}{
		{"nothing found", map[string]engineclient.Hash{"a": complete, "b": complete}, 0, 0, "good"},
		{"pieces were repaired", map[string]engineclient.Hash{"a": complete, "b": mended}, 3, 0, "good"},
		{"two copies cannot be repaired", map[string]engineclient.Hash{"a": {State: "error", SilentlyCorrupted: true},
			"b": {State: "error", SilentlyCorrupted: true}}, 0, 2, "damaged"},
		{"copies differ", map[string]engineclient.Hash{"a": complete, "b": {State: "complete", Checksum: "2"}}, 0, 1,
			"damaged"},
	} {
		values := func() [3]float64 {
			return [3]float64{metricstest.Value(t, "ankole_scrub_checks_total", tt.result),
				metricstest.Value(t, "ankole_scrub_findings_total", "repaired"),
				metricstest.Value(t, "ankole_scrub_findings_total", "damaged")}
		}
		before := values()
		v, _ := result(tt.parts)
		count(v, tt.parts)
		after := values()
		if got := [3]float64{after[0] - before[0], after[1] - before[1], after[2] - before[2]}; got !=
			[3]float64{1, tt.repaired, tt.damaged} {
			t.Errorf("%s: %v, verdict %s", tt.name, got, v)
		}
	}
}
