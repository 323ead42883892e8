package volume_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
)

// withReplica is the cluster with volume demo, of which the replica or the volume is changed.
func withReplica(edit func(v *lh.Volume, r *lh.Replica)) []client.Object {
	objects := resttest.Volume("demo")
	edit(objects[0].(*lh.Volume), objects[2].(*lh.Replica))
	return resttest.Cluster(objects...)
}

// TestAttachWithoutAPlacedReplica: the replica of a volume that wants its data on its own node is
// placed once it is known where that is; others need one before.
func TestAttachWithoutAPlacedReplica(t *testing.T) {
	for locality, ok := range map[lh.DataLocality]bool{"disabled": false, "best-effort": true, "strict-local": true} {
		f := newFixture(t, withReplica(func(v *lh.Volume, r *lh.Replica) {
			v.Spec.DataLocality, r.Spec.NodeID, r.Spec.DiskID = locality, "", ""
		})...)
		a := f.Do("POST", "/v1/volumes/demo?action=attach", `{"hostId":"node-1"}`)
		if (a.Status == 200) != ok {
			t.Errorf("%s: %d %s", locality, a.Status, a.Text)
		}
	}
}

// TestAttachNeedsTheEngineImage: the engine runs on the node, so its image has to be there.
func TestAttachNeedsTheEngineImage(t *testing.T) {
	objects := withReplica(func(*lh.Volume, *lh.Replica) {})
	for _, o := range objects {
		if image, ok := o.(*lh.EngineImage); ok {
			delete(image.Status.NodeDeploymentMap, "node-2")
		}
	}
	f := newFixture(t, objects...)
	f.Refused(f.Do("POST", "/v1/volumes/demo?action=attach", `{"hostId":"node-2"}`), 500,
		"engine image ankole/engine:dev is not deployed on node node-2")
	if a := f.Do("POST", "/v1/volumes/demo?action=attach", `{"hostId":"node-1"}`); a.Status != 200 {
		t.Errorf("where the image is: %d %s", a.Status, a.Text)
	}
}

// TestSameMigrationTargetAgain: the driver asks for the target of a migration as often as it likes.
func TestSameMigrationTargetAgain(t *testing.T) {
	f := newFixture(t, withReplica(func(v *lh.Volume, _ *lh.Replica) {
		v.Spec.AccessMode, v.Spec.Migratable = "rwx", true
	})...)
	attach := func(node string) apitest.Answer {
		return f.Do("POST", "/v1/volumes/demo?action=attach",
			`{"hostId":"`+node+`","attachmentID":"csi-`+node+`","attacherType":"csi-attacher"}`)
	}
	for _, node := range []string{"node-1", "node-2"} {
		if a := attach(node); a.Status != 200 {
			t.Fatalf("%s: %d %s", node, a.Status, a.Text)
		}
	}
	var before, after lh.VolumeAttachment
	f.Read("demo", &before)
	if a := attach("node-2"); a.Status != 200 {
		t.Errorf("again: %d %s", a.Status, a.Text)
	}
	f.Read("demo", &after)
	if len(after.Spec.AttachmentTickets) != 2 || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("asking again changed the tickets: %v", after.Spec.AttachmentTickets)
	}
}

// TestSalvageNeedsASchedulableDisk: a replica on a disk that takes nothing cannot be rebuilt there.
func TestSalvageNeedsASchedulableDisk(t *testing.T) {
	for schedulable, status := range map[lh.ConditionStatus]int{"True": 200, "False": 500} {
		objects := withReplica(func(v *lh.Volume, r *lh.Replica) {
			v.Status.Robustness, r.Spec.FailedAt = "faulted", "2026-05-03T10:00:00Z"
		})
		for _, o := range objects {
			if n, ok := o.(*lh.Node); ok && n.Name == "node-1" {
				d := n.Status.DiskStatus["disk-1"]
				d.Conditions = []lh.Condition{{Type: "Ready", Status: "True"}, {Type: "Schedulable", Status: schedulable}}
				n.Status.DiskStatus["disk-1"] = d
			}
		}
		f := newFixture(t, objects...)
		a := f.Do("POST", "/v1/volumes/demo?action=salvage", `{"names":["demo-r-11111111"]}`)
		var r lh.Replica
		f.Read("demo-r-11111111", &r)
		if a.Status != status || (r.Spec.FailedAt == "") != (status == 200) {
			t.Errorf("Schedulable %s: %d %s, mark %q", schedulable, a.Status, a.Text, r.Spec.FailedAt)
		}
	}
}

