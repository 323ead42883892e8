package source

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/volume/snapshot"
)

const ticketID = "bim-ds-controller-iso"

// newExport is a data source of snapshot s of volume v, which is attached for it, and whose Pod
// waits for the content.
func newExport(edits ...func(*scene)) *scene {
	c := newScene(says(file{State: "pending", Message: "waits"}))
	c.d.Spec.SourceType = v1beta2.BackingImageSourceTypeExportFromVolume
	c.d.Spec.Parameters = map[string]string{"volume-name": "v", "snapshot-name": "s", "export-type": "qcow2"}
	x := &c.s.Export
	x.Volume = &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "uv"},
		Spec:   v1beta2.VolumeSpec{NodeID: "n1"},
		Status: v1beta2.VolumeStatus{Robustness: v1beta2.VolumeRobustnessHealthy}}
	x.Snapshot = &v1beta2.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1beta2.SnapshotSpec{Volume: "v"},
		Status: v1beta2.SnapshotStatus{ReadyToUse: true}}
	x.Attachment = &v1beta2.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v"},
		Spec: v1beta2.VolumeAttachmentSpec{AttachmentTickets: map[string]v1beta2.AttachmentTicket{
			ticketID: {ID: ticketID, NodeID: "n1", Type: v1beta2.AttacherTypeBackingImageData}}},
		Status: v1beta2.VolumeAttachmentStatus{AttachmentTicketStatuses: map[string]v1beta2.AttachmentTicketStatus{
			ticketID: {ID: ticketID, Satisfied: true}}}}
	x.Engine, x.Reachable = &v1beta2.Engine{}, true
	x.At = snapshot.Place{Node: "n1", Up: map[string]bool{"n1": true, "n2": true, "n3": true}}
	for _, e := range edits {
		e(c)
	}
	return c
}

func noTicket(c *scene) {
	c.s.Export.Attachment.Spec.AttachmentTickets, c.s.Export.Attachment.Status.AttachmentTicketStatuses = nil, nil
}

// own has the export take its snapshot itself.
func own(c *scene) {
	delete(c.d.Spec.Parameters, "snapshot-name")
	c.s.Export.Snapshot.Name = snapshotName(c.d, c.s.Export.Volume)
}

func noSnapshot(c *scene) { c.s.Export.Snapshot = nil }

func faulted(c *scene) { c.s.Export.Volume.Status.Robustness = v1beta2.VolumeRobustnessFaulted }

func tried(ago time.Duration, err error) func(*scene) {
	return func(c *scene) { c.s.Tried = attemptOf(t0.Add(-ago), err) }
}

