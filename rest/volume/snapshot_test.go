package volume_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/volume"
)

// snapshotURL is an action of volume demo.
func snapshotURL(action string) string { return "/v1/volumes/demo?action=" + action }

// snapshotFixture is a server with volume demo, attached, whose engine has snapshot s1 below s2.
func snapshotFixture(t *testing.T, edit func(*lh.Volume, *lh.Engine), more ...*lh.Setting) (*fixture,
	*resttest.Snapshots) {
	t.Helper()
	objects := resttest.Attached()
	objects[1].(*lh.Engine).Spec.Active = true
	edit(objects[0].(*lh.Volume), objects[1].(*lh.Engine))
	for _, s := range more {
		objects = append(objects, s)
	}
	fake := resttest.NewSnapshots()
	snapshots := func() volume.Snapshots { return fake }
	return newFixtureWith(t, interceptor.Funcs{}, func(c *rest.Config) { c.Snapshots = snapshots },
		resttest.Cluster(objects...)...), fake
}

func unchanged(*lh.Volume, *lh.Engine) {}

func (f *fixture) snapshotNames() string {
	f.T.Helper()
	a := f.Do("POST", snapshotURL("snapshotList"), "")
	if a.Status != 200 || a.JSON["type"] != "collection" || a.JSON["resourceType"] != "snapshot" {
		f.T.Fatalf("%d %s", a.Status, a.Text)
	}
	var names []string
	for _, s := range a.JSON["data"].([]any) {
		names = append(names, s.(map[string]any)["name"].(string))
	}
	return strings.Join(names, " ")
}

