package attachment

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// migratable is a volume that its CSI ticket has attached to n1, and that may migrate.
func migratable() (*v1beta2.VolumeAttachment, seen) {
	a, s := fixture()
	attachedTo(s.Volume, "n1")
	s.Volume.Spec.Migratable, s.Volume.Spec.AccessMode = true, v1beta2.AccessModeReadWriteMany
	s.Volume.Spec.Image, s.Volume.Status.CurrentImage = "image", "image"
	ticket(a, "a", "n1", v1beta2.AttacherTypeCSI)
	return a, s
}

// places is where the decision sends the volume and its migration; "" is no change.
func places(d loop.Decision) string {
	v := volumeOf(d)
	if v == nil {
		return ""
	}
	return v.Spec.NodeID + ">" + v.Spec.MigrationNodeID
}

func TestMigration(t *testing.T) {
	const csi, person, backup = v1beta2.AttacherTypeCSI, v1beta2.AttacherTypeLonghornAPI, v1beta2.AttacherTypeBackup
	type edit func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume)
	at := func(id, node string, kind v1beta2.AttacherType) edit {
		return func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) { ticket(a, id, node, kind) }
	}
	gone := func(id string) edit {
		return func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) { delete(a.Spec.AttachmentTickets, id) }
	}
	to := func(wanted, current string) edit {
		return func(_ *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			v.Spec.MigrationNodeID, v.Status.CurrentMigrationNodeID = wanted, current
		}
	}
	volume := func(f func(v *v1beta2.Volume)) edit {
		return func(_ *v1beta2.VolumeAttachment, v *v1beta2.Volume) { f(v) }
	}
	robust := func(r v1beta2.VolumeRobustness) edit {
		return volume(func(v *v1beta2.Volume) { v.Status.Robustness = r })
	}
	b := at("b", "n2", csi)
	for name, row := range map[string]struct {
		edits []edit
		want  string
	}{
		"one ticket":                     {nil, ""},
		"begins":                         {[]edit{b}, "n1>n2"},
		"begins degraded":                {[]edit{b, robust(v1beta2.VolumeRobustnessDegraded)}, "n1>n2"},
		"not of unknown robustness":      {[]edit{b, robust(v1beta2.VolumeRobustnessUnknown)}, ""},
		"not to a node that is down":     {[]edit{at("b", "n3", csi)}, ""},
		"not for another kind of ticket": {[]edit{at("b", "n2", v1beta2.AttacherTypeLonghornAPI)}, ""},
		"not from another kind of ticket": {[]edit{gone("a"), b,
			at("a", "n1", v1beta2.AttacherTypeLonghornAPI)}, ""},
		"not for two of one node": {[]edit{at("b", "n1", csi)}, ""},
		"not of a volume that does not migrate": {[]edit{b, volume(func(v *v1beta2.Volume) {
			v.Spec.Migratable, v.Spec.AccessMode = false, v1beta2.AccessModeReadWriteOnce
		})}, ""},
		"not during an upgrade": {[]edit{b, volume(func(v *v1beta2.Volume) { v.Spec.Image = "next" })}, ""},
		"any wanted image is that of the setting": {[]edit{b, volume(func(v *v1beta2.Volume) { v.Spec.Image = "" })},
			"n1>n2"},
		"not while it is attached": {[]edit{b, volume(func(v *v1beta2.Volume) {
			v.Status.State, v.Status.CurrentNodeID = v1beta2.VolumeStateAttaching, ""
		})}, ""},
		"not while the last one ends":   {[]edit{b, to("", "n3")}, ""},
		"not during a switch":           {[]edit{b, volume(func(v *v1beta2.Volume) { v.Status.CurrentNodeID = "n3" })}, ""},
		"goes on":                       {[]edit{b, to("n2", "")}, ""},
		"goes on with its device":       {[]edit{b, to("n2", "n2")}, ""},
		"is rolled back":                {[]edit{to("n2", "n2")}, "n1>"},
		"is rolled back early":          {[]edit{to("n2", "")}, "n1>"},
		"is rolled back by both":        {[]edit{gone("a"), to("n2", "n2")}, "n1>"},
		"is confirmed":                  {[]edit{b, gone("a"), to("n2", "n2")}, "n2>"},
		"waits for its device":          {[]edit{b, gone("a"), to("n2", "")}, ""},
		"is confirmed beside a backup":  {[]edit{b, gone("a"), at("c", "n1", backup), to("n2", "n2")}, "n2>"},
		"a person's ticket keeps it":    {[]edit{b, gone("a"), at("c", "n1", person), to("n2", "n2")}, ""},
		"ends with a faulted volume":    {[]edit{b, to("n2", "n2"), robust(v1beta2.VolumeRobustnessFaulted)}, ">"},
		"a switch goes on":              {[]edit{b, gone("a"), to("", "n2"), volume(moved)}, ""},
		"the target's ticket goes then": {[]edit{gone("a"), to("", "n2"), volume(moved)}, ">"},
	} {
		a, s := migratable()
		for _, e := range row.edits {
			e(a, s.Volume)
		}
		if got := places(decide(now, a, s)); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// moved is a volume whose migration is confirmed and whose engine is on its way.
func moved(v *v1beta2.Volume) { v.Spec.NodeID, v.Status.CurrentNodeID = "n2", "n1" }

// TestTwoNodesClaimADetachedVolume: a volume whose migration has failed is not attached before one
// of them has let go.
func TestTwoNodesClaimADetachedVolume(t *testing.T) {
	a, s := fixture()
	s.Volume.Spec.Migratable, s.Volume.Spec.AccessMode = true, v1beta2.AccessModeReadWriteMany
	ticket(a, "a", "n1", v1beta2.AttacherTypeCSI)
	ticket(a, "b", "n2", v1beta2.AttacherTypeCSI)
	ticket(a, "c", "n1", v1beta2.AttacherTypeVolumeExpansion)
	if got := outcome(decide(now, a, s)); got != "" {
		t.Errorf("attached to %s", got)
	}
	delete(a.Spec.AttachmentTickets, "a")
	delete(a.Spec.AttachmentTickets, "c")
	if got := outcome(decide(now, a, s)); got != "n2" {
		t.Errorf("%q, want n2", got)
	}
}

// TestTicketsOfAMigration: the target's ticket is satisfied while its device is there.
func TestTicketsOfAMigration(t *testing.T) {
	for name, row := range map[string]struct {
		edit func(v *v1beta2.Volume)
		a, b bool
	}{
		"about to come": {func(v *v1beta2.Volume) { v.Spec.MigrationNodeID = "n2" }, true, false},
		"both": {func(v *v1beta2.Volume) { v.Spec.MigrationNodeID, v.Status.CurrentMigrationNodeID = "n2", "n2" }, true,
			true},
		"rolled back": {func(v *v1beta2.Volume) { v.Status.CurrentMigrationNodeID = "n2" }, true, false},
		"switch": {func(v *v1beta2.Volume) {
			moved(v)
			v.Status.CurrentMigrationNodeID = "n2"
		}, false, true},
		"moved": {func(v *v1beta2.Volume) { attachedTo(v, "n2") }, false, true},
		"detaching": {func(v *v1beta2.Volume) {
			v.Spec.MigrationNodeID, v.Status.CurrentMigrationNodeID = "n2", "n2"
			v.Status.State = v1beta2.VolumeStateDetaching
		}, false, false},
	} {
		a, s := migratable()
		ticket(a, "b", "n2", v1beta2.AttacherTypeCSI)
		row.edit(s.Volume)
		decide(now, a, s)
		for id, want := range map[string]bool{"a": row.a, "b": row.b} {
			if got := a.Status.AttachmentTicketStatuses[id]; got.Satisfied != want || !want && len(got.Conditions) == 0 {
				t.Errorf("%s: ticket %s is satisfied %v: %+v", name, id, got.Satisfied, got.Conditions)
			}
		}
	}
}
