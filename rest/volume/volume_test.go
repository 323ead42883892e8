package volume_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
)

func TestVolumeView(t *testing.T) {
	objects := resttest.Cluster(resttest.Volume("demo")...)
	f := newFixture(t, objects...)
	v := f.Get("/v1/volumes/demo")
	for key, want := range map[string]any{"id": "demo", "type": "volume", "name": "demo", "size": "1073741824",
		"state":      "detached",
		"robustness": "unknown", "created": "2026-05-03 09:57:48 +0000 UTC", "numberOfReplicas": 1.0, "ready": true,
		"notReadyMessage": "", "snapshotMaxSize": "0", "purgeStatus": nil} {
		if v[key] != want {
			t.Errorf("%s = %#v, want %#v", key, v[key], want)
		}
	}
	for _, key := range []string{"replicas", "controllers", "backupStatus", "restoreStatus", "rebuildStatus",
		"diskSelector"} {
		if _, ok := v[key].([]any); !ok {
			t.Errorf("%s = %#v, want a list", key, v[key])
		}
	}
	r := v["replicas"].([]any)[0].(map[string]any)
	if r["dataPath"] != "/var/lib/longhorn/replicas/demo-22222222" || r["hostId"] != "node-1" || r["mode"] != "" {
		t.Errorf("replica: %v", r)
	}
	actions := v["actions"].(map[string]any)
	if len(actions) != 35 || actions["snapshotBackup"] == nil || actions["updateReplicaCount"] != nil ||
		actions["attach"] != f.URL+"/v1/volumes/demo?action=attach" {
		t.Errorf("actions: %v", actions)
	}
	list := f.Get("/v1/volumes")
	if list["createTypes"].(map[string]any)["volume"] != f.URL+"/v1/volumes" || list["resourceType"] != "volume" {
		t.Errorf("list: %v", list)
	}
}

func TestAttachedVolumeView(t *testing.T) {
	objects := resttest.Volume("demo")
	v, e := objects[0].(*lh.Volume), objects[1].(*lh.Engine)
	v.Spec.NodeID, v.Status.CurrentNodeID = "node-1", "node-1"
	v.Status.State, v.Status.Robustness = lh.VolumeStateAttached, lh.VolumeRobustnessDegraded
	e.Spec.NodeID = "node-1"
	e.Spec.ReplicaAddressMap = map[string]string{"demo-r-11111111": "127.0.1.1:10000"}
	e.Status = lh.EngineStatus{Endpoint: "/dev/longhorn/demo", CurrentSize: 1 << 30,
		InstanceStatus: lh.InstanceStatus{CurrentState: lh.InstanceStateRunning, IP: "127.0.1.1"},
		ReplicaModeMap: map[string]lh.ReplicaMode{"demo-r-11111111": lh.ReplicaModeRW},
		Snapshots:      map[string]lh.SnapshotInfo{"volume-head": {Size: "4096"}, "s1": {Size: "8192"}},
		RebuildStatus: map[string]lh.RebuildStatus{"tcp://127.0.1.2:10010": {IsRebuilding: true, Progress: 42,
			State:                  "in_progress",
			FromReplicaAddressList: []string{"tcp://127.0.1.1:10000"}}}}
	f := newFixture(t, resttest.Cluster(objects...)...)
	got := f.Get("/v1/volumes/demo")
	c := got["controllers"].([]any)[0].(map[string]any)
	if c["endpoint"] != "/dev/longhorn/demo" || c["running"] != true || c["actualSize"] != "12288" ||
		c["size"] != "1073741824" {
		t.Errorf("controller: %v", c)
	}
	if r := got["replicas"].([]any)[0].(map[string]any); r["mode"] != "RW" {
		t.Errorf("replica: %v", r)
	}
	rebuild := got["rebuildStatus"].([]any)[0].(map[string]any)
	if rebuild["progress"] != 42.0 || rebuild["replica"] != "127.0.1.2:10010" ||
		fmt.Sprint(rebuild["fromReplicaList"]) != "[demo-r-11111111]" {
		t.Errorf("rebuild: %v", rebuild)
	}
}

