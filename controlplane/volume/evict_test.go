package volume

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestEmptyReplicasAreMoved: a volume that has never been attached leaves a disk that is being
// evicted without an engine, and is never without a replica.
func TestEmptyReplicasAreMoved(t *testing.T) {
	more := func(s *seen, placed bool) {
		r := empty(good("c", "n3", "v-cccccccc"))
		if !placed {
			r.Spec.NodeID, r.Spec.DiskID, r.Spec.DiskPath, r.Spec.DataDirectoryName = "", "", "", ""
		}
		s.Replicas = append(s.Replicas, r)
	}
	noPlace := func(s *seen) { s.Nodes[2].Spec.AllowScheduling = false }
	for _, tt := range []struct {
		name string
		edit func(*v1beta2.Volume, *seen)
		want string
	}{
		{"a replica elsewhere first", func(*v1beta2.Volume, *seen) {}, "create *v1beta2.Replica ns/v-r-11111111"},
		{"it waits for its place", func(_ *v1beta2.Volume, s *seen) { more(s, false); noPlace(s) }, ""},
		{"then the other one goes", func(_ *v1beta2.Volume, s *seen) { more(s, true) }, "delete *v1beta2.Replica a"},
		{"no place: it stays", func(_ *v1beta2.Volume, s *seen) { noPlace(s) }, ""},
		{"nobody is evicted", func(_ *v1beta2.Volume, s *seen) { s.Replicas[0].Spec.EvictionRequested = false }, ""},
		{"somebody wants it", func(v *v1beta2.Volume, s *seen) {
			s.Attachment.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{
				"ui": {ID: "ui", NodeID: "n1", Type: v1beta2.AttacherTypeLonghornAPI}}
		}, ""},
		{"it has been attached", func(_ *v1beta2.Volume, s *seen) {
			s.Replicas[1].Spec.LastHealthyAt = ago(time.Hour)
		}, "update *v1beta2.VolumeAttachment"},
		{"the witness knows members", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.Membership = &v1beta2.Membership{VolumeUUID: "uid-v", Members: []string{"v-aaaaaaaa"}}
		}, ""},
		{"its engine still runs", func(_ *v1beta2.Volume, s *seen) { s.Engine.Status.CurrentState = running }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, s := fixture()
			v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "", "", v1beta2.VolumeStateDetached
			v.Status.Robustness = v1beta2.VolumeRobustnessUnknown
			s.Attachment.Spec.AttachmentTickets = nil
			s.Engine.Spec.NodeID, s.Engine.Spec.DesireState, s.Engine.Status = "", stopped, v1beta2.EngineStatus{}
			s.Engine.Status.CurrentState, s.Engine.Status.CurrentSize, s.Engine.Spec.ReplicaAddressMap = stopped, 1<<30, nil
			for i, r := range s.Replicas {
				s.Replicas[i] = empty(r)
			}
			s.Replicas[0].Spec.EvictionRequested = true
			s.Nodes[0].Spec.AllowScheduling, s.Nodes[0].Spec.EvictionRequested = false, true
			tt.edit(v, s)
			p := newPass(now, v, *s)
			got := ""
			if change := (maintaining{p}).maintain(); change != nil {
				got = change.String()
			}
			if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// empty is a replica as one that was never started.
func empty(r v1beta2.Replica) v1beta2.Replica {
	r.Spec.HealthyAt, r.Spec.LastHealthyAt = "", ""
	r.Spec.DesireState, r.Status.CurrentState = stopped, stopped
	return r
}
