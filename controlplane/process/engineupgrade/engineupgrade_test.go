package engineupgrade

import (
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

const (
	limitOn = "3"
	limit   = setting.ConcurrentAutomaticEngineUpgradePerNodeLimit
)

// ready makes an image that is on nodes a, b and c.
func ready(name string, api int) v1beta2.EngineImage {
	ei := v1beta2.EngineImage{Spec: v1beta2.EngineImageSpec{Image: name}}
	ei.Status.Version, ei.Status.GitCommit = name, "commit of "+name
	ei.Status.ControllerAPIVersion, ei.Status.ControllerAPIMinVersion = api, api-1
	ei.Status.NodeDeploymentMap = map[string]bool{"a": true, "b": true, "c": true}
	ei.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.EngineImageConditionReady, Status: v1beta2.ConditionTrue}}
	return ei
}

// facts are a healthy volume of image old, attached to a, with replicas on b and c; the default
// image is new, and another one is there.
func facts() *Facts {
	v := &v1beta2.Volume{}
	v.Spec.Image, v.Status.CurrentImage = "old", "old"
	v.Spec.NodeID, v.Status.CurrentNodeID = "a", "a"
	v.Status.State, v.Status.Robustness = v1beta2.VolumeStateAttached, v1beta2.VolumeRobustnessHealthy
	f := &Facts{Volume: v, Engines: make([]v1beta2.Engine, 1), Replicas: make([]v1beta2.Replica, 2),
		Images:   []v1beta2.EngineImage{ready("old", 5), ready("new", 5), ready("other", 5)},
		Settings: setting.Values{limit: limitOn}}
	f.Replicas[0].Spec.NodeID, f.Replicas[1].Spec.NodeID = "b", "c"
	return f
}

func detach(f *Facts) {
	v := f.Volume
	v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "", "", v1beta2.VolumeStateDetached
	v.Status.Robustness = v1beta2.VolumeRobustnessUnknown
}

func detached(edit func(f *Facts)) func(f *Facts) {
	return func(f *Facts) {
		detach(f)
		edit(f)
	}
}

// TestAutomatic is the list of the proposal: which volumes are brought to the default image.
func TestAutomatic(t *testing.T) {
	for _, row := range []struct {
		name string
		edit func(f *Facts)
		why  string // part of the reason not to; empty: it is upgraded
	}{
		{"attached and healthy", func(*Facts) {}, ""},
		{"detached", detach, ""},
		{"switched off", func(f *Facts) { f.Settings[limit] = "0" }, "switched off"},
		{"detached, switched off", detached(func(f *Facts) { f.Settings[limit] = "0" }), "switched off"},
		{"the image is not ready", func(f *Facts) { f.Images[1].Status.Conditions = nil }, "not ready"},
		{"detached, the image is not ready", detached(func(f *Facts) { f.Images[1].Status.Conditions = nil }), "not ready"},
		{"the image does not exist", detached(func(f *Facts) { f.Images = f.Images[:1] }), "not ready"},
		{"being upgraded", func(f *Facts) { f.Volume.Spec.Image = "other" }, "being upgraded"},
		{"detached, being upgraded", detached(func(f *Facts) { f.Volume.Spec.Image = "other" }), "being upgraded"},
		{"standby", func(f *Facts) { f.Volume.Spec.Standby = true }, "standby"},
		{"detached, standby", detached(func(f *Facts) { f.Volume.Spec.Standby = true }), "standby"},
		{"being restored", detached(func(f *Facts) { f.Volume.Status.RestoreRequired = true }), "restored"},
		{"expanding", func(f *Facts) { f.Volume.Status.ExpansionRequired = true }, "expanded"},
		{"its engine expands", func(f *Facts) { f.Engines[0].Status.IsExpanding = true }, "expanded"},
		{"detached, to be expanded", detached(func(f *Facts) { f.Volume.Status.ExpansionRequired = true }), "expanded"},
		{"migrating", func(f *Facts) { f.Volume.Spec.MigrationNodeID = "b" }, "migrated"},
		{"migrating still", func(f *Facts) { f.Volume.Status.CurrentMigrationNodeID = "b" }, "migrated"},
		{"degraded", func(f *Facts) { f.Volume.Status.Robustness = v1beta2.VolumeRobustnessDegraded }, "not healthy"},
		{"on a block device", func(f *Facts) { f.Engines[0].Status.Endpoint = "/dev/longhorn/v" }, ""},
		{"on a socket", func(f *Facts) { f.Engines[0].Status.Endpoint = "nbd+unix:///v?socket=/s" }, "on an NBD socket"},
		{"strict-local", func(f *Facts) { f.Volume.Spec.DataLocality = v1beta2.DataLocalityStrictLocal }, "strict-local"},
		{"detached, strict-local", detached(func(f *Facts) {
			f.Volume.Spec.DataLocality = v1beta2.DataLocalityStrictLocal
		}), ""},
		{"not understood by the new image", func(f *Facts) { f.Images[1] = ready("new", 7) }, "detach the volume"},
		{"later than the new image", func(f *Facts) { f.Images[1] = ready("new", 4) }, "detach the volume"},
		{"just understood", func(f *Facts) { f.Images[1] = ready("new", 6) }, ""},
		{"detached, not understood", detached(func(f *Facts) { f.Images[1] = ready("new", 7) }), ""},
		{"the new image is not where a replica is", func(f *Facts) {
			f.Images[1].Status.NodeDeploymentMap["c"] = false
		}, "new is not deployed on c"},
		{"the old image is not where the engine is", func(f *Facts) {
			delete(f.Images[0].Status.NodeDeploymentMap, "a")
		}, "old is not deployed on a"},
		{"the same commit", func(f *Facts) { f.Images[1].Status.GitCommit = "commit of old" }, "of the same commit"},
		{"the same commit, allowed", func(f *Facts) {
			f.Images[1].Status.GitCommit = "commit of old"
			f.Settings[setting.AllowLiveEngineUpgradeOnSameImageCommit] = "true"
		}, ""},
		{"nobody knows the commits", func(f *Facts) {
			f.Images[0].Status.GitCommit, f.Images[1].Status.GitCommit = "unknown", "unknown"
		}, ""},
		{"attaching", func(f *Facts) { f.Volume.Status.State = v1beta2.VolumeStateAttaching }, "attaching"},
		{"about to be attached", detached(func(f *Facts) { f.Volume.Spec.NodeID = "a" }), "about to be attached"},
		{"about to be moved", func(f *Facts) { f.Volume.Spec.NodeID = "b" }, "the volume is attached"},
	} {
		f := facts()
		row.edit(f)
		if why := f.Automatic("new"); row.why == "" && why != "" || !strings.Contains(why, row.why) {
			t.Errorf("%s: %q, want %q", row.name, why, row.why)
		}
	}
}

