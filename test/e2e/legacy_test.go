//go:build !nolegacy

package e2e

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	restclient "ankole.storage/rest/client"
)

// TestLegacy upgrades a system whose instance managers are of types engine and replica:
// real processes of older builds, with everything detached at first, and then with volumes attached
// and under a writer. Each part finds the cluster as the one before has left it.
func TestLegacy(t *testing.T) {
	t.Parallel()
	o := startOlder(t, false)
	o.addEngineImages(engineOlder)
	o.setting("allow-live-engine-upgrade-on-same-image-commit", "true")
	o.setting("replica-replenishment-wait-interval", "5")
	for _, share := range legacyShares {
		o.setting(share.setting, strconv.Itoa(share.percent))
	}
	o.scenario("A4", o.detachedUpgrade)
	o.scenario("A5Listing", o.oneVolume)

	u := &attachedUpgrade{older: o}
	u.prepare()
	o.scenario("A5", u.inUseKeepServing)
	o.scenario("A9", u.drained)
	o.scenario("A12", u.oldField)
	o.scenario("B6", u.legacyRequests)
	o.scenario("B8", u.migratedRequests)
	o.scenario("B10", u.settingsUnderFields)
	o.scenario("A14", u.newVolume)
	o.scenario("A17", u.migrates)
	o.scenario("A15", u.lostReplica)
	o.scenario("A6", u.liveUpgrade)
	o.scenario("A8", u.lastProcess)
	o.scenario("A7", u.attachedAgain)
	o.scenario("C8", u.refusedUpgrade)
	o.scenario("B9", u.noRoom)
	o.scenario("A16", u.detachedWithoutUpgrade)
	o.scenario("B10Detached", u.fieldsCleared)
}

// createOlder makes a volume of the older engine image, of 64 MiB where nothing else is said.
func (o *older) createOlder(spec restclient.VolumeSpec) {
	o.t.Helper()
	if spec.Size == "" {
		spec.Size = strconv.Itoa(64 * mib)
	}
	if _, err := o.rest.CreateVolume(context.Background(), spec); err != nil {
		o.t.Fatal(err)
	}
	o.eventually("volume "+spec.Name+" is detached", func(context.Context) error {
		if v := o.volume(spec.Name); v.State != "detached" || v.CurrentImage != v.Image {
			return fmt.Errorf("state %s, image %q", v.State, v.CurrentImage)
		}
		return nil
	})
	o.upgrade(spec.Name, engineOlder)
	o.eventually(spec.Name+" has the older engine image", func(context.Context) error {
		if v := o.volume(spec.Name); v.CurrentImage != engineOlder {
			return fmt.Errorf("image %q", v.CurrentImage)
		}
		return nil
	})
}

// detachedUpgrade (A4): idle instance managers of the older types are removed with their Pods, one
// aio on each node takes their place, and a volume that gets the default engine image then is
// attached there with its content.
func (o *older) detachedUpgrade(t *testing.T) {
	const volume = "a4"
	o.createOlder(restclient.VolumeSpec{Name: volume, NumberOfReplicas: 2})
	before := fillDevice(t, o.cluster, o.attach(volume, "node-1", 2))
	o.detach(volume)
	o.age()
	if kinds := o.kinds(); kinds["engine"] != 3 || kinds["replica"] != 3 || kinds["aio"] != 0 {
		t.Fatalf("instance managers before the upgrade: %v", kinds)
	}
	o.upgradeSystem()
	o.aioAlone()
	o.noLegacyPods()
	o.upgrade(volume, engineDefault)
	holds(t, o.cluster, o.attach(volume, "node-1", 2), before, "the content has changed with the upgrade")
	o.runsOn(volume, longhorn.InstanceManagerTypeAllInOne, longhorn.InstanceManagerTypeAllInOne)
	o.detach(volume)
	o.identical(volume, 2)
}

// oneVolume (A5 to A7 as the proposal lists them): one volume of the cluster is attached. The two
// engine managers that are not used go with the upgrade, the replica managers with the live upgrade
// of the engine, and the last engine manager with the detachment.
func (o *older) oneVolume(t *testing.T) {
	const volume, home = "a5-listing", "node-1"
	o.createOlder(restclient.VolumeSpec{Name: volume, NumberOfReplicas: 3})
	before := fillDevice(t, o.cluster, o.attach(volume, home, 3))
	o.age(volume)
	if kinds := o.kinds(); !maps.Equal(kinds, map[string]int{"engine": 3, "replica": 3}) {
		t.Fatalf("instance managers before the upgrade: %v", kinds)
	}
	pids := o.pidsOf(volume)
	o.upgradeSystem()
	o.lists("the system is upgraded", map[string]int{"engine": 1, "replica": 3, "aio": 3})
	o.gone("node-2", longhorn.InstanceManagerTypeEngine)
	o.gone("node-3", longhorn.InstanceManagerTypeEngine)
	o.runsOn(volume, longhorn.InstanceManagerTypeEngine, longhorn.InstanceManagerTypeReplica)
	if left := o.pidsOf(volume); len(pids) != 4 || !maps.Equal(left, pids) {
		t.Errorf("the processes %v became %v with the upgrade", pids, left)
	}
	o.upgrade(volume, engineDefault)
	o.awaitEngineImage(volume, engineDefault)
	o.lists("the engine is upgraded", map[string]int{"engine": 1, "aio": 3})
	o.detach(volume)
	o.aioAlone()
	o.noLegacyPods()
	holds(t, o.cluster, o.attach(volume, home, 3), before, "the content has changed with the upgrade")
	o.runsOn(volume, longhorn.InstanceManagerTypeAllInOne, longhorn.InstanceManagerTypeAllInOne)
	o.lists("the volume is attached again", map[string]int{"aio": 3})
	o.detach(volume)
	o.identical(volume, 3)
	o.remove(volume)
}

