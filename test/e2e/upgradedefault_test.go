package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
)

// engineNowhere is an image that no node can pull.
const engineNowhere = "ankole/engine:nowhere"

// defaultTest is a cluster whose default engine image changes while it runs.
type defaultTest struct {
	*casesTest
	ks  kubernetes.Interface
	log *volumeLog
}

// TestDefaultEngineImage changes the default engine image of a running cluster, as an upgrade of
// the installation does, again and again: ten volumes, of which five are in use by writers that
// verify, stay or follow. What happens is judged by every change of every Volume, not by looks at
// them.
func TestDefaultEngineImage(t *testing.T) {
	lack.RealTime(t, "an upgrade that is given up after five minutes")
	t.Parallel()
	k := &casesTest{cluster: startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace,
		Images: engineImages(t)}), loads: map[string]*rig.Load{}, devices: map[string]userDevice{}}
	k.managersRun()
	k.addEngineImages(engineFar)
	k.setting("allow-live-engine-upgrade-on-same-image-commit", "true")
	k.volumes = k.createMany("vol", 10, caseSize, 2)
	for _, name := range k.volumes[:attachedOf] {
		k.use(name)
	}
	d := &defaultTest{casesTest: k, ks: kubernetesOf(t, k.cluster), log: k.recordVolumes()}
	of := func(run func()) func(*testing.T, *cluster) {
		return func(t *testing.T, _ *cluster) {
			run()
			d.log.check(t)
			for name, l := range d.loads {
				l.Check()
				l.AwaitMore(t, 20)
				t.Logf("longest pause of %s: %v", name, l.TakePause(time.Now()))
			}
		}
	}
	k.each(t, []scenario{
		{"E2", of(d.limitZero)}, {"E1", of(d.withinLimit)}, {"E13", of(d.lowered)}, {"E7", of(d.notReady)},
		{"E11", of(d.incompatible)}, {"E8", of(d.givenUp)},
	})
	for _, name := range k.volumes[:attachedOf] {
		if k.loads[name] != nil {
			k.leave(name)
		}
		k.identical(name, 2)
	}
}

// offer makes an image the default one.
func (d *defaultTest) offer(image string) {
	d.t.Helper()
	d.tellManagers(d.ks, d.settingValue("default-engine-image"), image)
	d.eventually(image+" is the default engine image", func(ctx context.Context) error {
		s, err := d.rest.Setting(ctx, "default-engine-image")
		if err == nil && s.Value != image {
			err = fmt.Errorf("that is %s", s.Value)
		}
		return err
	})
}

// offerReady is offer, and waits until all nodes have the image.
func (d *defaultTest) offerReady(image string) {
	d.t.Helper()
	d.offer(image)
	d.awaitDeployed(image)
}

