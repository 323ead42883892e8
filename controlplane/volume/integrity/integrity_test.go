package integrity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
	"ankole.storage/metrics/metricstest"
)

// testNow is twelve hours after the schedule of world was due last.
var testNow = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// world is a volume v in mode fast-check, checked daily at midnight, whose running engine has the
// snapshots s1 and s2, both taken and checked yesterday at noon.
func world(t *testing.T) (*v1beta2.Volume, seen) {
	t.Helper()
	schedule, err := setting.ParseCron("@daily")
	if err != nil {
		t.Fatal(err)
	}
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"}}
	e := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v-e-0"}}
	e.Spec.VolumeName, e.Spec.NodeID, e.Status.UUID = "v", "n1", "process"
	e.Status.Snapshots = map[string]v1beta2.SnapshotInfo{}
	g := seen{Engine: e, Reachable: true, Mode: v1beta2.SnapshotDataIntegrityFastCheck, Schedule: schedule,
		Tried: map[types.UID]time.Time{}}
	for i, name := range []string{"s1", "s2"} {
		s := &v1beta2.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
		s.Spec.Volume, s.Status.UserCreated = "v", true
		s.Status.CreationTime = at(time.Duration(i-24) * time.Hour)
		s.Status.Checksum, s.Status.ChecksumCalculatedAt = "old", at(-24*time.Hour)
		e.Status.Snapshots[name] = v1beta2.SnapshotInfo{Name: name}
		g.Snapshots = append(g.Snapshots, s)
	}
	return v, g
}

func at(d time.Duration) string { return testNow.Add(d).Format(time.RFC3339) }

func brief(d loop.Decision) string {
	out := ""
	if d.Do != nil {
		out = d.Do.String()
	}
	if d.After != 0 {
		out += fmt.Sprintf(" after %s", d.After)
	}
	return strings.TrimSpace(out)
}

