package metrics

import (
	"bufio"
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engineclient"
)

// fact is a line of testdata/reference.txt.
type fact struct {
	name   string
	kind   Type
	labels []string
	// never says why it is not served.
	never string
}

func facts(t *testing.T) []fact {
	t.Helper()
	f, err := os.Open("testdata/reference.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []fact
	for in := bufio.NewScanner(f); in.Scan(); {
		if in.Text() == "" || strings.HasPrefix(in.Text(), "#") {
			continue
		}
		parts := strings.Split(in.Text(), "|")
		if len(parts) < 4 {
			t.Fatalf("not a fact: %s", in.Text())
		}
		one := fact{name: strings.TrimSpace(parts[0]), kind: Type(strings.TrimSpace(parts[1])),
			labels: strings.Fields(parts[2])}
		if len(parts) == 5 {
			one.never = strings.TrimSpace(parts[4])
		}
		out = append(out, one)
	}
	if len(out) != 68 {
		t.Fatalf("%d facts", len(out))
	}
	return out
}

// exerciseProcess has the process do what it counts about itself: one request to an API server, one
// look of a controller.
func exerciseProcess(t *testing.T) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1"}`))
	}))
	defer web.Close()
	cfg := &rest.Config{Host: web.URL, APIPath: "/api", QPS: 100, Burst: 100}
	cfg.GroupVersion, cfg.NegotiatedSerializer = &scheme.Scheme.PrioritizedVersionsAllGroups()[0], scheme.Codecs
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get().Namespace("users").Resource("pods").Name("demo").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	skip, done := true, make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looked := 0
	k, err := controller.NewUnmanaged("exercise", controller.Options{SkipNameValidation: &skip,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond,
			time.Millisecond),
		Reconciler: reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
			if looked++; looked == 2 {
				close(done)
				return ctrl.Result{}, nil
			}
			return ctrl.Result{}, context.DeadlineExceeded
		})})
	if err != nil {
		t.Fatal(err)
	}
	err = k.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.Add(reconcile.Request{})
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- k.Start(ctx) }()
	<-done
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// fullBed has one of everything.
func fullBed(t *testing.T) *bed {
	t.Helper()
	all := slices.Concat(nodeObjects("node-1"), nodeObjects("node-2"), volumeObjects("demo", "node-1"),
		volumeObjects("other", "node-2"), backupObjects("node-1"), legacyObjects("node-1"))
	b := newBed(t, nil, all...)
	b.change("demo-e-0", func(e *lh.Engine) {
		e.Status.Conditions = append(e.Status.Conditions, condition(lh.EngineConditionFilesystemReadOnly, true, ""))
		e.Status.RebuildStatus = map[string]lh.RebuildStatus{"tcp://10.0.0.3:10015": {IsRebuilding: true, Progress: 40,
			FromReplicaAddressList: []string{"tcp://10.0.0.1:10015", "tcp://10.0.0.2:10015"}}}
	})
	b.states["demo-e-0"] = &engineclient.State{UpgradePause: 120 * time.Millisecond, Replicas: []engineclient.Replica{
		{Address: "10.0.0.1:10015"},
		{Address: "10.0.0.3:10015", Rebuild: &engineclient.Rebuild{Running: true, DoneBytes: 40, TotalBytes: 100}}}}
	return b
}

// change updates an engine's status.
func (b *bed) change(engine string, edit func(*lh.Engine)) {
	b.t.Helper()
	e := &lh.Engine{ObjectMeta: meta(engine)}
	ctx := context.Background()
	if err := b.client.Get(ctx, keyOf(e), e); err != nil {
		b.t.Fatal(err)
	}
	edit(e)
	if err := b.client.Update(ctx, e); err != nil {
		b.t.Fatal(err)
	}
}

// elsewhere are metrics that other packages register, and the tests that hold them to the table.
var elsewhere = map[string]string{
	"ankole_manager_api_requests_total": "manager.TestRequestsAreCounted",
	"ankole_scrub_checks_total":         "integrity.TestCounts",
	"ankole_scrub_findings_total":       "integrity.TestCounts",
	"ankole_witness_answer_seconds":     "witness.TestAnswersAreTimed",
}

