package witness

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/instancemanager/witness/relayclient"
)

// answerTimes is how long answers take: an engine that cannot reach its other copies waits for
// them. From 1 ms, an API server on the same machine, to 16 s, longer than any engine waits.
var answerTimes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "ankole_witness_answer_seconds",
	Help:    "Time that answers to engines take, by call and gRPC code",
	Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
}, []string{"call", "code"})

func init() { metrics.Registry.MustRegister(answerTimes) }

// timed is a handler whose answers are measured.
type timed struct{ relayclient.Handler }

func measured(call string, began time.Time, err error) {
	answerTimes.WithLabelValues(call, status.Code(err).String()).Observe(time.Since(began).Seconds())
}

// Get reads the record.
func (t timed) Get(ctx context.Context, q *witnessv1.GetRequest) (m *witnessv1.Membership, err error) {
	defer func(began time.Time) { measured("Get", began, err) }(time.Now())
	return t.Handler.Get(ctx, q)
}

// CompareAndSwap records the next one.
func (t timed) CompareAndSwap(ctx context.Context, q *witnessv1.CompareAndSwapRequest) (
	r *witnessv1.CompareAndSwapResponse, err error) {
	defer func(began time.Time) { measured("CompareAndSwap", began, err) }(time.Now())
	return t.Handler.CompareAndSwap(ctx, q)
}
