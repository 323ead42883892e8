package metrics

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	client "k8s.io/client-go/tools/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// clientBuckets are those of the reference: 1 ms × 2^n.
var clientBuckets = prometheus.ExponentialBuckets(0.001, 2, 10)

// Requests to the API server: how long they take, and how long they wait for the manager's own
// limit. client-go tells the URL with the names of objects and namespaces taken out, so the number
// of series is bounded by that of kinds and verbs.
var (
	requestLatency = clientHistogram("longhorn_rest_client_request_latency_seconds")
	limiterLatency = clientHistogram("longhorn_rest_client_rate_limiter_latency_seconds")
)

func clientHistogram(name string) *prometheus.HistogramVec {
	d := definitions[name]
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: d.Help, Buckets: clientBuckets}, d.Labels)
	metrics.Registry.MustRegister(h)
	return h
}

// controller-runtime has registered for the count of answers, and client-go lets nobody register
// twice; these two are free.
func init() {
	client.RequestLatency = latency{requestLatency}
	client.RateLimiterLatency = latency{limiterLatency}
}

// latency is an observer of client-go.
type latency struct{ *prometheus.HistogramVec }

// Observe notes one request.
func (l latency) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	l.WithLabelValues(verb, u.String()).Observe(took.Seconds())
}
