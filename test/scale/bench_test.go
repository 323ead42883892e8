package scale

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	counts = flag.String("volumes", "50", "numbers of volumes to go to, one after the other, for example 50,200,300")
	idle   = flag.Duration("idle", 20*time.Second, "how long an idle cluster is looked at")
	listed = flag.Int("requests", 12, "how many kinds of requests to list")
)

// BenchmarkVolumes is run by hand: see docs/benchmarks.md.
func BenchmarkVolumes(b *testing.B) {
	bed := newBed(b, makeImage(b))
	for text := range strings.SplitSeq(*counts, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}
		first := bed.made
		bed.measured(b, fmt.Sprintf("created up to %d", n), n-first, func() []time.Duration { return bed.create(b, n) })
		bed.measured(b, fmt.Sprintf("attached %d more", n-first), n-first,
			func() []time.Duration { return bed.attach(b, first) })
		<-time.After(settle)
		before := bed.figures(b)
		<-time.After(*idle)
		f := bed.figures(b).since(before)
		fmt.Printf("idle with %d: %.2f requests and %.1f looks a second, CPU %.1f %% managers, %.1f %% cluster\n%s", n,
			total(f.requests)/idle.Seconds(), total(f.looks)/idle.Seconds(), 100*f.managerCPU/idle.Seconds(),
			100*f.clusterCPU/idle.Seconds(), most(f.requests, *listed))
	}
}

// measured does something with so many volumes and prints what it cost.
func (b *bed) measured(t testing.TB, what string, volumes int, do func() []time.Duration) {
	began, before := time.Now(), b.figures(t)
	took := do()
	all, f, n := time.Since(began), b.figures(t).since(before), float64(volumes)
	slices.Sort(took)
	fmt.Printf("%s in %.1f s: p50 %s, p95 %s; per volume %.1f requests, %.1f looks, CPU %.0f ms managers, %.0f ms cluster\n%s%s",
		what, all.Seconds(), percentile(took, 50), percentile(took, 95), total(f.requests)/n, total(f.looks)/n,
		1000*f.managerCPU/n, 1000*f.clusterCPU/n, most(f.looks, 8), most(f.requests, *listed))
}
