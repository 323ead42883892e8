package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
	"ankole.storage/test/lack"
)

var update = flag.Bool("update", false, "write the golden files")

// bed is a server with a few objects and a way to run commands against it.
type bed struct {
	t      *testing.T
	client client.WithWatch
	url    string
}

// run is the program with other streams.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	return newApp(out, errOut).run(ctx, args, in)
}

// cluster is the objects the tables are made of: one volume detached, one attached and rebuilding.
func cluster() []client.Object {
	attached := resttest.Volume("busy")
	resttest.Attach(attached, "node-1", "/dev/longhorn/busy")
	v, e := attached[0].(*lh.Volume), attached[1].(*lh.Engine)
	v.Spec.NumberOfReplicas, v.Spec.Size, v.Status.Robustness = 2, 1536<<20, lh.VolumeRobustnessDegraded
	v.Spec.DataLocality, v.Spec.AccessMode = lh.DataLocalityDisabled, lh.AccessModeReadWriteOnce
	e.Status.RebuildStatus = map[string]lh.RebuildStatus{"tcp://127.0.1.2:10000": {IsRebuilding: true, Progress: 42}}
	e.Status.Snapshots = map[string]lh.SnapshotInfo{lh.VolumeHeadName: {Size: "300000"}}
	unscheduled := resttest.Volume("wide")
	w, r := unscheduled[0].(*lh.Volume), unscheduled[2].(*lh.Replica)
	w.Spec.NumberOfReplicas, r.Spec.NodeID, r.Spec.DiskPath = 3, "", ""
	w.Status.Conditions = []lh.Condition{{Type: lh.VolumeConditionScheduled, Status: lh.ConditionFalse,
		Message: "insufficient storage"}}
	orphans := []client.Object{
		&lh.Orphan{ObjectMeta: resttest.Meta("orphan-1"), Spec: lh.OrphanSpec{NodeID: "node-1",
			OrphanType: lh.OrphanTypeEngineInstance, Parameters: map[string]string{
				lh.OrphanParameterInstanceName: "gone-e-0", lh.OrphanParameterInstanceManager: "instance-manager-1"}}},
		&lh.Orphan{ObjectMeta: resttest.Meta("orphan-2"), Spec: lh.OrphanSpec{NodeID: "node-2",
			OrphanType: lh.OrphanTypeReplicaData, Parameters: map[string]string{
				lh.OrphanParameterDataName: "gone-1a2b3c4d", lh.OrphanParameterDiskPath: "/var/lib/longhorn"}}},
	}
	return resttest.Cluster(append(orphans, append(append(attached, unscheduled...), resttest.Volume("demo")...)...)...)
}

func newBed(t *testing.T, objects ...client.Object) *bed {
	t.Helper()
	return newBedOf(t, interceptor.Funcs{}, objects...)
}

