package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// readyNode holds the pen in the agent's hand and has two disks.
func readyNode() *v1beta2.Node {
	n := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Spec.Disks = map[string]v1beta2.DiskSpec{"a": {Path: "/a"}, "b": {Path: "/b"}}
	n.Spec.Tags = []string{"t"}
	n.Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "True"}}
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"a": {DiskUUID: "ua"}, "b": {DiskUUID: "ub"}}
	return n
}

func facts(uuid, fs string) DiskFacts {
	return DiskFacts{HasConfig: uuid != "", DiskUUID: uuid, FilesystemID: fs, FilesystemType: "xfs",
		Maximum: 1000 << 20, Available: 555 << 20}
}

func readOnly(f DiskFacts) DiskFacts {
	f.ReadOnly = "emergency_ro"
	return f
}

func TestAgentJudgesDisks(t *testing.T) {
	for _, tt := range []struct {
		name    string
		a, b    DiskFacts
		edit    func(*v1beta2.Node)
		reason  string // of disk a, "" = Ready
		prepare string // disk that gets a configuration file
	}{
		{name: "fine", a: facts("ua", "1"), b: facts("ub", "2")},
		{name: "unreadable", a: DiskFacts{Problem: "no such directory"}, b: facts("ub", "2"), reason: "NoDiskInfo"},
		{name: "takes no writes", a: readOnly(facts("ua", "1")), b: facts("ub", "2"), reason: "NoDiskInfo"},
		{name: "fresh, but takes no writes", a: readOnly(facts("", "1")), b: facts("ub", "2"),
			edit: func(n *v1beta2.Node) { n.Status.DiskStatus["a"] = v1beta2.DiskStatus{} }, reason: "NoDiskInfo"},
		{name: "configuration gone", a: facts("", "1"), b: facts("ub", "2"), reason: "DiskFilesystemChanged"},
		{name: "another disk is mounted there", a: facts("ux", "1"), b: facts("ub", "2"), reason: "DiskFilesystemChanged"},
		{name: "configuration without UUID", a: DiskFacts{HasConfig: true, FilesystemID: "1"}, b: facts("ub", "2"),
			edit: func(n *v1beta2.Node) { n.Status.DiskStatus["a"] = v1beta2.DiskStatus{} }, reason: "NoDiskInfo"},
		{name: "fresh", a: facts("", "1"), b: facts("ub", "2"),
			edit: func(n *v1beta2.Node) { n.Status.DiskStatus["a"] = v1beta2.DiskStatus{} }, reason: "Preparing", prepare: "a"},
		{name: "fresh, but on the file system of another disk", a: facts("", "2"), b: facts("ub", "2"),
			edit: func(n *v1beta2.Node) { n.Status.DiskStatus["a"] = v1beta2.DiskStatus{} }, reason: "DiskFilesystemChanged"},
		{name: "adopted", a: facts("u-old", "1"), b: facts("ub", "2"),
			edit: func(n *v1beta2.Node) { n.Status.DiskStatus["a"] = v1beta2.DiskStatus{} }},
		{name: "first of two on one file system", a: facts("ua", "2"), b: facts("ub", "2")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := readyNode()
			if tt.edit != nil {
				tt.edit(n)
			}
			d := decideAgent(now, n, agentSeen{Facts: map[string]DiskFacts{"a": tt.a, "b": tt.b}})
			c := diskCondition(n, "a", "Ready")
			if (c.Status == v1beta2.ConditionTrue) != (tt.reason == "") || c.Reason != tt.reason {
				t.Errorf("Ready %s/%s (%s), want reason %q", c.Status, c.Reason, c.Message, tt.reason)
			}
			if (d.Do != nil) != (tt.prepare != "") {
				t.Fatalf("does %v, want to prepare %q", d.Do, tt.prepare)
			}
			if d.Do != nil && !strings.Contains(d.Do.String(), "prepare disk "+tt.prepare) {
				t.Errorf("does %v", d.Do)
			}
		})
	}
}