func TestCreateVolume(t *testing.T) {
	f := newFixture(t, resttest.Cluster()...)
	a := f.Do("POST", "/v1/volumes",
		`{"Name":"Demo","size":"20Gi","numberOfReplicas":2,"diskSelector":["ssd"],"nodeSelector":["fast"],
		"recurringJobSelector":[{"name":"daily","isGroup":false},{"name":"gold","isGroup":true}],"retries":7}`)
	if a.Status != 200 || a.JSON["id"] != "demo" || a.JSON["state"] != "creating" || a.JSON["size"] != "21474836480" ||
		a.JSON["frontend"] != "blockdev" {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	var v lh.Volume
	f.Read("demo", &v)
	if v.Labels["recurring-job.longhorn.io/daily"] != "enabled" ||
		v.Labels["recurring-job-group.longhorn.io/gold"] != "enabled" {
		t.Errorf("labels: %v", v.Labels)
	}
	f.Refused(f.Do("POST", "/v1/volumes", `{"name":"demo","size":"1Gi"}`), 500, "already exists")
	long := strings.Repeat("x", 60)
	if a := f.Do("POST", "/v1/volumes", `{"name":"`+long+`","size":"1Gi"}`); len(a.JSON["id"].(string)) != 40 {
		t.Errorf("a long name becomes %v", a.JSON["id"])
	}
}

// TestLongNamesOfVolumes: who asks by the long name that a volume was created with finds it.
func TestLongNamesOfVolumes(t *testing.T) {
	f := newFixture(t, resttest.Cluster()...)
	long := strings.Repeat("x", 200)
	made := f.Do("POST", "/v1/volumes", `{"name":"`+long+`","size":"1Gi"}`).JSON["id"]
	if got := f.Get("/v1/volumes/" + long)["id"]; got != made {
		t.Errorf("made %v, found %v", made, got)
	}
	f.Refused(f.Do("POST", "/v1/volumes", `{"name":"`+long+`","size":"1Gi"}`), 500, "already exists")
	if a := f.Do("GET", "/v1/volumes/y"+long, ""); a.Status != 404 {
		t.Errorf("one that was not made: %d", a.Status)
	}
}

// TestVolumesWithoutASize have the size that sizes are multiples of.
func TestVolumesWithoutASize(t *testing.T) {
	f := newFixture(t, resttest.Cluster()...)
	for i, field := range []string{"", `"size":"",`, `"size":"0",`, `"size":"0Gi",`} {
		a := f.Do("POST", "/v1/volumes", fmt.Sprintf(`{%s"name":"small-%d"}`, field, i))
		if a.Status != 200 || a.JSON["size"] != "2097152" {
			t.Errorf("%q: %d %s", field, a.Status, a.Text)
		}
	}
}

func TestBadVolumesAreRefused(t *testing.T) {
	f := newFixture(t, resttest.Cluster()...)
	for _, c := range []struct{ fields, message string }{
		{`"size":"-1"`, "must not be negative"},
		{`"size":"-20Gi"`, "must not be negative"},
		{`"size":"NaN"`, "failed to parse size"},
		{`"size":"1e400"`, "failed to parse size"},
		{`"size":"9223372036854775807"`, "larger than a volume can be"},
		{`"size":"100000000Ei"`, "larger than a volume can be"},
		{`"size":"twenty"`, "failed to parse size"},
		{`"size":"1Gi","numberOfReplicas":-1`, "must between 1 to 20"},
		{`"size":"1Gi","diskSelector":["nvme"]`, "specified disk tag nvme does not exist"},
		{`"size":"1Gi","nodeSelector":["big"]`, "specified node tag big does not exist"},
		{`"size":"1Gi","standby":true,"frontend":"blockdev"`, "failed to set frontend for standby volume"},
		{`"size":"1Gi","standby":true`, "failed to create standby volume demo without field FromBackup"},
		{`"size":"100Pi"`, "can never be placed: the largest that any disk could hold is"},
		{`"size":"1Gi","dataLocality":"near"`, "invalid data locality mode"},
		{`"size":"1Gi","accessMode":"rw"`, "invalid access mode"},
		{`"size":"1Gi","frontend":"nvmf"`, "invalid volume frontend specified"},
		{`"size":"1Gi","frontend":"iscsi"`, "this version has no iSCSI target"},
		{`"size":"1Gi","replicaSoftAntiAffinity":"true"`, "invalid replica soft anti-affinity option"},
		{`"size":"1Gi","dataEngine":"v2"`, "invalid data engine"},
		{`"size":"1Gi","snapshotMaxSize":"x"`, "failed to parse size"},
	} {
		f.Refused(f.Do("POST", "/v1/volumes", `{"name":"demo",`+c.fields+`}`), 500, c.message)
	}
	for _, name := range []string{"", "a", "-demo", "demo-", "de.mo", "de_mo", "dé-mo", "../etc", "demo demo"} {
		f.Refused(f.Do("POST", "/v1/volumes", fmt.Sprintf(`{"name":%q,"size":"1Gi"}`, name)), 500,
			"failed to create volume: unable to create volume "+name)
	}
	if n := len(f.Get("/v1/volumes")["data"].([]any)); n != 0 {
		t.Errorf("%d volumes exist", n)
	}
}

// A denial by a webhook reaches the client with its text and status 500.
func TestDenialsArePassedOn(t *testing.T) {
	denial := apierrors.NewForbidden(lh.GroupVersion.WithResource("volumes").GroupResource(), "demo", errors.New("no"))
	denial.ErrStatus.Message =
		`admission webhook "validator.longhorn.io" denied the request: replica count 21 must between 1 to 20`
	f := newFixtureWith(t,
		interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return denial
		}}, func(*rest.Config) {})
	f.Refused(f.Do("POST", "/v1/volumes", `{"name":"demo","size":"1Gi"}`), 500,
		`failed to create volume: unable to create volume demo: admission webhook "validator.longhorn.io" denied the request: replica count 21`)
}