// TestDecideExport is the second table "source" of docs/design/backing-images.md.
func TestDecideExport(t *testing.T) {
	const send = "send snapshot s of volume v"
	refusal := fmt.Errorf("%w: two are read", engineclient.ErrUnavailable)
	for _, tt := range []struct {
		name    string
		edits   []func(*scene)
		want    string
		state   v1beta2.BackingImageState
		message string
	}{
		{"waits for the sender", nil, send, "pending", "waits"},
		{"no Pod", []func(*scene){noPod}, "create the Pod", "pending", notStarted},
		{"no Pod, no manager", []func(*scene){noPod, noTicket, func(c *scene) { c.s.Manager = nil }}, "wait", "pending",
			"the backing image manager of disk d1 is not ready yet"},
		{"no Pod, no ticket", []func(*scene){noPod, noTicket}, "1 tickets", "pending", notStarted},
		{"no Pod, ticket elsewhere", []func(*scene){noPod, func(c *scene) { c.s.Export.Volume.Spec.NodeID = "n2" }},
			"1 tickets", "pending", notStarted},
		{"no Pod, not attached", []func(*scene){noPod, func(c *scene) {
			c.s.Export.Attachment.Status.AttachmentTicketStatuses = nil
		}}, "wait", "pending", "waiting for volume v to be attached for it"},
		{"no Pod, engine starts", []func(*scene){noPod, func(c *scene) { c.s.Export.Reachable = false }}, "wait", "pending",
			"waiting for volume v to be attached for it"},
		{"no Pod, no engine can run", []func(*scene){noPod, func(c *scene) {
			c.s.Export.Reachable, c.s.Export.Lacks = false, "no replica"
		}}, "0 tickets", "pending", "waiting for the engine of volume v to run: no replica"},
		{"no Pod, migrates", []func(*scene){noPod, func(c *scene) { c.s.Export.Volume.Spec.MigrationNodeID = "n2" }}, "wait",
			"pending", "waiting for the migration of volume v"},
		{"no Pod, own snapshot", []func(*scene){noPod, own, noSnapshot}, "create the snapshot", "pending", notStarted},
		{"no Pod, own snapshot is being taken", []func(*scene){noPod, own, func(c *scene) {
			c.s.Export.Snapshot.Status = v1beta2.SnapshotStatus{Error: "no space"}
		}}, "wait", "pending", "waiting for snapshot 9ad1b5c4-0000-0000-0000-000000000000 to be taken: no space"},
		{"no Pod, own snapshot", []func(*scene){noPod, own}, "create the Pod", "pending", notStarted},
		{"no Pod, no volume", []func(*scene){noPod, func(c *scene) { c.s.Export = exported{} }}, "wait", "failed",
			"volume v does not exist any more"},
		{"no Pod, faulted", []func(*scene){noPod, faulted}, "0 tickets", "failed", "volume v is faulted: salvage it"},
		{"no Pod, faulted, own snapshot", []func(*scene){noPod, own, faulted}, "delete the snapshot", "failed",
			"volume v is faulted: salvage it"},
		{"no Pod, no snapshot", []func(*scene){noPod, noSnapshot}, "0 tickets", "failed",
			"snapshot s of volume v does not exist any more"},
		{"snapshot is removed", []func(*scene){func(c *scene) { c.s.Export.Snapshot.Status.MarkRemoved = true }}, "0 tickets",
			"failed", "snapshot s of volume v does not exist any more"},
		{"snapshot of another volume", []func(*scene){func(c *scene) { c.s.Export.Snapshot.Spec.Volume = "w" }}, "0 tickets",
			"failed", "snapshot s of volume v does not exist any more"},
		{"waits, the volume is gone", []func(*scene){func(c *scene) { c.s.Export = exported{} }}, "wait after 2s", "failed",
			"volume v does not exist any more"},
		{"waits, not attached", []func(*scene){noTicket}, "1 tickets", "pending", "waits"},
		{"ordered a moment ago", []func(*scene){tried(time.Second, nil)}, "wait after 2s", "pending", "waits"},
		{"ordered, and nothing has come", []func(*scene){tried(time.Minute, nil)}, send, "pending", "waits"},
		{"refused a moment ago", []func(*scene){tried(time.Second, refusal)}, "wait after 2s", "pending", refusal.Error()},
		{"refused", []func(*scene){tried(time.Minute, refusal)}, send, "pending", "waits"},
		{"refused for good", []func(*scene){tried(time.Minute, engineclient.ErrInvalid)}, "0 tickets", "failed",
			engineclient.ErrInvalid.Error()},
		{"receives", []func(*scene){says(file{State: "in-progress"})}, "wait after 2s", "in-progress", ""},
		{"receives, the volume has moved", []func(*scene){says(file{State: "in-progress"}), func(c *scene) {
			c.s.Export.Volume.Spec.NodeID = "n2"
		}}, "1 tickets", "in-progress", ""},
		{"receives, the volume is gone", []func(*scene){says(file{State: "in-progress"}), func(c *scene) {
			c.s.Export = exported{}
		}}, "wait after 2s", "in-progress", ""},
		{"complete", []func(*scene){says(file{State: "ready-for-transfer"})}, "0 tickets", "ready-for-transfer", ""},
		{"complete, own snapshot", []func(*scene){own, says(file{State: "ready-for-transfer"})}, "delete the snapshot",
			"ready-for-transfer", ""},
		{"complete, nothing held", []func(*scene){own, noTicket, noSnapshot, says(file{State: "ready-for-transfer"})},
			"wait after 2s", "ready-for-transfer", ""},
		{"has failed", []func(*scene){own, says(file{State: "failed", Message: "silent"})}, "delete the snapshot", "failed",
			"silent"},
		{"disk gone", []func(*scene){func(c *scene) { c.s.Disk = nil }}, "0 tickets", "failed",
			"node n1 does not have disk d1 any more"},
		{"disk not ready", []func(*scene){func(c *scene) { c.s.Disk.Up = false }}, "wait", "unknown",
			"disk d1 of node n1 is not ready"},
		{"transferred", []func(*scene){transferred}, "delete the Pod", "ready", ""},
		{"transferred, no Pod", []func(*scene){transferred, noPod, own}, "delete the snapshot", "ready", ""},
		{"transferred, no Pod, no snapshot", []func(*scene){transferred, noPod}, "0 tickets", "ready", ""},
		{"deleted", []func(*scene){deleted, own}, "delete the Pod", "", ""},
		{"deleted, no Pod", []func(*scene){deleted, own, noPod}, "delete the snapshot", "", ""},
		{"deleted, no Pod, its snapshot goes", []func(*scene){deleted, own, noPod, func(c *scene) {
			c.s.Export.Snapshot.DeletionTimestamp = &metav1.Time{Time: t0}
		}}, "0 tickets", "", ""},
		{"deleted, another's snapshot", []func(*scene){deleted, noPod}, "0 tickets", "", ""},
		{"deleted, nothing held", []func(*scene){deleted, noPod, noTicket}, "no finalizer", "", ""},
	} {
		c := newExport(tt.edits...)
		tt.message = strings.Replace(tt.message, "9ad1b5c4-0000-0000-0000-000000000000", snapshotName(c.d,
			&v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{UID: "uv"}}), 1)
		got := outcome(decide(t0, c.d, c.s))
		if st := c.d.Status; got != tt.want || st.CurrentState != tt.state || st.Message != tt.message {
			t.Errorf("%s: %s, %q, %q; want %s, %q, %q", tt.name, got, st.CurrentState, st.Message, tt.want, tt.state, tt.message)
		}
	}
}