// TestDisksSayWhatToDo: a disk that cannot be used says what a person does about it.
func TestDisksSayWhatToDo(t *testing.T) {
	unprepared := facts("", "1")
	unprepared.Unprepared = "no space left on device"
	for _, tt := range []struct {
		uuid  string
		facts DiskFacts
		want  string
	}{
		{"", unprepared, "disk a at /a is being prepared, and its configuration file cannot be written: no space left on " +
			"device; see that the directory can be written and has room; it is tried again"},
		{"", DiskFacts{HasConfig: true, FilesystemID: "1"}, "has no diskUUID; " + mendConfig},
		{"ua", facts("ux", "1"), "is disk ux now, and was ua; mount that one there, or add the other one at a path of its own"},
	} {
		n := readyNode()
		n.Status.DiskStatus["a"] = v1beta2.DiskStatus{DiskUUID: tt.uuid}
		decideAgent(now, n, agentSeen{Facts: map[string]DiskFacts{"a": tt.facts, "b": facts("ub", "2")}})
		if c := diskCondition(n, "a", "Ready"); !strings.HasSuffix(c.Message, tt.want) {
			t.Errorf("message %q does not end with %q", c.Message, tt.want)
		}
	}
}

// TestAgentRemembersWhyADiskIsNotPrepared: the error of the last try, until one has none, and the
// same text for the same error.
func TestAgentRemembersWhyADiskIsNotPrepared(t *testing.T) {
	root := t.TempDir()
	a := NewAgent(AgentConfig{Host: Host{Resolve: func(p string) string { return filepath.Join(root, p) }}})
	if err := os.WriteFile(filepath.Join(root, "host"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.prepare("/data", "d"); err == nil {
		t.Fatal("a disk below a file was prepared")
	}
	if why, _ := a.unprepared.Load("/data"); why != "not a directory" {
		t.Errorf("remembers %v", why)
	}
	if err := os.Remove(filepath.Join(root, "host")); err != nil {
		t.Fatal(err)
	}
	if err := a.prepare("/data", "d"); err != nil {
		t.Fatal(err)
	}
	if why, failed := a.unprepared.Load("/data"); failed {
		t.Errorf("still remembers %v", why)
	}
}

func TestAgentReportsRoundedSpaceAndKeepsTheUUID(t *testing.T) {
	n := readyNode()
	n.Status.DiskStatus["a"] = v1beta2.DiskStatus{DiskUUID: "ua", StorageScheduled: 7}
	decideAgent(now, n, agentSeen{Facts: map[string]DiskFacts{"a": facts("other", "1"), "b": facts("ub", "2")}})
	d := n.Status.DiskStatus["a"]
	if d.StorageAvailable != 500<<20 || d.StorageMaximum != 1000<<20 || d.FilesystemType != "xfs" || d.DiskPath != "/a" {
		t.Errorf("disk %+v", d)
	}
	if d.DiskType != "filesystem" {
		t.Errorf("the disk has type %q", d.DiskType)
	}
	if d.DiskUUID != "ua" {
		t.Error("the UUID of a known disk was replaced by what happens to be mounted")
	}
	if d.StorageScheduled != 7 {
		t.Error("the agent changed a field of the leader")
	}
}

func TestAgentWithoutThePenLeavesReadyAlone(t *testing.T) {
	n := readyNode()
	n.Status.Conditions[0].Status = v1beta2.ConditionFalse
	d := n.Status.DiskStatus["a"]
	d.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "False", Reason: "NodeNotReady"}}
	n.Status.DiskStatus["a"] = d
	decideAgent(now, n, agentSeen{Facts: map[string]DiskFacts{"a": facts("ua", "1"), "b": facts("ub", "2")}})
	if c := diskCondition(n, "a", "Ready"); c.Reason != "NodeNotReady" {
		t.Fatalf("Ready %+v, want what the leader wrote", c)
	}
}