// lists waits until there are so many instance managers of each type.
func (o *older) lists(when string, want map[string]int) {
	o.t.Helper()
	o.eventually(fmt.Sprintf("%s: instance managers are %v", when, want), func(context.Context) error {
		if kinds := o.kinds(); !maps.Equal(kinds, want) {
			return fmt.Errorf("%v", kinds)
		}
		return nil
	})
}

// aioAlone waits until older instance managers have gone.
func (o *older) aioAlone() {
	o.t.Helper()
	o.lists("no volume is attached", map[string]int{"aio": 3})
}

// kinds counts the instance managers of each type.
func (o *older) kinds() map[string]int {
	o.t.Helper()
	kinds := map[string]int{}
	for _, m := range o.instanceManagers() {
		kinds[string(m.Spec.Type)]++
	}
	return kinds
}

// noLegacyPods waits until no Pod of an older instance manager is left.
func (o *older) noLegacyPods() {
	o.t.Helper()
	o.eventually("no Pod of an older instance manager is left", func(ctx context.Context) error {
		pods, err := o.ks.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			LabelSelector: naming.LabelInstanceManagerType + " in (engine, replica)"})
		if err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d, among them %s", len(pods.Items), pods.Items[0].Name)
		}
		return nil
	})
}

// gone waits until a node's instance manager of an older type is gone, and its Pod.
func (o *older) gone(node string, kind longhorn.InstanceManagerType) {
	o.t.Helper()
	name, _ := o.legacyName(node, kind)
	o.eventually("instance manager "+name+" of "+node+" is gone", func(ctx context.Context) error {
		var im longhorn.InstanceManager
		if err := o.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &im); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%v, closed %q, processes %v, %+v", err, im.Status.ClosedPod, im.Status.Instances,
				im.Status.Conditions)
		}
		if _, err := o.ks.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("its Pod is there: %v", err)
		}
		return nil
	})
}

// legacy reads a node's instance manager of an older type.
func (o *older) legacy(node string, kind longhorn.InstanceManagerType) *longhorn.InstanceManager {
	o.t.Helper()
	name, _ := o.legacyName(node, kind)
	im := &longhorn.InstanceManager{}
	if err := o.kube.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, im); err != nil {
		o.t.Fatal(err)
	}
	return im
}

// runsOn waits until a volume's engine and replicas run in instance managers of these types, and
// are listed in the fields of those.
func (o *older) runsOn(volume string, engine, replica longhorn.InstanceManagerType) {
	o.t.Helper()
	o.eventually(fmt.Sprintf("%s runs in %s and %s", volume, engine, replica), func(context.Context) error {
		byName := map[string]longhorn.InstanceManager{}
		for _, m := range o.instanceManagers() {
			byName[m.Name] = m
		}
		e := o.engineOf(volume)
		if err := listedIn(e.Name, byName[e.Status.InstanceManagerName], engine, true); err != nil {
			return err
		}
		for _, r := range o.replicasOf(volume) {
			if err := listedIn(r.Name, byName[r.Status.InstanceManagerName], replica, false); err != nil {
				return err
			}
		}
		return nil
	})
}

// listedIn tells whether a process is listed as running by an instance manager of a type, in the
// fields of that type and in no other one.
func listedIn(name string, im longhorn.InstanceManager, kind longhorn.InstanceManagerType, engine bool) error {
	st := im.Status
	if im.Spec.Type != kind {
		return fmt.Errorf("%s is in %q, of type %q", name, im.Name, im.Spec.Type)
	}
	field, others := st.Instances, len(st.InstanceEngines)+len(st.InstanceReplicas)
	if kind == longhorn.InstanceManagerTypeAllInOne {
		field, others = st.InstanceReplicas, len(st.Instances)
		if engine {
			field = st.InstanceEngines
		}
	}
	if p, ok := field[name]; !ok || p.Status.State != "running" || others > 0 {
		return fmt.Errorf("%s in %s: listed %v, %q; %d processes in other fields", name, im.Name, ok, p.Status.State, others)
	}
	return nil
}