// TestManual is what a client may ask for.
func TestManual(t *testing.T) {
	off := func(f *Facts) { f.Settings[limit] = "0" }
	for _, row := range []struct {
		name, to string
		edit     func(f *Facts)
		refused  string
	}{
		{"to the default image", "new", nil, ""},
		{"to another one", "other", nil, "the default engine image"},
		{"to another one, automatic upgrades off", "other", off, ""},
		{"no image", "", nil, "no engine image named"},
		{"the same", "old", nil, "already"},
		{"the one that it is getting", "new", func(f *Facts) { f.Volume.Spec.Image = "new" }, "already"},
		{"roll-back", "old", func(f *Facts) { f.Volume.Spec.Image = "new" }, ""},
		{"a third one meanwhile", "new", func(f *Facts) { f.Volume.Spec.Image = "other" }, "being upgraded to other"},
		{"degraded", "new", func(f *Facts) { f.Volume.Status.Robustness = v1beta2.VolumeRobustnessDegraded }, "not healthy"},
		{"migrating", "new", func(f *Facts) { f.Volume.Spec.MigrationNodeID = "b" }, "migrated"},
		{"detached, migrating", "new", detached(func(f *Facts) { f.Volume.Spec.MigrationNodeID = "b" }), "migrated"},
		{"strict-local", "new", func(f *Facts) {
			f.Volume.Spec.DataLocality = v1beta2.DataLocalityStrictLocal
		}, "strict-local"},
		{"detached, strict-local", "new", detached(func(f *Facts) {
			f.Volume.Spec.DataLocality = v1beta2.DataLocalityStrictLocal
		}), ""},
		{"standby", "new", detached(func(f *Facts) { f.Volume.Spec.Standby = true }), ""},
		{"standby, another one", "other", detached(func(f *Facts) { f.Volume.Spec.Standby = true }),
			"the default engine image"},
		{"not understood", "new", func(f *Facts) { f.Images[1] = ready("new", 7) }, "detach the volume"},
		{"detached, not understood", "new", detached(func(f *Facts) { f.Images[1] = ready("new", 7) }), ""},
		{"an image that does not exist", "none", off, "does not exist"},
		{"an image that has not told its version", "new", func(f *Facts) { f.Images[1].Status.Version = "" }, "its version"},
		{"an image for other managers", "new", detached(func(f *Facts) { f.Images[1].Status.Incompatible = true }),
			"incompatible with this manager"},
		{"detached, not where a replica is", "new", detached(func(f *Facts) {
			f.Images[1].Status.NodeDeploymentMap["b"] = false
		}), "not deployed on b"},
		{"detached, the present one is not where a replica is", "new", detached(func(f *Facts) {
			f.Images[0].Status.NodeDeploymentMap["b"] = false
		}), "not deployed on b"},
		{"detached, not where it does not matter", "new", detached(func(f *Facts) {
			f.Images[1].Status.NodeDeploymentMap["a"] = false
		}), ""},
		{"detaching", "new", func(f *Facts) { f.Volume.Status.State = v1beta2.VolumeStateDetaching }, "must be attached"},
	} {
		f := facts()
		if row.edit != nil {
			row.edit(f)
		}
		got := ""
		if err := f.Manual(row.to, "new"); err != nil {
			got = err.Error()
		}
		if row.refused == "" && got != "" || !strings.Contains(got, row.refused) {
			t.Errorf("%s: refused with %q, want %q", row.name, got, row.refused)
		}
	}
}
