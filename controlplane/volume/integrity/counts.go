package integrity

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"ankole.storage/controlplane/process/engineclient"
)

// Checks and findings count since this process started; another leader begins at 0.
var (
	checks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ankole_scrub_checks_total",
		Help: "Checks of snapshots that have ended: good, damaged, or void (without a result)",
	}, []string{"result"})
	found = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ankole_scrub_findings_total",
		Help: "Damage that checks of snapshots have found: pieces that were repaired, copies that are left damaged",
	}, []string{"outcome"})
)

// Every value of the labels is there from the start: an alert on an increase sees the first one.
func init() {
	metrics.Registry.MustRegister(checks, found)
	for _, result := range []verdict{void, damaged, good} {
		checks.WithLabelValues(result.String())
	}
	found.WithLabelValues("repaired")
	found.WithLabelValues("damaged")
}

// String names a verdict.
func (v verdict) String() string {
	return map[verdict]string{running: "running", void: "void", damaged: "damaged", good: "good"}[v]
}

// count notes a check that has ended with a result.
func count(v verdict, parts map[string]engineclient.Hash) {
	checks.WithLabelValues(v.String()).Inc()
	left := 0
	for _, h := range parts {
		found.WithLabelValues("repaired").Add(float64(max(h.Repaired, 0)))
		if h.SilentlyCorrupted {
			left++
		}
	}
	if left == 0 && v == damaged {
		left = 1 // the copies differ, and nobody can tell which one is right
	}
	found.WithLabelValues("damaged").Add(float64(left))
}
