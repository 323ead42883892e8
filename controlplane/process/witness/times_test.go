package witness

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/metrics/metricstest"
)

// TestAnswersAreTimed: each answer counts once, under its call and what came of it.
func TestAnswersAreTimed(t *testing.T) {
	h := timed{handler(t, nil, interceptor.Funcs{})}
	before := metricstest.Value(t, "ankole_witness_answer_seconds", "Get", "NotFound")
	if _, err := h.Get(t.Context(), &witnessv1.GetRequest{VolumeName: "v", EngineName: "v-e-0"}); err == nil {
		t.Fatal("there is no record, and it was found")
	}
	_, err := h.CompareAndSwap(t.Context(), &witnessv1.CompareAndSwapRequest{VolumeName: "v", EngineName: "v-e-0",
		Next: record("u", 1, 1, "a")})
	if err != nil {
		t.Fatal(err)
	}
	metricstest.Registered(t, "ankole_witness_answer_seconds")
	if n := metricstest.Value(t, "ankole_witness_answer_seconds", "Get", "NotFound"); n != before+1 {
		t.Errorf("%v answers, %v before", n, before)
	}
	if n := metricstest.Value(t, "ankole_witness_answer_seconds", "CompareAndSwap", "OK"); n != 1 {
		t.Errorf("%v swaps", n)
	}
}
