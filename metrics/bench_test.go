package metrics

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
)

// listed is a cache: its lists share the objects, as those of a cache do that are not copied.
type listed struct {
	client.Reader
	lists map[reflect.Type]reflect.Value
}

func (l *listed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if items, ok := l.lists[reflect.TypeOf(list)]; ok {
		reflect.ValueOf(list).Elem().FieldByName("Items").Set(items)
	}
	return nil
}

func listOf(t testing.TB, all []client.Object) *listed {
	out := &listed{lists: map[reflect.Type]reflect.Value{}}
	for _, l := range []client.ObjectList{&lh.VolumeList{}, &lh.EngineList{}, &lh.ReplicaList{}, &lh.SnapshotList{},
		&lh.NodeList{},
		&lh.InstanceManagerList{}, &corev1.PodList{}, &corev1.NodeList{}} {
		items := reflect.ValueOf(l).Elem().FieldByName("Items")
		for _, o := range all {
			if v := reflect.ValueOf(o).Elem(); v.Type() == items.Type().Elem() {
				items.Set(reflect.Append(items, v))
			}
		}
		if items.Len() == 0 {
			t.Fatalf("no object for %T", l)
		}
		out.lists[reflect.TypeOf(l)] = items
	}
	return out
}

// thousand is 1,000 volumes with three replicas and two snapshots each, spread over three nodes.
// Its engines answer at once.
func thousand(b *testing.B) (x *Exporter, board *Board, pass func()) {
	var all []client.Object
	for n := range 3 {
		all = append(all, nodeObjects(fmt.Sprint("node-", n+1))...)
	}
	for i := range 1000 {
		node := fmt.Sprint("node-", 1+i%3)
		one := volumeObjects(fmt.Sprintf("pvc-%08d-1111-2222-3333-444444444444", i), node)
		for r := range 2 {
			more := one[2].DeepCopyObject().(*lh.Replica)
			more.Name = fmt.Sprint(more.Name, r)
			more.Spec.NodeID, more.Status.OwnerID = fmt.Sprint("node-", 1+(i+r+1)%3), fmt.Sprint("node-", 1+(i+r+1)%3)
			one = append(one, more)
			one[1].(*lh.Engine).Status.ReplicaModeMap[more.Name] = lh.ReplicaModeRW
		}
		second := one[3].DeepCopyObject().(*lh.Snapshot)
		second.Name += "2"
		all = append(all, append(one, second)...)
	}
	bed := newBed(b, nil, nodeObjects("node-1")...)
	cache := listOf(b, slices.Clip(all))
	bed.board.Reader = func() client.Reader { return cache }
	return bed.Exporter, bed.board, func() { bed.clock.pass(figuresLife) }
}

type sized struct {
	http.ResponseWriter
	bytes int
}

func (s *sized) Write(p []byte) (int, error) {
	s.bytes += len(p)
	return len(p), nil
}

// BenchmarkScrape is one scrape of the leader of a cluster with 1,000 volumes: it makes the
// figures, asks 1,000 engines for their rates and writes the answer.
func BenchmarkScrape(b *testing.B) {
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			x, _, pass := thousand(b)
			q := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			q.Header.Set("Accept-Encoding", encoding)
			bytes := 0
			b.ReportAllocs()
			for b.Loop() {
				pass()
				w := &sized{ResponseWriter: httptest.NewRecorder()}
				x.ServeHTTP(w, q)
				bytes = w.bytes
			}
			b.ReportMetric(float64(bytes), "bytes")
		})
	}
}

// BenchmarkFigures is what the leader does once in figuresLife while anybody scrapes.
func BenchmarkFigures(b *testing.B) {
	_, board, pass := thousand(b)
	b.ReportAllocs()
	for b.Loop() {
		pass()
		if _, err := board.Figures(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