func TestJoin(t *testing.T) {
	look := func(path string, create bool) DiskFacts {
		if path == "/missing" {
			return DiskFacts{Problem: "no such directory"}
		}
		return DiskFacts{FilesystemID: "f" + strings.Trim(path, "/"), Maximum: 1000}
	}
	labelled := func(value string, annotations map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: annotations,
			Labels: map[string]string{"node.longhorn.io/create-default-disk": value}}}
	}
	config := func(text string) map[string]string {
		return map[string]string{"node.longhorn.io/default-disks-config": text}
	}
	rules := joinRules{DataPath: "/data/", ReservedPercent: 30}
	only := joinRules{LabeledOnly: true, DataPath: "/data/", ReservedPercent: 30}
	for _, tt := range []struct {
		name  string
		kube  *corev1.Node
		rules joinRules
		disks string // name path reserved
		fails bool
	}{
		{"default", &corev1.Node{}, rules, "default-disk-fdata /data 300", false},
		{"labels needed, none", &corev1.Node{}, only, "", false},
		{"labels needed, true", labelled("true", nil), only, "default-disk-fdata /data 300", false},
		{"labels needed, config", labelled("config", config(`[{"path":"/x/","name":"fast","storageReserved":5}]`)),
			only, "fast /x 5", false},
		{"config without name", labelled("config", config(`[{"path":"/x"}]`)), only, "default-disk-fx /x 0", false},
		{"config that is no JSON", labelled("config", config(`path: /x`)), only, "", true},
		{"config with a missing directory", labelled("config", config(`[{"path":"/missing"}]`)), only, "", true},
		{"config with two disks on one file system", labelled("config", config(`[{"path":"/x"},{"path":"/x"}]`)), only,
			"", true},
		{"config with a name that no disk can have", labelled("config", config(`[{"path":"/x","name":"a\nb"}]`)), only, "",
			true},
		{"config with a tag that none can be", labelled("config", config(`[{"path":"/x","tags":["a b"]}]`)), only, "", true},
		{"default directory fails", &corev1.Node{}, joinRules{DataPath: "/missing"}, "", true},
	} {
		j, err := joinFor(tt.kube, tt.rules, look)
		if (err != nil) != tt.fails {
			t.Errorf("%s: error %v", tt.name, err)
			continue
		}
		got := ""
		for name, d := range j.Disks {
			got += name + " " + d.Path + " " + strconv.FormatInt(d.StorageReserved, 10)
		}
		if got != tt.disks {
			t.Errorf("%s: disks %q, want %q", tt.name, got, tt.disks)
		}
	}
}

// TestRulesOfANewNode: the default disk is made as the settings say.
func TestRulesOfANewNode(t *testing.T) {
	for _, tt := range []struct {
		values setting.Values
		want   joinRules
	}{
		{nil, joinRules{DataPath: "/var/lib/longhorn/", ReservedPercent: 30}},
		{setting.Values{setting.CreateDefaultDiskLabeledNodes: "true", setting.DefaultDataPath: "/srv",
			setting.StorageReservedPercentageForDefaultDisk: "5"},
			joinRules{LabeledOnly: true, DataPath: "/srv", ReservedPercent: 5}},
	} {
		if got := rulesFrom(tt.values); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.values, got, tt.want)
		}
	}
}

