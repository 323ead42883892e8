// Package engineupgrade has the rules of upgrades of engines: may this volume go over to that
// image now, in use or at rest, by hand or by itself? The volume controller and REST ask the same
// functions.
//
// An upgrade is wanted when a Volume's spec.image differs from its status.currentImage.
// docs/design/upgrade.md, "Control plane", has states and tables. The package is pure.
package engineupgrade

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// Facts is what the rules look at.
type Facts struct {
	Volume   *v1beta2.Volume
	Engines  []v1beta2.Engine
	Replicas []v1beta2.Replica
	// Images are all engine images.
	Images   []v1beta2.EngineImage
	Settings setting.Values
}

// Limit is how many upgrades may be under way on a node at once; 0: none begins by itself.
func (f Facts) Limit() int {
	return f.Settings.Int(setting.ConcurrentAutomaticEngineUpgradePerNodeLimit)
}

// Image finds the object of an image, nil if there is none.
func (f Facts) Image(image string) *v1beta2.EngineImage {
	i := slices.IndexFunc(f.Images, func(ei v1beta2.EngineImage) bool { return ei.Spec.Image == image })
	if i < 0 {
		return nil
	}
	return &f.Images[i]
}

// nodes are those that an upgrade concerns: where the volume is attached, and of its replicas.
func (f Facts) nodes() []string {
	nodes := map[string]bool{f.Volume.Status.CurrentNodeID: true, f.Volume.Spec.NodeID: true}
	for i := range f.Replicas {
		nodes[f.Replicas[i].Spec.NodeID] = true
	}
	delete(nodes, "")
	var out []string
	for n := range nodes {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// deployed says why an image cannot be started on every node concerned; empty if it can.
func (f Facts) deployed(image string) string {
	ei := f.Image(image)
	switch {
	case ei == nil:
		return fmt.Sprintf("engine image %s does not exist", image)
	case ei.Status.Version == "":
		return fmt.Sprintf("engine image %s has not told its version yet", image)
	case ei.Status.Incompatible:
		return fmt.Sprintf("engine image %s is incompatible with this manager", image)
	}
	var missing []string
	for _, n := range f.nodes() {
		if !ei.Status.NodeDeploymentMap[n] {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("engine image %s is not deployed on %s", image, strings.Join(missing, ", "))
	}
	return ""
}

// Compatible says why an engine of image from cannot hand its volume over to one of image to; empty
// if it can.
func (f Facts) Compatible(from, to string) string {
	a, b := f.Image(from), f.Image(to)
	if a == nil || b == nil {
		return fmt.Sprintf("engine image %s or %s does not exist", from, to)
	}
	was, will := &a.Status, &b.Status
	if was.ControllerAPIVersion < will.ControllerAPIMinVersion || was.ControllerAPIVersion > will.ControllerAPIVersion {
		return fmt.Sprintf("engine image %s understands controller API %d to %d, and %s has %d: detach the volume to upgrade it",
			to, will.ControllerAPIMinVersion, will.ControllerAPIVersion, from, was.ControllerAPIVersion)
	}
	known := was.GitCommit != "" && was.GitCommit != "unknown"
	if known && was.GitCommit == will.GitCommit && !f.Settings.Bool(setting.AllowLiveEngineUpgradeOnSameImageCommit) {
		return fmt.Sprintf("engine images %s and %s are of the same commit, and setting %s is false", from, to,
			setting.AllowLiveEngineUpgradeOnSameImageCommit)
	}
	return ""
}

// busy says what else goes on with a volume that no upgrade is begun beside; empty if nothing does.
func (f Facts) busy() string {
	v := f.Volume
	switch {
	case v.Spec.MigrationNodeID != "" || v.Status.CurrentMigrationNodeID != "":
		return "the volume is being migrated"
	case v.Status.ExpansionRequired:
		return "the volume is being expanded"
	}
	for i := range f.Engines {
		if f.Engines[i].Status.IsExpanding {
			return "the volume is being expanded"
		}
	}
	return ""
}

// onSocket tells whether the volume is offered on an NBD socket. Its clients would lose their
// connections, and no other engine can go on with them.
func (f Facts) onSocket() bool {
	return slices.ContainsFunc(f.Engines, func(e v1beta2.Engine) bool {
		return strings.HasPrefix(e.Status.Endpoint, "nbd")
	})
}

// Live says why an attached volume cannot go over to an image now; empty if it can.
func (f Facts) Live(to string) string {
	v := f.Volume
	switch {
	case v.Status.State != v1beta2.VolumeStateAttached || v.Spec.NodeID != v.Status.CurrentNodeID:
		return fmt.Sprintf("the volume is %s", v.Status.State)
	case v.Spec.DataLocality == v1beta2.DataLocalityStrictLocal:
		return "a volume with data locality strict-local is upgraded while it is detached"
	case f.onSocket():
		return "the volume is offered on an NBD socket, whose clients would lose their connections: " +
			"detach the volume to upgrade it"
	case v.Status.Robustness != v1beta2.VolumeRobustnessHealthy:
		return fmt.Sprintf("the volume is %s, not healthy", v.Status.Robustness)
	}
	for _, why := range []string{f.busy(), f.deployed(to), f.deployed(v.Status.CurrentImage),
		f.Compatible(v.Status.CurrentImage, to)} {
		if why != "" {
			return why
		}
	}
	return ""
}

// Automatic says why a volume is not brought to the default image by itself now; empty if it is. It
// says nothing of volumes that have that image, and of the limit.
func (f Facts) Automatic(defaultImage string) string {
	v := f.Volume
	ei := f.Image(defaultImage)
	switch {
	case f.Limit() <= 0:
		return "automatic upgrades are switched off"
	case v.Spec.Image != v.Status.CurrentImage:
		return "the volume is being upgraded"
	case ei == nil || !v1beta2.IsConditionTrue(ei.Status.Conditions, v1beta2.EngineImageConditionReady):
		return "the default engine image is not ready"
	case v.Spec.Standby || v.Status.RestoreRequired:
		return "the volume is a standby volume, or being restored"
	}
	if why := f.busy(); why != "" {
		return why
	}
	switch v.Status.State {
	case v1beta2.VolumeStateDetached:
		if v.Spec.NodeID != "" {
			return "the volume is about to be attached"
		}
		return ""
	case v1beta2.VolumeStateAttached:
		return f.Live(defaultImage)
	}
	return fmt.Sprintf("the volume is %s", v.Status.State)
}

// Manual refuses an upgrade that a client asks for.
func (f Facts) Manual(to, defaultImage string) error {
	v := f.Volume
	rollback := v.Spec.Image != v.Status.CurrentImage && to == v.Status.CurrentImage
	switch {
	case to == "":
		return errors.New("no engine image named")
	case to == v.Spec.Image:
		return errors.New("the volume has, or is getting, this engine image already")
	case rollback:
		return nil
	case v.Spec.Image != v.Status.CurrentImage:
		return fmt.Errorf("the volume is being upgraded to %s; wait until that is done, or go back to %s", v.Spec.Image,
			v.Status.CurrentImage)
	case f.Limit() > 0 && to != defaultImage:
		return fmt.Errorf("while setting %s is %d, volumes are upgraded to the default engine image %s only",
			setting.ConcurrentAutomaticEngineUpgradePerNodeLimit, f.Limit(), defaultImage)
	case v.Status.State != v1beta2.VolumeStateAttached && v.Status.State != v1beta2.VolumeStateDetached:
		return fmt.Errorf("the volume is %s; it must be attached or detached", v.Status.State)
	}
	why := f.deployed(to)
	if why == "" {
		why = f.deployed(v.Status.CurrentImage)
	}
	if why == "" && (v.Spec.MigrationNodeID != "" || v.Status.CurrentMigrationNodeID != "") {
		why = "the volume is being migrated"
	}
	if why == "" && v.Status.State == v1beta2.VolumeStateAttached {
		why = f.Live(to)
	}
	if why != "" {
		return errors.New(why)
	}
	return nil
}

// RolledBackAt is when an upgrade of the volume was last given up, as the annotation says.
func RolledBackAt(v *v1beta2.Volume) string { return v.Annotations[naming.AnnotationUpgradeRolledBack] }
