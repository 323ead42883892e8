//go:build !nolegacy

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
)

// newVolume (A14): a volume that is made while older instance managers are in use runs in aio ones.
func (u *attachedUpgrade) newVolume(t *testing.T) {
	const volume = "a14"
	u.create(volume, 64*mib, 3)
	before := fillDevice(t, u.cluster, u.attach(volume, u.home, 3))
	u.runsOn(volume, longhorn.InstanceManagerTypeAllInOne, longhorn.InstanceManagerTypeAllInOne)
	u.detach(volume)
	holds(t, u.cluster, u.attach(volume, u.third, 3), before, "attached elsewhere it has another content")
	u.detach(volume)
	u.identical(volume, 3)
	u.remove(volume)
	u.goesOn()
	u.undisturbed()
}

// migrates (A17): a volume whose engine runs in an older instance manager is offered on a second
// node by an aio one, is not wanted there, is offered again, and goes over.
func (u *attachedUpgrade) migrates(t *testing.T) {
	const half = 32 * mib
	endpoint := u.volume(volumeA17).Controllers[0].Endpoint
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		u.withdraw(volumeA17, "source") // so that its older instance managers can end
		u.awaitDetached(volumeA17)
		lack.Skip(t, "only block devices migrate, and this host offers none: the endpoint is ", endpoint)
	}
	from := u.cluster.device(endpoint)
	before := rig.StartLoad(t, from, half, 1)
	before.AwaitMore(t, 100)
	u.ticket(volumeA17, "target", u.third)
	u.offeredOn(volumeA17, u.third)
	u.withdraw(volumeA17, "target")
	u.awaitOneController(volumeA17, u.home)
	u.runsOn(volumeA17, longhorn.InstanceManagerTypeEngine, longhorn.InstanceManagerTypeReplica)
	before.AwaitMore(t, 100)

	u.ticket(volumeA17, "target", u.third)
	to := u.cluster.device(u.offeredOn(volumeA17, u.third))
	before.AwaitMore(t, 100)
	before.Finish()
	before.Verify(t, to)
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}
	after := rig.StartLoad(t, shifted{to, half}, half, 2)
	after.AwaitMore(t, 100)
	u.withdraw(volumeA17, "source")
	u.awaitUsable(volumeA17, u.third, 3)
	u.awaitOneController(volumeA17, u.third)
	u.runsOn(volumeA17, longhorn.InstanceManagerTypeAllInOne, longhorn.InstanceManagerTypeReplica)
	after.AwaitMore(t, 100)
	after.Finish()
	t.Logf("longest pause at the target %v", after.TakePause(time.Now()))
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	u.withdraw(volumeA17, "target")
	u.awaitDetached(volumeA17)
	u.identical(volumeA17, 3)
	u.goesOn()
}

// lostReplica (A15): an older instance manager ends with a replica of a volume in use. The replica
// comes back in the aio of its node and joins the older engine; no older instance manager is made.
func (u *attachedUpgrade) lostReplica(t *testing.T) {
	name, _ := u.legacyName(u.third, longhorn.InstanceManagerTypeReplica)
	engine := u.engineOf(volumeA5).Status.InstanceManagerName
	none := int64(0)
	if err := u.ks.CoreV1().Pods(namespace).Delete(context.Background(), name,
		metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		t.Fatal(err)
	}
	u.gone(u.third, longhorn.InstanceManagerTypeReplica)
	u.eventually("the replica on "+u.third+" runs in aio and has joined", func(context.Context) error {
		for _, r := range u.replicasOf(volumeA5) {
			if r.Spec.NodeID != u.third || r.Status.CurrentState != "running" {
				continue
			}
			for _, m := range u.instanceManagers() {
				if m.Name == r.Status.InstanceManagerName && m.Spec.Type == longhorn.InstanceManagerTypeAllInOne &&
					u.engineOf(volumeA5).Status.ReplicaModeMap[r.Name] == longhorn.ReplicaModeRW {
					return nil
				}
			}
		}
		return fmt.Errorf("modes %v", u.engineOf(volumeA5).Status.ReplicaModeMap)
	})
	u.awaitUsable(volumeA5, u.home, 3)
	if now := u.engineOf(volumeA5).Status.InstanceManagerName; now != engine {
		t.Errorf("the engine ran in %s and runs in %s", engine, now)
	}
	if kinds := u.kinds(); kinds["engine"] != 2 || kinds["replica"] != 2 || kinds["aio"] != 3 {
		t.Errorf("instance managers: %v", kinds)
	}
	u.goesOn()
}

