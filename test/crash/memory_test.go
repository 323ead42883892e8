package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// quietMemory is how much memory an engine or replica may have when there is nothing to do after a
// load, in KiB, its share of the program included (PSS).
const quietMemory = 8000

// TestMemoryIsGivenBack: after reads and writes of all sizes with many in flight the processes have
// little more memory than before.
func TestMemoryIsGivenBack(t *testing.T) {
	v := rig.New(t, 2, 1<<30)
	v.StartEngine()
	for _, l := range []struct {
		requests, workers, size int
		read                    bool
	}{{20000, 64, 4 << 10, false}, {500, 32, 1 << 20, false}, {16, 8, 32 << 20, false}, {500, 32, 1 << 20, true},
		{20000, 64, 4 << 10, true}} {
		c := v.Dial()
		var wg sync.WaitGroup
		for w := range l.workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(w), 1))
				p := make([]byte, l.size)
				for range l.requests / l.workers {
					off := int64(r.IntN(int(v.Size)-l.size)) &^ 511
					do := c.WriteAt
					if l.read {
						do = c.ReadAt
					}
					if _, err := do(p, off); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		c.Close()
	}
	pids := map[string]int{"engine": v.EnginePid()}
	for _, r := range v.Replicas {
		pids[r.Name] = r.Pid()
	}
	for name, pid := range pids {
		t.Logf("%s has %d KiB at the end of the load", name, shareOfMemory(t, pid))
		wait.Until(t, fmt.Sprintf("%s has less than %d KiB", name, quietMemory), func() bool {
			return shareOfMemory(t, pid) < quietMemory
		})
		t.Logf("%s has %d KiB later", name, shareOfMemory(t, pid))
	}
}

// shareOfMemory is the memory of a process, what it shares with others by share, in KiB.
func shareOfMemory(t *testing.T, pid int) (kib int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if n, err := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 && err == nil {
			return kib
		}
	}
	t.Fatalf("no Pss:\n%s", data)
	return 0
}