// TestDecide is the decision table of docs/design/snapshots.md, section Integrity.
func TestDecide(t *testing.T) {
	const first, second = "check the data of snapshot s1 after 2s", "check the data of snapshot s2 after 2s"
	checked := func(g seen, i int) { g.Snapshots[i].Status.ChecksumCalculatedAt = at(-time.Hour) }
	both := func(g seen) { checked(g, 0); checked(g, 1) }
	for _, tt := range []struct {
		name string
		edit func(v *v1beta2.Volume, g *seen)
		want string
	}{
		{"due by the schedule", func(*v1beta2.Volume, *seen) {}, first},
		{"the next one", func(_ *v1beta2.Volume, g *seen) { checked(*g, 0) }, second},
		{"none due", func(_ *v1beta2.Volume, g *seen) { both(*g) }, "after 12h0m0s"},
		{"no snapshots", func(_ *v1beta2.Volume, g *seen) { g.Snapshots = nil }, ""},
		{"disabled", func(_ *v1beta2.Volume, g *seen) { g.Mode = v1beta2.SnapshotDataIntegrityDisabled }, ""},
		{"engine does not run", func(_ *v1beta2.Volume, g *seen) { g.Reachable = false }, ""},
		{"migrating", func(v *v1beta2.Volume, _ *seen) { v.Spec.MigrationNodeID = "n2" }, ""},
		{"volume deleted", func(v *v1beta2.Volume, _ *seen) { v.DeletionTimestamp = &metav1.Time{Time: testNow} }, ""},
		{"node busy", func(_ *v1beta2.Volume, g *seen) { g.NodeBusy = true }, "after 10s"},
		{"deleted snapshot", func(_ *v1beta2.Volume, g *seen) {
			g.Snapshots[0].DeletionTimestamp = &metav1.Time{Time: testNow}
		}, second},
		{"snapshot not in the engine", func(_ *v1beta2.Volume, g *seen) { delete(g.Engine.Status.Snapshots, "s1") }, second},
		{"snapshot marked as removed", func(_ *v1beta2.Volume, g *seen) {
			g.Engine.Status.Snapshots["s1"] = v1beta2.SnapshotInfo{Name: "s1", Removed: true}
		}, second},
		{"taken since", func(_ *v1beta2.Volume, g *seen) {
			both(*g)
			g.Snapshots[1].Status.CreationTime, g.Snapshots[1].Status.ChecksumCalculatedAt = at(-time.Hour), ""
		}, "after 12h0m0s"},
		{"taken since, checked at once", func(_ *v1beta2.Volume, g *seen) {
			both(*g)
			g.Immediate = true
			g.Snapshots[1].Status.CreationTime, g.Snapshots[1].Status.ChecksumCalculatedAt = at(-time.Hour), ""
		}, second},
		{"taken since, checked at once, disabled", func(_ *v1beta2.Volume, g *seen) {
			g.Immediate, g.Mode = true, v1beta2.SnapshotDataIntegrityDisabled
			g.Snapshots[1].Status.ChecksumCalculatedAt = ""
		}, ""},
		{"merged since", func(_ *v1beta2.Volume, g *seen) {
			both(*g)
			g.Snapshots[0].Status.ChecksumCalculatedAt = ""
		}, first},
		{"asked for", func(v *v1beta2.Volume, g *seen) {
			both(*g)
			v.Spec.SnapshotHashingRequestedAt = at(-time.Minute)
		}, first},
		{"asked for, disabled", func(v *v1beta2.Volume, g *seen) {
			g.Mode, v.Spec.SnapshotHashingRequestedAt = v1beta2.SnapshotDataIntegrityDisabled, at(-time.Minute)
		}, first},
		{"asked for: none of the system's", func(v *v1beta2.Volume, g *seen) {
			both(*g)
			g.Snapshots[0].Status.UserCreated = false
			v.Spec.SnapshotHashingRequestedAt = at(-time.Minute)
		}, second},
		{"asked for in the second of the last check", func(v *v1beta2.Volume, g *seen) {
			both(*g)
			v.Spec.SnapshotHashingRequestedAt = at(-time.Hour)
		}, first},
		{"asked for in the future", func(v *v1beta2.Volume, g *seen) {
			both(*g)
			v.Spec.SnapshotHashingRequestedAt = at(time.Hour)
		}, "after 1h0m0s"},
		{"tried in vain: others first", func(_ *v1beta2.Volume, g *seen) { g.Tried["uid-s1"] = testNow }, second},
		{"all tried in vain", func(_ *v1beta2.Volume, g *seen) {
			g.Tried["uid-s1"], g.Tried["uid-s2"] = testNow, testNow.Add(-time.Second)
		}, "after 59s"},
		{"tried in vain a while ago", func(_ *v1beta2.Volume, g *seen) {
			checked(*g, 1)
			g.Tried["uid-s1"] = testNow.Add(-2 * time.Minute)
		}, first},
	} {
		v, g := world(t)
		tt.edit(v, &g)
		if d := decide(testNow, v, g); brief(d) != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, brief(d), tt.want)
		}
		if v.Status.LastOnDemandSnapshotHashingCompleteAt != "" {
			t.Errorf("%s: the wish counts as fulfilled", tt.name)
		}
	}
}

// TestWishIsFulfilled: when all snapshots of users have been checked since, and not before.
func TestWishIsFulfilled(t *testing.T) {
	v, g := world(t)
	v.Spec.SnapshotHashingRequestedAt = at(-time.Minute)
	g.Snapshots[0].Status.ChecksumCalculatedAt = at(0)
	g.Snapshots[1].Status.UserCreated, g.Mode = false, v1beta2.SnapshotDataIntegrityDisabled
	g.Tried["uid-s1"] = testNow
	if d := decide(testNow, v, g); d.Do != nil ||
		v.Status.LastOnDemandSnapshotHashingCompleteAt != v.Spec.SnapshotHashingRequestedAt {
		t.Errorf("%+v, %+v", v.Status, d)
	}
	if d := decide(testNow, v, g); brief(d) != "" {
		t.Errorf("%s", brief(d))
	}
}