// TestAttachAfterAWithdrawal: a caller that names how many withdrawals it has read files no ticket
// after another one, be it of a ticket or of one that was not there. Others are not asked.
func TestAttachAfterAWithdrawal(t *testing.T) {
	f := newFixture(t, withReplica(func(*lh.Volume, *lh.Replica) {})...)
	attach := func(more string) apitest.Answer {
		return f.Do("POST", "/v1/volumes/demo?action=attach",
			`{"hostId":"node-1","attachmentID":"t","attacherType":"csi-attacher"`+more+`}`)
	}
	for _, tt := range []struct {
		action, body string
		want         float64 // withdrawals afterwards
	}{
		{"attach", "", 0},
		{"detach", `{"attachmentID":"t","generation":77}`, 0}, // another one is there, and stays
		{"detach", `{"attachmentID":"t"}`, 1},
		{"detach", `{"attachmentID":"t"}`, 2},
		{"detach", `{"attachmentID":"t","generation":0}`, 3},
		{"detach", `{}`, 3}, // a person's ticket, which is not there: nothing is written
		{"detach", `{"forceDetach":true}`, 3},
		{"attach", "", 3},
		{"detach", `{"forceDetach":true}`, 4},
	} {
		var a apitest.Answer
		if tt.action == "attach" {
			a = attach("")
		} else {
			a = f.Do("POST", "/v1/volumes/demo?action=detach", tt.body)
		}
		tickets, _ := a.JSON["volumeAttachment"].(map[string]any)
		got, _ := tickets["withdrawals"].(float64) // left out: none
		if a.Status != 200 || got != tt.want {
			t.Fatalf("%s %s: %d %s, want %v withdrawals", tt.action, tt.body, a.Status, a.Text, tt.want)
		}
	}
	f.Refused(attach(`,"withdrawals":3`), 409, "withdrawn 4 times, not 3")
	for range 2 { // the ticket that is there is as good, whatever was read
		if a := attach(`,"withdrawals":4`); a.Status != 200 {
			t.Errorf("%d %s", a.Status, a.Text)
		}
	}
	if a := attach(`,"withdrawals":3`); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
}

// TestDetachUnreadable: what is no JSON object asks for the plain ticket to go, as nothing does; an
// object that cannot be read asks for nothing.
func TestDetachUnreadable(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	for _, body := range []string{`{"hostId":"node-1"}`,
		`{"hostId":"node-1","attachmentID":"csi-1","attacherType":"csi-attacher"}`} {
		if a := f.Do("POST", "/v1/volumes/demo?action=attach", body); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Text)
		}
	}
	before := f.State()
	long := `{"attachmentID":"csi-1"` + strings.Repeat(" ", (1<<20)) + "}"
	for _, body := range []string{`{"attachmentID":"csi-1`, `{"attachmentID":7}`, `{} {}`, long,
		strings.Repeat("x", (1<<20)+1)} {
		a := f.Do("POST", "/v1/volumes/demo?action=detach", body)
		if a.Status != http.StatusInternalServerError || a.JSON["type"] != "error" || f.State() != before {
			t.Errorf("%.40s: %d %s", body, a.Status, a.Text)
		}
	}
	if a := f.Do("POST", "/v1/volumes/demo?action=detach", "hello"); a.Status != http.StatusOK || f.State() == before {
		t.Errorf("%d %s", a.Status, a.Text)
	}
}

// TestDetachOfAGeneration: a caller that names the generation of a ticket withdraws that one only.
func TestDetachOfAGeneration(t *testing.T) {
	f := newFixture(t, withReplica(func(*lh.Volume, *lh.Replica) {})...)
	if a := f.Do("POST", "/v1/volumes/demo?action=attach",
		`{"hostId":"node-1","attachmentID":"t","attacherType":"csi-attacher"}`); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	generation := func() any {
		t.Helper()
		a := f.Do("GET", "/v1/volumes/demo", "")
		tickets := a.JSON["volumeAttachment"].(map[string]any)["attachments"].(map[string]any)
		if tickets["t"] == nil {
			return nil
		}
		return tickets["t"].(map[string]any)["generation"]
	}
	now := generation()
	if now == nil {
		t.Fatal("no ticket")
	}
	f.Do("POST", "/v1/volumes/demo?action=detach", `{"attachmentID":"t","generation":77}`)
	if got := generation(); got != now {
		t.Errorf("the ticket of another generation was withdrawn: %v", got)
	}
	f.Do("POST", "/v1/volumes/demo?action=detach", fmt.Sprintf(`{"attachmentID":"t","generation":%v}`, now))
	if got := generation(); got != nil {
		t.Errorf("left: %v", got)
	}
}
