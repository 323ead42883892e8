package crash

import (
	"strings"
	"testing"

	"ankole.storage/test/rig"
)

// TestSharedMemory kills and stops both sides of shared memory under a writer: whatever the disk of
// a replica completes after its session, nothing acknowledged is lost, and nothing else is read
// than was written. Each new session shares memory again.
func TestSharedMemory(t *testing.T) {
	t.Parallel()
	r := under(t, rig.Config{Replicas: 2, Shares: true, EngineFlags: engineFlags})
	first := func(r *run) { r.v.Replicas[0].Kill(); r.progress(20) }
	for _, f := range []func(r *run){first, killEngine, stopReplica, killAll, first, stopEngineShortly, killReplicas} {
		r.progress(200)
		f(r)
		r.finish()
		r.progress(20)
		if !strings.Contains(r.v.Engine().Log(), "event=shared-memory") {
			t.Fatal("the engine shares no memory with its replica")
		}
	}
}