// TestJudge: what becomes of a check under way.
func TestJudge(t *testing.T) {
	ok := func(sum string) engineclient.Hash { return engineclient.Hash{State: "complete", Checksum: sum} }
	for _, tt := range []struct {
		name  string
		parts map[string]engineclient.Hash
		want  string // what is done
		sum   string
		event string
	}{
		{"nothing told", nil, "ask", "", ""},
		{"under way", map[string]engineclient.Hash{"a": ok("1"), "b": {State: "in_progress"}}, "ask", "", ""},
		{"good", map[string]engineclient.Hash{"a": ok("1"), "b": ok("1")}, "update", "1", ""},
		{"one failed", map[string]engineclient.Hash{"a": ok("1"), "b": {State: "error", Error: "gone"}}, "give up", "", ""},
		{"mended", map[string]engineclient.Hash{"a": ok("1"), "b": {State: "complete", Checksum: "1", Repaired: 3}},
			"update", "1", "replica b was not what was written; 3 pieces were mended"},
		{"differ", map[string]engineclient.Hash{"a": ok("1"), "b": ok("2")}, "update", "", "nobody can tell"},
		{"unreadable", map[string]engineclient.Hash{"a": ok("")}, "update", "", "nobody can tell"},
		{"corrupted", map[string]engineclient.Hash{"a": ok("1"),
			"b": {State: "complete", Checksum: "1", SilentlyCorrupted: true}},
			"update", "", "replica b is not what was written, and no other copy"},
		{"corrupted, and one failed", map[string]engineclient.Hash{"a": {State: "error", SilentlyCorrupted: true},
			"b": {State: "error"}}, "update", "", "replica a is not what was written"},
	} {
		v, g := world(t)
		r := New("ns", nil)
		r.checks[v.Name] = check{}
		g.Check = &check{Snapshot: "uid-s1", Name: "s1", Hashes: tt.parts}
		d := decide(testNow, v, g)
		if d.Do == nil || !strings.HasPrefix(d.Do.String(), tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, brief(d), tt.want)
			continue
		}
		if d, written := d.Do.(loop.Reserving); written {
			st := d.Change.(loop.UpdateStatus).Object.(*v1beta2.Snapshot).Status
			if st.Checksum != tt.sum || st.ChecksumCalculatedAt != at(0) {
				t.Errorf("%s: %+v", tt.name, st)
			}
			counted := func() float64 {
				return metricstest.Value(t, "ankole_scrub_checks_total", "good") +
					metricstest.Value(t, "ankole_scrub_checks_total", "damaged")
			}
			before := counted()
			done, err := r.reserve(t.Context(), v, g, d.Change)
			if err != nil {
				t.Fatal(err)
			}
			done(errors.New("a race was lost"))
			if len(r.checks) != 1 || counted() != before {
				t.Errorf("%s: forgotten or counted, and not written", tt.name)
			}
			if done(nil); len(r.checks) != 0 || counted() != before+1 {
				t.Errorf("%s: %d checks are left, counted %v times", tt.name, len(r.checks), counted()-before)
			}
		}
		switch {
		case tt.event == "" && len(d.Events) > 0:
			t.Errorf("%s: %+v", tt.name, d.Events)
		case tt.event != "" && (len(d.Events) != 1 || !strings.Contains(d.Events[0].Message, tt.event) ||
			d.Events[0].Reason != "FailedSnapshotDataIntegrityCheck" || d.Events[0].On != g.Engine || !d.Events[0].Warning):
			t.Errorf("%s: %+v", tt.name, d.Events)
		}
	}
	for name, edit := range map[string]func(g *seen){
		"the snapshot is gone": func(g *seen) { g.Snapshots = g.Snapshots[1:] },
		"a layer was merged":   func(g *seen) { g.Snapshots[0].Status.Parent = "s0" },
	} {
		v, g := world(t)
		g.Check = &check{Snapshot: "uid-s1", Name: "s1", Hashes: map[string]engineclient.Hash{"a": ok("1")}}
		edit(&g)
		if d := decide(testNow, v, g); !strings.HasPrefix(brief(d), "give up the check of snapshot s1") {
			t.Errorf("%s: %s", name, brief(d))
		}
	}
}