// newBedOf is newBed where some requests to Kubernetes come out otherwise.
func newBedOf(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *bed {
	t.Helper()
	c := resttest.Client(t, funcs, objects...)
	s, err := rest.New(rest.Config{EngineImage: resttest.Image,
		Config: serve.Config{Client: c, Open: true, Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return &bed{t, c, web.URL}
}

// testNow is when the commands run; the objects are 205 days old then.
var testNow = resttest.Created.AddDate(0, 0, 205)

// result is what a command did.
type result struct {
	status   int
	out, err string
}

func (b *bed) run(args ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	return runArgs(ctx, append([]string{"--server", b.url}, args...)...)
}

func runArgs(ctx context.Context, args ...string) result {
	var out, err bytes.Buffer
	a := newApp(&out, &err)
	a.now = func() time.Time { return testNow }
	status := a.run(ctx, args, strings.NewReader(""))
	return result{status, out.String(), err.String()}
}

// golden compares with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs\n got:\n%s\nwant:\n%s", name, got, want)
	}
}

func TestTables(t *testing.T) {
	b := newBed(t, append(cluster(), backups()...)...)
	for name, args := range map[string][]string{
		"volume-list":      {"volume", "list"},
		"volume-list-wide": {"volume", "list", "-o", "wide"},
		"volume-list-name": {"volume", "list", "-o", "name"},
		"volume-get":       {"volume", "get", "demo"},
		"replica-list":     {"replica", "list"},
		"replica-list-one": {"replica", "list", "busy", "-o", "wide"},
		"node-list":        {"node", "list"},
		"node-list-wide":   {"node", "list", "-o", "wide"},
		"orphan-list":      {"orphan", "list"},

		"backup-list": {"backup", "list", "demo"}, "backup-get": {"backup", "get", "backup-1"},
		"backup-target-list": {"backup-target", "list"},
		"setting-get":        {"setting", "get", "default-replica-count", "-o", "wide"},
	} {
		t.Run(name, func(t *testing.T) {
			r := b.run(args...)
			if r.status != exitOK || r.err != "" {
				t.Fatalf("status %d, %s", r.status, r.err)
			}
			golden(t, name, r.out)
			for _, line := range strings.Split(r.out, "\n") {
				if strings.TrimRight(line, " ") != line {
					t.Errorf("line %q ends in blanks", line)
				}
			}
		})
	}
}

func TestStructuredOutput(t *testing.T) {
	b := newBed(t, cluster()...)
	var fromJSON, fromYAML []map[string]any
	if err := json.Unmarshal([]byte(b.run("volume", "list", "-o", "json").out), &fromJSON); err != nil {
		t.Fatal(err)
	}
	text := b.run("volume", "list", "-o", "yaml").out
	if err := yaml.Unmarshal([]byte(text), &fromYAML); err != nil {
		t.Fatal(err)
	}
	if len(fromJSON) != 3 || len(fromYAML) != 3 {
		t.Fatalf("%d and %d volumes", len(fromJSON), len(fromYAML))
	}
	for i := range fromJSON {
		// The size is text in both: a number in YAML would lose what the API promises.
		if fromJSON[i]["size"] != fromYAML[i]["size"] || fromJSON[i]["name"] != fromYAML[i]["name"] {
			t.Errorf("%v %v", fromJSON[i]["size"], fromYAML[i]["size"])
		}
	}
	if !strings.Contains(text, "  name: busy\n") || !strings.Contains(text, `size: "1610612736"`) {
		t.Errorf("YAML is not in block form:\n%.400s", text)
	}
	var one map[string]any
	if err := json.Unmarshal([]byte(b.run("node", "get", "node-1", "-o", "json").out), &one); err != nil ||
		one["name"] != "node-1" {
		t.Errorf("%v %v", one["name"], err)
	}
	if r := newBed(t).run("volume", "list", "-o", "json"); r.out != "[]\n" {
		t.Errorf("no volumes give %q", r.out)
	}
	if r := newBed(t).run("volume", "list"); r.out != "" || !strings.Contains(r.err, "create one with") {
		t.Errorf("no volumes give %q, %q", r.out, r.err)
	}
}

func TestErrorsNameTheNextStep(t *testing.T) {
	b := newBed(t, cluster()...)
	for _, c := range []struct {
		args   string
		status int
		text   string
	}{
		{"volume get nope", 1, "volume nope not found; list volumes with: ankole volume list"},
		{"volume attach nope", 1, "volume nope not found"},
		{"volume detach nope", 1, "volume nope not found"},
		{"volume delete nope", 1, "volume nope not found"},
		{"volume watch nope", 1, "volume nope not found"},
		{"replica list nope", 1, "volume nope not found"},
		{"node get nope", 1, "node nope not found; list nodes with: ankole node list"},
		{"volume attach demo --node nope", 1, "node nope not found; list nodes with: ankole node list"},
		{"volume attach demo --node node-3", 1, "node node-3 is not ready"},
		{"volume attach busy --node node-2", 1, "already attached to node node-1"},
		{"setting get nope", 1, "list settings with: ankole setting list"},
		{"setting set nope 1", 1, "list settings with: ankole setting list"},
		{"setting set default-replica-count 21", 1, "should be less than or equal to 20"},
		{"setting set current-longhorn-version 9", 1, "is read-only"},
		{"volume create x1 --size=-1Gi", 1, "must not be negative"},
		{"volume create x1 --size lots", 1, "failed to parse size"},
		{"volume create Bad_Name --size 1Gi", 1, "invalid volume name"},
		{"volume create demo --size 1Gi", 1, "already exists"},
		{"volume create x1", 2, "the size is missing"},
		{"volume create --size 1Gi", 2, "the volume's name is missing"},
		{"volume create x1 x2 --size 1Gi", 2, `unexpected argument "x2"`},
		{"volume create x1 --size 1Gi --replicas 0", 2, "1 to 20 replicas"},
		{"volume create x1 --size 1Gi --replicas 21", 2, "1 to 20 replicas"},
		{"volume create x1 --size 1Gi --replicas many", 2, "invalid argument"},
		{"volume scale demo --replicas 2", 1, "invalid volume state to update replica count"},
		{"volume scale nope --replicas 2", 1, "volume nope not found"},
		{"volume scale demo", 2, "the number of replicas is missing"},
		{"volume set-locality demo", 2, "the data locality is missing"},
		{"volume set-locality demo disable", 2, "disabled, best-effort, strict-local"},
		{"volume set-locality nope disabled", 1, "volume nope not found"},
		{"volume set-locality busy strict-local", 1, "detach it first"},
		{"volume salvage", 2, "the volume's name is missing"},
		{"volume salvage nope", 1, "volume nope not found"},
		{"volume salvage demo", 1, "invalid robustness state to salvage"},
		{"replica delete demo", 2, "the replica's name is missing"},
		{"replica delete nope x", 1, "volume nope not found"},
		{"replica delete demo x", 1, "replica x not found; list replicas with: ankole replica list demo"},
		{"replica delete demo busy-r-11111111", 1, "belongs to volume busy"},
		{"volume lst", 2, "or list?"},
		{"volme list", 2, "did you mean volume?"},
		{"volume list extra", 2, `unexpected argument "extra"`},
		{"volume list -o xml", 2, `unknown output format "xml"`},
		{"volume list --nope", 2, "unknown flag"},
		{"setting set log-level", 2, "the value is missing"},
	} {
		r := b.run(strings.Fields(c.args)...)
		if r.status != c.status || !strings.Contains(r.err, c.text) || r.out != "" {
			t.Errorf("%s: status %d, %q, %q; want %d and %q", c.args, r.status, r.out, r.err, c.status, c.text)
		}
	}
	if r := runArgs(t.Context(), "--server", "http://127.0.0.1:1", "volume", "list"); r.status != 1 ||
		!strings.Contains(r.err, "start a cluster with: ankole standalone") {
		t.Errorf("no server: %+v", r)
	}
	if r := runArgs(t.Context(), "--server", "ftp://x", "volume", "list"); r.status != 2 ||
		!strings.Contains(r.err, "is not the address of a server") {
		t.Errorf("bad server: %+v", r)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>hello"))
	}))
	defer other.Close()
	if r := runArgs(t.Context(), "--server", other.URL, "volume", "list"); r.status != 1 ||
		!strings.Contains(r.err, "does not answer like an Ankole server") {
		t.Errorf("another server: %+v", r)
	}
}

