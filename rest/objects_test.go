package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
)

func managerPod(node, ip string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: resttest.Meta("longhorn-manager-" + node), Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{PodIP: ip}}
	p.Labels = map[string]string{"app": "longhorn-manager"}
	return p
}

func TestNodes(t *testing.T) {
	f := newFixture(t, resttest.Cluster(managerPod("node-1", "127.0.1.1"))...)
	list := f.Get("/v1/nodes")["data"].([]any)
	if len(list) != 3 || list[0].(map[string]any)["id"] != "node-1" {
		t.Fatalf("nodes: %v", list)
	}
	n := f.Get("/v1/nodes/node-1")
	if n["address"] != "127.0.1.1" || n["actions"].(map[string]any)["diskUpdate"] != f.URL+
		"/v1/nodes/node-1?action=diskUpdate" {
		t.Errorf("node: %v", n)
	}
	disk := n["disks"].(map[string]any)["disk-1"].(map[string]any)
	if disk["storageMaximum"] != float64(100<<30) || disk["diskUUID"] != "uuid-node-1" || disk["scheduledReplica"] != nil {
		t.Errorf("disk: %v", disk)
	}
	if _, has := disk["healthData"]; has {
		t.Error("health data that was never collected is shown")
	}
	f.Refused(f.Do("GET", "/v1/nodes/node-9", ""), 404, "failed to get node node-9")
}

// PUT takes over everything it controls; what the body leaves out is reset.
func TestUpdateNode(t *testing.T) {
	f := newFixture(t, resttest.Cluster()...)
	a := f.Do("PUT", "/v1/nodes/node-1",
		`{"allowScheduling":false,"evictionRequested":true,"tags":["b","a","b"],"disks":{},"engineManagerCPURequest":150}`)
	if a.Status != 200 || fmt.Sprint(a.JSON["tags"]) != "[a b]" || a.JSON["evictionRequested"] != true ||
		len(a.JSON["disks"].(map[string]any)) != 1 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	if a := f.Do("PUT", "/v1/nodes/node-1", `{"allowScheduling":true}`); fmt.Sprint(a.JSON["tags"]) != "[]" ||
		a.JSON["evictionRequested"] != false {
		t.Errorf("what was left out is kept: %s", a.Text)
	}
	var n lh.Node
	f.Read("node-1", &n)
	if n.Spec.EngineManagerCPURequest != 150 {
		t.Errorf("the older CPU request is %d", n.Spec.EngineManagerCPURequest)
	}
	f.Refused(f.Do("PUT", "/v1/nodes/node-1", `{"allowScheduling":true,"evictionRequested":true}`), 500,
		"need to disable scheduling on node node-1 for node eviction")
	f.Refused(f.Do("PUT", "/v1/nodes/node-1", `{"tags":["a b","-"]}`), 500,
		"at least one error encountered while validating tags")
	f.Refused(f.Do("PUT", "/v1/nodes/node-9", `{}`), 404, "not found")
}

