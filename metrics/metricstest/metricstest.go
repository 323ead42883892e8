// Package metricstest looks at what packages have registered with the registry of the process, for
// their tests: it must be what the table of package metrics says.
package metricstest

import (
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	registry "sigs.k8s.io/controller-runtime/pkg/metrics"

	"ankole.storage/metrics"
)

// family returns what is registered under a name and has a sample.
func family(t testing.TB, name string) *dto.MetricFamily {
	t.Helper()
	all, err := registry.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(f *dto.MetricFamily) bool { return f.GetName() == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// Registered fails unless each of the metrics has a sample, and type, labels and help of its
// definition.
func Registered(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		i := slices.IndexFunc(metrics.Definitions, func(d metrics.Definition) bool { return d.Name == name })
		f := family(t, name)
		if i < 0 || f == nil {
			t.Errorf("%s: has no sample (%v), or no definition", name, f)
			continue
		}
		Same(t, metrics.Definitions[i], f)
	}
}

// Same fails unless a family is as its definition says.
func Same(t testing.TB, d metrics.Definition, f *dto.MetricFamily) {
	t.Helper()
	kinds := map[metrics.Type]dto.MetricType{metrics.Gauge: dto.MetricType_GAUGE, metrics.Counter: dto.MetricType_COUNTER,
		metrics.Histogram: dto.MetricType_HISTOGRAM}
	if f.GetType() != kinds[d.Type] || f.GetHelp() != d.Help {
		t.Errorf("%s: %v, %q; want %v, %q", d.Name, f.GetType(), f.GetHelp(), d.Type, d.Help)
	}
	want := slices.Sorted(slices.Values(d.Labels))
	for _, m := range f.GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName())
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			t.Errorf("%s: labels %v, want %v", d.Name, have, want)
		}
	}
}

// Value is that of the sample with the values of the labels, in the order of the definition; of a
// histogram the number of observations. 0 if there is no such sample.
func Value(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	i := slices.IndexFunc(metrics.Definitions, func(d metrics.Definition) bool { return d.Name == name })
	if i < 0 {
		t.Fatalf("%s has no definition", name)
	}
	for _, m := range family(t, name).GetMetric() {
		same := true
		for _, l := range m.GetLabel() {
			at := slices.Index(metrics.Definitions[i].Labels, l.GetName())
			same = same && at >= 0 && at < len(labels) && labels[at] == l.GetValue()
		}
		switch {
		case !same:
		case m.Histogram != nil:
			return float64(m.Histogram.GetSampleCount())
		case m.Counter != nil:
			return m.Counter.GetValue()
		default:
			return m.GetGauge().GetValue()
		}
	}
	return 0
}
