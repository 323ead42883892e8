package cli

import (
	"strings"
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// TestDetachNamesOtherTickets: whoever withdraws his own ticket is told who else has the volume.
func TestDetachNamesOtherTickets(t *testing.T) {
	objects := resttest.Volume("demo")
	resttest.Attach(objects, "node-1", "/dev/longhorn/demo")
	a := objects[3].(*lh.VolumeAttachment)
	a.Spec.AttachmentTickets["csi-1"] = lh.AttachmentTicket{ID: "csi-1", NodeID: "node-1", Type: lh.AttacherTypeCSI}
	b := newBed(t, resttest.Cluster(objects...)...)
	if r := b.run("volume", "detach", "demo"); r.status != 0 || r.out != "volume demo is not attached by hand any more; "+
		"it stays attached for csi-attacher on node-1; withdraw every ticket with --force\n" {
		t.Errorf("%+v", r)
	}
	if r := b.run("volume", "detach", "demo", "--force", "--wait=false"); r.status != 0 ||
		r.out != "volume demo detached\n" {
		t.Errorf("%+v", r)
	}
}

// TestAttachedElsewhere: a volume that somebody else has on another node is not attached where it
// was asked for.
func TestAttachedElsewhere(t *testing.T) {
	objects := resttest.Volume("demo")
	resttest.Attach(objects, "node-1", "/dev/longhorn/demo")
	a := objects[3].(*lh.VolumeAttachment)
	a.Spec.AttachmentTickets = map[string]lh.AttachmentTicket{"csi-1": {ID: "csi-1", NodeID: "node-1",
		Type: lh.AttacherTypeCSI}}
	b := newBed(t, resttest.Cluster(objects...)...)
	if r := b.run("volume", "attach", "demo", "--node", "node-2", "--timeout", "1s"); r.status == 0 {
		t.Errorf("%+v", r)
	}
}

// TestAttachedWithAnotherFrontend: a volume that another ticket has attached with its device is not
// what was asked for.
func TestAttachedWithAnotherFrontend(t *testing.T) {
	objects := resttest.Volume("demo")
	resttest.Attach(objects, "node-1", "/dev/longhorn/demo")
	b := newBed(t, resttest.Cluster(objects...)...)
	if r := b.run("volume", "attach", "demo", "--node", "node-1", "--disable-frontend", "--timeout", "1s"); r.status !=
		exitError || !strings.Contains(r.err, "is not attached without a frontend after 1s") {
		t.Errorf("%+v", r)
	}
}
