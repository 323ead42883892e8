//go:build !nolegacy

package naming

import "testing"

// TestLegacyNames: instance managers of types engine and replica have the hash of today's for the
// same node and image, as the proposal's examples show.
func TestLegacyNames(t *testing.T) {
	for _, tt := range []struct{ what, got, want string }{
		{"engine manager", LegacyEngineManagerName("node-1", "ankole/instance-manager:dev"),
			"instance-manager-e-4579ed5ed04ee1584f0a8ca40549c861"},
		{"replica manager", LegacyReplicaManagerName("node-1", "ankole/instance-manager:dev"),
			"instance-manager-r-4579ed5ed04ee1584f0a8ca40549c861"},
		{"old engine", LegacyEngineName("demo", "06d4c77d"), "demo-e-06d4c77d"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is called %s, want %s", tt.what, tt.got, tt.want)
		}
	}
}
