package attachment

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestEventsOnTheVolume: who follows a volume reads there why it is attached and detached.
func TestEventsOnTheVolume(t *testing.T) {
	for _, tt := range []struct {
		name    string
		edit    func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume)
		reason  string
		warning bool
	}{
		{"a ticket comes", func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) {
			ticket(a, "a", "n2", v1beta2.AttacherTypeCSI)
		}, "Start", false},
		{"the ticket has gone", func(_ *v1beta2.VolumeAttachment, v *v1beta2.Volume) { attachedTo(v, "n1") }, "Stop", false},
		{"faulted", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			attachedTo(v, "n1")
			v.Status.Robustness = v1beta2.VolumeRobustnessFaulted
			ticket(a, "a", "n1", v1beta2.AttacherTypeCSI)
		}, "DetachedUnexpectedly", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, s := fixture()
			tt.edit(a, s.Volume)
			d := decide(now, a, s)
			if len(d.Events) != 1 {
				t.Fatalf("events %+v", d.Events)
			}
			e := d.Events[0]
			if on, ok := e.On.(*v1beta2.Volume); !ok || on.Name != "v" || e.Reason != tt.reason || e.Warning != tt.warning {
				t.Errorf("%s on %T, warning %v; want %s on the volume, warning %v", e.Reason, e.On, e.Warning, tt.reason,
					tt.warning)
			}
		})
	}
}

// TestMigrationIsToldOnTheVolume: where the volume moves to is told beside where it is.
func TestMigrationIsToldOnTheVolume(t *testing.T) {
	a, s := migratable()
	ticket(a, "b", "n2", v1beta2.AttacherTypeCSI)
	for _, reason := range []string{"Start", "Stop"} {
		d := decide(now, a, s)
		if len(d.Events) != 1 || d.Events[0].Reason != reason || d.Events[0].Warning {
			t.Fatalf("events %+v, want %s", d.Events, reason)
		}
		if on, ok := d.Events[0].On.(*v1beta2.Volume); !ok || on.Name != "v" {
			t.Errorf("%s is on %T", reason, d.Events[0].On)
		}
		s.Volume = volumeOf(d)
		delete(a.Spec.AttachmentTickets, "b")
	}
}