func TestUpdateDisks(t *testing.T) {
	f := newFixture(t, resttest.Cluster()...)
	post := func(body string) apitest.Answer { return f.Do("POST", "/v1/nodes/node-1?action=diskUpdate", body) }
	// Clients send back what they read, with figures that are not theirs to change.
	a := post(
		`{"disks":{"disk-1":{"path":"/var/lib/longhorn","allowScheduling":false,"storageReserved":1024,"tags":["b","a"],"storageMaximum":5,"conditions":{}}}}`)
	if a.Status != 200 {
		t.Fatal(a.Text)
	}
	disk := a.JSON["disks"].(map[string]any)["disk-1"].(map[string]any)
	if disk["diskType"] != "filesystem" || disk["storageReserved"] != 1024.0 || fmt.Sprint(disk["tags"]) != "[a b]" ||
		disk["storageMaximum"] != float64(100<<30) {
		t.Errorf("disk: %v", disk)
	}
	const kept = `"disk-1":{"path":"/var/lib/longhorn"}`
	if a := post(`{"disks":{` + kept + `}}`); a.Status != 200 ||
		a.JSON["disks"].(map[string]any)["disk-1"].(map[string]any)["storageReserved"] != 0.0 {
		t.Errorf("nothing is to be reserved: %s", a.Text)
	}
	for _, c := range []struct{ body, message string }{
		{`{"disks":{` + kept + `,"d2":{"path":"/var/lib/longhorn/"}}}`, "duplicate disk paths on node node-1"},
		{`{"disks":{` + kept + `,"d2":{"path":"relative"}}}`, "give an absolute path"},
		{`{"disks":{` + kept + `,"d2":{"path":"/d2","storageReserved":-1}}}`,
			"storageReserved setting of disk d2 is not valid"},
		{`{"disks":{` + kept + `,"d2":{"path":"/d2","allowScheduling":true,"evictionRequested":true}}}`,
			"need to disable scheduling on disk d2"},
		{`{"disks":{` + kept + `,"d2":{"path":"/d2","diskType":"block"}}}`, "only \"filesystem\" is supported"},
		{`{"disks":{` + kept + `,"d2":{"path":"/d2","tags":["a b"]}}}`, "while validating tags"},
		{`{"disks":[]}`, "disks is a list; write a set of fields"},
	} {
		f.Refused(post(c.body), 500, c.message)
	}
	if a := post(`{"disks":{}}`); a.Status != 200 {
		t.Errorf("removing a disk that is switched off and empty: %s", a.Text)
	}
	f.Refused(post(`{"disks":{"d2":{"path":"/d2"}}}`), 500, "being syncing and please retry later")
	if a := post(`{"disks":{}}`); a.Status != 200 {
		t.Errorf("the disks that there are: %s", a.Text)
	}
	g := newFixture(t, resttest.Cluster()...)
	g.Refused(g.Do("POST", "/v1/nodes/node-1?action=diskUpdate", `{"disks":{}}`), 500,
		"Please disable the disk disk-1 first and remove all replicas and backing images first")
}

func TestDeleteNode(t *testing.T) {
	gone := resttest.DownNode("node-4")
	gone.Status.Conditions[0].Reason, gone.Spec.AllowScheduling = lh.NodeReasonKubernetesNodeGone, false
	f := newFixture(t, resttest.Cluster(append(resttest.Volume("demo"), gone)...)...)
	f.Refused(f.Do("DELETE", "/v1/nodes/node-1", ""), 500, "could not delete node node-1")
	f.Refused(f.Do("DELETE", "/v1/nodes/node-3", ""), 500, "could not delete node node-3")
	f.Refused(f.Do("DELETE", "/v1/nodes/node-9", ""), 404, "not found")
	if a := f.Do("DELETE", "/v1/nodes/node-4", ""); a.Status != 200 {
		t.Error(a.Text)
	}
}

func TestTags(t *testing.T) {
	f := newFixture(t, resttest.Cluster()...)
	for path, want := range map[string][2]string{"/v1/disktags": {"ssd", "disk"}, "/v1/nodetags": {"fast", "node"}} {
		data := f.Get(path)["data"].([]any)
		if len(data) != 1 {
			t.Fatalf("%s: %v", path, data)
		}
		tag := data[0].(map[string]any)
		if tag["name"] != want[0] || tag["tagType"] != want[1] || tag["type"] != "tag" ||
			tag["links"].(map[string]any)["self"] != f.URL+path {
			t.Errorf("%s: %v", path, tag)
		}
	}
}

