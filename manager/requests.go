package manager

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// requests counts what this process asks the API server for. In an idle cluster every client but
// that of the election should come to rest.
var requests = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "ankole_manager_api_requests_total",
	Help: "Requests to the API server by the part of the manager that sent them, verb and resource",
}, []string{"client", "verb", "resource"})

func init() { metrics.Registry.MustRegister(requests) }

// counted is the configuration for a client whose requests are counted under a name.
func counted(api *rest.Config, client string) *rest.Config {
	out := rest.CopyConfig(api)
	out.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{client, next} })
	return out
}

type counter struct {
	client string
	next   http.RoundTripper
}

// RoundTrip counts the request and passes it on.
func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	verb, resource := describe(r)
	requests.WithLabelValues(c.client, verb, resource).Inc()
	return c.next.RoundTrip(r)
}

// describe names a request as Kubernetes does: the verb, and the resource with its subresource;
// both of bounded number. What is no request for a resource has its path's first element.
func describe(r *http.Request) (verb, resource string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	prefix := 2 // api/v1
	if parts[0] == "apis" {
		prefix = 3 // apis/group/version
	}
	if len(parts) <= prefix || parts[0] != "api" && parts[0] != "apis" {
		return strings.ToLower(r.Method), "/" + parts[0]
	}
	parts = parts[prefix:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	resource = parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	switch one := len(parts) > 1; {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		verb = "watch"
	case r.Method == http.MethodGet && one:
		verb = "get"
	case r.Method == http.MethodGet:
		verb = "list"
	case r.Method == http.MethodPost:
		verb = "create"
	case r.Method == http.MethodPut:
		verb = "update"
	default:
		verb = strings.ToLower(r.Method)
	}
	return verb, resource
}