// change applies an edit to a stored object.
func (b *bed) change(name string, into client.Object, edit func()) {
	b.t.Helper()
	ctx := context.Background()
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: lh.Namespace, Name: name}, into); err != nil {
		b.t.Error(err)
		return
	}
	edit()
	// Each of the two updates answers with what is stored, and so undoes the other half of the
	// edit.
	status := into.DeepCopyObject().(client.Object)
	if err := b.client.Update(ctx, into); err != nil {
		b.t.Error(err)
	}
	status.SetResourceVersion(into.GetResourceVersion())
	if err := b.client.Status().Update(ctx, status); client.IgnoreNotFound(err) != nil {
		b.t.Error(err)
	}
}

// attachSoon plays the controllers: when a ticket for the volume appears, the volume becomes
// attached.
func (b *bed) attachSoon(name, endpoint string) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() {
		var a lh.VolumeAttachment
		for a.Spec.AttachmentTickets[""].NodeID == "" && b.t.Context().Err() == nil {
			if err := b.client.Get(context.Background(), client.ObjectKey{Namespace: lh.Namespace, Name: name}, &a); err != nil {
				b.t.Error(err)
				return
			}
		}
		node := a.Spec.AttachmentTickets[""].NodeID
		var e lh.Engine
		b.change(name+"-e-0", &e, func() { e.Spec.NodeID, e.Status.Endpoint = node, endpoint })
		var v lh.Volume
		b.change(name, &v, func() {
			v.Spec.NodeID, v.Status.State, v.Status.Robustness = node, lh.VolumeStateAttached, lh.VolumeRobustnessHealthy
		})
	})
	return &wg
}

