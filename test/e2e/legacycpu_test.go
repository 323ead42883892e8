//go:build !nolegacy

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	restresource "ankole.storage/rest/resource"
	"ankole.storage/test/rig"
)

// CPU requests of TestLegacy. A person had chosen shares of the older instance managers, whose Pods
// were made with them, and long before that engineCPU for each of them.
const (
	// engineCPU is more than a node field may have on the smallest node, and is taken over all the
	// same.
	engineCPU      = "0.9"
	migratedMillis = 900 // of fields that engineCPU has moved into
	// aioPercent is the share that aio instance managers are given later.
	aioPercent = 40
	// secondHalf is where the second half of a volume begins.
	secondHalf = 32 * mib
)

// legacyShares are the shares of the older instance managers, in percent.
var legacyShares = map[longhorn.InstanceManagerType]struct {
	setting string
	percent int
}{
	longhorn.InstanceManagerTypeEngine:  {"guaranteed-engine-manager-cpu", 15},
	longhorn.InstanceManagerTypeReplica: {"guaranteed-replica-manager-cpu", 24},
}

// requests waits until the Pods of the aio instance managers request what the migration has given
// their nodes, or the share where clearFields was.
func (u *attachedUpgrade) requests(what string) (pods map[string]types.UID) {
	u.t.Helper()
	var want []int64
	for _, n := range u.Nodes {
		millis := int64(migratedMillis)
		if slices.Contains(u.cleared, n.Name) {
			millis = u.onCPUs(n.Name, aioPercent)
		}
		want = append(want, millis)
	}
	return (&cpuTest{u.cluster, u.ks}).await(what, want...)
}

// onCPUs is a share of the CPUs of a node, in thousandths of one.
func (u *attachedUpgrade) onCPUs(node string, percent int64) int64 {
	share := u.cpuShare(u.ks, node, percent)
	return share.MilliValue()
}

// clearFields sets the CPU requests of a node to 0, so that settings rule.
func (u *attachedUpgrade) clearFields(node string) {
	u.t.Helper()
	none := 0
	if _, err := (&cpuTest{u.cluster, u.ks}).put(node, func(in *restresource.NodeInput) {
		in.EngineManagerCPURequest, in.ReplicaManagerCPURequest, in.InstanceManagerCPURequest = &none, &none, 0
	}); err != nil {
		u.t.Fatal(err)
	}
	u.cleared = append(u.cleared, node)
}

// replaced waits until the requests are so, and checks that the Pods of these nodes' aio instance
// managers were made again, and no other one.
func (u *attachedUpgrade) replaced(what string, nodes ...string) {
	u.t.Helper()
	before := u.aio
	u.aio = u.requests(what)
	for node, uid := range u.aio {
		if (uid != before[node]) != slices.Contains(nodes, node) {
			u.t.Errorf("%s: the aio Pod on %s was %s and is %s", what, node, before[node], uid)
		}
	}
}

// stays checks that each aio Pod of before is there.
func (u *attachedUpgrade) stays(before map[string]types.UID, now map[string]string) {
	u.t.Helper()
	left := slices.Collect(maps.Values(now))
	for node, uid := range before {
		if !slices.Contains(left, string(uid)) {
			u.t.Errorf("the aio Pod %s on %s is gone", uid, node)
		}
	}
}

// settingsUnderFields (B10): all three settings change, volumes being attached and one written to.
// The fields that the migration has set win: nothing is made again, then or later.
func (u *attachedUpgrade) settingsUnderFields(t *testing.T) {
	u.aio = u.requests("of the migration")
	u.setting(cpuSetting, strconv.Itoa(aioPercent))
	for kind, percent := range map[longhorn.InstanceManagerType]string{longhorn.InstanceManagerTypeEngine: "10",
		longhorn.InstanceManagerTypeReplica: "20"} {
		u.setting(legacyShares[kind].setting, percent)
	}
	u.goesOn()
	u.replaced("after the settings have changed")
	u.legacyRequests(t) // they still wait for what the fields say
	u.undisturbed()
}

