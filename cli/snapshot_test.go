package cli

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
	"ankole.storage/rest/volume"
)

// snapshotCluster is the cluster with the objects of an attached volume's snapshots.
func snapshotCluster() []client.Object {
	object := func(name string, edit func(*lh.Snapshot)) client.Object {
		s := &lh.Snapshot{ObjectMeta: resttest.Meta(name), Spec: lh.SnapshotSpec{Volume: "busy"}}
		s.Labels = map[string]string{"longhornvolume": "busy"}
		s.Status.CreationTime, s.Status.Size = "2026-05-03T10:00:00Z", 3<<20
		edit(s)
		return s
	}
	return append(cluster(),
		object("s1", func(s *lh.Snapshot) {
			s.Status.ReadyToUse, s.Status.UserCreated, s.Status.Checksum = true, true, "0123456789abcdef"
			s.Status.Labels = map[string]string{"why": "upgrade", "by": "me"}
		}),
		object("s2", func(s *lh.Snapshot) { s.Status.MarkRemoved, s.Status.Parent = true, "s1" }),
		object("s3", func(s *lh.Snapshot) {
			s.Spec.CreateSnapshot, s.Status.CreationTime, s.Status.Size = true, "", 0
			s.Status.Error = "waiting for the engine of volume busy to run"
		}))
}

// snapshotBed is a server whose engines have snapshots s1 and s2.
func snapshotBed(t *testing.T, objects ...client.Object) (*bed, *resttest.Snapshots) {
	t.Helper()
	c := resttest.Client(t, interceptor.Funcs{}, objects...)
	engines := resttest.NewSnapshots()
	s, err := rest.New(rest.Config{EngineImage: resttest.Image,
		Config:    serve.Config{Client: c, Open: true, Logger: slog.New(slog.DiscardHandler)},
		Snapshots: func() volume.Snapshots { return engines }})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return &bed{t, c, web.URL}, engines
}

func TestSnapshotTables(t *testing.T) {
	b, _ := snapshotBed(t, snapshotCluster()...)
	for name, args := range map[string][]string{
		"snapshot-list":      {"snapshot", "list", "busy"},
		"snapshot-list-wide": {"snapshot", "list", "busy", "-o", "wide"},
		"snapshot-get":       {"snapshot", "get", "busy", "s1"},
	} {
		r := b.run(args...)
		if r.status != exitOK || r.err != "" {
			t.Fatalf("%s: status %d, %s", name, r.status, r.err)
		}
		golden(t, name, r.out)
	}
	if r := b.run("snapshot", "list", "demo"); r.out != "" || !strings.Contains(r.err, "ankole snapshot create demo") {
		t.Errorf("no snapshots give %q, %q", r.out, r.err)
	}
}

func TestSnapshotErrorsNameTheNextStep(t *testing.T) {
	b, _ := snapshotBed(t, snapshotCluster()...)
	for _, c := range []struct {
		args   string
		status int
		text   string
	}{
		{"snapshot list nope", 1, "volume nope not found; list volumes with: ankole volume list"},
		{"snapshot list", 2, "the volume's name is missing"},
		{"snapshot get busy nope", 1, "snapshot nope not found; list snapshots with: ankole snapshot list busy"},
		{"snapshot get nope s1", 1, "volume nope not found"},
		{"snapshot get demo s1", 1, "snapshot s1 is one of volume busy"},
		{"snapshot get busy", 2, "the snapshot's name is missing"},
		{"snapshot create", 2, "the volume's name is missing"},
		{"snapshot create busy a b", 2, `unexpected argument "b"`},
		{"snapshot create busy --label x", 2, "write KEY=VALUE"},
		{"snapshot create busy --label =x", 2, "write KEY=VALUE"},
		{"snapshot create busy --label a=b=c", 1, "contains ="},
		{"snapshot create nope", 1, "volume nope not found"},
		{"snapshot create busy s1", 1, "already exists"},
		{"snapshot create busy new --timeout 300ms", 1, "snapshot new is not taken after 300ms: nothing is known of it yet; " +
			"follow it with: ankole snapshot get busy new"},
		{"snapshot delete busy nope", 1, "snapshot nope not found"},
		{"snapshot revert demo s1", 1, "volume demo is detached; attach it with: ankole volume attach --disable-frontend demo"},
		{"snapshot revert busy s1", 1, "with frontend enabled"},
		{"snapshot revert nope s1", 1, "volume nope not found"},
		{"snapshot purge demo", 1, "volume demo is detached; attach it with: ankole volume attach demo"},
		{"snapshot purge nope", 1, "volume nope not found"},
	} {
		r := b.run(strings.Fields(c.args)...)
		if r.status != c.status || !strings.Contains(r.err, c.text) || r.out != "" {
			t.Errorf("%s: status %d, %q, %q; want %d and %q", c.args, r.status, r.out, r.err, c.status, c.text)
		}
	}
}

