package volume

import (
	"maps"
	"net/http/httptest"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
)

// TestCacheKeepsWhatThereIs: after a list is read there are no entries but those of volumes that
// exist.
func TestCacheKeepsWhatThereIs(t *testing.T) {
	c := resttest.Client(t, interceptor.Funcs{}, append(resttest.Volume("gone"), resttest.Volume("stays")...)...)
	a := &API{}
	s, err := serve.New(serve.Config{Client: c, Open: true}, serve.Table{Routes: a.Routes(), Streams: a.Streams()})
	if err != nil {
		t.Fatal(err)
	}
	list := func() []string {
		t.Helper()
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, httptest.NewRequest("GET", "/v1/volumes", nil)); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return slices.Sorted(maps.Keys(a.cache.entries))
	}
	if have := list(); !slices.Equal(have, []string{"gone", "stays"}) {
		t.Errorf("%v are kept of two volumes", have)
	}
	if err := c.Delete(t.Context(), resttest.Volume("gone")[0]); err != nil {
		t.Fatal(err)
	}
	if have := list(); !slices.Equal(have, []string{"stays"}) {
		t.Errorf("%v are kept when one volume is gone", have)
	}
}
