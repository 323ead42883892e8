package volume_test

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume"
)

const spoilt = "exit status 65: open replica directory /r: corrupt replica directory: volume-snap-a.img.meta is not valid JSON: EOF"

// damage has the processes of copies find them damaged.
func (w *world) damage(which func(c *copyOf) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.disks {
		if which(c) {
			c.damaged = spoilt
		}
	}
}

// TestDamagedCopyOfThreeIsReplacedAtOnce: the volume goes on with the others, which are not kept
// waiting, and has a new copy soon.
func TestDamagedCopyOfThreeIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), 3)
	w.newVolume(3, nil)
	w.settle()
	w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.expect(`attached healthy at "n1"`)
	w.ticket("ui", "", "")
	w.settle()
	w.damage(func(c *copyOf) bool { return c.node == "n2" })
	w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
	w.advance(20*time.Second, time.Second)
	w.heal(20 * time.Second)
	w.expect(`attached healthy at "n1"`)
}

// TestOnlyCopyDamaged: the reason that the process gives is on the Volume and in an event, tries
// get rarer, and the volume is there as soon as the directory is mended.
func TestOnlyCopyDamaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), 1)
	w.newVolume(1, nil)
	w.settle()
	w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.ticket("ui", "", "")
	w.settle()
	w.damage(func(*copyOf) bool { return true })
	w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
	tries := func(d time.Duration) int {
		before := w.nextID
		w.advance(d, 5*time.Second)
		return w.nextID - before
	}
	first := tries(10 * time.Minute)
	c := v1beta2.FindCondition(w.volume("v").Status.Conditions, volume.ConditionStart)
	if c.Status != v1beta2.ConditionFalse || !strings.Contains(c.Message, "volume-snap-a.img.meta is not valid JSON") {
		t.Errorf("condition %+v\n%s", c, w.dump())
	}
	said := 0
	for len(w.events.Events) > 0 {
		if e := <-w.events.Events; strings.Contains(e, "Faulted") && strings.Contains(e, "is not valid JSON") {
			said++
		}
	}
	if said == 0 {
		t.Error("no event tells the reason")
	}
	if later := tries(10 * time.Minute); first == 0 || later >= first || later > 10 {
		t.Errorf("%d processes in ten minutes, %d in the next ten", first, later)
	}
	for _, d := range w.disks {
		d.damaged = ""
	}
	w.advance(15*time.Minute, 5*time.Second)
	w.expect(`attached healthy at "n1"`)
	c = v1beta2.FindCondition(w.volume("v").Status.Conditions, volume.ConditionStart)
	if c.Status != v1beta2.ConditionTrue {
		t.Errorf("condition %+v of a volume that serves", c)
	}
}
