package manager

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"ankole.storage/metrics/metricstest"
)

func TestDescribe(t *testing.T) {
	const ours = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/"
	for _, c := range []struct{ method, url, verb, resource string }{
		{"GET", "/api/v1/nodes", "list", "nodes"},
		{"GET", "/api/v1/nodes?watch=true&x=y", "watch", "nodes"},
		{"GET", "/api/v1/nodes/n1", "get", "nodes"},
		{"GET", "/api/v1/namespaces/longhorn-system", "get", "namespaces"},
		{"GET", ours + "volumes", "list", "volumes"},
		{"PUT", ours + "volumes/v/status", "update", "volumes/status"},
		{"PATCH", ours + "volumes/v", "patch", "volumes"},
		{"POST", "/api/v1/namespaces/longhorn-system/events", "create", "events"},
		{"DELETE", ours + "volumes/v", "delete", "volumes"},
		{"GET", "/healthz", "get", "/healthz"},
		{"GET", "/apis", "get", "/apis"},
	} {
		verb, resource := describe(httptest.NewRequest(c.method, c.url, nil))
		if verb != c.verb || resource != c.resource {
			t.Errorf("%s %s: %s %s, want %s %s", c.method, c.url, verb, resource, c.verb, c.resource)
		}
	}
}

// TestRequestsAreCounted: under the name of the client that sent them.
func TestRequestsAreCounted(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	c, err := rest.HTTPClientFor(counted(&rest.Config{Host: s.URL}, "test"))
	if err != nil {
		t.Fatal(err)
	}
	before := countedUnder(t, "test")
	for range 3 {
		answer, err := c.Get(s.URL + "/api/v1/nodes/n1")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	if got := countedUnder(t, "test") - before; got != 3 {
		t.Errorf("%v requests counted, want 3", got)
	}
	metricstest.Registered(t, "ankole_manager_api_requests_total")
}

// countedUnder is how many requests of a client the process has counted.
func countedUnder(t *testing.T, client string) (found float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "ankole_manager_api_requests_total" && m.GetLabel()[0].GetValue() == client {
				found += m.GetCounter().GetValue()
			}
		}
	}
	return found
}
