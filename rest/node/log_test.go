package node_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/instancemanager/process"
	"ankole.storage/rest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
)

// logFixture is a cluster with volume demo attached to node-1, whose engine really logs.
func logFixture(t *testing.T) (*fixture, *resttest.Instances) {
	t.Helper()
	instances := resttest.StartInstances(t)
	demo := resttest.Volume("demo")
	resttest.Attach(demo, "node-1", "/dev/longhorn/demo")
	objects := append(demo, resttest.Volume("idle")...)
	objects = append(objects, resttest.InstanceManager("im-1", "node-1"))
	unplaced := &lh.Replica{ObjectMeta: resttest.Meta("new-r-1")}
	f := newFixtureWith(t, interceptor.Funcs{}, func(c *rest.Config) {
		c.Connect = instances.Connect
	}, append(objects, unplaced)...)
	return f, instances
}

// TestInstanceLog is the table of logs and refusals.
func TestInstanceLog(t *testing.T) {
	f, instances := logFixture(t)
	instances.Run(t, "demo-e-0", `echo one; echo two; echo three`)
	instances.Run(t, "gone-e-0", `printf 'no end'`)
	instances.Run(t, "quiet-e-0", ``)
	for _, name := range []string{"demo-e-0", "gone-e-0", "quiet-e-0"} {
		awaitStopped(t, instances, name)
	}
	for _, row := range []struct {
		path   string
		status int
		text   string
	}{
		{"demo-e-0", 200, "one\ntwo\nthree\n"},
		{"demo-e-0?tail=1", 200, "three\n"},
		{"demo-e-0?follow=true", 200, "one\ntwo\nthree\n"},
		{"demo-e-0?node=node-1", 200, "one\ntwo\nthree\n"},
		{"gone-e-0?node=node-1", 200, "no end\n"},
		{"quiet-e-0?node=node-1", 200, ""},
		{"demo-r-11111111", 404, "node node-1 has no log of demo-r-11111111"},
		{"gone-e-0", 404, "there is no engine and no replica gone-e-0"},
		{"idle-e-0", 500, "engine idle-e-0 does not run: volume idle is not attached"},
		{"new-r-1", 500, "replica new-r-1 has no node yet"},
		{"demo-e-0?node=node-9", 500, "no instance manager runs on node-9"},
		{"demo-e-0?tail=0", 500, `tail="0" is not a number of lines`},
		{"demo-e-0?tail=x", 500, `tail="x" is not a number of lines`},
		{"demo-e-0?follow=yes", 500, `follow="yes" is neither true nor false`},
		{"..%2fdemo", 404, "404 page not found"},
	} {
		a := f.Do(http.MethodGet, "/v1/instancelogs/"+row.path, "")
		if a.Status != row.status || row.status == 200 && a.Text != row.text ||
			!strings.Contains(a.Text, strings.ReplaceAll(row.text, `"`, `\"`)) && row.status != 200 {
			t.Errorf("%s: %d %s", row.path, a.Status, a.Text)
		}
	}
	if a := f.Do(http.MethodPost, "/v1/instancelogs/demo-e-0", ""); a.Status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", a.Status)
	}
	without := newFixture(t, resttest.Volume("demo")...)
	without.Refused(without.Do(http.MethodGet, "/v1/instancelogs/demo-e-0", ""), http.StatusInternalServerError,
		"no way to instance managers")
}

func awaitStopped(t *testing.T, m *resttest.Instances, name string) {
	t.Helper()
	watch := m.Watch()
	defer watch.Cancel()
	for {
		p, err := m.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.State == process.Stopped {
			return
		}
		<-watch.C
	}
}

// TestInstanceLogFollows: lines come as they are printed; when the instance manager is lost the
// trailer says so; the same log without following ends.
func TestInstanceLogFollows(t *testing.T) {
	f, instances := logFixture(t)
	instances.Run(t, "demo-e-0",
		`trap 'echo hangup' HUP; trap 'echo bye; exit' INT; echo ready; while :; do sleep 0.01; done`)
	open := func() (*http.Response, *bufio.Scanner) {
		t.Helper()
		resp, err := http.Get(f.URL + "/v1/instancelogs/demo-e-0?follow=true")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp, bufio.NewScanner(resp.Body)
	}
	first, lines := open()
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("%q %v", lines.Text(), lines.Err())
	}
	if _, err := instances.Delete("demo-e-0", ""); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "bye" || lines.Scan() || lines.Err() != nil ||
		first.Trailer.Get(resource.HeaderLogError) != "" {
		t.Fatalf("at the end: %q %v, trailer %v", lines.Text(), lines.Err(), first.Trailer)
	}
	awaitGone(t, instances, "demo-e-0")
	instances.Run(t, "demo-e-0", `echo again; exec sleep 1000`)
	second, lines := open()
	for _, want := range []string{"ready", "bye", "again"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
	}
	instances.Stop()
	if lines.Scan() || lines.Err() != nil ||
		!strings.Contains(second.Trailer.Get(resource.HeaderLogError), "ProcessLog demo-e-0") {
		t.Errorf("a lost instance manager: %q %v, trailer %v", lines.Text(), lines.Err(), second.Trailer)
	}
}

func awaitGone(t *testing.T, m *resttest.Instances, name string) {
	t.Helper()
	watch := m.Watch()
	defer watch.Cancel()
	for {
		if _, err := m.Get(name); err != nil {
			return
		}
		<-watch.C
	}
}
