package serve_test

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
)

// counted counts what reaches the API server, and passes it on.
func counted(n *atomic.Int64) interceptor.Funcs {
	reviews := (&resttest.Reviews{Rights: apitest.Users}).Funcs()
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			n.Add(1)
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			n.Add(1)
			return c.List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			n.Add(1)
			return reviews.Create(ctx, c, o, opts...)
		},
	}
}

// countedLeader is a leader that asks who its callers are, with a count of its requests to the API
// server.
func countedLeader(t testing.TB, volumes int) (*fixture, *atomic.Int64) {
	n := &atomic.Int64{}
	objects, _ := apitest.ManyVolumes(volumes)
	c := apitest.NewLeaderCache(t, objects...)
	return newFixtureWith(t, counted(n), func(cfg *rest.Config) {
		cfg.Reader = c
		apitest.Judge(cfg)
	}), n
}

// getList gets the list of volumes and returns its length.
func getList(t testing.TB, f *fixture) int64 {
	r, err := http.NewRequest(http.MethodGet, f.URL+"/v1/volumes", nil)
	apitest.Must(t, err)
	r.Header.Set("Authorization", "Bearer of-reader")
	resp, err := http.DefaultClient.Do(r)
	apitest.Must(t, err)
	defer resp.Body.Close()
	read, err := io.Copy(io.Discard, resp.Body)
	apitest.Must(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	return read
}

// TestListsAreMadeOfTheCache: of all lists of volumes of a caller, the API server is asked who the
// caller is and what it may do, once in a while, and nothing else.
func TestListsAreMadeOfTheCache(t *testing.T) {
	f, asked := countedLeader(t, 20)
	for range 100 {
		getList(t, f)
	}
	// A token and a right hold for 10 s; a slow machine may take longer for 100 lists.
	if n := asked.Load(); n < 2 || n > 20 {
		t.Errorf("%d requests to the API server for 100 lists, want 2 in each 10 s", n)
	}
}

// BenchmarkListVolumes gets the list of 1,000 volumes of three replicas, with a token: one client,
// and several at a time.
func BenchmarkListVolumes(b *testing.B) {
	f, asked := countedLeader(b, benchVolumes)
	report := func(b *testing.B, began time.Time, used time.Duration, before, read int64) {
		n := float64(b.N)
		b.ReportMetric(n/time.Since(began).Seconds(), "lists/s")
		b.ReportMetric(float64(processorTime(b)-used)/n, "cpu-ns/list")
		b.ReportMetric(float64(read)/n, "bytes/list")
		b.ReportMetric(float64(asked.Load()-before)/n, "API-requests/list")
	}
	getList(b, f)
	b.Run("one", func(b *testing.B) {
		read, before, used, began := int64(0), asked.Load(), processorTime(b), time.Now()
		for range b.N {
			read += getList(b, f)
		}
		report(b, began, used, before, read)
	})
	b.Run("parallel", func(b *testing.B) {
		var read atomic.Int64
		b.SetParallelism(2)
		before, used, began := asked.Load(), processorTime(b), time.Now()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				read.Add(getList(b, f))
			}
		})
		report(b, began, used, before, read.Load())
	})
}
