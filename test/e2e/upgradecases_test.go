package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
)

// casesTest is the cluster of the integration cases of the proposal "Upgrade Volume's Engine Image
// Automatically".
type casesTest struct {
	*cluster
	volumes []string // ten, of which the first five are attached to node-1
	loads   map[string]*rig.Load
	devices map[string]userDevice
}

const (
	caseSize    = 32 * mib
	caseNode    = "node-1"
	attachedOf  = 5
	limitOfCase = 3
	autoUpgrade = "concurrent-automatic-engine-upgrade-per-node-limit"
)

// TestE10Cases runs the proposal's integration cases one after the other, as they are written: many
// volumes at once, in use and at rest, an expanding volume, a degraded one, one that follows
// backups. Then a new image of the instance manager comes too (E12), and a node with the former one
// is lost (A18).
func TestE10Cases(t *testing.T) {
	t.Parallel()
	k := &casesTest{cluster: startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace,
		Images: engineImages(t)}), loads: map[string]*rig.Load{}, devices: map[string]userDevice{}}
	k.managersRun()
	k.addEngineImages(engineNext)
	k.setting("allow-live-engine-upgrade-on-same-image-commit", "true")
	k.volumes = k.createMany("vol", 10, caseSize, 2)
	for _, name := range k.volumes[:attachedOf] {
		k.use(name)
	}
	of := func(run func()) func(*testing.T, *cluster) {
		return func(t *testing.T, _ *cluster) {
			run()
			for name, l := range k.loads {
				l.Check()
				l.AwaitMore(t, 20)
				t.Logf("longest pause of %s: %v", name, l.TakePause(time.Now()))
			}
		}
	}
	k.each(t, []scenario{
		{"Concurrent", of(k.concurrent)}, {"Expanding", of(k.expanding)}, {"Degraded", of(k.degraded)},
		{"E4", of(k.standby)}, {"E8", of(k.hanging)}, {"E12", of(k.newManagers)}, {"A18", of(k.unknownStays)},
	})
}

// use attaches a volume and has a writer that verifies on it.
func (k *casesTest) use(name string) {
	k.t.Helper()
	d := k.device(k.attach(name, caseNode, 2))
	k.devices[name], k.loads[name] = d, rig.StartLoad(k.t, d, caseSize, uint64(len(k.loads)))
}

// leave ends the use of a volume, compares all that was written, and detaches it.
func (k *casesTest) leave(name string) {
	k.t.Helper()
	l, d := k.loads[name], k.devices[name]
	delete(k.loads, name)
	l.Finish()
	if err := d.Close(); err != nil {
		k.t.Fatal(err)
	}
	k.detach(name)
}

// byHand brings volumes to another image while automatic upgrades are off.
func (k *casesTest) byHand(image string, volumes ...string) {
	k.t.Helper()
	k.setting(autoUpgrade, "0")
	for _, name := range volumes {
		k.upgrade(name, image)
	}
	for _, name := range volumes {
		k.awaitEngineImage(name, image)
	}
}

// concurrent is case 1: all volumes by hand to the new image, then within the limit back to the
// default one.
func (k *casesTest) concurrent() {
	k.byHand(engineNext, k.volumes...)
	k.awaitReferences(engineDefault, 0)
	began := time.Now()
	k.upgradesWithin(limitOfCase, k.volumes, engineDefault)
	k.t.Logf("ten volumes, five of them in use, within a limit of %d: %.1f s", limitOfCase, time.Since(began).Seconds())
	for _, name := range k.volumes[:attachedOf] {
		k.awaitUsable(name, caseNode, 2)
	}
	k.awaitReferences(engineNext, 0)
}

// expanding is case 3: a volume that is being expanded is upgraded when that is done, not before.
func (k *casesTest) expanding() {
	const name, size = "vol-9", 512 * mib
	k.byHand(engineNext, name)
	k.expand(name, "512Mi")
	k.setting(autoUpgrade, fmt.Sprint(limitOfCase))
	looks := 0
	k.eventually(name+" is expanded, and upgraded then", func(ctx context.Context) error {
		var v longhorn.Volume
		if err := k.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &v); err != nil {
			return err
		}
		if v.Status.ExpansionRequired {
			looks++
			if v.Spec.Image != engineNext {
				k.t.Fatalf("the volume is being expanded and its image is to be %s", v.Spec.Image)
			}
		}
		if v.Spec.Image != engineDefault || v.Status.CurrentImage != engineDefault ||
			v.Status.State != longhorn.VolumeStateDetached {
			return fmt.Errorf("image %s, current %s, %s, to be expanded: %t", v.Spec.Image, v.Status.CurrentImage,
				v.Status.State, v.Status.ExpansionRequired)
		}
		return nil
	})
	if looks == 0 {
		k.t.Error("the volume was never seen expanding while automatic upgrades were on")
	}
	k.attach(name, caseNode, 2)
	k.awaitSize(name, size)
	k.detach(name)
	k.t.Logf("seen expanding in %d looks", looks)
}

