package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resttest"
)

// event is one about an object of the system, seen some days ago.
func event(name, kind, object, reason, message, kindOfEvent string, count int32, days int) *corev1.Event {
	at := metav1.NewTime(resttest.Created.AddDate(0, 0, -days))
	return &corev1.Event{ObjectMeta: resttest.Meta(name), Reason: reason, Message: message, Type: kindOfEvent,
		Count:          count,
		FirstTimestamp: at, LastTimestamp: at, Source: corev1.EventSource{Component: "longhorn-volume-controller"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "longhorn.io/v1beta2", Kind: kind, Name: object,
			Namespace: lh.Namespace}}
}

// troubled is the cluster of the tables, with more that goes on and goes wrong.
func troubled() []client.Object {
	objects := append(cluster(),
		event("e1", "Volume", "busy", "Degraded", "volume busy became degraded", "Warning", 3, 1),
		event("e2", "Replica", "busy-r-11111111", "Rebuilding", "started\nrebuild", "Normal", 1, 2),
		event("e3", "Node", "node-3", "NodeNotReady", "node is down", "Warning", 1, 3),
		event("e4", "InstanceManager", "instance-manager-1", "Started", "up", "Normal", 0, 4))
	im := resttest.InstanceManager("instance-manager-1", "node-1")
	process := lh.InstanceProcess{Spec: lh.InstanceProcessSpec{Name: "busy-e-0"},
		Status: lh.InstanceProcessStatus{State: lh.InstanceStateRunning, PortStart: 10000, PortEnd: 10014}}
	im.Status.InstanceEngines = map[string]lh.InstanceProcess{"busy-e-0": process}
	im.Status.InstanceReplicas = map[string]lh.InstanceProcess{"busy-r-11111111": {Spec: lh.InstanceProcessSpec{
		Name: "busy-r-11111111"}, Status: lh.InstanceProcessStatus{State: lh.InstanceStateError, ErrorMsg: "no space"}}}
	im.Status.Conditions = []lh.Condition{{Type: lh.InstanceManagerConditionSettingSynced, Status: lh.ConditionFalse,
		Reason: "InstancesRunning", Message: "the CPU request waits for 2 instances"}}
	stopped := resttest.InstanceManager("instance-manager-2", "node-2")
	stopped.Status.CurrentState = lh.InstanceManagerStateError
	lost := resttest.InstanceManager("instance-manager-3", "node-3")
	lost.Status.CurrentState = lh.InstanceManagerStateUnknown
	for _, o := range objects {
		switch o := o.(type) {
		case *lh.Node:
			trouble(o)
		case *lh.Engine:
			if o.Spec.VolumeName == "busy" { // a replica that was rebuilt before
				o.Status.CurrentReplicaAddressMap = map[string]string{"busy-r-11111111": "127.0.1.1:10000"}
				o.Status.RebuildStatus["tcp://127.0.1.1:10000"] = lh.RebuildStatus{State: lh.ProcessStateComplete, Progress: 100}
			}
		case *lh.VolumeAttachment:
			if o.Name == "busy" {
				o.Spec.AttachmentTickets["csi-1"] = lh.AttachmentTicket{ID: "csi-1", NodeID: "node-2",
					Type: lh.AttacherTypeCSI}
				o.Status.AttachmentTicketStatuses = map[string]lh.AttachmentTicketStatus{
					"": {ID: "", Satisfied: true}, "csi-1": {ID: "csi-1", Conditions: []lh.Condition{{
						Type: lh.AttachmentConditionSatisfied, Status: lh.ConditionFalse, Message: "attached elsewhere"}}}}
			}
		case *lh.EngineImage:
			o.Status.NodeDeploymentMap["node-3"] = false
			o.Status.State = lh.EngineImageStateDeploying
			o.Status.Conditions = []lh.Condition{{Type: lh.EngineImageConditionReady, Status: lh.ConditionFalse,
				Message: "not on node-3"}}
		case *lh.Volume:
			if o.Name == "demo" {
				o.Status.Robustness = lh.VolumeRobustnessFaulted
				o.Status.Conditions = append(o.Status.Conditions, lh.Condition{Type: lh.VolumeConditionDeviceKept,
					Status: lh.ConditionTrue, Message: "its file system is still mounted on node node-1 by process x (1)"},
					lh.Condition{Type: lh.VolumeConditionNoSpace, Status: lh.ConditionTrue, Message: "no space on disk d"},
					lh.Condition{Type: "SecretPresent", Status: lh.ConditionFalse, Message: "key 20261128T184457Z of Secret longhorn-volume-keys is gone"})
				o.Status.KubernetesStatus = lh.KubernetesStatus{PVName: "pv-demo", PVStatus: "Bound", Namespace: "shop",
					PVCName: "db", WorkloadsStatus: []lh.WorkloadStatus{{PodName: "db-0", PodStatus: "Running",
						WorkloadName: "db", WorkloadType: "StatefulSet"}}}
			}
		}
	}
	late := &lh.Setting{ObjectMeta: resttest.Meta("guaranteed-instance-manager-cpu"), Value: `{"v1":"20"}`}
	over := &lh.Setting{ObjectMeta: resttest.Meta("storage-over-provisioning-percentage"), Value: "150",
		Status: lh.SettingStatus{Applied: true}}
	version := &lh.Setting{ObjectMeta: resttest.Meta("current-longhorn-version"), Value: "v1.9.0",
		Status: lh.SettingStatus{Applied: true}}
	return append(objects, im, stopped, lost, late, over, version)
}