// TestEveryMetricOfTheReference: a cluster with one of everything serves each metric that clients
// of the reference ask for, under its name, with its type and its labels, and each of our own.
func TestEveryMetricOfTheReference(t *testing.T) {
	exerciseProcess(t)
	served := samples(t, fullBed(t).text())
	table := map[string]bool{}
	check := func(name string, kind Type, labels []string) {
		t.Helper()
		f := served[name]
		if f == nil {
			t.Errorf("%s is not served", name)
			return
		}
		if got := Type(strings.ToLower(f.GetType().String())); got != kind {
			t.Errorf("%s is a %s", name, got)
		}
		for _, m := range f.GetMetric() {
			if got := labelNames(m); !slices.Equal(got, slices.Sorted(slices.Values(labels))) {
				t.Errorf("%s has labels %v", name, got)
			}
		}
	}
	for _, f := range facts(t) {
		table[f.name] = true
		d := definitions[f.name]
		switch {
		case d == nil:
			t.Errorf("%s is not in the table", f.name)
		case d.Type != f.kind ||
			!slices.Equal(slices.Sorted(slices.Values(d.Labels)), slices.Sorted(slices.Values(f.labels))):
			t.Errorf("%s: %s %v in the table", f.name, d.Type, d.Labels)
		case f.never != "":
			if served[f.name] != nil {
				t.Errorf("%s is served", f.name)
			}
		case f.name == connectionMetric && !legacyServed:
		default:
			check(f.name, f.kind, f.labels)
		}
	}
	for _, d := range Definitions {
		if !strings.HasPrefix(d.Name, "ankole_") {
			if !table[d.Name] {
				t.Errorf("%s is in the table and not the reference's", d.Name)
			}
			continue
		}
		if elsewhere[d.Name] == "" {
			check(d.Name, d.Type, d.Labels)
		}
	}
	for name := range served {
		if definitions[name] == nil && (strings.HasPrefix(name, "longhorn_") || strings.HasPrefix(name, "ankole_")) ||
			strings.HasPrefix(name, "go_") {
			t.Errorf("%s is served and not in the table", name)
		}
	}
}

func labelNames(m *dto.Metric) []string {
	var out []string
	for _, l := range m.GetLabel() {
		out = append(out, l.GetName())
	}
	slices.Sort(out)
	return out
}

