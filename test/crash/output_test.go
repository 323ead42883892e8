package crash

import (
	"bytes"
	"os"
	"testing"

	"ankole.storage/host/logwriter/logwritertest"
	"ankole.storage/test/rig"
)

// TestNobodyReadsTheOutput: engine and replicas whose output nobody reads, or nobody ever will,
// serve, lose a replica, which they have to say, rebuild it, and end when they are told to.
func TestNobodyReadsTheOutput(t *testing.T) {
	for name, output := range map[string]func(testing.TB) *os.File{"full": logwritertest.FullPipe,
		"broken": logwritertest.BrokenPipe} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := rig.Open(t, rig.Config{Size: 8 * mib, EngineFlags: engineFlags})
			if err != nil {
				t.Fatal(err)
			}
			v.SetOutput(output(t))
			for _, name := range []string{"vol-a", "vol-b"} {
				v.AddReplica(name).Start()
			}
			v.StartEngine()
			target, err := v.Engine().Target()
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if _, err := target.WriteAt(page(byte(i+1)), 0); err != nil {
					t.Fatal(err)
				}
				v.Replicas[1].Kill()
				if _, err := target.WriteAt(page(byte(i+2)), 4096); err != nil {
					t.Fatal(err)
				}
				v.Replicas[1].Start()
				v.Rebuild(v.Replicas[1])
			}
			got := page(0)
			if _, err := target.ReadAt(got, 0); err != nil || !bytes.Equal(got, page(3)) {
				t.Errorf("read %d: %v", got[0], err)
			}
			v.StopEverything()
		})
	}
}
