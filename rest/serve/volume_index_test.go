package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
)

// counting is a reader that counts the objects that its lists return.
type counting struct {
	client.Reader
	returned *int
}

func (c counting) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := c.Reader.List(ctx, list, opts...)
	switch l := list.(type) {
	case *lh.EngineList:
		*c.returned += len(l.Items)
	case *lh.ReplicaList:
		*c.returned += len(l.Items)
	case *lh.VolumeAttachmentList:
		*c.returned += len(l.Items)
	}
	return err
}

// TestOneVolumeIsReadByIndex: the answer for one volume costs what belongs to it, however many
// volumes there are, and is the one that a reader without indexes gives.
func TestOneVolumeIsReadByIndex(t *testing.T) {
	objects, engines := apitest.ManyVolumes(50)
	name := engines[7].Spec.VolumeName
	c, returned := apitest.NewLeaderCache(t, objects...), 0
	reader := client.Reader(c)
	f := newFixtureWith(t, interceptor.Funcs{}, func(cfg *rest.Config) {
		cfg.Reader = counting{reader, &returned}
	}, objects...)
	by := f.Do(http.MethodGet, "/v1/volumes/"+name, "").Text
	if returned != 4 {
		t.Errorf("%d objects were read besides the volume and its attachment, want 1 engine and 3 replicas", returned)
	}
	plain := newFixtureWith(t, interceptor.Funcs{}, func(cfg *rest.Config) { cfg.Reader = unindexed{reader} }, objects...)
	if all := plain.Do(http.MethodGet, "/v1/volumes/"+name, "", "Host", f.URL[len("http://"):]).Text; all != by {
		t.Errorf("by index\n%s\nof all\n%s", by, all)
	}
	if len(f.Get("/v1/volumes/" + name)["replicas"].([]any)) != 3 {
		t.Errorf("replicas: %s", by)
	}
}

// BenchmarkGetVolume gets one volume of few and of 1,000, as clients do that wait for one.
func BenchmarkGetVolume(b *testing.B) {
	for _, n := range []int{10, benchVolumes} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			objects, engines := apitest.ManyVolumes(n)
			c := apitest.NewLeaderCache(b, objects...)
			f := newFixtureWith(b, interceptor.Funcs{}, func(cfg *rest.Config) { cfg.Reader = c }, objects...)
			path := f.URL + "/v1/volumes/" + engines[n/2].Spec.VolumeName
			for b.Loop() {
				resp, err := http.Get(path)
				apitest.Must(b, err)
				var v struct{ Replicas []any }
				apitest.Must(b, json.NewDecoder(resp.Body).Decode(&v))
				resp.Body.Close()
				if len(v.Replicas) != 3 {
					b.Fatal(v)
				}
			}
		})
	}
}