// liveUpgrade (A6): a live upgrade of the engine brings the replicas into aio instance managers.
// The engine's stays.
func (u *attachedUpgrade) liveUpgrade(*testing.T) {
	u.upgrade(volumeA5, engineDefault)
	u.awaitEngineImage(volumeA5, engineDefault)
	u.awaitUsable(volumeA5, u.home, 3)
	u.runsOn(volumeA5, longhorn.InstanceManagerTypeEngine, longhorn.InstanceManagerTypeAllInOne)
	u.goesOn()
}

// lastProcess (A8): an instance manager of type replica goes with its last process, and its Pod.
func (u *attachedUpgrade) lastProcess(t *testing.T) {
	u.gone(u.home, longhorn.InstanceManagerTypeReplica)
	if kinds := u.kinds(); kinds["engine"] != 2 || kinds["replica"] != 1 || kinds["aio"] != 3 {
		t.Errorf("instance managers: %v; that of %s has a replica of %s", kinds, u.far, volumeA16)
	}
	u.goesOn()
}

// attachedAgain (A7): the older instance manager goes when its engine has been detached; attached
// again, the volume runs in aio ones with all that was written.
func (u *attachedUpgrade) attachedAgain(t *testing.T) {
	u.load.Finish()
	if err := u.device.Close(); err != nil {
		t.Fatal(err)
	}
	u.device = nil
	u.detach(volumeA5)
	u.gone(u.home, longhorn.InstanceManagerTypeEngine)
	d := u.cluster.device(u.attach(volumeA5, u.home, 3))
	u.load.Verify(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	u.runsOn(volumeA5, longhorn.InstanceManagerTypeAllInOne, longhorn.InstanceManagerTypeAllInOne)
	u.detach(volumeA5)
	u.identical(volumeA5, 3)
}

// refusedUpgrade (C8): an instance manager without a proxy knows no hand-over. The upgrade of its
// engine is refused with what to do, and the volume goes on.
func (u *attachedUpgrade) refusedUpgrade(t *testing.T) {
	before := fillDevice(t, u.cluster, u.volume(volumeA16).Controllers[0].Endpoint)
	attempt := u.engineOf(volumeA16).Spec.UpgradeAttempt
	u.upgrade(volumeA16, engineDefault)
	u.eventually("the upgrade of "+volumeA16+" is refused", func(context.Context) error {
		e := u.engineOf(volumeA16)
		if e.Spec.UpgradeAttempt <= attempt || !strings.Contains(e.Status.LastUpgradeError, "detach") {
			return fmt.Errorf("attempt %d, %q", e.Spec.UpgradeAttempt, e.Status.LastUpgradeError)
		}
		return nil
	})
	u.upgrade(volumeA16, engineOlder)
	u.awaitEngineImage(volumeA16, engineOlder)
	u.runsOn(volumeA16, longhorn.InstanceManagerTypeEngine, longhorn.InstanceManagerTypeReplica)
	if v := u.volume(volumeA16); v.State != "attached" || v.Robustness != "healthy" {
		t.Errorf("%s is %s and %s", volumeA16, v.State, v.Robustness)
	}
	holds(t, u.cluster, u.volume(volumeA16).Controllers[0].Endpoint, before,
		"the content has changed with an upgrade that was refused")
	u.content = before
}

// detachedWithoutUpgrade (A16, and the end of C8): both older instance managers have gone when the
// volume was detached (noRoom has done it); attached again it runs in aio ones, with the older
// engine image, and with today's after an upgrade at rest.
func (u *attachedUpgrade) detachedWithoutUpgrade(t *testing.T) {
	u.noLegacyPods()
	for _, image := range []string{engineOlder, engineDefault} {
		if u.volume(volumeA16).Image != image {
			u.upgrade(volumeA16, image)
			u.awaitEngineImage(volumeA16, image)
		}
		endpoint := u.attach(volumeA16, u.far, 1)
		holds(t, u.cluster, endpoint, u.content, "the content has changed with engine image "+image)
		d := u.cluster.device(endpoint)
		u.second.Verify(t, shifted{d, secondHalf})
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		u.runsOn(volumeA16, longhorn.InstanceManagerTypeAllInOne, longhorn.InstanceManagerTypeAllInOne)
		u.detach(volumeA16)
	}
	if kinds := u.kinds(); kinds["aio"] != 3 || len(kinds) != 1 {
		t.Errorf("instance managers at the end: %v", kinds)
	}
}
