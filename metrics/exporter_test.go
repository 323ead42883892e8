package metrics

import (
	"context"
	"errors"
	"fmt"
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

// TestOneReporter: each object is reported by one manager, that of its node; what no node owns is
// the leader's. Sums over all managers count nothing twice.
func TestOneReporter(t *testing.T) {
	unowned := volumeObjects("new", "")
	unowned[0].(*lh.Volume).Status = lh.VolumeStatus{}
	unowned[1].(*lh.Engine).Status = lh.EngineStatus{}
	away := volumeObjects("away", "node-9") // a node without an object
	b := newBed(t, nil, slices.Concat(nodeObjects("node-1"), nodeObjects("node-2"), volumeObjects("demo", "node-1"),
		volumeObjects("other", "node-2"), unowned, away, backupObjects("node-2"))...)
	first := b.text()
	x, _ := b.follower("node-2")
	second := scrapeOf(t, x)
	for metric, want := range map[string][2]int{
		"longhorn_volume_capacity_bytes": {3, 1}, "longhorn_volume_state": {18, 6}, "longhorn_engine_info": {3, 1},
		"longhorn_engine_state": {18, 6}, "longhorn_replica_info": {3, 1}, "longhorn_snapshot_actual_size_bytes": {3, 1},
		"longhorn_backup_state": {0, 1}, "longhorn_backup_target_backup_volume_count": {1, 0},
		"longhorn_backing_image_state": {0, 1}, "longhorn_disk_capacity_bytes": {1, 1}, "longhorn_node_count_total": {1, 1},
		"longhorn_instance_manager_cpu_requests_millicpu": {1, 1},
	} {
		if got := [2]int{len(lines(first, metric)), len(lines(second, metric))}; got != want {
			t.Errorf("%s: %v samples, want %v", metric, got, want)
		}
	}
	expect(t, second,
		`longhorn_volume_capacity_bytes{node="node-2",pvc="claim-other",pvc_namespace="users",volume="other"} 1.073741824e+09`,
		`longhorn_node_count_total 2`)
	expect(t, first, `longhorn_volume_state{node="node-1",pvc="",pvc_namespace="",state="creating",volume="new"} 1`,
		`longhorn_volume_robustness{node="node-1",pvc="",pvc_namespace="",state="unknown",volume="new"} 1`,
		`longhorn_engine_state{engine="new-e-0",node="node-1",state="stopped",volume="new"} 1`)
}

// TestOddLabels: whatever is in a name arrives as it is.
func TestOddLabels(t *testing.T) {
	odd := "a\"b\\c\nd{e=\"f\"} é 世\t"
	all := slices.Concat(nodeObjects("node-1"), volumeObjects("demo", "node-1"))
	all[4].(*lh.Volume).Status.KubernetesStatus.PVCName = odd
	all[5].(*lh.Engine).Status.ReplicaModeMap = map[string]lh.ReplicaMode{"bad \xff byte": lh.ReplicaModeERR}
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
	second := all[5].DeepCopyObject().(*lh.Engine)
	second.Name, second.Spec.StandInFor = "demo-e-1", "demo-e-0"
	b := newBed(t, nil, append(all, second)...)
	if got := lines(b.text(), "longhorn_volume_read_iops"); len(got) != 1 || b.engine.asked["demo-e-0"] != 1 {
		t.Errorf("%v, asked %v", got, b.engine.asked)
	}
}

// TestWithoutALeader: while nobody leads a manager goes on with what it had, for a while, and then
// reports nothing of objects and says so.
func TestWithoutALeader(t *testing.T) {
	b := newBed(t, nil, slices.Concat(nodeObjects("node-1"), nodeObjects("node-2"), volumeObjects("other", "node-2"))...)
	x, web := b.follower("node-2")
	expect(t, scrapeOf(t, x), `ankole_manager_up{node="node-2",version=""} 1`,
		`ankole_manager_share_age_seconds{node="node-2"} 0`)
	leads := true
	b.board.Reader = func() client.Reader {
		if leads {
			return b.client
		}
		return nil
	}
	leads = false
	b.clock.pass(10 * time.Second)
	expect(t, scrapeOf(t, x), `ankole_manager_share_age_seconds{node="node-2"} 10`)
	b.clock.pass(shareKept)
	text := scrapeOf(t, x)
	expect(t, text, `ankole_manager_up{node="node-2",version=""} 0`)
	if strings.Contains(text, "longhorn_volume") || strings.Contains(text, "longhorn_node") {
		t.Error("figures of objects that nobody knows any more")
	}
	leads = true
	b.clock.pass(shareLife)
	expect(t, scrapeOf(t, x), `ankole_manager_up{node="node-2",version=""} 1`)
	web.Close()
	b.clock.pass(shareLife)
	expect(t, scrapeOf(t, x), `ankole_manager_share_age_seconds{node="node-2"} 2`)
}

// TestSharesAreMadeOnce: however many managers ask, the leader looks at its cache once in
// shareLife.
func TestSharesAreMadeOnce(t *testing.T) {
	b := newBed(t, nil, slices.Concat(nodeObjects("node-1"), nodeObjects("node-2"))...)
	counting := &countingReader{Reader: b.client}
	b.board.Reader = func() client.Reader { return counting }
	for range 5 {
		for _, node := range []string{"node-1", "node-2"} {
			if _, _, err := b.board.Share(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		}
	}
	if counting.lists != 13 {
		t.Errorf("%d lists", counting.lists)
	}
	// Another leadership has another cache.
	again := &countingReader{Reader: b.client}
	b.board.Reader = func() client.Reader { return again }
	if _, _, err := b.board.Share(t.Context(), "node-1"); err != nil || again.lists != 13 {
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

// TestBoardRefuses: a manager that does not lead makes no shares, and one whose cache fails
// neither.
func TestBoardRefuses(t *testing.T) {
	b := newBed(t, nil, nodeObjects("node-1")...)
	ask := func(method string) int {
		w := httptest.NewRecorder()
		b.board.ServeHTTP(w, httptest.NewRequest(method, Path+"?node=node-1", nil))
		return w.Code
	}
	if got := ask(http.MethodGet); got != 200 {
		t.Errorf("%d", got)
	}
	if got := ask(http.MethodPost); got != 405 {
		t.Errorf("%d", got)
	}
	b.board.Reader = func() client.Reader { return failing{} }
	if got := ask(http.MethodGet); got != 503 {
		t.Errorf("%d", got)
	}
	b.board.Reader = func() client.Reader { return nil }
	if got := ask(http.MethodGet); got != 503 {
		t.Errorf("%d", got)
	}
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
	if asked != 3 { // node, manager, instance manager
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
	for text, want := range map[string]*used{
		`{"usage":{"cpu":"1","memory":"1Ki"}}`:                                                     {1000, 1024},
		`{"containers":[{"usage":{"cpu":"1m","memory":"1"}},{"usage":{"cpu":"2m","memory":"2"}}]}`: {3, 3},
		`{}`:                                   nil,
		`{"containers":[]}`:                    nil,
		`{"usage":{"cpu":"1"}}`:                nil,
		`{"usage":{"cpu":"x","memory":"1Ki"}}`: nil,
		`<html>`:                               nil,
	} {
		u := usage{get: func(context.Context, string) ([]byte, error) { return []byte(text), nil }}
		got, err := u.read(t.Context(), "path")
		if (err != nil) != (want == nil) || want != nil && got != *want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// TestOtherVersions: a share of another version may have metrics that this one does not know, and
// other labels.
func TestOtherVersions(t *testing.T) {
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"later":1,"points":{"longhorn_later_bytes":[{"v":1}],"longhorn_volume_encrypted":[{"l":["a"],"v":1}],
			"longhorn_workqueue_adds_total":[{"l":["a"],"v":1}],"longhorn_node_count_total":[{"v":4}]}}`)
	}))
	defer web.Close()
	x, err := New(Config{NodeName: "n", Client: web.Client(), Board: &Board{Reader: func() client.Reader { return nil }},
		Leader: func(context.Context) (string, error) { return web.Listener.Addr().String(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	text := scrapeOf(t, x)
	expect(t, text, "longhorn_node_count_total 4")
	if strings.Contains(text, "later") || strings.Contains(text, "longhorn_volume_encrypted") ||
		strings.Contains(text, `"a"`) {
		t.Error(text)
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
	x, _ := b.follower("node-2")
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
	for _, h := range []http.Handler{b, b, x} {
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