// soon plays the controller: when a snapshot of that name is there, it is edited.
func (b *bed) soon(name string, edit func(*lh.Snapshot)) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() {
		var s lh.Snapshot
		key := client.ObjectKey{Namespace: lh.Namespace, Name: name}
		for b.client.Get(context.Background(), key, &s) != nil && b.t.Context().Err() == nil {
		}
		edit(&s)
		if err := b.client.Update(context.Background(), &s); err != nil {
			b.t.Error(err)
		}
	})
	return &wg
}

func TestSnapshotCreateWaits(t *testing.T) {
	b, _ := snapshotBed(t, snapshotCluster()...)
	wg := b.soon("new", func(s *lh.Snapshot) { s.Status.ReadyToUse = true })
	r := b.run("snapshot", "create", "busy", "new", "--label", "a=b")
	wg.Wait()
	if r.status != 0 || r.out != "snapshot new of volume busy taken\n" {
		t.Errorf("%+v", r)
	}
	var s lh.Snapshot
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: lh.Namespace, Name: "new"}, &s); err != nil ||
		s.Spec.Labels["a"] != "b" || !s.Spec.CreateSnapshot {
		t.Errorf("%+v, %v", s.Spec, err)
	}
	if r := b.run("snapshot", "create", "busy", "later", "--wait=false"); r.out !=
		"snapshot later of volume busy ordered\n" {
		t.Errorf("%+v", r)
	}
}

func TestSnapshotDeleteWaits(t *testing.T) {
	b, _ := snapshotBed(t, snapshotCluster()...)
	if r := b.run("snapshot", "delete", "busy", "s3", "--yes"); r.status != 0 ||
		r.out != "snapshot s3 of volume busy deleted\n" {
		t.Errorf("%+v", r)
	}
	var s lh.Snapshot
	b.change("s2", &s, func() {
		s.Finalizers = []string{lh.Finalizer}
		s.Status.Error, s.Status.Children = "the head stands on it", map[string]bool{lh.VolumeHeadName: true}
	})
	if r := b.run("snapshot", "delete", "busy", "s2", "--yes"); r.status != 0 ||
		r.out != "snapshot s2 of volume busy: the head stands on it\n" {
		t.Errorf("%+v", r)
	}
}

func TestSnapshotRevertAndPurge(t *testing.T) {
	b, engines := snapshotBed(t, snapshotCluster()...)
	var v lh.Volume
	b.change("busy", &v, func() { v.Spec.DisableFrontend = true })
	var e lh.Engine
	b.change("busy-e-0", &e, func() { e.Status.Endpoint = "" })
	if r := b.run("snapshot", "revert", "busy", "s2"); r.status != 0 ||
		r.out != "volume busy has the content of snapshot s2\n" {
		t.Errorf("%+v", r)
	}
	if err := engines.Remove(t.Context(), nil, "s1"); err != nil {
		t.Fatal(err)
	}
	if r := b.run("snapshot", "purge", "busy"); r.status != 0 || r.out != "snapshots of volume busy purged\n" {
		t.Errorf("%+v", r)
	}
	if r := b.run("snapshot", "purge", "busy", "--wait=false"); r.out != "purge of volume busy ordered\n" {
		t.Errorf("%+v", r)
	}
	if got := strings.Join(engines.Calls(), ", "); got != "revert s2, remove s1, purge, purge" {
		t.Errorf("%s", got)
	}
}

// stuckPurge is a cluster in which a purge of volume busy does not end.
func stuckPurge(t *testing.T) *bed {
	t.Helper()
	b, engines := snapshotBed(t, snapshotCluster()...)
	engines.Stick()
	if err := engines.Remove(t.Context(), nil, "s1"); err != nil {
		t.Fatal(err)
	}
	var e lh.Engine
	b.change("busy-e-0", &e, func() {
		e.Status.PurgeStatus = map[string]lh.PurgeStatus{"tcp://127.0.1.1:10000": {Error: "bad disk", State: "error"},
			"tcp://127.0.1.2:10000": {IsPurging: true, Progress: 30}}
	})
	return b
}

// TestPurgeTellsWhatIsLeft: a purge that does not end says how far it is and what failed.
func TestPurgeTellsWhatIsLeft(t *testing.T) {
	r := stuckPurge(t).run("snapshot", "purge", "busy", "--timeout", "2s")
	if r.status != 1 || !strings.Contains(r.err, "[ 30%] volume busy: 1 snapshot to purge") ||
		!strings.Contains(r.err, "volume busy is not purged after 2s: 1 snapshot to purge; replica") ||
		!strings.Contains(r.err, "bad disk; look at its snapshots with: ankole snapshot list busy") {
		t.Errorf("%+v", r)
	}
}

func TestSnapshotCompletion(t *testing.T) {
	b, _ := snapshotBed(t, snapshotCluster()...)
	for args, want := range map[string]string{"get b": "busy", "get busy ": "s1 s2 s3", "revert busy s1 ": "",
		"purge d": "demo"} {
		r := b.run(append([]string{"__complete", "snapshot"}, strings.Split(args, " ")...)...)
		got := strings.Fields(strings.Split(r.out, ":")[0])
		if strings.Join(got, " ") != want {
			t.Errorf("%q completes to %q, want %q", args, got, want)
		}
	}
}
