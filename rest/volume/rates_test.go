package volume_test

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/rpc/ptypes"
	"ankole.storage/rest"
	"ankole.storage/rest/resttest"
)

// TestRates: what an engine says of its users is told, and its silence is no zero.
func TestRates(t *testing.T) {
	var answer *ptypes.Metrics
	f := newFixtureWith(t, interceptor.Funcs{}, func(cfg *rest.Config) {
		cfg.Rates = func(_ context.Context, volume string) *ptypes.Metrics {
			if volume != "demo" {
				t.Errorf("volume %q is asked", volume)
			}
			return answer
		}
	}, resttest.Cluster(resttest.Volume("demo")...)...)
	if got := f.Get("/v1/volumerates/demo"); got["known"] != false || got["volume"] != "demo" {
		t.Errorf("%v", got)
	}
	answer = &ptypes.Metrics{ReadThroughput: 1, WriteThroughput: 2, ReadLatency: 3, WriteLatency: 4, ReadIOPS: 5,
		WriteIOPS: 6}
	got := f.Get("/v1/volumerates/demo")
	for field, want := range map[string]any{"known": true, "readBytes": 1.0, "writeBytes": 2.0, "readNanos": 3.0,
		"writeNanos": 4.0, "reads": 5.0, "writes": 6.0} {
		if got[field] != want {
			t.Errorf("%s is %v, want %v", field, got[field], want)
		}
	}
	f.Refused(f.Do("GET", "/v1/volumerates/nope", ""), 404, "not found")
	f = newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	if got := f.Get("/v1/volumerates/demo"); got["known"] != false {
		t.Errorf("a server that asks nobody: %v", got)
	}
}
