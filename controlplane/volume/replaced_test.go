package volume

import (
	"slices"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// TestAnotherDevice is the table of which change of the block device means that its users have to
// mount again.
func TestAnotherDevice(t *testing.T) {
	for _, tt := range []struct {
		name, before, now string
		edit              func(v *v1beta2.Volume, s *seen)
		remount           bool
		want              string
	}{
		{"the same", "d1", "d1", nil, false, "d1"},
		{"another one while it is attached", "d1", "d2", nil, true, "d2"},
		{"the first one", "", "d1", nil, false, "d1"},
		{"none at the moment", "d1", "", func(_ *v1beta2.Volume, s *seen) { s.Engine.Status.Endpoint = "" }, false, "d1"},
		{"one that tells no ID", "d1", "", nil, false, ""},
		{"it is being attached", "d1", "d2", func(v *v1beta2.Volume, _ *seen) {
			v.Status.State, v.Status.CurrentNodeID = v1beta2.VolumeStateAttaching, ""
		}, false, "d2"},
		{"it has migrated", "d1", "d2", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NodeID, v.Status.CurrentMigrationNodeID, s.Engine.Spec.NodeID = "n2", "n2", "n2"
		}, false, "d2"},
		{"its engine has no replica", "d1", "d2", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.ReplicaModeMap = map[string]v1beta2.ReplicaMode{}
		}, false, "d1"},
		{"it is detached", "d1", "", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NodeID, s.Attachment.Spec.AttachmentTickets = "", nil
			off(s)
			s.Engine.Spec.NodeID, s.Engine.Spec.ReplicaAddressMap = "", nil
			for i := range s.Replicas {
				r := &s.Replicas[i]
				r.Spec.DesireState, r.Status.CurrentState = stopped, stopped
			}
		}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, s := fixture()
			v.Status.DeviceID, s.Engine.Status.DeviceID = tt.before, tt.now
			if tt.edit != nil {
				tt.edit(v, s)
			}
			d := decides(v, *s)
			if v.Status.DeviceID != tt.want {
				t.Errorf("device %q, want %q", v.Status.DeviceID, tt.want)
			}
			if got := v.Status.RemountRequestedAt; (got == ago(0)) != tt.remount || !tt.remount && got != "" {
				t.Errorf("remount at %q", got)
			}
			told := slices.ContainsFunc(d.Events, func(e loop.Event) bool {
				return e.Warning && e.Reason == naming.EventDetachedUnexpectedly
			})
			if told != tt.remount {
				t.Errorf("events %v", d.Events)
			}
		})
	}
}