// TestRegularChecksAreDated: the node tells when the last check by the schedule ended on it, before
// the snapshot tells its checksum; of another check, and of one without a result, it tells nothing.
func TestRegularChecksAreDated(t *testing.T) {
	const dated, written = "update status of *v1beta2.Node n1", "update status of *v1beta2.Snapshot ns/s1"
	for _, tt := range []struct {
		name string
		edit func(g *seen)
		want string
	}{
		{"the first on the node", func(*seen) {}, dated},
		{"one ended there before", func(g *seen) { lastChecked(g, -time.Hour) }, dated},
		{"told already", func(g *seen) { lastChecked(g, -time.Second) }, written},
		{"the node is gone, or it was another check", func(g *seen) { g.Node = nil }, written},
		{"no result", func(g *seen) {
			g.Check.Hashes = map[string]engineclient.Hash{"a": {State: "error"}}
		}, "give up the check of snapshot s1"},
	} {
		v, g := world(t)
		g.Node = &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		g.Check = &check{Snapshot: "uid-s1", Name: "s1", Node: "n1", Regular: true, Begun: testNow.Add(-time.Minute),
			Hashes: map[string]engineclient.Hash{"a": {State: "complete", Checksum: "1"}}}
		tt.edit(&g)
		d := decide(testNow, v, g)
		if got := d.Do.String(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if u, ok := d.Do.(loop.UpdateStatus); ok {
			n := u.Object.(*v1beta2.Node)
			if !n.Status.SnapshotCheckStatus.LastPeriodicCheckedAt.Time.Equal(testNow) {
				t.Errorf("%s: %+v", tt.name, n.Status.SnapshotCheckStatus)
			}
		}
	}
}

func lastChecked(g *seen, ago time.Duration) {
	g.Node.Status.SnapshotCheckStatus.LastPeriodicCheckedAt = metav1.NewTime(testNow.Add(ago))
}

// TestNodeOfACheck: it is read for a regular check; one that is gone is no reason to stop.
func TestNodeOfACheck(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := New("ns", nil).WithClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n1"}}).Build())
	for _, tt := range []struct {
		check *check
		want  bool
	}{{nil, false}, {&check{Node: "n1"}, false}, {&check{Node: "n1", Regular: true}, true},
		{&check{Node: "n2", Regular: true}, false}} {
		g := seen{Check: tt.check}
		if err := r.gatherNode(t.Context(), "ns", &g); err != nil || (g.Node != nil) != tt.want {
			t.Errorf("%+v: node %v, %v", tt.check, g.Node, err)
		}
	}
}

// TestWhichChecksAreRegular: those by the schedule, and no other, whatever else asks for them.
func TestWhichChecksAreRegular(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(g *seen)
		want bool
	}{
		{"due by the schedule", func(*seen) {}, true},
		{"checked since, asked for", func(g *seen) { g.Snapshots[0].Status.ChecksumCalculatedAt = at(-time.Hour) }, false},
		{"taken since", func(g *seen) {
			g.Snapshots[0].Status.CreationTime, g.Snapshots[0].Status.ChecksumCalculatedAt = at(-time.Hour), ""
		}, false},
		{"disabled, asked for", func(g *seen) { g.Mode = v1beta2.SnapshotDataIntegrityDisabled }, false},
	} {
		_, g := world(t)
		tt.edit(&g)
		r := New("ns", &slow{})
		if err := r.start(t.Context(), engineclient.Target{Volume: "v"}, g,
			startOrder{g.Snapshots[0], regular(g.slot(testNow), g.Snapshots[0]), testNow.Add(time.Millisecond)}); err != nil {
			t.Fatal(err)
		}
		if c := r.checks["v"]; c.Regular != tt.want || !c.Begun.Equal(testNow) || c.Node != "n1" {
			t.Errorf("%s: %+v", tt.name, c)
		}
	}
}

// slow is engines that have been told to compute, and say what they are told to say.
type slow struct {
	begun []string
	parts map[string]engineclient.Hash
	err   error
}

func (s *slow) SnapshotHash(_ context.Context, t engineclient.Target, name string, rehash bool) error {
	s.begun = append(s.begun, fmt.Sprintf("%s %s %v", t.Volume, name, rehash))
	return s.err
}

func (s *slow) SnapshotHashStatus(context.Context, engineclient.Target, string) (map[string]engineclient.Hash, error) {
	return s.parts, s.err
}