// TestExportedObjects has what an export makes: its snapshot, its ticket, its Pod.
func TestExportedObjects(t *testing.T) {
	c := newExport(own, noPod, noSnapshot)
	s := decide(t0, c.d, c.s).Do.(loop.Create).Object.(*v1beta2.Snapshot)
	if s.Namespace != "ns" || s.Spec.Volume != "v" || !s.Spec.CreateSnapshot ||
		s.Labels["longhorn.io/for-exporting-backing-image"] != "iso" ||
		s.Spec.Labels["longhorn.io/for-exporting-backing-image"] != "iso" {
		t.Errorf("%+v", s)
	}
	again := c.d.DeepCopy()
	again.UID = "u2"
	if snapshotName(again, c.s.Export.Volume) == s.Name {
		t.Errorf("another data source has the same snapshot, %s", s.Name)
	}
	c = newExport(noPod, noTicket)
	a := decide(t0, c.d, c.s).Do.(loop.Update).Object.(*v1beta2.VolumeAttachment)
	if k := a.Spec.AttachmentTickets[ticketID]; k.NodeID != "n1" || k.Type != "bim-ds-controller" ||
		k.Parameters["disableFrontend"] != "any" {
		t.Errorf("%+v", a.Spec)
	}
	c = newExport(noPod)
	pod := decide(t0, c.d, c.s).Do.(loop.Create).Object.(*corev1.Pod)
	const want = "--source-type export-from-volume --parameters export-type=qcow2 --parameters file-type=qcow2 " +
		"--parameters snapshot-name=s --parameters volume-name=v"
	if got := strings.Join(pod.Spec.Containers[0].Args, " "); !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	if p := pod.Spec.Containers[0].Ports; len(p) != 3 || p[2].ContainerPort != 8002 {
		t.Errorf("%+v", p)
	}
	if len(newScene().s.Pod.Spec.Containers[0].Ports) != 2 {
		t.Error("a download listens for volumes")
	}
	c = newExport()
	decide(t0, c.d, c.s)
	if r := c.d.Status.RunningParameters; r["snapshot-name"] != "s" || r["file-type"] != "qcow2" {
		t.Errorf("%v", r)
	}
}

// TestAttempts: what is worth another order.
func TestAttempts(t *testing.T) {
	for err, forGood := range map[error]bool{engineclient.ErrInvalid: true, engineclient.ErrNotFound: true,
		engineclient.ErrPrecondition: false, engineclient.ErrUnavailable: false, errors.New("x"): false} {
		if a := attemptOf(t0, fmt.Errorf("send: %w", err)); a.ForGood != forGood || a.Refusal == "" || a.At != t0 {
			t.Errorf("%v: %+v", err, a)
		}
	}
}