// TestUnits: values are in the units that clients of the reference expect, at least one of each
// kind.
func TestUnits(t *testing.T) {
	b := fullBed(t)
	v := `{node="node-1",pvc="claim-demo",pvc_namespace="users",volume="demo"} `
	vs := func(state string) string {
		return `{node="node-1",pvc="claim-demo",pvc_namespace="users",state="` + state + `",volume="demo"} `
	}
	im := `{instance_manager="instance-manager-node-1",instance_manager_type="aio",node="node-1"} `
	backup := `{backup="backup-1",recurring_job="nightly",volume="demo"} `
	expect(t, b.text(),
		"longhorn_volume_capacity_bytes"+v+"1.073741824e+09", "longhorn_volume_actual_size_bytes"+v+"3.145728e+06",
		"longhorn_volume_state"+vs("attached")+"1", "longhorn_volume_state"+vs("detached")+"0",
		"longhorn_volume_robustness"+vs("healthy")+"1", "longhorn_volume_robustness"+vs("faulted")+"0",
		"longhorn_volume_read_throughput"+v+"1", "longhorn_volume_write_throughput"+v+"2",
		"longhorn_volume_read_latency"+v+"3", "longhorn_volume_write_latency"+v+"4",
		"longhorn_volume_read_iops"+v+"5", "longhorn_volume_write_iops"+v+"6",
		"longhorn_volume_file_system_read_only"+v+"1", "longhorn_volume_last_backup_at"+v+"0",
		"longhorn_volume_encrypted"+v+"0",
		`longhorn_node_status{condition="ready",condition_reason="",node="node-1"} 1`,
		`longhorn_node_status{condition="schedulable",condition_reason="KubernetesNodeCordoned",node="node-1"} 0`,
		`longhorn_node_status{condition="allowScheduling",condition_reason="",node="node-1"} 1`,
		"longhorn_node_count_total 2",
		`longhorn_node_cpu_usage_millicpu{node="node-1"} 1500`, `longhorn_node_cpu_capacity_millicpu{node="node-1"} 3500`,
		`longhorn_node_memory_usage_bytes{node="node-1"} 2.147483648e+09`,
		`longhorn_node_memory_capacity_bytes{node="node-1"} 8.589934592e+09`,
		`longhorn_node_storage_capacity_bytes{node="node-1"} 1.073741824e+11`,
		`longhorn_node_storage_usage_bytes{node="node-1"} 4.294967296e+10`,
		`longhorn_node_storage_reservation_bytes{node="node-1"} 1.073741824e+10`,
		`longhorn_node_storage_scheduled_bytes{node="node-1"} 5.36870912e+09`,
		`longhorn_disk_usage_bytes{disk="disk-1",node="node-1"} 4.294967296e+10`,
		`longhorn_disk_status{condition="schedulable",condition_reason="DiskPressure",disk="disk-1",node="node-1"} 0`,
		`longhorn_disk_health{disk="disk-1",node="node-1"} 1`,
		`longhorn_disk_health_attribute_raw{attribute="Power_On_Hours",attribute_id="9",disk="disk-1",node="node-1"} 7`,
		`longhorn_disk_health_attribute_raw{attribute="temperature",attribute_id="",disk="disk-1",node="node-1"} 40`,
		`ankole_instance_manager_status{condition="certificateusable",condition_reason="NoCertificate",`+
			`instance_manager="instance-manager-node-1",instance_manager_type="aio",node="node-1"} 0`,
		"longhorn_instance_manager_cpu_usage_millicpu"+im+"250", "longhorn_instance_manager_cpu_requests_millicpu"+im+"1500",
		"longhorn_instance_manager_memory_usage_bytes"+im+"1.048576e+08",
		"longhorn_instance_manager_memory_requests_bytes"+im+"1.34217728e+08",
		`longhorn_manager_cpu_usage_millicpu{manager="longhorn-manager-node-1",node="node-1"} 21`,
		`longhorn_manager_memory_usage_bytes{manager="longhorn-manager-node-1",node="node-1"} 3.3554432e+07`,
		`longhorn_engine_info{data_engine="v1",engine="demo-e-0",frontend="blockdev",image="engine:1",`+
			`node="node-1",volume="demo"} 1`,
		`longhorn_engine_state{engine="demo-e-0",node="node-1",state="running",volume="demo"} 1`,
		`longhorn_engine_state{engine="demo-e-0",node="node-1",state="unknown",volume="demo"} 0`,
		`longhorn_engine_replica_mode{engine="demo-e-0",mode="RW",replica="demo-r-1",volume="demo"} 1`,
		`longhorn_engine_rebuild_progress{engine="demo-e-0",node="node-1",pvc="claim-demo",pvc_namespace="users",`+
			`rebuild_dst="tcp://10.0.0.3:10015",rebuild_src="tcp://10.0.0.1:10015,tcp://10.0.0.2:10015"} 40`,
		`longhorn_replica_info{data_engine="v1",disk_path="/data",node="node-1",replica="demo-r-1",volume="demo"} 1`,
		`longhorn_replica_state{node="node-1",replica="demo-r-1",state="running",volume="demo"} 1`,
		`longhorn_snapshot_actual_size_bytes{snapshot="demo-s",user_created="true",volume="demo"} 1.048576e+06`,
		"longhorn_backup_actual_size_bytes"+backup+"2.097152e+06", "longhorn_backup_state"+backup+"3",
		"longhorn_backup_uploaded_data_size_bytes"+backup+"1.048576e+06",
		`longhorn_backup_volume_backups_count{backup_volume="bv-1"} 1`,
		`longhorn_backup_target_backup_volume_count{backup_target="default"} 1`,
		`longhorn_backing_image_actual_size_bytes{backing_image="image",disk="uuid-node-1",node="node-1"} 7.340032e+06`,
		`longhorn_backing_image_state{backing_image="image",disk="uuid-node-1",node="node-1"} 4`,
		`longhorn_backup_backing_image_actual_size_bytes{backup_backing_image="image-1"} 8.388608e+06`,
		`longhorn_backup_backing_image_state{backup_backing_image="image-1"} 4`,
		`ankole_rebuild_done_bytes{engine="demo-e-0",node="node-1",rebuild_dst="10.0.0.3:10015",volume="demo"} 40`,
		`ankole_rebuild_total_bytes{engine="demo-e-0",node="node-1",rebuild_dst="10.0.0.3:10015",volume="demo"} 100`,
		`ankole_upgrade_pause_seconds{engine="demo-e-0",node="node-1",volume="demo"} 0.12`,
		`ankole_engine_suspended{engine="demo-e-0",node="node-1",volume="demo"} 1`,
		`ankole_controller_leads{node="node-1",version="v1"} 1`,
		`ankole_backup_volume_faults{backup_target="default",backup_volume="bv-1",volume="demo"} 3`,
		`ankole_backup_volume_verified_at{backup_target="default",backup_volume="bv-1",volume="demo"} 1.767323045e+09`,
		`ankole_backup_backing_image_faults{backing_image="image",backup_backing_image="image-1",backup_target="default"} 2`,
		`ankole_backup_backing_image_verified_at{backing_image="image",backup_backing_image="image-1",`+
			`backup_target="default"} 1.767323046e+09`,
	)
}