// degraded is case 4: a degraded volume stays as it is while others are upgraded, until it is
// healthy again.
func (k *casesTest) degraded() {
	sick, others := "vol-1", []string{"vol-2", "vol-8"}
	k.byHand(engineNext, append(others, sick)...)
	count := func(n int) {
		k.t.Helper()
		if _, err := k.rest.UpdateReplicaCount(context.Background(), sick, n); err != nil {
			k.t.Fatal(err)
		}
	}
	count(4)
	k.eventually(sick+" has three replicas and no place for the fourth", func(ctx context.Context) error {
		if err := k.robustness(sick, "degraded")(ctx); err != nil {
			return err
		}
		rw := 0
		for _, r := range k.volume(sick).Replicas {
			if r.Mode == "RW" {
				rw++
			}
		}
		if rw != 3 {
			return fmt.Errorf("%d replicas are in sync", rw)
		}
		return nil
	})
	k.setting(autoUpgrade, fmt.Sprint(limitOfCase))
	for _, name := range others {
		k.awaitEngineImage(name, engineDefault)
	}
	if v := k.volume(sick); v.Image != engineNext || v.CurrentImage != engineNext || v.Robustness != "degraded" {
		k.t.Errorf("the %s volume has image %s, to be %s, after others were upgraded", v.Robustness, v.CurrentImage, v.Image)
	}
	count(2)
	k.eventually(sick+" is upgraded with three replicas", func(context.Context) error {
		if v := k.volume(sick); v.CurrentImage != engineDefault {
			return fmt.Errorf("image %s, to be %s", v.CurrentImage, v.Image)
		}
		return nil
	})
	// A copy that is in sync is no less good for being one more than wanted: its owner removes it.
	k.eventually("the third replica of "+sick+" is removed", func(ctx context.Context) error {
		have := k.replicasOf(sick)
		if len(have) <= 2 {
			return nil
		}
		_, err := k.rest.RemoveReplica(ctx, sick, have[0].Name)
		return errors.Join(err, fmt.Errorf("%d replicas", len(have)))
	})
	k.awaitEngineImage(sick, engineDefault)
}

// hanging is E8: an engine that is to take a volume over stops on the way. The one before goes on,
// and the volume can go back.
func (k *casesTest) hanging() {
	k.setting(autoUpgrade, "0")
	k.addEngineImages(engineHanging)
	k.upgradeInVain("vol-0", engineHanging)
	k.awaitUsable("vol-0", caseNode, 2)
}

// newManagers is E12: a new default image of the instance manager comes with the new engine image.
// Volumes in use are upgraded live; their engines stay in the instance manager where they are until
// they are detached, and then the former instance managers go.
func (k *casesTest) newManagers() {
	k.setting(autoUpgrade, "0")
	k.onlyOn(testcluster.NodeName(lostNode))
	k.create(alone, caseSize, 1)
	k.attach(alone, testcluster.NodeName(lostNode), 1)
	k.onlyOn(k.Nodes[0].Name, k.Nodes[1].Name, k.Nodes[2].Name)
	former := k.engine("vol-0").Status.InstanceManagerName
	k.offerImage(kubernetesOf(k.t, k.cluster), nextImage)
	k.byHand(engineNext, k.volumes[:attachedOf]...)
	for _, name := range k.volumes[:attachedOf] {
		k.awaitUsable(name, caseNode, 2)
		if at := k.engine(name).Status.InstanceManagerName; at != former {
			k.t.Errorf("the engine of %s has moved from %s to %s while it was in use", name, former, at)
		}
		k.loads[name].Check()
		k.loads[name].AwaitMore(k.t, 20)
	}
	for _, name := range k.volumes[:attachedOf] {
		k.leave(name)
		k.identical(name, 2)
	}
	k.awaitGone(former)
	k.attach("vol-0", caseNode, 2)
	if at := k.engine("vol-0").Status.InstanceManagerName; at == former || !strings.HasPrefix(at, "instance-manager-") {
		k.t.Errorf("after its user has come back the engine is in %s", at)
	}
	k.detach("vol-0")
}

// The last instance manager of the former image is on lostNode, with a volume of one replica.
const (
	alone    = "alone"
	lostNode = 3
)

// manager reads an instance manager.
func (k *casesTest) manager(ctx context.Context, name string) (im longhorn.InstanceManager, err error) {
	return im, k.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &im)
}

// awaitGone waits until an instance manager is deleted.
func (k *casesTest) awaitGone(name string) {
	k.t.Helper()
	k.eventually(name+" is deleted", func(ctx context.Context) error {
		im, err := k.manager(ctx, name)
		if err == nil {
			err = fmt.Errorf("it is %s, with %d engines and %d replicas", im.Status.CurrentState, len(im.Status.InstanceEngines),
				len(im.Status.InstanceReplicas))
		}
		return client.IgnoreNotFound(err)
	})
}

// unknownStays is A18: the node of the last instance manager of the former image is lost. While its
// state is unknown it is kept, though the volume that it had is deleted; it goes when the node is
// back.
func (k *casesTest) unknownStays() {
	name := k.engine(alone).Status.InstanceManagerName
	k.KillNode(k.t, lostNode)
	k.eventually(name+" is unknown", func(ctx context.Context) error {
		im, err := k.manager(ctx, name)
		if err == nil && im.Status.CurrentState != longhorn.InstanceManagerStateUnknown {
			err = fmt.Errorf("it is %s", im.Status.CurrentState)
		}
		return err
	})
	if err := k.rest.DeleteVolume(k.t.Context(), alone); err != nil {
		k.t.Fatal(err)
	}
	k.eventually("the engine of "+alone+" is gone", func(ctx context.Context) error {
		var e longhorn.Engine
		err := k.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: alone + "-e-0"}, &e)
		if err == nil {
			err = fmt.Errorf("it is %s", e.Status.CurrentState)
		}
		return client.IgnoreNotFound(err)
	})
	im, err := k.manager(k.t.Context(), name)
	if err != nil || im.Status.CurrentState != longhorn.InstanceManagerStateUnknown || im.DeletionTimestamp != nil {
		k.t.Errorf("an instance manager whose state is unknown: %v, %s, deleted at %v", err, im.Status.CurrentState,
			im.DeletionTimestamp)
	}
	k.StartNode(k.t, lostNode)
	k.awaitGone(name)
	k.awaitImage(nextImage)
}