func TestDeleteVolume(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	if a := f.Do("DELETE", "/v1/volumes/demo?action=anything", ""); a.Status != 200 || a.Text != "" {
		t.Errorf("%d %q", a.Status, a.Text)
	}
	f.Refused(f.Do("DELETE", "/v1/volumes/demo", ""), 404, "failed to delete volume demo")
}

// TestDeleteVolumeWithSnapshots: who deletes a volume is told which snapshots that VolumeSnapshots
// stand on are lost with it.
func TestDeleteVolumeWithSnapshots(t *testing.T) {
	objects := resttest.Cluster(resttest.Volume("demo")...)
	for name, labels := range map[string]map[string]string{"mine": nil, "ordered": naming.OrderedByCSI()} {
		s := &lh.Snapshot{ObjectMeta: resttest.Meta(name), Spec: lh.SnapshotSpec{Volume: "demo", Labels: labels}}
		s.Labels = naming.VolumeLabels("demo")
		objects = append(objects, s)
	}
	f := newFixture(t, objects...)
	want := `299 - "with volume demo go snapshots that VolumeSnapshots stand on: ordered"`
	if a := f.Do("DELETE", "/v1/volumes/demo", ""); a.Status != 200 || a.Header.Get("Warning") != want {
		t.Errorf("%d %q", a.Status, a.Header.Get("Warning"))
	}
}

// TestDeleteVolumeAt: who names the version that it has judged deletes that one and no later one.
func TestDeleteVolumeAt(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	version := func() string {
		v, _ := f.Do("GET", "/v1/volumes/demo", "").JSON["resourceVersion"].(string)
		return v
	}
	before := version()
	if a := f.Do("POST", "/v1/volumes/demo?action=updateReplicaSoftAntiAffinity",
		`{"replicaSoftAntiAffinity":"enabled"}`); a.Status != 200 {
		t.Fatal(a.Text)
	}
	f.Refused(f.Do("DELETE", "/v1/volumes/demo?resourceVersion="+before, ""), 409,
		"failed to delete volume demo: it has changed since version "+before)
	if a := f.Do("DELETE", "/v1/volumes/demo?resourceVersion="+version(), ""); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
}