func TestSettings(t *testing.T) {
	f := newFixture(t)
	list := f.Get("/v1/settings")["data"].([]any)
	if len(list) != len(setting.Definitions()) || len(list) < 80 {
		t.Fatalf("%d settings, the table has %d", len(list), len(setting.Definitions()))
	}
	previous := ""
	for _, raw := range list {
		s := raw.(map[string]any)
		if name := s["name"].(string); name <= previous {
			t.Errorf("%s comes after %s", name, previous)
		} else {
			previous = name
		}
	}
	s := f.Get("/v1/settings/default-replica-count")
	definition := s["definition"].(map[string]any)
	if s["value"] != `{"v1":"3","v2":"3"}` || s["applied"] != true || definition["dataEngineSpecific"] != true ||
		fmt.Sprint(definition["range"]) != "map[maximum:20 minimum:1]" {
		t.Errorf("setting: %v", s)
	}
	if options := f.Get("/v1/settings/default-backup-block-size")["definition"].(map[string]any)["options"]; fmt.Sprint(
		options) != "[2 16]" {
		t.Errorf("options of a number: %#v", options)
	}
	if a := f.Do("PUT", "/v1/settings/default-replica-count",
		`{"Value":" 2 ","definition":{"x":[1]}}`); a.Status != 200 || a.JSON["value"] != `{"v1":"2","v2":"2"}` {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if a := f.Do("PUT", "/v1/settings/default-replica-count",
		`{"value":"{\"v1\":\"2\",\"v2\":\"2\"}"}`); a.Status != 200 || a.JSON["value"] != `{"v1":"2","v2":"2"}` {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if a := f.Do("PUT", "/v1/settings/v2-data-engine", `{"value":"true"}`); a.Status < 400 ||
		!strings.Contains(a.Text, "which this system does not have") {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if a := f.Do("PUT", "/v1/settings/auto-salvage", `{"value":"FALSE"}`); a.Status != 200 || a.JSON["value"] != "false" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
}

func TestBadSettings(t *testing.T) {
	f := newFixture(t)
	f.Refused(f.Do("GET", "/v1/settings/nope", ""), 500, "failed to get setting nope: setting nope is not supported")
	f.Refused(f.Do("GET", "/v1/settings/backup-target", ""), 500, "setting backup-target is not supported")
	for name, c := range map[string][2]string{
		"nope":                            {`{"value":"1"}`, "setting nope is not supported"},
		"default-replica-count":           {`{"value":"0"}`, "should be greater than or equal to 1"},
		"guaranteed-instance-manager-cpu": {`{"value":"41"}`, "should be less than or equal to 40"},
		"default-data-path":               {`{"value":""}`, "required setting default-data-path shouldn't be empty"},
		"log-level": {`{"value":"loud"}`,
			"failed to validate setting log-level with invalid value loud: value loud of settings log-level is invalid"},
		"auto-salvage":             {`{"value":true}`, "value is true or false; write a string"},
		"current-longhorn-version": {`{"value":"v9"}`, "setting current-longhorn-version is read-only"},
		"taint-toleration":         {`{"value":"a=b:Never"}`, "invalid effect"},
		"storage-network":          {`{"value":"x"}`, "must be in <NAMESPACE>/<NETWORK-ATTACHMENT-DEFINITION> format"},
		"priority-class":           {`{}`, "the body has no value"},
	} {
		f.Refused(f.Do("PUT", "/v1/settings/"+name, c[0]), 500, c[1])
	}
	var stored lh.SettingList
	if err := f.Client.List(context.Background(), &stored); err != nil || len(stored.Items) != 0 {
		t.Errorf("%d settings were stored, %v", len(stored.Items), err)
	}
}

func TestEngineImages(t *testing.T) {
	used := resttest.DeployedImage("node-1")
	used.Name, used.Spec.Image, used.Status.RefCount = "ei-used", "other:1", 2
	f := newFixture(t, resttest.Cluster(used)...)
	e := f.Get("/v1/engineimages/" + resttest.DeployedImage().Name)
	if e["default"] != true || e["state"] != "deployed" || e["nodeDeploymentMap"].(map[string]any)["node-1"] != true ||
		e["conditions"] == nil {
		t.Errorf("image: %v", e)
	}
	a := f.Do("POST", "/v1/engineimages", `{"image":" new:2 "}`)
	if a.Status != 200 || a.JSON["image"] != "new:2" || !strings.HasPrefix(a.JSON["id"].(string), "ei-") {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	f.Refused(f.Do("POST", "/v1/engineimages", `{"image":"new:2"}`), 500, "already exists")
	f.Refused(f.Do("POST", "/v1/engineimages", `{"image":""}`), 500, "give an image reference")
	f.Refused(f.Do("DELETE", "/v1/engineimages/"+resttest.DeployedImage().Name, ""), 500,
		"deleting the default engine image "+resttest.DeployedImage().Name+" (ankole/engine:dev) is not allowed")
	f.Refused(f.Do("DELETE", "/v1/engineimages/ei-used", ""), 500, "not allowed while being used")
	for range 2 {
		if a := f.Do("DELETE", "/v1/engineimages/"+a.JSON["id"].(string), ""); a.Status != 200 {
			t.Error(a.Text)
		}
	}
}

func TestInstanceManagers(t *testing.T) {
	im := &lh.InstanceManager{ObjectMeta: resttest.Meta("instance-manager-1"),
		Spec: lh.InstanceManagerSpec{NodeID: "node-1", Type: lh.InstanceManagerTypeAllInOne},
		Status: lh.InstanceManagerStatus{CurrentState: lh.InstanceManagerStateRunning,
			InstanceEngines: map[string]lh.InstanceProcess{
				"demo-e-0": {Spec: lh.InstanceProcessSpec{Name: "demo-e-0"},
					Status: lh.InstanceProcessStatus{State: lh.InstanceStateRunning, PortStart: 10000, Type: lh.InstanceTypeEngine}}}}}
	f := newFixture(t, im)
	got := f.Get("/v1/instancemanagers/instance-manager-1")
	p := got["instanceEngines"].(map[string]any)["demo-e-0"].(map[string]any)["status"].(map[string]any)
	if got["managerType"] != "aio" || got["instances"] != nil || p["state"] != "running" || p["type"] != "engine" ||
		p["portStart"] != 10000.0 {
		t.Errorf("instance manager: %v", got)
	}
	if n := len(f.Get("/v1/instancemanagers")["data"].([]any)); n != 1 {
		t.Errorf("%d instance managers", n)
	}
}

// Orphans are listed and shown as they are; deleting one deletes the object, which takes along what
// it stands for.
func TestOrphans(t *testing.T) {
	o := &lh.Orphan{ObjectMeta: resttest.Meta("orphan-1"), Spec: lh.OrphanSpec{NodeID: "node-1", DataEngine: "v1",
		OrphanType: lh.OrphanTypeEngineInstance, Parameters: map[string]string{lh.OrphanParameterInstanceName: "v-e-0"}}}
	f := newFixture(t, o)
	got := f.Get("/v1/orphans/orphan-1")
	if got["name"] != "orphan-1" || got["type"] != "orphan" || got["nodeID"] != "node-1" || got["dataEngine"] != "v1" ||
		got["orphanType"] != "engine-instance" || got["parameters"].(map[string]any)["InstanceName"] != "v-e-0" {
		t.Errorf("orphan: %v", got)
	}
	if n := len(f.Get("/v1/orphans")["data"].([]any)); n != 1 {
		t.Errorf("%d orphans", n)
	}
	if a := f.Do("DELETE", "/v1/orphans/orphan-1", ""); a.Status != 200 || a.Text != "" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	f.Refused(f.Do("DELETE", "/v1/orphans/orphan-1", ""), 404, "failed to delete orphan orphan-1")
	f.Refused(f.Do("GET", "/v1/orphans/orphan-1", ""), 404, "failed to get orphan orphan-1")
	if n := len(f.Get("/v1/orphans")["data"].([]any)); n != 0 {
		t.Errorf("%d orphans are left", n)
	}
}

func TestVolumeAttachments(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	a := f.Get("/v1/volumeattachments/demo")
	if a["id"] != "demo" || a["volume"] != "demo" || a["attachments"] == nil ||
		a["links"].(map[string]any)["self"] != f.URL+"/v1/volumeattachments/demo" {
		t.Errorf("attachment: %v", a)
	}
	if n := len(f.Get("/v1/volumeattachments")["data"].([]any)); n != 1 {
		t.Errorf("%d attachments", n)
	}
}

func TestEvents(t *testing.T) {
	ours := &corev1.Event{ObjectMeta: resttest.Meta("e1"), Type: "Warning", Reason: "Faulted",
		InvolvedObject: corev1.ObjectReference{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: "demo"}}
	other := &corev1.Event{ObjectMeta: resttest.Meta("e2"),
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: "x"}}
	data := newFixture(t, ours, other).Get("/v1/events")["data"].([]any)
	if len(data) != 1 {
		t.Fatalf("events: %v", data)
	}
	e := data[0].(map[string]any)
	if e["id"] != "e1" || e["eventType"] != "Warning" || e["event"].(map[string]any)["reason"] != "Faulted" {
		t.Errorf("event: %v", e)
	}
}

// TestMetrics: the path is served by what the manager gives, whoever asks, by every manager itself;
// package metrics has the rest.
func TestMetrics(t *testing.T) {
	f := newFixtureWith(t, interceptor.Funcs{}, func(c *rest.Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "seen 7\n") })
		c.Leader = func(*http.Request) *serve.Target { t.Error("a scrape is sent to the leader"); return nil }
	}, resttest.Cluster()...)
	if a := f.Do("GET", "/metrics", ""); a.Status != 200 || a.Text != "seen 7\n" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	f = newFixture(t, resttest.Cluster()...)
	if a := f.Do("GET", "/metrics", ""); a.Status != 404 {
		t.Errorf("without metrics: %d", a.Status)
	}
}

