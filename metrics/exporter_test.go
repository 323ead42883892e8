package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/wait"
)

// TestOneReporter: the leader reports every object once; what no node owns under its own node.
// Other controllers report none, and agents nothing but themselves.
func TestOneReporter(t *testing.T) {
	unowned := volumeObjects("new", "")
	unowned[0].(*lh.Volume).Status = lh.VolumeStatus{}
	unowned[1].(*lh.Engine).Status = lh.EngineStatus{}
	away := volumeObjects("away", "node-9") // a node without an object
	b := newBed(t, nil, slices.Concat(nodeObjects("node-1"), nodeObjects("node-2"), volumeObjects("demo", "node-1"),
		volumeObjects("other", "node-2"), unowned, away, backupObjects("node-2"))...)
	text := b.text()
	for metric, want := range map[string]int{
		"longhorn_volume_capacity_bytes": 4, "longhorn_volume_state": 24, "longhorn_engine_info": 4,
		"longhorn_engine_state": 24, "longhorn_replica_info": 4, "longhorn_snapshot_actual_size_bytes": 4,
		"longhorn_backup_state": 1, "longhorn_backup_target_backup_volume_count": 1,
		"longhorn_backing_image_state": 1, "longhorn_disk_capacity_bytes": 2, "longhorn_node_count_total": 1,
		"longhorn_instance_manager_cpu_requests_millicpu": 2, "longhorn_disk_health_attribute_raw": 4,
	} {
		if got := len(lines(text, metric)); got != want {
			t.Errorf("%s: %v samples, want %v", metric, got, want)
		}
	}
	expect(t, text,
		`longhorn_volume_capacity_bytes{node="node-2",pvc="claim-other",pvc_namespace="users",volume="other"} 1.073741824e+09`,
		`longhorn_node_count_total 2`, `ankole_controller_leads{node="node-1",version="v1"} 1`,
		`longhorn_volume_state{node="node-1",pvc="",pvc_namespace="",state="creating",volume="new"} 1`,
		`longhorn_volume_robustness{node="node-1",pvc="",pvc_namespace="",state="unknown",volume="new"} 1`,
		`longhorn_engine_state{engine="new-e-0",node="node-1",state="stopped",volume="new"} 1`)
	follower := New(Config{NodeName: "node-2", Namespace: lh.Namespace,
		Board: &Board{Reader: func() client.Reader { return nil }}})
	text = scrapeOf(t, follower)
	expect(t, text, `ankole_controller_leads{node="node-2",version=""} 0`)
	agent := scrapeOf(t, New(Config{}))
	if strings.Contains(text, "longhorn_volume") || strings.Contains(agent, "leads") ||
		!strings.Contains(agent, "process_cpu_seconds_total") {
		t.Errorf("of a follower %s\nof an agent %s", text, agent)
	}
}

// TestOddLabels: whatever is in a name arrives as it is.
func TestOddLabels(t *testing.T) {
	odd := "a\"b\\c\nd{e=\"f\"} é 世\t"
	all := slices.Concat(nodeObjects("node-1"), volumeObjects("demo", "node-1"))
	all[5].(*lh.Volume).Status.KubernetesStatus.PVCName = odd
	all[6].(*lh.Engine).Status.ReplicaModeMap = map[string]lh.ReplicaMode{"bad \xff byte": lh.ReplicaModeERR}
	served := samples(t, newBed(t, nil, all...).text())
	value := func(metric, label string) string {
		for _, l := range served[metric].GetMetric()[0].GetLabel() {
			if l.GetName() == label {
				return l.GetValue()
			}
		}
		return ""
	}
	if got := value("longhorn_volume_capacity_bytes", "pvc"); got != odd {
		t.Errorf("%q", got)
	}
	if got := value("longhorn_engine_replica_mode", "replica"); got != "bad \uFFFD byte" {
		t.Errorf("%q", got)
	}
}

