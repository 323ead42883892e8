package k8stest

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// idleVolumes is how many volumes of three replicas idleCost has in use.
	idleVolumes = 20
	// idleFor is how long Pods are watched at rest.
	idleFor = 30 * time.Second
)

// idleCost tells what the Pods of the system use while nobody does anything, without a volume and
// with twenty of three replicas in Pods, and how long claims took to become running Pods, one after
// the other.
func idleCost(b *bed) {
	without := b.atRest()
	var took []time.Duration
	var names []string
	for i := range idleVolumes {
		name := fmt.Sprintf("idle-%d", i)
		began := time.Now()
		b.claim(name, claim{size: "64Mi"})
		b.startPod(name, b.NodeName(i%b.Nodes+1), name)
		took = append(took, time.Since(began))
		names = append(names, name)
	}
	slices.Sort(took)
	b.t.Logf("sum: from a claim to a Pod that runs, %d of them: p50 %.1f s, p95 %.1f s", len(took),
		took[len(took)/2].Seconds(), took[len(took)*95/100].Seconds())
	with := b.atRest()
	for _, pod := range slices.Sorted(maps.Keys(with)) {
		w, o := with[pod], without[pod]
		b.t.Logf("sum: %-52s at rest: %4.0f MiB and %3.0f mCPU, with %d volumes %4.0f MiB and %3.0f mCPU", pod, o.mib, o.cpu,
			idleVolumes, w.mib, w.cpu)
	}
	for _, name := range names {
		b.endPod(name)
	}
	b.unclaim(names...)
}

// usage is what a Pod used of a node.
type usage struct {
	mib float64 // working set at the end
	cpu float64 // thousandths of a CPU
}

// atRest watches the Pods of the system for a while, by what the kubelets count.
func (b *bed) atRest() map[string]usage {
	b.t.Helper()
	b.pass(idleFor / 3) // what was begun ends
	before, _ := b.counted()
	began := time.Now()
	b.pass(idleFor)
	after, memory := b.counted()
	seconds := time.Since(began).Seconds()
	rest := map[string]usage{}
	for pod, cpu := range after {
		rest[pod] = usage{mib: memory[pod] / mib, cpu: (cpu - before[pod]) / 1e6 / seconds}
	}
	if len(rest) == 0 {
		b.t.Fatal("the kubelets count no Pod of the system")
	}
	return rest
}

// pass lets time pass, during which nothing is done: the measure, not a wait for something.
func (b *bed) pass(d time.Duration) {
	b.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.t.Context().Done():
		b.t.Fatal(b.t.Context().Err())
	}
}

// counted returns the CPU time in nanoseconds and the working set in bytes of the system's Pods.
func (b *bed) counted() (cpu, memory map[string]float64) {
	b.t.Helper()
	cpu, memory = map[string]float64{}, map[string]float64{}
	for k := 1; k <= b.Nodes; k++ {
		raw, err := b.ks.CoreV1().RESTClient().Get().
			AbsPath("/api/v1/nodes/" + b.NodeName(k) + "/proxy/metrics/resource").DoRaw(context.Background())
		if err != nil {
			b.t.Fatalf("what node %d uses: %v", k, err)
		}
		for _, m := range resources.FindAllStringSubmatch(string(raw), -1) {
			pod := m[2]
			value, err := strconv.ParseFloat(m[3], 64)
			switch {
			case err != nil:
				b.t.Fatalf("what node %d uses: %v", k, err)
			case strings.Contains(pod, "uninstall"):
			case m[1] == "cpu_usage_seconds_total":
				cpu[pod] = value * 1e9
			default:
				memory[pod] = value
			}
		}
	}
	return cpu, memory
}

// resources are the lines of a kubelet's metrics that tell what the system's Pods use.
var resources = regexp.MustCompile(
	`(?m)^pod_(cpu_usage_seconds_total|memory_working_set_bytes)\{namespace="` + namespace + `",pod="([^"]+)"\} (\S+)`)