func TestAttachWaitsAndPrintsTheEndpoint(t *testing.T) {
	b := newBed(t, cluster()...)
	wg := b.attachSoon("demo", "/dev/longhorn/demo")
	r := b.run("volume", "attach", "demo", "--timeout", "30s")
	wg.Wait()
	// node-1 is chosen: it is ready and has a replica.
	if r.status != 0 || r.out != "volume demo attached to node-1, healthy\n/dev/longhorn/demo\n" {
		t.Errorf("%+v", r)
	}
	if r := b.run("volume", "attach", "demo", "-o", "name"); r.out != "volume/demo\n" {
		t.Errorf("attaching again: %+v", r)
	}
}

func TestTimeoutsSayWhatIsMissing(t *testing.T) {
	lack.RealTime(t, "an attachment that is given up after 300 ms")
	b := newBed(t, cluster()...)
	r := b.run("volume", "attach", "demo", "--timeout", "300ms")
	if r.status != 1 || !strings.Contains(r.err,
		"volume demo is not attached after 300ms: it is detached; follow it with: ankole volume watch demo") {
		t.Errorf("%+v", r)
	}
	if r := b.run("volume", "attach", "demo", "--wait=false"); r.status != 0 ||
		!strings.Contains(r.out, "follow it with") {
		t.Errorf("%+v", r)
	}
}

func TestDeleteWaits(t *testing.T) {
	b := newBed(t, cluster()...)
	if r := b.run("volume", "delete", "demo", "--yes"); r.status != 0 || r.out != "volume demo deleted\n" {
		t.Errorf("%+v", r)
	}
}

func TestSettingSet(t *testing.T) {
	b := newBed(t)
	if r := b.run("setting", "set", "default-replica-count", "2"); r.status != 0 ||
		r.out != "setting default-replica-count is now {\"v1\":\"2\",\"v2\":\"2\"}\n" {
		t.Errorf("%+v", r)
	}
	if r := b.run("setting", "get", "default-replica-count", "-o", "json"); !strings.Contains(r.out,
		`"value": "{\"v1\":\"2\",\"v2\":\"2\"}"`) {
		t.Errorf("%+v", r)
	}
}

func TestRepair(t *testing.T) {
	objects := resttest.Volume("demo")
	objects[0].(*lh.Volume).Status.Robustness = lh.VolumeRobustnessFaulted
	objects[2].(*lh.Replica).Spec.FailedAt = "2026-05-03T10:00:00Z"
	attached := resttest.Volume("busy")
	resttest.Attach(attached, "node-1", "/dev/longhorn/busy")
	b := newBed(t, resttest.Cluster(append(objects, attached...)...)...)
	if r := b.run("volume", "salvage", "demo"); r.status != 0 ||
		!strings.Contains(r.out, "may start again with 1 replicas") {
		t.Errorf("%+v", r)
	}
	if r := b.run("volume", "scale", "busy", "--replicas", "2", "--wait=false"); r.status != 0 ||
		r.out != "volume busy has 2 replicas\n" {
		t.Errorf("%+v", r)
	}
	if r := b.run("volume", "scale", "busy", "--replicas", "2", "--timeout", "300ms"); r.status != 1 ||
		!strings.Contains(r.err, "volume busy is not in sync after 300ms: it is attached, healthy") {
		t.Errorf("%+v", r)
	}
	if r := b.run("replica", "delete", "busy", "busy-r-11111111", "--yes"); r.status != 0 || !strings.Contains(r.out,
		"deleted") {
		t.Errorf("%+v", r)
	}
}