func TestStreams(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	for name := range apitest.Tables().Streams {
		var first map[string]any
		if err := f.Follow("/v1/ws/1s/" + name).ReadJSON(&first); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if first["type"] != "collection" || first["resourceType"] == "" || first["data"] == nil {
			t.Errorf("%s: %v", name, first)
		}
	}
	conn := f.Follow("/v1/ws/volumes")
	var list map[string]any
	if err := conn.ReadJSON(&list); err != nil {
		t.Fatal(err)
	}
	var v lh.Volume
	f.Read("demo", &v)
	v.Spec.NumberOfReplicas = 2
	if err := f.Client.Update(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	if err := conn.ReadJSON(&list); err != nil {
		t.Fatal(err)
	}
	// The whole list comes again, and only because it differs.
	if got := list["data"].([]any)[0].(map[string]any)["numberOfReplicas"]; got != 2.0 {
		t.Errorf("second message: %v", got)
	}
	_ = conn.SetReadDeadline(time.Now().Add(3 * time.Second))
	if _, text, err := conn.ReadMessage(); err == nil {
		t.Errorf("a message without a change: %s", text)
	}
}

// A write that meets another one is done again on what the other one wrote.
func TestConflictsAreRetried(t *testing.T) {
	conflicts := 2
	f := newFixtureWith(t,
		interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object,
			opts ...client.UpdateOption) error {
			if conflicts > 0 {
				conflicts--
				other := o.DeepCopyObject().(client.Object)
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), other); err != nil {
					return err
				}
				other.SetLabels(map[string]string{"other": "writer"})
				if err := c.Update(ctx, other); err != nil {
					return err
				}
			}
			return c.Update(ctx, o, opts...)
		}}, func(*rest.Config) {}, resttest.Cluster(resttest.Volume("demo")...)...)
	if a := f.Do("POST", "/v1/volumes/demo?action=attach", `{"hostId":"node-1"}`); a.Status != 200 {
		t.Fatal(a.Text)
	}
	var a lh.VolumeAttachment
	f.Read("demo", &a)
	if a.Labels["other"] != "writer" || len(a.Spec.AttachmentTickets) != 1 || conflicts != 0 {
		t.Errorf("labels %v, tickets %v", a.Labels, a.Spec.AttachmentTickets)
	}
}
