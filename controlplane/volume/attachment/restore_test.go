package attachment

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestRestoreGoesFirst: while a volume does not hold all of its backup, the ticket of the restore
// alone counts.
func TestRestoreGoesFirst(t *testing.T) {
	a := &v1beta2.VolumeAttachment{}
	a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{
		"api":     {NodeID: "n1", Type: v1beta2.AttacherTypeLonghornAPI},
		"csi":     {NodeID: "n1", Type: v1beta2.AttacherTypeCSI},
		"restore": {NodeID: "n2", Type: v1beta2.AttacherTypeVolumeRestore},
	}
	v := &v1beta2.Volume{Spec: v1beta2.VolumeSpec{FromBackup: "s3://b@r/?backup=b&volume=v"}}
	for _, c := range []struct {
		name                string
		initiated, required bool
		want                int
	}{{"new", false, false, 1}, {"under way", true, true, 1}, {"whole", true, false, 3}} {
		v.Status.RestoreInitiated, v.Status.RestoreRequired = c.initiated, c.required
		if got := tickets(a, v); len(got) != c.want || c.want == 1 && got[0].ID != "restore" {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