// everybodyLooks changes each Volume in a way that says nothing, so that its controller looks at
// it, and then brings a detached volume by hand to another image and back or on, which takes the
// same controllers, settings and images: what they do by themselves they have done by then.
func (d *defaultTest) everybodyLooks(images ...string) {
	d.t.Helper()
	for _, name := range d.volumes {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"test/looked-at":"%d"}}}`, d.log.mark())
		v := &longhorn.Volume{}
		v.Namespace, v.Name = namespace, name
		if err := d.kube.Patch(context.Background(), v, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			d.t.Fatal(err)
		}
	}
	for _, image := range images {
		d.upgrade("vol-9", image)
		d.awaitEngineImage("vol-9", image)
	}
}

// stayed checks that no volume but those named was to have another image since the mark.
func (d *defaultTest) stayed(since int, but ...string) {
	d.t.Helper()
	for name, images := range d.log.wanted(since) {
		if !slices.Contains(but, name) {
			d.t.Errorf("%s was to have %v", name, images)
		}
	}
}

// limitZero is E2: with a new default image nothing moves at limit 0, and by hand any image is
// allowed, live too.
func (d *defaultTest) limitZero() {
	mark, began := d.log.mark(), time.Now()
	d.offerReady(engineNext)
	d.everybodyLooks(engineFar)
	d.byHand(engineNext, "vol-0")
	d.byHand(engineDefault, "vol-0")
	d.everybodyLooks(engineDefault, engineFar)
	d.stayed(mark, "vol-0", "vol-9")
	d.t.Logf("nothing moved by itself for %.0f s", time.Since(began).Seconds())
}

// withinLimit is E1: all go to the default image, never more than the limit of a node at once;
// those in use stay attached. To another image nobody goes by hand.
func (d *defaultTest) withinLimit() {
	mark := d.log.mark()
	d.setting(autoUpgrade, fmt.Sprint(limitOfCase))
	for _, name := range d.volumes {
		d.awaitEngineImage(name, engineNext)
	}
	d.log.within(d.t, mark, limitOfCase)
	for name, images := range d.log.wanted(mark) {
		if !slices.Equal(images, []string{engineNext}) {
			d.t.Errorf("%s was to have %v", name, images)
		}
	}
	for _, name := range d.volumes[:attachedOf] {
		if states := d.log.states(name, mark); !slices.Equal(states, []string{"attached"}) {
			d.t.Errorf("%s was %v while it was in use", name, states)
		}
		d.awaitUsable(name, caseNode, 2)
	}
	d.awaitReferences(engineDefault, 0)
	if _, err := d.rest.UpgradeEngine(context.Background(), "vol-9", engineDefault); err == nil ||
		!strings.Contains(err.Error(), "the default engine image") {
		d.t.Errorf("by hand to another image while automatic upgrades are on: %v", err)
	}
}

// lowered is E13: the limit becomes 0 while upgrades are under way; they end, and no other begins.
func (d *defaultTest) lowered() {
	d.setting(autoUpgrade, "0")
	d.offerReady(engineDefault)
	d.setting(autoUpgrade, "1")
	inUse := func(name string) bool { return slices.Contains(d.volumes[:attachedOf], name) }
	d.eventually("a volume in use is being upgraded", func(context.Context) error {
		if !slices.ContainsFunc(d.log.underWay(), inUse) {
			return errors.New("none is under way")
		}
		return nil
	})
	d.setting(autoUpgrade, "0")
	under := d.log.underWay()
	for _, name := range under {
		d.awaitEngineImage(name, engineDefault)
	}
	ended := d.log.mark()
	d.everybodyLooks(engineFar, engineDefault)
	d.stayed(ended, "vol-9")
	left := 0
	for _, name := range d.volumes[:attachedOf] {
		if d.volume(name).CurrentImage == engineNext {
			left++
		}
	}
	d.t.Logf("%v ended, %d did not begin", under, left)
	if left == 0 {
		d.t.Error("no volume was left that could have begun")
	}
	d.setting(autoUpgrade, fmt.Sprint(limitOfCase))
	for _, name := range d.volumes {
		d.awaitEngineImage(name, engineDefault)
	}
}

// notReady is the first half of E7: to an image that is on no node nobody goes, at rest neither.
func (d *defaultTest) notReady() {
	mark := d.log.mark()
	d.setting(autoUpgrade, fmt.Sprint(limitOfCase))
	d.offer(engineNowhere)
	d.everybodyLooks()
	name := d.volumes[attachedOf]
	d.attach(name, "node-2", 2)
	d.detach(name)
	d.everybodyLooks()
	if _, err := d.rest.UpgradeEngine(context.Background(), name, engineNowhere); err == nil ||
		!strings.Contains(err.Error(), engineNowhere) {
		d.t.Errorf("by hand to an image that is on no node: %v", err)
	}
	d.stayed(mark)
}

// incompatible is the second half of E7, and E11: with an image whose engine cannot take a volume
// over, those at rest have it at once, and those in use when their user comes back, however soon.
func (d *defaultTest) incompatible() {
	d.setting(autoUpgrade, fmt.Sprint(limitOfCase))
	mark := d.log.mark()
	d.offerReady(engineFar)
	for _, name := range d.volumes[attachedOf:] {
		d.awaitEngineImage(name, engineFar)
	}
	d.everybodyLooks()
	const moves = "vol-4"
	d.stayed(mark, d.volumes[attachedOf:]...)

	l, dev := d.loads[moves], d.devices[moves]
	delete(d.loads, moves)
	l.Finish()
	if err := dev.Close(); err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.rest.DetachVolume(context.Background(), moves, resource.DetachInput{}); err != nil {
		d.t.Fatal(err)
	}
	d.attach(moves, "node-2", 2) // nobody waits for the detachment
	d.awaitEngineImage(moves, engineFar)
	d.detach(moves)
	d.identical(moves, 2)
	d.stayed(mark, append(d.volumes[attachedOf:], moves)...)
}

// givenUp is E8: an upgrade that the limit begins and that does not come to its end takes its slot,
// is given up when its time is over, and is not begun again at once: the next volume has the slot.
// Meanwhile a client may go back, and nowhere else (E3).
func (d *defaultTest) givenUp() {
	d.setting(autoUpgrade, "0")
	d.addEngineImages(engineHanging)
	mark := d.log.mark()
	d.offerReady(engineHanging)
	began := time.Now()
	d.setting(autoUpgrade, "1")
	var first string
	d.eventually("an upgrade of a volume in use is under way", func(context.Context) error {
		for _, name := range d.log.underWay() {
			if d.log.states(name, mark)[0] == "attached" {
				first = name
				return nil
			}
		}
		return errors.New("none is")
	})
	if _, err := d.rest.UpgradeEngine(context.Background(), first, engineNext); err == nil ||
		!strings.Contains(err.Error(), "go back to "+engineDefault) {
		d.t.Errorf("to a third image while %s is upgraded: %v", first, err)
	}
	var second string
	d.within(longest+upgradeTime, "it is given up, and another begins", func(context.Context) error {
		given := d.log.givenUpAt(first)
		if given < 0 {
			return fmt.Errorf("%s is not given up after %.0f s", first, time.Since(began).Seconds())
		}
		for name := range d.log.wanted(given + 1) {
			if name == first {
				d.t.Fatalf("%s, which was given up, is upgraded again at once", first)
			}
			if d.loads[name] != nil {
				second = name
			}
		}
		if second == "" {
			return errors.New("no other begins")
		}
		return nil
	})
	d.log.within(d.t, mark, 1)
	if took := time.Since(began); took < upgradeTime-time.Second { // its beginning is noted in seconds
		d.t.Errorf("%s was given up after %v, within its time of %v", first, took, upgradeTime)
	}
	if _, err := d.rest.UpgradeEngine(context.Background(), second, engineDefault); err != nil {
		d.t.Errorf("%s cannot go back to %s: %v", second, engineDefault, err)
	}
	d.setting(autoUpgrade, "0")
	for name := range d.loads {
		if d.volume(name).Image != engineDefault {
			d.upgrade(name, engineDefault)
		}
		d.awaitEngineImage(name, engineDefault)
	}
}

// upgradeTime is how long an upgrade may last (docs/design/upgrade.md).
const upgradeTime = 5 * time.Minute
