package scale

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

var (
	counts = flag.String("volumes", "50", "numbers of volumes to go to, one after the other, for example 50,200,300")
	idle   = flag.Duration("idle", 20*time.Second, "how long an idle cluster is looked at")
	listed = flag.Int("requests", 12, "how many kinds of requests to list")
	folder = flag.String("profiles", "", "a folder for the cluster's processor profile of each step's first 20 s")
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
		bed.measured(b, fmt.Sprintf("attached %d more, to %d", n-first, n), n-first,
			func() []time.Duration { return bed.attach(b, first) })
		<-time.After(settle)
		before := bed.figures(b)
		<-time.After(*idle)
		f := bed.figures(b).since(before)
		fmt.Printf("idle with %d: %.2f requests and %.1f looks a second, CPU %.1f %% managers, %.1f %% cluster\n%s", n,
			total(f.requests)/idle.Seconds(), total(f.looks)/idle.Seconds(), 100*f.managerCPU/idle.Seconds(),
			100*f.clusterCPU/idle.Seconds(), most(f.requests, *listed))
		fmt.Printf("memory: %.0f MB controller, %.0f MB agent\n", f.memory[naming.AppController]/1e6,
			f.memory[naming.AppManager]/1e6)
		fmt.Printf("most memory since the start, the largest of each: %s\n", peaks(b, bed.c.PID))
		bed.weighed(b, &v1beta2.InstanceManagerList{})
		bed.weighed(b, &v1beta2.NodeList{})
	}
}

// measured does something with so many volumes and prints what it cost.
func (b *bed) measured(t testing.TB, what string, volumes int, do func() []time.Duration) {
	began, before := time.Now(), b.figures(t)
	profiled := b.profiled(t, what)
	took := do()
	all, f, n := time.Since(began), b.figures(t).since(before), float64(volumes)
	slices.Sort(took)
	fmt.Printf("%s in %.1f s: p50 %s, p95 %s; per volume %.1f requests, %.1f looks, CPU %.0f ms managers, %.0f ms cluster\n%s%s",
		what, all.Seconds(), percentile(took, 50), percentile(took, 95), total(f.requests)/n, total(f.looks)/n,
		1000*f.managerCPU/n, 1000*f.clusterCPU/n, most(f.looks, 8), most(f.requests, *listed))
	profiled()
}

// weighed prints what one change of the largest object of a kind costs: those of a node list what
// runs on it.
func (b *bed) weighed(t testing.TB, list client.ObjectList) {
	if err := b.List(t.Context(), list, client.InNamespace(naming.Namespace)); err != nil {
		t.Fatal(err)
	}
	var largest client.Object
	size := 0
	for _, item := range must(meta.ExtractList(list)) {
		if n := len(must(json.Marshal(item))); n > size {
			largest, size = item.(client.Object), n
		}
	}
	const changes = 50
	before := b.figures(t)
	for i := range changes {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"scale":"%d"}}}`, i)
		if err := b.Patch(t.Context(), largest, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
	}
	f := b.figures(t).since(before)
	fmt.Printf("%T %s: %.0f KiB, CPU of one change %.0f ms managers, %.0f ms cluster\n", largest, largest.GetName(),
		float64(size)/1024, 1000*f.managerCPU/changes, 1000*f.clusterCPU/changes)
}

// profiled begins a profile of the API server's process, for -profiles; what it returns waits for
// its end.
func (b *bed) profiled(t testing.TB, what string) (wait func()) {
	if *folder == "" {
		return func() {}
	}
	kube, err := rest.HTTPClientFor(b.c.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			answer, err := kube.Get(b.c.RESTConfig(t).Host + "/debug/pprof/profile?seconds=20")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("profile: %s", answer.Status)
			}
			file, err := os.Create(filepath.Join(*folder, strings.NewReplacer(" ", "-", ",", "").Replace(what)+".pprof"))
			if err != nil {
				return err
			}
			_, err = io.Copy(file, answer.Body)
			return errors.Join(err, file.Close())
		}()
	}()
	return func() {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