func TestWatch(t *testing.T) {
	b := newBed(t, cluster()...)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out := &lines{changed: make(chan string, 16)}
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"--server", b.url, "volume", "watch", "demo"}, strings.NewReader(""), out, out)
	}()
	expect := func(text string) {
		t.Helper()
		select {
		case line := <-out.changed:
			if !strings.Contains(line, text) {
				t.Errorf("line %q lacks %q", line, text)
			}
		case <-ctx.Done():
			t.Fatalf("no line with %q", text)
		}
	}
	expect("demo  detached ")
	wg := b.attachSoon("demo", "/dev/longhorn/demo")
	var a lh.VolumeAttachment
	b.change("demo", &a, func() { a.Spec.AttachmentTickets = map[string]lh.AttachmentTicket{"": {NodeID: "node-2"}} })
	wg.Wait()
	for seen := false; !seen; {
		select {
		case line := <-out.changed:
			seen = strings.Contains(line, "attached") && strings.Contains(line, "on node-2  /dev/longhorn/demo")
			t.Log(line)
		case <-ctx.Done():
			t.Fatal("the attached volume was not shown")
		}
	}
	var v lh.Volume
	b.change("demo", &v, func() {})
	if err := b.client.Delete(ctx, &v); err != nil {
		t.Fatal(err)
	}
	expect("demo  deleted")
	if status := <-done; status != exitOK {
		t.Errorf("status %d", status)
	}
}

// lines passes on what is printed, line by line.
type lines struct{ changed chan string }

func (l *lines) Write(p []byte) (int, error) {
	for _, line := range strings.Split(strings.TrimSuffix(string(p), "\n"), "\n") {
		l.changed <- line
	}
	return len(p), nil
}

func TestCompletion(t *testing.T) {
	b := newBed(t, cluster()...)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"volume", "attach", ""}, "busy demo wide"},
		{[]string{"volume", "get", "d"}, "demo"},
		{[]string{"volume", "attach", "demo", "--node", ""}, "node-1 node-2 node-3"},
		{[]string{"volume", "list", "-o", ""}, "wide json yaml name"},
		{[]string{"setting", "set", "default-rep"}, "default-replica-count"},
		{[]string{"volume", "get", "demo", ""}, "busy wide"},
		{[]string{"node", "scheduling", ""}, "on off"},
		{[]string{"node", "scheduling", "off", "node-1", ""}, "node-2 node-3"},
		{[]string{"disk", "evict", "node-1", ""}, "disk-1"},
		{[]string{"replica", "describe", "busy"}, "busy-r-11111111"},
		{[]string{"volume", "set-locality", "d"}, "demo"},
		{[]string{"volume", "set-locality", "demo", ""}, "busy wide disabled best-effort strict-local"},
		{[]string{"replica", "delete", "b"}, "busy"},
		{[]string{"replica", "delete", "busy", ""}, "busy-r-11111111"},
	} {
		r := b.run(append([]string{"__complete"}, c.args...)...)
		var got []string
		for _, line := range strings.Split(r.out, "\n") {
			if line != "" && !strings.HasPrefix(line, ":") {
				got = append(got, line)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v completes to %v, want %s", c.args, got, c.want)
		}
	}
}

func TestOrphanDelete(t *testing.T) {
	b := newBed(t, cluster()...)
	if r := b.run("orphan", "delete", "orphan-1", "-y"); r.status != exitOK ||
		r.out != "orphan orphan-1 is being removed\n" {
		t.Errorf("status %d, %q, %q", r.status, r.out, r.err)
	}
	if r := b.run("orphan", "delete", "orphan-1", "-y"); r.status == exitOK || !strings.Contains(r.err, "orphan-1") {
		t.Errorf("status %d, %q", r.status, r.err)
	}
	if r := b.run("orphan", "list", "-o", "name"); r.out != "orphan/orphan-2\n" {
		t.Errorf("left: %q", r.out)
	}
}