// trouble gives a node what its disks and conditions may say.
func trouble(n *lh.Node) {
	switch n.Name {
	case "node-1":
		d := n.Status.DiskStatus["disk-1"]
		d.ScheduledReplica = map[string]int64{"busy-r-11111111": 1 << 30, "demo-r-11111111": 1 << 30}
		d.StorageScheduled = 2 << 30
		n.Status.DiskStatus["disk-1"] = d
		n.Spec.AllowScheduling, n.Spec.EvictionRequested = false, true
	case "node-2":
		n.Status.Conditions = append(n.Status.Conditions, lh.Condition{Type: lh.NodeConditionKernelModulesLoaded,
			Status: lh.ConditionFalse, Reason: lh.NodeReasonNoBlockDevices, Message: "the host lacks /dev/fuse"})
		n.Spec.Disks["slow"] = lh.DiskSpec{Path: "/srv/slow", AllowScheduling: true, StorageReserved: 1 << 30}
		n.Status.DiskStatus["slow"] = lh.DiskStatus{DiskUUID: "uuid-slow", StorageMaximum: 10 << 30,
			Conditions: []lh.Condition{
				{Type: lh.DiskConditionReady, Status: lh.ConditionFalse, Reason: "NoDiskInfo", Message: "no such directory"}}}
	}
}