// TestSnapshotActions: what the engine is told, and what a client sees of it.
func TestSnapshotActions(t *testing.T) {
	f, fake := snapshotFixture(t, unchanged)
	if got := f.snapshotNames(); got != "s1 s2 volume-head" {
		t.Errorf("%s", got)
	}
	a := f.Do("POST", snapshotURL("snapshotCreate"), `{"name":"s3","labels":{"a":"b"}}`)
	if a.Status != 200 || a.JSON["type"] != "snapshot" || a.JSON["id"] != "s3" || a.JSON["usercreated"] != true ||
		a.JSON["labels"].(map[string]any)["a"] != "b" || a.JSON["parent"] != "s2" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	a = f.Do("POST", snapshotURL("snapshotCreate"), `{}`)
	if name, _ := a.JSON["name"].(string); a.Status != 200 || len(name) != len("snap-")+16 ||
		!strings.HasPrefix(name, "snap-") {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	cr := &lh.Snapshot{ObjectMeta: resttest.Meta("s1"), Spec: lh.SnapshotSpec{Volume: "demo"}}
	cr.Labels, cr.Status.Checksum = map[string]string{"longhornvolume": "demo"}, "c1"
	if err := f.Client.Create(t.Context(), reset(cr)); err != nil {
		t.Fatal(err)
	}
	a = f.Do("POST", snapshotURL("snapshotGet"), `{"name":"s1"}`)
	if a.Status != 200 || a.JSON["name"] != "s1" || a.JSON["checksum"] != "c1" || a.JSON["size"] != "4096" ||
		a.JSON["children"].(map[string]any)["s2"] != true || a.JSON["removed"] != false {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if a := f.Do("POST", snapshotURL("snapshotGet"), `{"name":"volume-head"}`); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	a = f.Do("POST", snapshotURL("snapshotDelete"), `{"name":"s1"}`)
	if a.Status != 200 || a.JSON["type"] != "volume" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if a := f.Do("POST", snapshotURL("snapshotPurge"), ""); a.Status != 200 || a.JSON["type"] != "volume" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if got := strings.Join(fake.Calls()[:1], "") + strings.Join(fake.Calls()[2:], ", "); got != "take s3remove s1, purge" {
		t.Errorf("%q", fake.Calls())
	}
}

// reset makes an object one that can be created.
func reset(s *lh.Snapshot) *lh.Snapshot {
	s.ResourceVersion = ""
	return s
}

// TestSnapshotOfAFrozenFileSystem: it is frozen where the volume says so, or leaves it to the
// setting.
func TestSnapshotOfAFrozenFileSystem(t *testing.T) {
	on := &lh.Setting{ObjectMeta: resttest.Meta("freeze-filesystem-for-snapshot"), Value: `{"v1":"true"}`}
	for _, tt := range []struct {
		volume   lh.Override
		settings []*lh.Setting
		want     string
	}{{lh.OverrideIgnored, nil, "take x"}, {"", []*lh.Setting{on}, "take x frozen"},
		{lh.OverrideEnabled, nil, "take x frozen"}, {lh.OverrideDisabled, []*lh.Setting{on}, "take x"}} {
		f, fake := snapshotFixture(t, func(v *lh.Volume, _ *lh.Engine) { v.Spec.FreezeFilesystemForSnapshot = tt.volume },
			tt.settings...)
		f.Do("POST", snapshotURL("snapshotCreate"), `{"name":"x"}`)
		if got := strings.Join(fake.Calls(), ", "); got != tt.want {
			t.Errorf("volume %q, %d settings: %s, want %s", tt.volume, len(tt.settings), got, tt.want)
		}
	}
}

// TestSnapshotRefusals: what cannot be is refused before the engine hears of it.
func TestSnapshotRefusals(t *testing.T) {
	migrating := func(v *lh.Volume, _ *lh.Engine) { v.Spec.MigrationNodeID = "node-2" }
	standby := func(v *lh.Volume, _ *lh.Engine) { v.Status.IsStandby = true }
	off := &lh.Setting{ObjectMeta: resttest.Meta("disable-snapshot-purge"), Value: "true"}
	for _, tt := range []struct {
		name, action, body string
		edit               func(*lh.Volume, *lh.Engine)
		settings           []*lh.Setting
		want               string
	}{
		{"no engine", "snapshotList", "", func(_ *lh.Volume, e *lh.Engine) { e.Spec.VolumeName = "other" }, nil,
			"cannot find engine"},
		{"engine stopped", "snapshotCreate", "{}", func(_ *lh.Volume, e *lh.Engine) {
			e.Status.CurrentState = lh.InstanceStateStopped
		}, nil, "engine is not running"},
		{"create, migrating", "snapshotCreate", "{}", migrating, nil, "cannot operate during migration"},
		{"delete, migrating", "snapshotDelete", `{"name":"s1"}`, migrating, nil, "cannot operate during migration"},
		{"purge, migrating", "snapshotPurge", "", migrating, nil, "cannot operate during migration"},
		{"revert, migrating", "snapshotRevert", `{"name":"s1"}`, migrating, nil, "cannot operate during migration"},
		{"order, migrating", "snapshotCRCreate", `{"name":"x"}`, migrating, nil, "cannot operate during migration"},
		{"create, standby", "snapshotCreate", "{}", standby, nil, "for standby volume demo"},
		{"delete, standby", "snapshotDelete", `{"name":"s1"}`, standby, nil, "for standby volume demo"},
		{"revert, standby", "snapshotRevert", `{"name":"s1"}`, standby, nil, "for standby volume demo"},
		{"order, standby", "snapshotCRCreate", `{"name":"x"}`, standby, nil, "for standby volume demo"},
		{"delete an order, standby", "snapshotCRDelete", `{"name":"x"}`, standby, nil, "for standby volume demo"},
		{"label", "snapshotCreate", `{"labels":{"a=b":""}}`, unchanged, nil, "contains ="},
		{"label of an order", "snapshotCRCreate", `{"labels":{"a":"b="}}`, unchanged, nil, "contains ="},
		{"name that is no object's", "snapshotCreate", `{"name":"S1"}`, unchanged, nil, "invalid snapshot name"},
		{"the same with an underscore", "snapshotCreate", `{"name":"x_y"}`, unchanged, nil, "invalid snapshot name"},
		{"name that is no file's", "snapshotCreate", `{"name":"` + strings.Repeat("x", 226) + `"}`, unchanged, nil,
			"226 characters, at most 225"},
		{"order by a name that is no file's", "snapshotCRCreate", `{"name":"` + strings.Repeat("x", 226) + `"}`, unchanged,
			nil, "226 characters, at most 225"},
		{"taken name", "snapshotCreate", `{"name":"s1"}`, unchanged, nil, "exists already"},
		{"unknown", "snapshotGet", `{"name":"x"}`, unchanged, nil, "cannot find snapshot 'x' for volume 'demo'"},
		{"delete unknown", "snapshotDelete", `{"name":"x"}`, unchanged, nil, "cannot find snapshot 'x' for volume 'demo'"},
		{"delete nothing", "snapshotDelete", `{}`, unchanged, nil, "cannot find snapshot ''"},
		{"delete the head", "snapshotDelete", `{"name":"volume-head"}`, unchanged, nil, "cannot find snapshot 'volume-head'"},
		{"revert in use", "snapshotRevert", `{"name":"s1"}`, unchanged, nil,
			"failed to revert snapshot for volume demo with frontend enabled"},
		{"revert while the device is there", "snapshotRevert", `{"name":"s1"}`, func(v *lh.Volume, _ *lh.Engine) {
			v.Spec.DisableFrontend = true
		}, nil, "with frontend enabled"},
		{"purges are off", "snapshotPurge", "", unchanged, []*lh.Setting{off}, "setting disable-snapshot-purge is on"},
		{"delete nothing ordered", "snapshotCRDelete", `{}`, unchanged, nil, "no snapshot named"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, fake := snapshotFixture(t, tt.edit, tt.settings...)
			f.Refused(f.Do("POST", snapshotURL(tt.action), tt.body), 500, tt.want)
			if calls := fake.Calls(); len(calls) != 0 {
				t.Errorf("the engine was told %q", calls)
			}
		})
	}
}

// TestSnapshotThatIsCopied: it is not removed while a volume is filled with it, and is afterwards.
func TestSnapshotThatIsCopied(t *testing.T) {
	for state, refused := range map[lh.VolumeCloneState]bool{lh.VolumeCloneStateInitiated: true,
		lh.VolumeCloneStateCompleted: false} {
		copied := &lh.Volume{ObjectMeta: resttest.Meta("copy")}
		copied.Spec.DataSource, copied.Status.CloneStatus.State = naming.CloneFromSnapshot("demo", "s1"), state
		objects := resttest.Attached()
		objects[1].(*lh.Engine).Spec.Active = true
		fake := resttest.NewSnapshots()
		snapshots := func() volume.Snapshots { return fake }
		f := newFixtureWith(t, interceptor.Funcs{}, func(c *rest.Config) { c.Snapshots = snapshots },
			resttest.Cluster(append(objects, copied)...)...)
		a := f.Do("POST", snapshotURL("snapshotDelete"), `{"name":"s1"}`)
		if refused {
			f.Refused(a, 500, "volume copy is being filled with snapshot s1")
		}
		if calls := fake.Calls(); refused != (len(calls) == 0) || refused == (a.Status == 200) {
			t.Errorf("%s: %d, the engine was told %q", state, a.Status, calls)
		}
	}
}

// TestRevert: it needs a volume without its device and a snapshot that is not removed, and answers
// with nothing.
func TestRevert(t *testing.T) {
	f, fake := snapshotFixture(t, func(v *lh.Volume, e *lh.Engine) {
		v.Spec.DisableFrontend, e.Status.Endpoint = true, ""
	})
	if a := f.Do("POST", snapshotURL("snapshotRevert"), `{"name":"s1"}`); a.Status != 200 || a.Text != "" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if calls := fake.Calls(); len(calls) != 1 || calls[0] != "revert s1" {
		t.Errorf("%q", calls)
	}
	f.Refused(f.Do("POST", snapshotURL("snapshotRevert"), `{"name":"x"}`), 500, "cannot find snapshot 'x'")
	f.Do("POST", snapshotURL("snapshotDelete"), `{"name":"s1"}`)
	f.Refused(f.Do("POST", snapshotURL("snapshotRevert"), `{"name":"s1"}`), 500, "is marked as removed")
	fake.Fail(errors.New("the engine says no"))
	f.Refused(f.Do("POST", snapshotURL("snapshotPurge"), ""), 500,
		"failed to purge snapshots for volume demo: the engine says no")
}

// TestNodeWithManyPurges: as many purges as the setting allows run beside each other on a node.
func TestNodeWithManyPurges(t *testing.T) {
	limit := &lh.Setting{ObjectMeta: resttest.Meta("snapshot-heavy-task-concurrent-limit"), Value: "1"}
	f, fake := snapshotFixture(t, unchanged, limit)
	other := &lh.Engine{ObjectMeta: resttest.Meta("x-e-0"), Spec: lh.EngineSpec{}}
	other.ResourceVersion, other.Spec.VolumeName, other.Spec.NodeID = "", "x", "node-1"
	other.Status.PurgeStatus = map[string]lh.PurgeStatus{"r": {IsPurging: true}}
	if err := f.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	f.Refused(f.Do("POST", snapshotURL("snapshotPurge"), ""), 500, "1 purges or clones run on node node-1")
	other.Spec.NodeID = "node-2"
	if err := f.Client.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if a := f.Do("POST", snapshotURL("snapshotPurge"), ""); a.Status != 200 || len(fake.Calls()) != 1 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
}

// TestNobodyLeads: without a leader an engine cannot be reached.
func TestNobodyLeads(t *testing.T) {
	for _, snapshots := range []func() volume.Snapshots{nil, func() volume.Snapshots { return nil }} {
		f := newFixtureWith(t, interceptor.Funcs{}, func(c *rest.Config) { c.Snapshots = snapshots },
			resttest.Cluster(resttest.Attached()...)...)
		f.Refused(f.Do("POST", snapshotURL("snapshotList"), ""), 500, "retry in a few seconds")
	}
}

// TestSnapshotObjects: ordering, reading and deleting Snapshot objects, for which no engine is
// needed.
func TestSnapshotObjects(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	a := f.Do("POST", snapshotURL("snapshotCRCreate"), `{"name":"s1","labels":{"a":"b"}}`)
	if a.Status != 200 || a.JSON["type"] != "snapshotCR" || a.JSON["readyToUse"] != false ||
		a.JSON["createSnapshot"] != true || a.JSON["volume"] != "demo" ||
		a.JSON["labels"].(map[string]any)["a"] != "b" || a.JSON["size"] != 0.0 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	f.Refused(f.Do("POST", snapshotURL("snapshotCRCreate"), `{"name":"s1"}`), 500, "already exists")
	a = f.Do("POST", snapshotURL("snapshotCRCreate"), `{}`)
	if name, _ := a.JSON["name"].(string); a.Status != 200 || !strings.HasPrefix(name, "snap-") {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	var s lh.Snapshot
	f.Read("s1", &s)
	s.Status = lh.SnapshotStatus{ReadyToUse: true, Size: 42, RestoreSize: 1 << 30, Parent: "p", CreationTime: "2026-01-01",
		UserCreated: true, Checksum: "c", Error: "e", OwnerID: "node-1", MarkRemoved: true}
	if err := f.Client.Update(context.Background(), &s); err != nil {
		t.Fatal(err)
	}
	a = f.Do("POST", snapshotURL("snapshotCRGet"), `{"name":"s1"}`)
	for key, want := range map[string]any{"readyToUse": true, "size": 42.0, "restoreSize": float64(1 << 30), "parent": "p",
		"creationTime": "2026-01-01", "userCreated": true, "checksum": "c", "error": "e", "ownerID": "node-1",
		"markRemoved": true} {
		if a.JSON[key] != want {
			t.Errorf("%s is %v, want %v", key, a.JSON[key], want)
		}
	}
	a = f.Do("POST", snapshotURL("snapshotCRList"), "")
	if data, _ := a.JSON["data"].([]any); a.Status != 200 || len(data) != 2 || a.JSON["resourceType"] != "snapshotCR" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	f.Refused(f.Do("POST", snapshotURL("snapshotCRGet"), `{"name":"x"}`), 404, "not found")
	for range 2 { // one that does not exist is deleted already
		if a := f.Do("POST", snapshotURL("snapshotCRDelete"), `{"name":"s1"}`); a.Status != 200 || a.JSON["type"] != "empty" {
			t.Errorf("%d %s", a.Status, a.Text)
		}
	}
	for _, action := range []string{"snapshotCRCreate", "snapshotCRList", "snapshotCRDelete", "snapshotList"} {
		if a := f.Do(http.MethodPost, "/v1/volumes/nope?action="+action, `{"name":"x"}`); a.Status != 404 {
			t.Errorf("%s of no volume: %d %s", action, a.Status, a.Text)
		}
	}
}

// TestDeletingAnothersSnapshot: the object's volume is looked at.
func TestDeletingAnothersSnapshot(t *testing.T) {
	s := &lh.Snapshot{ObjectMeta: resttest.Meta("s1"), Spec: lh.SnapshotSpec{Volume: "other"}}
	f := newFixture(t, resttest.Cluster(append(resttest.Volume("demo"), s)...)...)
	f.Refused(f.Do("POST", snapshotURL("snapshotCRDelete"), `{"name":"s1"}`), 500, "it is a snapshot of volume other")
}

// TestOrderIsWithdrawn: a snapshot that is ordered and not taken yet can be deleted whatever the
// volume is about; one that was taken cannot while the volume migrates.
func TestOrderIsWithdrawn(t *testing.T) {
	ordered := &lh.Snapshot{ObjectMeta: resttest.Meta("s1"), Spec: lh.SnapshotSpec{Volume: "demo", CreateSnapshot: true}}
	ordered.Status.Blocked, ordered.Finalizers = true, []string{lh.Finalizer}
	done := ordered.DeepCopy()
	done.Name, done.Status = "s2", lh.SnapshotStatus{CreationTime: "2026-01-01"}
	volume := resttest.Volume("demo")
	for _, o := range volume {
		if v, ok := o.(*lh.Volume); ok {
			v.Spec.MigrationNodeID = "node-2"
		}
	}
	f := newFixture(t, resttest.Cluster(append(volume, ordered, done)...)...)
	if a := f.Do("POST", snapshotURL("snapshotCRGet"), `{"name":"s1"}`); a.JSON["blocked"] != true ||
		a.JSON["deleting"] != nil {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if a := f.Do("POST", snapshotURL("snapshotCRDelete"), `{"name":"s1"}`); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if a := f.Do("POST", snapshotURL("snapshotCRGet"), `{"name":"s1"}`); a.JSON["deleting"] != true {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	f.Refused(f.Do("POST", snapshotURL("snapshotCRDelete"), `{"name":"s2"}`), 500, "cannot operate during migration")
}

// TestUpdateSnapshotLimits: the wishes reach the volume; admission judges them.
func TestUpdateSnapshotLimits(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Attached()...)...)
	if a := f.Do("POST", snapshotURL("updateSnapshotMaxCount"), `{"snapshotMaxCount":7}`); a.Status != 200 ||
		a.JSON["snapshotMaxCount"] != 7.0 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if a := f.Do("POST", snapshotURL("updateSnapshotMaxSize"), `{"snapshotMaxSize":"4Gi"}`); a.Status != 200 ||
		a.JSON["snapshotMaxSize"] != "4294967296" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	f.Refused(f.Do("POST", snapshotURL("updateSnapshotMaxSize"), `{"snapshotMaxSize":"big"}`), 500, "failed to parse")
}