// noRoom (B9): the proposal's three sets of images on one node. The first set are the older
// instance managers, with 15 and 24 %; the second one, aio with 40 %, has room beside it; the third
// one, as large, has none until the volume of the first set is detached. Writers on a volume of
// either set notice nothing.
func (u *attachedUpgrade) noRoom(t *testing.T) {
	const volume = "b9"
	u.replaced("long after the settings have changed")
	old := u.cluster.device(u.volume(volumeA16).Controllers[0].Endpoint)
	u.second = rig.StartLoad(t, shifted{old, secondHalf}, secondHalf, 16)
	u.settingsOnFar()
	second := u.aio

	u.create(volume, 64*mib, 3)
	d := u.cluster.device(u.attach(volume, u.far, 3))
	w := rig.StartLoad(t, d, 64*mib, 9)
	u.offerImage(u.ks, nextImage)
	percent := int64(aioPercent)
	for _, share := range legacyShares {
		percent += int64(share.percent)
	}
	u.refusedOn(u.far, u.onCPUs(u.far, aioPercent), u.onCPUs(u.far, percent), u.onCPUs(u.far, 100))
	u.triedAgain(nextImage)
	u.runsOn(volumeA16, longhorn.InstanceManagerTypeEngine, longhorn.InstanceManagerTypeReplica)
	u.runsOn(volume, longhorn.InstanceManagerTypeAllInOne, longhorn.InstanceManagerTypeAllInOne)

	u.second.AwaitMore(t, 100)
	u.second.Finish()
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	u.detach(volumeA16)
	u.gone(u.far, longhorn.InstanceManagerTypeEngine)
	u.gone(u.far, longhorn.InstanceManagerTypeReplica)
	began := time.Now()
	u.startsOnFar(nextImage)
	t.Logf("the third set runs %v after the first one has gone", time.Since(began))

	w.AwaitMore(t, 100)
	w.Finish()
	t.Logf("longest pause %v", w.TakePause(time.Now()))
	u.stays(second, u.podUIDs())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	u.detach(volume)
	u.identical(volume, 3)
	u.awaitImage(nextImage)
	u.replaced("of the third set", u.home, u.far, u.third)
}

// settingsOnFar lets the settings of the older version rule on far once more. Its older instance
// managers have what these say; only its aio is made again.
func (u *attachedUpgrade) settingsOnFar() {
	u.t.Helper()
	for _, share := range legacyShares {
		u.setting(share.setting, strconv.Itoa(share.percent))
	}
	u.clearFields(u.far)
	u.replaced("of the second set", u.far)
	for _, share := range legacyShares {
		u.eventually("the request is that of setting "+share.setting, func(ctx context.Context) error {
			s, err := u.rest.Setting(ctx, share.setting)
			if err == nil && !s.Applied {
				err = errors.New("it is not applied")
			}
			return err
		})
	}
	u.runsOn(volumeA16, longhorn.InstanceManagerTypeEngine, longhorn.InstanceManagerTypeReplica)
}

// onFar is the aio instance manager of an image on far.
func (u *attachedUpgrade) onFar(image string) (*longhorn.InstanceManager, error) {
	u.t.Helper()
	for _, m := range u.instanceManagers() {
		if m.Spec.NodeID == u.far && m.Spec.Image == image {
			return &m, nil
		}
	}
	return nil, fmt.Errorf("%s has no instance manager of image %s", u.far, image)
}

// triedAgain waits until far has refused three Pods of an image.
func (u *attachedUpgrade) triedAgain(image string) {
	u.t.Helper()
	refused := map[types.UID]bool{}
	u.eventually("the Pod is made again and again", func(ctx context.Context) error {
		im, err := u.onFar(image)
		if err != nil {
			return err
		}
		pod, err := u.ks.CoreV1().Pods(namespace).Get(ctx, im.Name, metav1.GetOptions{})
		if err == nil && pod.Status.Reason == "OutOfcpu" {
			refused[pod.UID] = true
		}
		if len(refused) < 3 {
			return fmt.Errorf("%d Pods were refused, %v", len(refused), err)
		}
		return nil
	})
}

// startsOnFar waits until the aio instance manager of an image runs on far with its share.
func (u *attachedUpgrade) startsOnFar(image string) {
	u.t.Helper()
	u.eventually("the instance manager of image "+image+" runs on "+u.far, func(ctx context.Context) error {
		im, err := u.onFar(image)
		if err != nil {
			return err
		}
		got, _, err := (&cpuTest{u.cluster, u.ks}).requestOf(ctx, im)
		if err == nil && got != u.onCPUs(u.far, aioPercent) {
			err = fmt.Errorf("it requests %dm", got)
		}
		return err
	})
}

// fieldsCleared (the end of B10): everything is detached, and one node's fields are set to 0. Only
// its Pod is made again, with the setting's share. The volume from before the upgrade has all that
// was written, and is written to.
func (u *attachedUpgrade) fieldsCleared(t *testing.T) {
	u.clearFields(u.home)
	u.replaced("of the setting", u.home)
	endpoint := u.attach(volumeA5, u.home, 3)
	u.runsOn(volumeA5, longhorn.InstanceManagerTypeAllInOne, longhorn.InstanceManagerTypeAllInOne)
	d := u.cluster.device(endpoint)
	u.load.Verify(t, d)
	u.load.Device = d
	for range 200 {
		if err := u.load.Step(uint64(u.load.Ops()) + 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(u.load.Settle(), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = u.cluster.device(endpoint) // nothing is cached
	u.load.Verify(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	u.detach(volumeA5)
	u.identical(volumeA5, 3)
	u.replaced("at the end")
}