// TestViews compares every screen that is more than a table with its golden file.
func TestViews(t *testing.T) {
	b := newBed(t, troubled()...)
	for name, args := range map[string][]string{
		"status":                         {"status"},
		"describe-volume":                {"volume", "describe", "busy"},
		"describe-volume-faulted":        {"volume", "describe", "demo", "wide"},
		"describe-node":                  {"node", "describe", "node-1"},
		"describe-node-down":             {"node", "describe", "node-2", "node-3"},
		"describe-replica":               {"replica", "describe", "busy-r-11111111"},
		"describe-replica-unplaced":      {"replica", "describe", "wide-r-11111111"},
		"describe-engine-image":          {"engine-image", "describe", resttest.Image},
		"describe-instance-manager":      {"instance-manager", "describe", "instance-manager-1"},
		"instance-manager-list":          {"instance-manager", "list"},
		"instance-manager-list-wide":     {"instance-manager", "list", "-o", "wide"},
		"instance-manager-get":           {"instance-manager", "get", "instance-manager-1", "instance-manager-2"},
		"event-list":                     {"event", "list"},
		"event-list-wide":                {"event", "list", "-o", "wide"},
		"event-list-volume":              {"event", "list", "--for", "volume/busy"},
		"event-list-warning":             {"event", "list", "--type", "warning"},
		"event-list-name":                {"event", "list", "--for", "node-3", "-o", "name"},
		"disk-list":                      {"disk", "list"},
		"disk-list-wide":                 {"disk", "list", "node-2", "-o", "wide"},
		"replica-get":                    {"replica", "get", "busy-r-11111111", "demo-r-11111111"},
		"engine-image-get":               {"engine-image", "get", resttest.Image},
		"orphan-get":                     {"orphan", "get", "orphan-1"},
		"node-get-several":               {"node", "get", "node-3", "node-1"},
		"volume-list-sorted":             {"volume", "list", "--sort", "-size,name"},
		"volume-list-filtered":           {"volume", "list", "-l", "state=detached", "--filter", "name!=demo"},
		"replica-list-node":              {"replica", "list", "--filter", "node=node-1", "--sort", "-name"},
		"setting-list-filtered":          {"setting", "list", "-l", "name~over-prov"},
		"status-yaml":                    {"status", "-o", "yaml"},
		"status-name":                    {"status", "-o", "name"},
		"describe-instance-manager-yaml": {"instance-manager", "describe", "instance-manager-2", "-o", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			r := b.run(args...)
			if r.status != exitOK || r.err != "" {
				t.Fatalf("status %d, %s", r.status, r.err)
			}
			golden(t, name, strings.ReplaceAll(r.out, b.url, "http://SERVER"))
			for _, line := range strings.Split(r.out, "\n") {
				if strings.TrimRight(line, " ") != line {
					t.Errorf("line %q ends in blanks", line)
				}
			}
		})
	}
}

// TestDescribeRebuild: a replica waits for its own rebuild, not for that of another one with the
// same address of the instance manager.
func TestDescribeRebuild(t *testing.T) {
	for port, want := range map[string]bool{"10000": true, "10020": false} {
		objects := cluster()
		for _, o := range objects {
			if e, ok := o.(*lh.Engine); ok && e.Spec.VolumeName == "busy" {
				e.Status.CurrentReplicaAddressMap = map[string]string{"busy-r-11111111": "127.0.1.1:" + port}
				e.Status.RebuildStatus = map[string]lh.RebuildStatus{"tcp://127.0.1.1:10000": {IsRebuilding: true, Progress: 42}}
			}
		}
		out := newBed(t, objects...).ok("replica", "describe", "busy-r-11111111")
		if strings.Contains(out, "being rebuilt: 42%") != want {
			t.Errorf("at port %s, a rebuild is told of: %t\n%s", port, !want, out)
		}
	}
}

// TestProblemsOfHosts: what a host lacks is a problem where somebody uses what needs it, and is
// told apart from those where nobody does.
func TestProblemsOfHosts(t *testing.T) {
	for _, tt := range []struct {
		name, kind, reason string
		encrypted          bool
		want               bool
	}{
		{"no client of NFS", lh.NodeConditionNFSClientInstalled, lh.NodeReasonNFSClientIsNotFound, true, false},
		{"no dm_crypt", lh.NodeConditionKernelModulesLoaded, lh.NodeReasonKernelModulesNotLoaded, false, false},
		{"no dm_crypt, encrypted volumes", lh.NodeConditionKernelModulesLoaded, lh.NodeReasonKernelModulesNotLoaded, true,
			true},
		{"no FUSE", lh.NodeConditionKernelModulesLoaded, lh.NodeReasonNoBlockDevices, false, true},
		{"multipathd", lh.NodeConditionMultipathd, lh.NodeReasonMultipathdIsRunning, false, true},
	} {
		n := resttest.ReadyNode("node-1")
		n.Status.Conditions = append(n.Status.Conditions,
			lh.Condition{Type: tt.kind, Status: lh.ConditionFalse, Reason: tt.reason, Message: "lacks it"})
		objects := append(resttest.Volume("demo"), n)
		objects[0].(*lh.Volume).Spec.Encrypted = tt.encrypted
		out := newBed(t, objects...).ok("status")
		problems, limits, _ := strings.Cut(out, "Not possible here, and not used\n")
		line := "node/node-1: " + tt.kind + ": lacks it\n"
		if strings.Contains(problems, line) != tt.want || strings.Contains(limits, line) == tt.want {
			t.Errorf("%s: a problem is not %t\n%s", tt.name, tt.want, out)
		}
	}
}

