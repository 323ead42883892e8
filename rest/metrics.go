package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	lh "ankole.storage/api/longhorn/v1beta2"
)

// scrapeTimeout bounds one scrape; Prometheus gives up after 10 s by default.
const scrapeTimeout = 8 * time.Second

var (
	volumeLabels   = []string{"node", "volume", "pvc", "pvc_namespace"}
	volumeCapacity = prometheus.NewDesc("longhorn_volume_capacity_bytes", "Configured size in bytes for this volume",
		volumeLabels, nil)
	volumeActual = prometheus.NewDesc("longhorn_volume_actual_size_bytes",
		"Space that the head and the snapshots take on each replica", volumeLabels, nil)
	volumeStateDesc = prometheus.NewDesc("longhorn_volume_state", "1 for the state the volume is in",
		append(slices.Clone(volumeLabels), "state"), nil)
	volumeRobust = prometheus.NewDesc("longhorn_volume_robustness", "1 for the robustness the volume has",
		append(slices.Clone(volumeLabels), "state"), nil)
	volumeReadOnly = prometheus.NewDesc("longhorn_volume_file_system_read_only",
		"1 while the file system mounted on the volume has gone read-only", volumeLabels, nil)
	nodeCount  = prometheus.NewDesc("longhorn_node_count_total", "Number of nodes known", nil, nil)
	nodeStatus = prometheus.NewDesc("longhorn_node_status", "1 for a condition that is true",
		[]string{"node", "condition", "condition_reason"}, nil)
	managerUp = prometheus.NewDesc("ankole_manager_up", "1 while the manager answers and can read its objects",
		[]string{"node", "version"}, nil)
)

var (
	volumeStates = []lh.VolumeState{lh.VolumeStateCreating, lh.VolumeStateAttached, lh.VolumeStateDetached,
		lh.VolumeStateAttaching,
		lh.VolumeStateDetaching, lh.VolumeStateDeleting}
	robustnesses = []lh.VolumeRobustness{lh.VolumeRobustnessUnknown, lh.VolumeRobustnessHealthy,
		lh.VolumeRobustnessDegraded, lh.VolumeRobustnessFaulted}
)

// collector computes the metrics when they are scraped. Of volumes and nodes it reports only those
// that belong to this manager's node, so that every figure comes from exactly one Pod; without a
// node name it reports all.
type collector struct {
	server *Server
	ctx    context.Context
}

// internals are the prefixes of what the process counts about itself: how long reconcilers take,
// how long their queues are, what is asked of the API server. Nothing about the Go runtime, as
// dashboards expect.
var internals = []string{"controller_runtime_", "workqueue_", "rest_client_", "ankole_", "process_"}

// ofInternals leaves out what else a registry holds.
func ofInternals[F interface{ GetName() string }](gather func() ([]F, error)) func() ([]F, error) {
	return func() ([]F, error) {
		all, err := gather()
		return slices.DeleteFunc(all, func(f F) bool {
			return !slices.ContainsFunc(internals, func(prefix string) bool {
				return strings.HasPrefix(f.GetName(), prefix)
			})
		}), err
	}
}

// serveMetrics answers a scrape.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
	defer cancel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{s, ctx})
	all := prometheus.Gatherers{registry, prometheus.GathererFunc(ofInternals(metrics.Registry.Gather))}
	promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
}

// Describe makes the collector an unchecked one; its metrics depend on the objects.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads the objects. What cannot be read is left out; a scrape never fails for it.
func (c collector) Collect(out chan<- prometheus.Metric) {
	cfg := c.server.cfg
	up := 1.0
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	var volumes lh.VolumeList
	if c.server.list(c.ctx, &volumes) != nil {
		up = 0
	}
	readOnly := c.readOnly()
	for i := range volumes.Items {
		v := &volumes.Items[i]
		owner := orText(v.Status.OwnerID, v.Status.CurrentNodeID)
		if cfg.NodeName != "" && owner != cfg.NodeName {
			continue
		}
		k := v.Status.KubernetesStatus
		labels := []string{owner, v.Name, k.PVCName, k.Namespace}
		gauge(volumeCapacity, float64(v.Spec.Size), labels...)
		gauge(volumeActual, float64(v.Status.ActualSize), labels...)
		if readOnly[v.Name] {
			gauge(volumeReadOnly, 1, labels...)
		}
		for _, s := range volumeStates {
			gauge(volumeStateDesc, one(volumeState(v) == string(s)), append(slices.Clone(labels), string(s))...)
		}
		for _, r := range robustnesses {
			gauge(volumeRobust, one(v.Status.Robustness == r || v.Status.Robustness == "" &&
				r == lh.VolumeRobustnessUnknown), append(slices.Clone(labels), string(r))...)
		}
	}
	var nodes lh.NodeList
	if c.server.list(c.ctx, &nodes) != nil {
		up = 0
	}
	gauge(nodeCount, float64(len(nodes.Items)))
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if cfg.NodeName != "" && n.Name != cfg.NodeName {
			continue
		}
		for _, condition := range n.Status.Conditions {
			gauge(nodeStatus, one(condition.Status == lh.ConditionTrue), n.Name, strings.ToLower(condition.Type),
				condition.Reason)
		}
		gauge(nodeStatus, one(n.Spec.AllowScheduling), n.Name, "allowScheduling", "")
	}
	gauge(managerUp, up, cfg.NodeName, cfg.Version)
}

// readOnly names the volumes whose engines tell of a file system that has gone read-only.
func (c collector) readOnly() map[string]bool {
	var engines lh.EngineList
	if c.server.list(c.ctx, &engines) != nil {
		return nil
	}
	found := map[string]bool{}
	for i := range engines.Items {
		e := &engines.Items[i]
		if lh.IsConditionTrue(e.Status.Conditions, lh.EngineConditionFilesystemReadOnly) {
			found[e.Spec.VolumeName] = true
		}
	}
	return found
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
