package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// passed are the prefixes of what of the process's registry is served under its own name: nothing
// about the Go runtime, as dashboards expect.
var passed = []string{"controller_runtime_", "ankole_", "process_", "longhorn_"}

// alias is another name for what a library counts.
type alias struct {
	// from is the library's name.
	from string
	// to is ours; its help and the names of its labels are in Definitions. rename gives the library's
	// label for a label that is called otherwise.
	to     string
	rename map[string]string
}

var aliases = func() []alias {
	out := []alias{
		{from: "rest_client_requests_total", to: "longhorn_rest_client_requests_total"},
		{from: "controller_runtime_reconcile_time_seconds", to: "ankole_reconcile_seconds"},
		{from: "workqueue_depth", to: "ankole_queue_depth", rename: map[string]string{"controller": "name"}},
	}
	for _, q := range []string{"depth", "adds_total", "queue_duration_seconds", "work_duration_seconds",
		"unfinished_work_seconds", "longest_running_processor_seconds", "retries_total"} {
		out = append(out, alias{from: "workqueue_" + q, to: "longhorn_workqueue_" + q})
	}
	return out
}()

// queueBuckets is the number of buckets of the reference's histograms of queues, 1e-8 s × 10^n. The
// library's are the same, and more of them; buckets are cumulative, so the last can be left out.
const queueBuckets = 10

// internals gathers what the process counts about itself, by the names of Definitions.
func internals(from prometheus.Gatherer) func() ([]*dto.MetricFamily, error) {
	return func() ([]*dto.MetricFamily, error) {
		all, err := from.Gather()
		var out []*dto.MetricFamily
		for _, f := range all {
			renamed := false
			for _, a := range aliases {
				if a.from == f.GetName() {
					out = append(out, a.family(f))
					renamed = true
				}
			}
			if !renamed && slices.ContainsFunc(passed, func(p string) bool { return strings.HasPrefix(f.GetName(), p) }) {
				out = append(out, f)
			}
		}
		return out, err
	}
}

// family makes another family of what the library has. Samples that differ only in labels that ours
// does not have are added up.
func (a alias) family(f *dto.MetricFamily) *dto.MetricFamily {
	d := definitions[a.to]
	out := &dto.MetricFamily{Name: proto.String(a.to), Help: proto.String(d.Help), Type: f.Type}
	have := map[string]*dto.Metric{}
	for _, m := range f.GetMetric() {
		labels, key := a.labels(d, m)
		sum := have[key]
		if sum == nil {
			sum = &dto.Metric{Label: labels}
			have[key] = sum
			out.Metric = append(out.Metric, sum)
		}
		addTo(sum, m)
	}
	return out
}

// labels are ours, sorted by name as the format wants it, and a key for them.
func (a alias) labels(d *Definition, m *dto.Metric) (pairs []*dto.LabelPair, key string) {
	for _, name := range slices.Sorted(slices.Values(d.Labels)) {
		from, ok := a.rename[name]
		if !ok {
			from = name
		}
		value := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == from {
				value = l.GetValue()
			}
		}
		pairs = append(pairs, &dto.LabelPair{Name: proto.String(name), Value: proto.String(value)})
		key += value + "\x00"
	}
	return pairs, key
}

// addTo adds a sample of the library's to one of ours.
func addTo(sum, m *dto.Metric) {
	switch {
	case m.Gauge != nil:
		sum.Gauge = &dto.Gauge{Value: proto.Float64(sum.GetGauge().GetValue() + m.Gauge.GetValue())}
	case m.Counter != nil:
		sum.Counter = &dto.Counter{Value: proto.Float64(sum.GetCounter().GetValue() + m.Counter.GetValue())}
	case m.Histogram != nil:
		sum.Histogram = addHistogram(sum.Histogram, m.Histogram)
	}
}

func addHistogram(sum, h *dto.Histogram) *dto.Histogram {
	out := &dto.Histogram{
		SampleCount: proto.Uint64(sum.GetSampleCount() + h.GetSampleCount()),
		SampleSum:   proto.Float64(sum.GetSampleSum() + h.GetSampleSum()),
	}
	buckets := h.GetBucket()
	if len(buckets) == queueBuckets+2 {
		buckets = buckets[:queueBuckets]
	}
	for i, b := range buckets {
		n := b.GetCumulativeCount()
		if i < len(sum.GetBucket()) {
			n += sum.GetBucket()[i].GetCumulativeCount()
		}
		out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: b.UpperBound, CumulativeCount: proto.Uint64(n)})
	}
	return out
}