// TestSeriesGoWithTheObject: an object that is deleted is not reported any more, and nothing is
// held for it.
func TestSeriesGoWithTheObject(t *testing.T) {
	b := newBed(t, nil, slices.Concat(nodeObjects("node-1"), volumeObjects("demo", "node-1"),
		volumeObjects("other", "node-1"))...)
	if text := b.text(); len(lines(text, "longhorn_volume_read_iops")) != 2 || len(b.rates.answers) != 2 {
		t.Fatal(text)
	}
	for _, o := range volumeObjects("demo", "node-1") {
		if err := b.client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	text := b.text()
	if strings.Contains(text, `"demo`) || !strings.Contains(text, `"other"`) {
		t.Error("series of the deleted volume are there, or those of the other one are not")
	}
	if len(b.rates.answers) != 1 {
		t.Errorf("answers are held: %v", b.rates.answers)
	}
}

// TestWhoDoesNotAnswerHasNoSample: an engine that does not tell its rates has none, not zero; it
// holds up the others no longer than the bound, and is not asked again by every scrape.
func TestWhoDoesNotAnswerHasNoSample(t *testing.T) {
	b := newBed(t, nil, slices.Concat(nodeObjects("node-1"), volumeObjects("silent", "node-1"),
		volumeObjects("failed", "node-1"), volumeObjects("good", "node-1"))...)
	b.rates.limit = 200 * time.Millisecond
	b.engine.silent["silent-e-0"], b.engine.failed["failed-e-0"] = true, true
	text := b.text()
	if got := lines(text, "longhorn_volume_read_iops"); len(got) != 1 || !strings.Contains(got[0], `volume="good"`) {
		t.Errorf("%v", got)
	}
	if n := len(lines(text, "longhorn_volume_capacity_bytes")); n != 3 {
		t.Errorf("%d volumes", n)
	}
	scrapeOf(t, b) // at the same time
	for engine, n := range b.engine.asked {
		if n != 1 {
			t.Errorf("%s was asked %d times", engine, n)
		}
	}
	b.engine.mu.Lock()
	b.engine.failed["failed-e-0"] = false
	b.engine.mu.Unlock()
	if got := lines(b.text(), "longhorn_volume_read_iops"); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// TestOneEngineOfAVolumeIsAsked: in a migration there are two, and the volume has one sample.
func TestOneEngineOfAVolumeIsAsked(t *testing.T) {
	all := slices.Concat(nodeObjects("node-1"), volumeObjects("demo", "node-1"))
	second := all[6].DeepCopyObject().(*lh.Engine)
	second.Name, second.Spec.StandInFor = "demo-e-1", "demo-e-0"
	b := newBed(t, nil, append(all, second)...)
	if got := lines(b.text(), "longhorn_volume_read_iops"); len(got) != 1 || b.engine.asked["demo-e-0"] != 1 {
		t.Errorf("%v, asked %v", got, b.engine.asked)
	}
}

// TestEndOfLeadership: a controller that does not lead any more reports no objects, and holds no
// connection.
func TestEndOfLeadership(t *testing.T) {
	leads := true
	b := newBed(t, nil, slices.Concat(nodeObjects("node-1"), volumeObjects("demo", "node-1"))...)
	b.board.Reader = func() client.Reader {
		if leads {
			return b.client
		}
		return nil
	}
	if b.text(); len(b.rates.conns) != 1 {
		t.Fatalf("%d connections", len(b.rates.conns))
	}
	leads = false
	if text := b.text(); strings.Contains(text, "longhorn_volume") || len(b.rates.conns) != 0 {
		t.Errorf("%d connections; %s", len(b.rates.conns), text)
	}
	leads = true
	expect(t, b.text(), `ankole_controller_leads{node="node-1",version="v1"} 1`, "longhorn_node_count_total 1")
	b.board.Reader = func() client.Reader { return failing{} }
	expect(t, b.text(), `ankole_controller_leads{node="node-1",version="v1"} 0`)
}

// TestFiguresAreMadeOnce: however many ask, the leader looks at its cache once in figuresLife.
func TestFiguresAreMadeOnce(t *testing.T) {
	b := newBed(t, nil, slices.Concat(nodeObjects("node-1"), nodeObjects("node-2"))...)
	counting := &countingReader{Reader: b.client}
	b.board.Reader = func() client.Reader { return counting }
	for range 5 {
		if _, err := b.board.Figures(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if counting.lists != 13 {
		t.Errorf("%d lists", counting.lists)
	}
	// Another leadership has another cache.
	again := &countingReader{Reader: b.client}
	b.board.Reader = func() client.Reader { return again }
	if _, err := b.board.Figures(t.Context()); err != nil || again.lists != 13 {
		t.Errorf("%d lists, %v", again.lists, err)
	}
}

type countingReader struct {
	client.Reader
	lists int
}

func (c *countingReader) List(ctx context.Context, l client.ObjectList, o ...client.ListOption) error {
	c.lists++
	return c.Reader.List(ctx, l, o...)
}

type failing struct{ client.Reader }

func (failing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("no cache")
}

// TestLastRebuildSample: a rebuild that a scrape has seen gets one sample of 100 when it has ended
// well, and none if it failed.
func TestLastRebuildSample(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  map[string]lh.RebuildStatus
		last int
	}{
		{"ended well", map[string]lh.RebuildStatus{"b": {State: lh.ProcessStateComplete, Progress: 100,
			FromReplicaAddress: "a"}}, 1},
		{"failed", map[string]lh.RebuildStatus{"b": {State: lh.ProcessStateError, Progress: 60, FromReplicaAddress: "a"}}, 0},
		{"forgotten", nil, 0},
	} {
		b := newBed(t, nil, slices.Concat(nodeObjects("node-1"), volumeObjects("demo", "node-1"))...)
		step := func(status map[string]lh.RebuildStatus) []string {
			b.change("demo-e-0", func(e *lh.Engine) { e.Status.RebuildStatus = status })
			return lines(b.text(), "longhorn_engine_rebuild_progress")
		}
		if got := step(tt.end); len(got) != 0 {
			t.Errorf("%s: nobody saw it run: %v", tt.name, got)
		}
		got := step(map[string]lh.RebuildStatus{"b": {IsRebuilding: true, State: lh.ProcessStateInProgress, Progress: 60,
			FromReplicaAddress: "a"}})
		if len(got) != 1 || !strings.HasSuffix(got[0], " 60") {
			t.Errorf("%s: %v", tt.name, got)
		}
		if got := step(tt.end); len(got) != tt.last || tt.last == 1 && !strings.HasSuffix(got[0], " 100") {
			t.Errorf("%s: %v", tt.name, got)
		}
		if got := step(tt.end); len(got) != 0 {
			t.Errorf("%s: more than one last sample: %v", tt.name, got)
		}
	}
}

// TestRatesOfOneVolume: its engine alone is asked, once in ratesLife; one that does not answer has
// no rates, and nobody who does not lead tells any.
func TestRatesOfOneVolume(t *testing.T) {
	b := newBed(t, nil, slices.Concat(nodeObjects("node-1"), volumeObjects("demo", "node-1"),
		volumeObjects("mute", "node-1"))...)
	b.rates.limit = 200 * time.Millisecond
	b.engine.silent["mute-e-0"] = true
	for range 3 {
		if m := b.Rates(t.Context(), "demo"); m.GetReadThroughput() != 1 || m.GetWriteIOPS() != 6 {
			t.Fatalf("%v", m)
		}
	}
	if asked := maps.Clone(b.engine.asked); asked["demo-e-0"] != 1 || asked["mute-e-0"] != 0 {
		t.Errorf("asked: %v", asked)
	}
	b.clock.pass(ratesLife)
	if m := b.Rates(t.Context(), "demo"); m == nil || b.engine.asked["demo-e-0"] != 2 {
		t.Errorf("%v, asked: %v", m, b.engine.asked)
	}
	for _, volume := range []string{"mute", "nope"} {
		if m := b.Rates(t.Context(), volume); m != nil {
			t.Errorf("%s: %v", volume, m)
		}
	}
	b.board.Reader = func() client.Reader { return nil }
	if m := b.Rates(t.Context(), "demo"); m != nil || len(b.rates.conns)+len(b.rates.answers) != 0 {
		t.Errorf("%v of who does not lead; %d connections, %v", m, len(b.rates.conns), b.rates.answers)
	}
}

// TestUsage: what is used is asked for rarely, only where the setting allows it, and is missing
// where nobody knows it.
func TestUsage(t *testing.T) {
	asked, wanted, there := 0, true, true
	b := newBed(t, func(c *Config) {
		known := c.Usage
		c.UsageWanted = func(context.Context) bool { return wanted }
		c.Usage = func(ctx context.Context, path string) ([]byte, error) {
			asked++
			if !there {
				return nil, errors.New("the server could not find the requested resource")
			}
			return known(ctx, path)
		}
	}, nodeObjects("node-1")...)
	const metric = "longhorn_node_cpu_usage_millicpu"
	has := func(want int, text string) {
		t.Helper()
		if got := lines(text, metric); len(got) != want {
			t.Errorf("%v", got)
		}
	}
	has(1, b.text())
	has(1, b.text())
	if asked != 2 { // nodes, Pods
		t.Errorf("asked %d times", asked)
	}
	wanted = false
	has(0, b.text())
	wanted, there = true, false
	asked = 0
	has(0, b.text())
	b.clock.pass(usageLife)
	has(0, b.text())
	if asked != 1 {
		t.Errorf("an API that is not there was asked %d times", asked)
	}
	there = true
	b.clock.pass(usageAgain)
	has(1, b.text())
}

func TestUsageIsRead(t *testing.T) {
	for text, want := range map[string]map[string]used{
		`{"items":[{"metadata":{"name":"a"},"usage":{"cpu":"1","memory":"1Ki"}},{"metadata":{"name":"b"}}]}`: {
			"a": {1000, 1024}},
		`{"items":[{"metadata":{"name":"a"},"containers":[{"usage":{"cpu":"1m","memory":"1"}},
			{"usage":{"cpu":"2m","memory":"2"}}]}]}`: {"a": {3, 3}},
		`{"items":[{"metadata":{"name":"a"},"containers":[{"usage":{"cpu":"1m"}}]}]}`: {},
		`{}`: {},
		`{"items":[{"metadata":{"name":"a"},"usage":{"cpu":"x","memory":"1Ki"}}]}`: nil,
		`<html>`: nil,
	} {
		u := usage{get: func(context.Context, string) ([]byte, error) { return []byte(text), nil }}
		got, err := u.read(t.Context(), "path")
		if (err != nil) != (want == nil) || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// TestScrapesAreBounded: /metrics is open to everybody.
func TestScrapesAreBounded(t *testing.T) {
	b := newBed(t, nil, nodeObjects("node-1")...)
	for range maxScrapes {
		b.slots <- struct{}{}
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d", w.Code)
	}
	<-b.slots
	b.text()
	b.text() // gives its place back
}

// stalled is a client that takes nothing of its answer until the test says so.
type stalled struct {
	*httptest.ResponseRecorder
	began chan<- struct{}
	goOn  <-chan struct{}
}

func (s stalled) Write(text []byte) (int, error) {
	s.began <- struct{}{}
	<-s.goOn
	return s.ResponseRecorder.Write(text)
}

// TestSlowScrapesKeepNobodyOut: clients that do not take their answers keep no place of those who
// ask, and are bounded themselves.
func TestSlowScrapesKeepNobodyOut(t *testing.T) {
	b := newBed(t, nil, nodeObjects("node-1")...)
	began, goOn := make(chan struct{}), make(chan struct{})
	var clients sync.WaitGroup
	stall := func() {
		w := stalled{httptest.NewRecorder(), began, goOn}
		clients.Go(func() { b.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil)) })
		wait.Receive(t, "a scrape that is sent", began)
	}
	for range maxUnsent - 1 {
		stall()
	}
	expect(t, b.text(), "longhorn_node_count_total 1")
	stall()
	other := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	other.RemoteAddr = "198.51.100.7:1234"
	w := httptest.NewRecorder()
	if b.ServeHTTP(w, other); w.Code != http.StatusOK {
		t.Errorf("another address: %d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("beyond %d scrapes that a client does not take: %d", maxUnsent, w.Code)
	}
	close(goOn)
	clients.Wait()
	b.text()
}

// TestScrapeWhileTheCacheChanges is for the race detector, and shows that no scrape fails.
func TestScrapeWhileTheCacheChanges(t *testing.T) {
	b := newBed(t, nil, slices.Concat(nodeObjects("node-1"), nodeObjects("node-2"))...)
	done := make(chan struct{})
	var changes, scrapes sync.WaitGroup
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			for _, o := range volumeObjects(fmt.Sprint("v", i%5), fmt.Sprint("node-", 1+i%2)) {
				if err := b.client.Create(context.Background(), o); err != nil {
					_ = b.client.Delete(context.Background(), o) // the volume is there: now it is not
				}
			}
		}
	})
	for _, h := range []http.Handler{b, b, b} {
		scrapes.Go(func() {
			for range 30 {
				b.clock.pass(time.Second)
				samples(t, scrapeOf(t, h))
			}
		})
	}
	scrapes.Wait()
	close(done)
	changes.Wait()
}