// TestBuckets: histograms have the buckets of the reference.
func TestBuckets(t *testing.T) {
	exerciseProcess(t)
	served := samples(t, newBed(t, nil, nodeObjects("node-1")...).text())
	for metric, want := range map[string][2]float64{"longhorn_rest_client_request_latency_seconds": {0.001, 0.512},
		"longhorn_rest_client_rate_limiter_latency_seconds": {0.001, 0.512},
		"longhorn_workqueue_queue_duration_seconds":         {1e-8, 10},
		"longhorn_workqueue_work_duration_seconds":          {1e-8, 10}} {
		h := served[metric].GetMetric()[0].GetHistogram()
		var bounds []float64
		for _, b := range h.GetBucket() {
			if !math.IsInf(b.GetUpperBound(), 1) {
				bounds = append(bounds, b.GetUpperBound())
			}
		}
		if len(bounds) != 10 || math.Abs(bounds[0]/want[0]-1) > 1e-9 || math.Abs(bounds[9]/want[1]-1) > 1e-9 {
			t.Errorf("%s: %v", metric, bounds)
		}
		if h.GetSampleCount() == 0 || h.GetSampleSum() < 0 {
			t.Errorf("%s: %v", metric, h)
		}
	}
}

// TestCodes: states that are numbers.
func TestCodes(t *testing.T) {
	for state, want := range map[lh.BackupState]float64{"": 0, "Pending": 1, "InProgress": 2, "Completed": 3, "Error": 4,
		"Unknown": 5, "Deleting": 5, "later": 5} {
		if got := code(backupCodes, state, lh.BackupStateUnknown); got != want {
			t.Errorf("%q: %v", state, got)
		}
	}
	for state, want := range map[lh.BackingImageState]float64{"": 0, "pending": 0, "starting": 1, "in-progress": 2,
		"ready-for-transfer": 3, "ready": 4, "failed": 5, "failed-and-cleanup": 6, "unknown": 7, "later": 7} {
		if got := code(imageCodes, state, lh.BackingImageStateUnknown); got != want {
			t.Errorf("%q: %v", state, got)
		}
	}
}

// TestSamplesAreAddedUp: the library's samples that differ in labels which ours do not have are
// one.
func TestSamplesAreAddedUp(t *testing.T) {
	from := prometheus.NewRegistry()
	depth := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_depth"},
		[]string{"name", "controller", "priority"})
	from.MustRegister(depth)
	depth.WithLabelValues("a", "a", "0").Set(2)
	depth.WithLabelValues("a", "a", "-100").Set(3)
	depth.WithLabelValues("b", "b", "0").Set(4)
	other := prometheus.NewGauge(prometheus.GaugeOpts{Name: "go_goroutines"})
	from.MustRegister(other)
	b := newBed(t, func(c *Config) { c.Internals = from }, nodeObjects("node-1")...)
	text := b.text()
	expect(t, text, `longhorn_workqueue_depth{name="a"} 5`, `longhorn_workqueue_depth{name="b"} 4`,
		`ankole_queue_depth{controller="a"} 5`)
	if strings.Contains(text, "go_") || strings.Contains(text, "\nworkqueue_") {
		t.Error("names of the libraries")
	}
}