// TestStatusOfHealth: a cluster without problems is healthy, one without nodes faulted, and --check
// says so to scripts.
func TestStatusOfHealth(t *testing.T) {
	healthy := newBed(t, resttest.ReadyNode("node-1"), resttest.DeployedImage("node-1"),
		resttest.InstanceManager("instance-manager-1", "node-1"))
	if r := healthy.run("status", "--check"); r.status != exitOK || !strings.HasPrefix(r.out,
		"Health          healthy\n") ||
		!strings.Contains(r.out, "Volumes         none\n") {
		t.Errorf("%+v", r)
	}
	for health, b := range map[string]*bed{"faulted": newBed(t), "degraded": newBed(t, resttest.ReadyNode("node-1"),
		resttest.DownNode("node-2"))} {
		if r := b.run("status", "--check", "-o", "name"); r.status != exitError || r.out != health+"\n" ||
			r.err != "error: the cluster is not healthy\n" {
			t.Errorf("%s: %+v", health, r)
		}
		if r := b.run("status"); r.status != exitOK {
			t.Errorf("%s: %+v", health, r)
		}
	}
}

// TestRecentWarnings: only warnings of the last hour are on the screen, the newest five.
func TestRecentWarnings(t *testing.T) {
	objects := cluster()
	for i := range 8 {
		e := event(fmt.Sprintf("e%d", i), "Volume", "busy", fmt.Sprintf("Reason%d", i), "m", "Warning", 1, 0)
		e.LastTimestamp = metav1.NewTime(testNow.Add(time.Duration(i-20) * time.Minute))
		if i == 7 {
			e.Type = "Normal"
		}
		objects = append(objects, e)
	}
	r := newBed(t, append(objects, event("old", "Volume", "busy", "Old", "m", "Warning", 1, 1))...).run("status")
	for text, want := range map[string]bool{"Reason1": false, "Reason2": true, "Reason6": true, "Reason7": false,
		"Old": false} {
		if strings.Contains(r.out, text) != want {
			t.Errorf("%s shown is not %t:\n%s", text, want, r.out)
		}
	}
}

// TestDescribedAsJSON: the object, what it waits for and its events, one alone or several as a
// list.
func TestDescribedAsJSON(t *testing.T) {
	b := newBed(t, troubled()...)
	var one struct {
		Object   struct{ Name string }
		WaitsFor []string
		Events   []struct{ EventType string }
	}
	r := b.run("volume", "describe", "busy", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &one); err != nil || one.Object.Name != "busy" || len(one.Events) != 2 ||
		len(one.WaitsFor) == 0 || !strings.HasPrefix(one.WaitsFor[0], "degraded") {
		t.Errorf("%+v %v\n%s", one, err, r.out)
	}
	var several []any
	r = b.run("volume", "describe", "busy", "demo", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &several); err != nil || len(several) != 2 {
		t.Errorf("%v\n%s", err, r.out)
	}
	if r := b.run("node", "describe", "node-1", "-o", "name"); r.out != "node/node-1\n" {
		t.Errorf("%+v", r)
	}
}

// TestDescribedSaysOnceWhy: what an object waits for stands beside it alone, and the rest of it in
// it.
func TestDescribedSaysOnceWhy(t *testing.T) {
	b := newBed(t, troubled()...)
	for kind, name := range map[string]string{"volume": "busy", "node": "node-3", "instance-manager": "instance-manager-1",
		"engine-image": naming.EngineImageName(resttest.Image), "replica": "busy-r-11111111"} {
		out := b.ok(kind, "describe", name, "-o", "yaml")
		if n := strings.Count(out, "waitsFor:"); n != 1 {
			t.Errorf("%s %s says %d times what it waits for:\n%s", kind, name, n, out)
		}
		if !strings.Contains(out, "\n  name: "+name+"\n") {
			t.Errorf("%s %s is not in it:\n%s", kind, name, out)
		}
	}
}