// TestTagsOfANewNode: the annotation's tags, cleaned, go to a node without tags of its own.
func TestTagsOfANewNode(t *testing.T) {
	look := func(string, bool) DiskFacts { return DiskFacts{FilesystemID: "f", Maximum: 1000} }
	for _, tt := range []struct {
		name, annotation string
		own              []string
		want             string
		fails            bool
	}{
		{"none", "", nil, "", false},
		{"two", `["fast","big"]`, nil, "big fast", false},
		{"twice the same", `["fast","fast"]`, nil, "fast", false},
		{"a node with tags keeps its own", `["fast"]`, []string{"mine"}, "mine", false},
		{"no JSON", "fast", nil, "", true},
		{"JSON that is no list", `{"fast":true}`, nil, "", true},
	} {
		kube := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
			"node.longhorn.io/default-node-tags": tt.annotation,
		}}}
		j, err := joinFor(kube, joinRules{LabeledOnly: true}, look)
		if (err != nil) != tt.fails {
			t.Errorf("%s: error %v", tt.name, err)
		}
		n := readyNode()
		n.Spec.Tags = tt.own
		if u := joined(n, j); u != nil {
			n = u
		}
		tags := slices.Sorted(slices.Values(n.Spec.Tags))
		if got := strings.Join(tags, " "); got != tt.want {
			t.Errorf("%s: tags %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestAnEmptiedNodeDoesNotGetItsDefaultDiskBackByLackOfLabels(t *testing.T) {
	n := readyNode()
	if joined(n, joining{Disks: map[string]v1beta2.DiskSpec{"x": {}}, Tags: []string{"y"}}) != nil {
		t.Error("a node with disks and tags was given others")
	}
	n.Spec.Disks, n.Spec.Tags = nil, nil
	u := joined(n, joining{Disks: map[string]v1beta2.DiskSpec{"x": {}}, Tags: []string{"y"}})
	if u == nil || len(u.Spec.Disks) != 1 || len(u.Spec.Tags) != 1 || n.Spec.Disks != nil {
		t.Errorf("joined %+v", u)
	}
}

func TestHostPreparesADiskOnce(t *testing.T) {
	root := t.TempDir()
	h := Host{Resolve: func(p string) string {
		if p == mountTable {
			return p
		}
		return filepath.Join(root, p)
	}}
	if f := h.Look("/data", false); f.Problem == "" {
		t.Fatal("a directory that does not exist has facts")
	}
	if f := h.Look("/data", true); f.Problem != "" || f.HasConfig || f.Maximum <= 0 || f.FilesystemID == "" {
		t.Fatalf("fresh disk: %+v", f)
	}
	if err := h.Prepare("/data", "d"); err != nil {
		t.Fatal(err)
	}
	first := h.Look("/data", false)
	if !first.HasConfig || len(first.DiskUUID) != 36 || first.DiskName != "d" {
		t.Fatalf("prepared disk: %+v", first)
	}
	if err := h.Prepare("/data", "e"); err != nil {
		t.Fatal(err)
	}
	if again := h.Look("/data", false); again.DiskUUID != first.DiskUUID || again.DiskName != first.DiskName {
		t.Fatalf("preparing twice changed the disk: %+v", again)
	}
	entries, err := os.ReadDir(filepath.Join(root, "host", "data"))
	if err != nil || len(entries) != 2 {
		t.Fatalf("left in the directory: %v, %v", entries, err)
	}
	if err := os.WriteFile(filepath.Join(root, "host", "data", "longhorn-disk.cfg"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := h.Look("/data", false); !strings.Contains(f.Problem, "not valid JSON") ||
		!strings.HasSuffix(f.Problem, "; "+mendConfig) {
		t.Fatalf("a corrupt configuration file: %+v", f)
	}
}

// TestHostFindsReadOnlyDisks: a file system that takes no writes is told by the table of mounts,
// not by its files.
func TestHostFindsReadOnlyDisks(t *testing.T) {
	root := t.TempDir()
	h := Host{Resolve: func(p string) string { return filepath.Join(root, p) }}
	table := filepath.Join(root, mountTable)
	var st unix.Stat_t
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "host/data"), 0o700), os.MkdirAll(filepath.Dir(table), 0o700),
		unix.Stat(filepath.Join(root, "host/data"), &st)); err != nil {
		t.Fatal(err)
	}
	for options, want := range map[string]string{"rw": "", "rw,emergency_ro": "emergency_ro"} {
		line := fmt.Sprintf("30 1 %d:%d / /data rw - ext4 /dev/sdb %s\n31 1 250:250 / /other rw - ext4 /dev/sdc ro\n",
			unix.Major(st.Dev), unix.Minor(st.Dev), options)
		if err := os.WriteFile(table, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		if f := h.Look("/data", false); f.Problem != "" || f.ReadOnly != want {
			t.Errorf("options %s: %+v", options, f)
		}
	}
	if err := os.Remove(table); err != nil {
		t.Fatal(err)
	}
	if f := h.Look("/data", false); !strings.Contains(f.Problem, "table of mounts") {
		t.Errorf("without a table: %+v", f)
	}
}

func TestANodeJoinsEvenIfWhatItAsksForIsRefused(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kube := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		"node.longhorn.io/default-node-tags": `["not a tag"]`,
	}}}
	refuse := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
		opts ...client.CreateOption) error {
		if n, ok := o.(*v1beta2.Node); ok && len(n.Spec.Tags) > 0 {
			return apierrors.NewInvalid(v1beta2.GroupVersion.WithKind("Node").GroupKind(), n.Name, nil)
		}
		return c.Create(ctx, o, opts...)
	}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(kube).WithInterceptorFuncs(refuse).Build()
	root := t.TempDir()
	cfg := AgentConfig{Namespace: "ns", NodeName: "n", Host: Host{Resolve: func(p string) string {
		return filepath.Join(root, p)
	}}}
	if err := Join(t.Context(), c, cfg); !errors.Is(err, ErrNoSettings) {
		t.Errorf("without settings: %v", err)
	}
	for _, name := range joinSettings {
		s := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Value: "/data"}
		if err := c.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time finds it
		if err := Join(t.Context(), c, cfg); err != nil {
			t.Fatal(err)
		}
	}
	n := &v1beta2.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "n"}, n); err != nil ||
		!n.Spec.AllowScheduling || n.Spec.Name != "n" {
		t.Fatalf("node %+v, %v", n.Spec, err)
	}
}
