//go:build !nolegacy

package setting

import "testing"

func init() {
	notDescribed[GuaranteedEngineCPU] = "dropped by newer versions, kept by the proposals as deprecated"
	notDescribed[GuaranteedEngineManagerCPU] = "dropped by newer versions, required by the proposals"
	notDescribed[GuaranteedReplicaManagerCPU] = "dropped by newer versions, required by the proposals"
}

// TestLegacyCPUSettings: each share is a whole number of 0 to 40, and both together are less than
// 40 (B7).
func TestLegacyCPUSettings(t *testing.T) {
	for _, test := range []struct {
		name, value string
		stored      Values
		why         string
	}{
		{GuaranteedEngineManagerCPU, "41", nil, "should be less than or equal to 40"},
		{GuaranteedEngineManagerCPU, "12.5", nil, "not a whole number"},
		{GuaranteedEngineManagerCPU, "24", Values{GuaranteedReplicaManagerCPU: "15"}, ""},
		{GuaranteedEngineManagerCPU, "20", Values{GuaranteedReplicaManagerCPU: "20"}, "smaller than 40"},
		{GuaranteedReplicaManagerCPU, "40", nil, "smaller than 40"},
		{GuaranteedReplicaManagerCPU, "27", nil, ""},
		{GuaranteedReplicaManagerCPU, "28", nil, "smaller than 40"},
		{GuaranteedReplicaManagerCPU, "x", nil, "not a whole number"},
		// A sum that is stored already does not get in the way of other changes.
		{AutoSalvage, "false", Values{GuaranteedEngineManagerCPU: "20", GuaranteedReplicaManagerCPU: "20"}, ""},
		{GuaranteedEngineManagerCPU, "20", Values{GuaranteedEngineManagerCPU: " 20", GuaranteedReplicaManagerCPU: "20"}, ""},
		{GuaranteedEngineManagerCPU, "21", Values{GuaranteedEngineManagerCPU: "20", GuaranteedReplicaManagerCPU: "20"},
			"smaller than 40"},
	} {
		validateChange(t, test.name, test.value, test.stored, test.why)
	}
}