func TestAttachAndDetach(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	attach := func(body string) apitest.Answer { return f.Do("POST", "/v1/volumes/demo?action=attach", body) }
	a := attach(`{"hostId":"node-1","attachedBy":"me"}`)
	if a.Status != 200 || a.JSON["id"] != "demo" {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	ticket := a.JSON["volumeAttachment"].(map[string]any)["attachments"].(map[string]any)[""].(map[string]any)
	if ticket["attachmentType"] != "longhorn-api" || ticket["nodeID"] != "node-1" || ticket["satisfied"] != false ||
		fmt.Sprint(ticket["parameters"]) != "map[disableFrontend:false lastAttachedBy:me]" {
		t.Errorf("ticket: %v", ticket)
	}
	var before, after lh.VolumeAttachment
	f.Read("demo", &before)
	if a := attach(`{"hostId":"node-1"}`); a.Status != 200 {
		t.Errorf("attaching again: %s", a.Text)
	}
	f.Refused(attach(`{"hostId":"node-2"}`), 500,
		"unable to attach volume demo to node-2: the volume is already attached to node node-1")
	f.Read("demo", &after)
	if after.ResourceVersion != before.ResourceVersion {
		t.Error("attaching again, or elsewhere, changed the tickets")
	}
	if a := attach(
		`{"hostId":"node-2","attachmentID":"csi-1","attacherType":"csi-attacher","disableFrontend":true}`); a.Status != 200 {
		t.Errorf("a second ticket: %s", a.Text)
	}
	if a := f.Do("POST", "/v1/volumes/demo?action=detach", `{"attachmentID":"unknown"}`); a.Status != 200 {
		t.Errorf("unknown ticket: %s", a.Text)
	}
	if a := f.Do("POST", "/v1/volumes/demo?action=detach", ``); a.Status != 200 {
		t.Errorf("no body: %s", a.Text)
	}
	f.Read("demo", &after)
	if len(after.Spec.AttachmentTickets) != 1 || after.Spec.AttachmentTickets["csi-1"].NodeID != "node-2" {
		t.Errorf("tickets: %v", after.Spec.AttachmentTickets)
	}
	if a := f.Do("POST", "/v1/volumes/demo?action=detach", `{"forceDetach":true}`); a.Status != 200 {
		t.Errorf("force: %s", a.Text)
	}
	f.Read("demo", &after)
	if len(after.Spec.AttachmentTickets) != 0 {
		t.Errorf("tickets: %v", after.Spec.AttachmentTickets)
	}
}

// A new ticket with the id of an old one must not be taken for satisfied because the old one was.
func TestTicketGenerations(t *testing.T) {
	objects := resttest.Volume("demo")
	objects[3].(*lh.VolumeAttachment).Status.AttachmentTicketStatuses = map[string]lh.AttachmentTicketStatus{
		"": {Generation: 4, Satisfied: true}}
	f := newFixture(t, resttest.Cluster(objects...)...)
	a := f.Do("POST", "/v1/volumes/demo?action=attach", `{"hostId":"node-1"}`)
	ticket := a.JSON["volumeAttachment"].(map[string]any)["attachments"].(map[string]any)[""].(map[string]any)
	var va lh.VolumeAttachment
	f.Read("demo", &va)
	if va.Spec.AttachmentTickets[""].Generation != 5 || ticket["satisfied"] != false {
		t.Errorf("generation %d, shown as %v", va.Spec.AttachmentTickets[""].Generation, ticket)
	}
}

func TestBadAttachesAreRefused(t *testing.T) {
	change := func(edit func(v *lh.Volume, r *lh.Replica)) []client.Object {
		objects := resttest.Volume("demo")
		edit(objects[0].(*lh.Volume), objects[2].(*lh.Replica))
		return resttest.Cluster(objects...)
	}
	nothing := func(*lh.Volume, *lh.Replica) {}
	for _, c := range []struct {
		name    string
		edit    func(*lh.Volume, *lh.Replica)
		body    string
		status  int
		message string
	}{
		{"no node", nothing, `{}`, 500, "no node given"},
		{"unknown node", nothing, `{"hostId":"node-9"}`, 404, `"node-9" not found`},
		{"node down", nothing, `{"hostId":"node-3"}`, 500, "node node-3 is not ready (KubernetesNodeNotReady"},
		{"no body", nothing, ``, 500, "EOF"},
		{"not scheduled", func(_ *lh.Volume, r *lh.Replica) {
			r.Spec.NodeID = ""
		}, `{"hostId":"node-1"}`, 500, "no replica of the volume is scheduled"},
		{"image unknown", func(v *lh.Volume, _ *lh.Replica) {
			v.Spec.Image = "other:1"
		}, `{"hostId":"node-1"}`, 500, "does not exist"},
		{"the only copy's node is down", func(_ *lh.Volume, r *lh.Replica) {
			r.Spec.NodeID = "node-3"
		}, `{"hostId":"node-1"}`, 500, "no node with a replica of the volume is up: node-3 (KubernetesNodeNotReady)"},
		{"restoring", func(v *lh.Volume, _ *lh.Replica) {
			v.Status.Conditions = append(v.Status.Conditions,
				lh.Condition{Type: lh.VolumeConditionRestore, Status: lh.ConditionTrue})
		}, `{"hostId":"node-1"}`, 500, "is restoring data"},
		{"restore pending", func(v *lh.Volume, _ *lh.Replica) {
			v.Status.RestoreRequired = true
		}, `{"hostId":"node-1"}`, 500, "waiting to be restored"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, change(c.edit)...)
			f.Refused(f.Do("POST", "/v1/volumes/demo?action=attach", c.body), c.status, c.message)
			var va lh.VolumeAttachment
			f.Read("demo", &va)
			if len(va.Spec.AttachmentTickets) != 0 {
				t.Error("a ticket was filed")
			}
		})
	}
	f := newFixture(t, resttest.Cluster()...)
	f.Refused(f.Do("POST", "/v1/volumes/demo?action=attach", `{"hostId":"node-1"}`), 404,
		"unable to attach volume demo to node-1")
}

