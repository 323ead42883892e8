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
	bed := newBed(b)
	for text := range strings.SplitSeq(*counts, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}
		first := bed.made
		began, before := time.Now(), bed.figures(b)
		created := bed.create(b, n)
		f, all := bed.figures(b).since(before), time.Since(began)
		slices.Sort(created)
		more := float64(n - first)
		fmt.Printf("created up to %d in %.1f s: request p50 %s, p95 %s; per volume %.1f requests, CPU %.0f ms manager, %.0f ms cluster\n%s\n",
			n, all.Seconds(), percentile(created, 50), percentile(created, 95), f.total()/more, 1000*f.managerCPU/more,
			1000*f.clusterCPU/more, f.most(*listed))

		began, before = time.Now(), bed.figures(b)
		attached := bed.attach(b, first)
		all = time.Since(began)
		f = bed.figures(b).since(before)
		fmt.Printf("attached %d more in %.1f s: p50 %s, p95 %s; per volume %.1f requests, CPU %.0f ms manager, %.0f ms cluster\n%s\n",
			n-first, all.Seconds(), percentile(attached, 50), percentile(attached, 95), f.total()/more,
			1000*f.managerCPU/more, 1000*f.clusterCPU/more, f.most(*listed))

		<-time.After(settle)
		before = bed.figures(b)
		<-time.After(*idle)
		f = bed.figures(b).since(before)
		fmt.Printf("idle with %d: %.2f requests a second, CPU %.1f %% managers, %.1f %% cluster\n%s\n", n,
			f.total()/idle.Seconds(), 100*f.managerCPU/idle.Seconds(), 100*f.clusterCPU/idle.Seconds(), f.most(*listed))
	}
}
