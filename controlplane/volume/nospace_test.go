package volume

import (
	"slices"
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
)

// TestFileSystemThatHadNoSpace: one that has gone read-only while a disk of the volume was full is
// mounted again, by its users, when all of them have space; one that has gone read-only otherwise
// is left alone.
func TestFileSystemThatHadNoSpace(t *testing.T) {
	v, s := fixture()
	step := func(name string, readOnly bool, available int64, want v1beta2.ConditionStatus, remount bool, events int) {
		t.Helper()
		c := v1beta2.Condition{Type: v1beta2.EngineConditionFilesystemReadOnly, Status: v1beta2.ConditionFalse}
		if readOnly {
			c.Status = v1beta2.ConditionTrue
		}
		s.Engine.Status.Conditions, _ = v1beta2.SetCondition(nil, c, now)
		d := s.Nodes[1].Status.DiskStatus["d"]
		d.StorageAvailable = available
		s.Nodes[1].Status.DiskStatus["d"] = d
		v.Status.RemountRequestedAt = ""
		told := told(decides(v, *s), v1beta2.VolumeConditionNoSpace)
		got := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionNoSpace)
		if got.Status != want || (v.Status.RemountRequestedAt != "") != remount || len(told) != events {
			t.Errorf("%s: %+v, remount %q, events %+v", name, got, v.Status.RemountRequestedAt, told)
		}
		if want == v1beta2.ConditionTrue && !strings.Contains(got.Message, "disk d of node n2") {
			t.Errorf("%s: %q names no disk", name, got.Message)
		}
	}
	const unknown, yes, no = v1beta2.ConditionUnknown, v1beta2.ConditionTrue, v1beta2.ConditionFalse
	step("read-only by itself", true, 90<<30, unknown, false, 0)
	step("full, and still writable", false, 0, unknown, false, 0)
	step("full", true, 0, yes, false, 1)
	step("still full", true, 8<<20, yes, false, 0)
	step("space again", true, 1<<30, no, true, 0)
	step("until it is mounted again", true, 1<<30, no, false, 0)
	step("full again", true, 0, yes, false, 1)
	step("writable before there is space", false, 0, no, false, 0)
}

// TestRoomWakesAnEndedFileSystem: a volume whose file system takes no writes hears that a disk is
// full, and that it has space again, which may be seen later.
func TestRoomWakesAnEndedFileSystem(t *testing.T) {
	r := New(Config{Allocator: allocator.New("", nil)})
	v, s := fixture()
	for _, status := range []v1beta2.ConditionStatus{v1beta2.ConditionTrue, v1beta2.ConditionFalse} {
		s.Engine.Status.Conditions, _ = v1beta2.SetCondition(nil, v1beta2.Condition{
			Type: v1beta2.EngineConditionFilesystemReadOnly, Status: status}, now)
		r.note(v, decide(now, v, *s).Note)
		woken := slices.Contains(r.onNodeUpdate(&s.Nodes[0], &s.Nodes[0]), v.Name)
		if woken != (status == v1beta2.ConditionTrue) {
			t.Errorf("read-only %s: woken %t", status, woken)
		}
	}
}