func TestStandbyCannotBeDetached(t *testing.T) {
	objects := resttest.Volume("demo")
	objects[0].(*lh.Volume).Status.IsStandby = true
	f := newFixture(t, resttest.Cluster(objects...)...)
	f.Refused(f.Do("POST", "/v1/volumes/demo?action=detach", `{}`), 500, "cannot detach standby volume demo")
}

func TestReadyRules(t *testing.T) {
	for _, c := range []struct {
		name  string
		edit  func(*lh.Volume, *lh.Replica)
		ready bool
	}{
		{"detached", func(*lh.Volume, *lh.Replica) {}, true},
		{"detaching", func(v *lh.Volume, _ *lh.Replica) { v.Status.State = lh.VolumeStateDetaching }, false},
		{"attached", func(v *lh.Volume, _ *lh.Replica) {
			v.Spec.NodeID, v.Status.State = "node-1", lh.VolumeStateAttached
		}, true},
		{"unscheduled", func(v *lh.Volume, r *lh.Replica) { v.Status.Conditions, r.Spec.NodeID = nil, "" }, false},
		{"unscheduled but allowed", func(_ *lh.Volume, r *lh.Replica) { r.Spec.NodeID = "" }, true},
		{"faulted", func(v *lh.Volume, _ *lh.Replica) { v.Status.Robustness = lh.VolumeRobustnessFaulted }, false},
		{"cloning", func(v *lh.Volume, _ *lh.Replica) { v.Spec.DataSource = "vol://other" }, false},
		{"cloned", func(v *lh.Volume, _ *lh.Replica) {
			v.Spec.DataSource, v.Status.CloneStatus.State = "vol://other", lh.VolumeCloneStateCopyCompletedUnhealthy
		}, true},
		{"restoring", func(v *lh.Volume, _ *lh.Replica) { v.Status.RestoreRequired = true }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects := resttest.Volume("demo")
			c.edit(objects[0].(*lh.Volume), objects[2].(*lh.Replica))
			v := newFixture(t, resttest.Cluster(objects...)...).Get("/v1/volumes/demo")
			if v["ready"] != c.ready || (v["notReadyMessage"] == "") != c.ready {
				t.Errorf("ready %v, message %q, want %t", v["ready"], v["notReadyMessage"], c.ready)
			}
		})
	}
}

func TestVolumeWithoutRoom(t *testing.T) {
	// A volume that has no room now is accepted and waits for it.
	f := newFixture(t, resttest.Cluster()...)
	if a := f.Do("POST", "/v1/volumes", `{"name":"big","size":"1Ti"}`); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
}
