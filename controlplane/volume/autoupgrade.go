package volume

import (
	"fmt"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineupgrade"
	"ankole.storage/controlplane/setting"
)

// upgradeBackOff is how long a volume of which an upgrade was given up is not upgraded by itself.
const upgradeBackOff = 15 * time.Minute

// upgradeItself wants the default engine image for a volume that has another one, if automatic
// upgrades are on, nothing speaks against it, and the volume's node has a slot. From then on it is
// an upgrade like any other.
//
// Crash windows: the wish is one write, and the slot follows from the object.
func (p upgrading) upgradeItself() loop.Change {
	v := p.v
	image := p.s.Settings.String(setting.DefaultEngineImage)
	if image == "" || v.Spec.Image == image || p.facts().Automatic(image) != "" {
		return nil
	}
	if v.Status.State == v1beta2.VolumeStateAttached && (!p.synced() || p.rebuilding()) {
		return nil
	}
	if at, err := time.Parse(time.RFC3339, engineupgrade.RolledBackAt(v)); err == nil {
		if left := at.Add(upgradeBackOff).Sub(p.now); left > 0 {
			p.wakeIn(left)
			return nil
		}
	}
	node := v.Status.OwnerID
	p.upgradeSlots = map[string]bool{node: p.s.MayUpgrade}
	if !p.s.MayUpgrade {
		return nil // woken when its turn has come
	}
	c := v.DeepCopy()
	c.Spec.Image, c.Spec.EngineImage = image, ""
	p.changeEvents = append(p.changeEvents, loop.Event{Reason: naming.EventUpgrade,
		Message: fmt.Sprintf("Upgrading the engine from image %s to the default image %s", v.Status.CurrentImage, image)})
	return loop.Reserving{Change: loop.Update{Object: c}}
}