// TestOneCheckOnANode: a second one waits until the first has ended; one of a former process is
// forgotten.
func TestOneCheckOnANode(t *testing.T) {
	engines := &slow{parts: map[string]engineclient.Hash{"a": {State: "complete", Checksum: "1"}}}
	r := New("ns", engines)
	_, g := world(t)
	g.Mode = v1beta2.SnapshotDataIntegrityEnabled
	other := g
	other.Engine = g.Engine.DeepCopy()
	other.Engine.Spec.VolumeName = "w"
	theirs := g.Snapshots[1].DeepCopy()
	theirs.Spec.Volume = "w"
	begin := func(want string) {
		t.Helper()
		err1 := r.start(t.Context(), engineclient.Target{Volume: "v"}, g, startOrder{Snapshot: g.Snapshots[0], At: testNow})
		err2 := r.start(t.Context(), engineclient.Target{Volume: "w"}, other, startOrder{Snapshot: theirs, At: testNow})
		if got := fmt.Sprint(engines.begun, err1, err2); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	begin("[v s1 true] <nil> <nil>")
	r.gatherChecks("w", &other)
	if !other.NodeBusy || other.Check != nil {
		t.Errorf("%+v", other)
	}
	if err := r.ask(t.Context(), testNow, engineclient.Target{Volume: "v"}); err != nil {
		t.Error(err)
	}
	r.gatherChecks("v", &g)
	if g.NodeBusy || g.Check == nil || g.Check.Hashes["a"].Checksum != "1" {
		t.Errorf("%+v", g)
	}
	g.Engine.Status.UUID, g.Check = "the next process", nil
	r.gatherChecks("v", &g)
	r.gatherChecks("w", &other)
	if g.Check != nil || other.NodeBusy {
		t.Errorf("%+v, %+v", g.Check, other.NodeBusy)
	}
	engines.begun, engines.err = nil, engineclient.ErrUnavailable
	again := startOrder{Snapshot: theirs, At: testNow}
	if err := r.start(t.Context(), engineclient.Target{Volume: "w"}, other, again); err == nil {
		t.Error("no error")
	}
	r.gatherChecks("w", &other)
	if other.Check != nil || !other.Tried["uid-s2"].Equal(testNow) {
		t.Errorf("%+v, %+v", other.Check, other.Tried)
	}
	r.forget("w")
	if len(r.checks)+len(r.tried) != 0 {
		t.Errorf("%v, %v", r.checks, r.tried)
	}
}

// TestSettingsOfAVolume: what the settings say, unless the volume says it.
func TestSettingsOfAVolume(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	set := func(name, value string) *v1beta2.Setting {
		return &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Value: value}
	}
	stored := []client.Object{set(setting.SnapshotDataIntegrity, `{"v1":"enabled"}`),
		set(setting.SnapshotDataIntegrityImmediateCheckAfterSnapshotCreation, `{"v1":"true"}`),
		set(setting.SnapshotDataIntegrityCronJob, `{"v1":"@hourly"}`)}
	for _, tt := range []struct {
		of        v1beta2.SnapshotDataIntegrity
		settings  []client.Object
		mode      v1beta2.SnapshotDataIntegrity
		immediate bool
		last      string
	}{
		{"", nil, "fast-check", false, "2026-01-01T00:00:00Z"},
		{"ignored", stored, "enabled", true, "2026-01-02T12:00:00Z"},
		{"disabled", stored, "disabled", true, "2026-01-02T12:00:00Z"},
		{"fast-check", stored, "fast-check", true, "2026-01-02T12:00:00Z"},
	} {
		r := New("ns", nil).WithClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(tt.settings...).Build())
		v, _ := world(t)
		v.Spec.SnapshotDataIntegrity = tt.of
		var g seen
		if err := r.gatherSettings(t.Context(), v, &g); err != nil {
			t.Fatal(err)
		}
		if last := g.Schedule.Last(testNow).Format(time.RFC3339); g.Mode != tt.mode || g.Immediate != tt.immediate ||
			last != tt.last {
			t.Errorf("%q: mode %s, immediate %v, last %s", tt.of, g.Mode, g.Immediate, last)
		}
	}
}
