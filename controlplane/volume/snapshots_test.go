package volume

import (
	"fmt"
	"math"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// TestTooManySnapshots: the condition comes with one warning when the snapshots reach the smaller
// of setting and limit, or their sizes the limit of sizes, and goes when they do not any more.
func TestTooManySnapshots(t *testing.T) {
	for _, tt := range []struct {
		name             string
		snapshots, bytes int
		threshold        string
		count            int
		size             int64
		had, want        v1beta2.ConditionStatus
		events           int
		says             string
	}{
		{"never looked at", -1, 0, "4", 9, 0, "", v1beta2.ConditionFalse, 0, ""},
		{"not looked at now", -1, 0, "4", 9, 0, v1beta2.ConditionTrue, v1beta2.ConditionTrue, 0, ""},
		{"none", 0, 0, "4", 9, 0, "", v1beta2.ConditionFalse, 0, ""},
		{"few", 3, 1, "4", 9, 0, "", v1beta2.ConditionFalse, 0, ""},
		{"at the setting", 4, 1, "4", 9, 0, "", v1beta2.ConditionTrue, 1,
			"Snapshots count is 4 at or over the warning threshold 4"},
		{"at the volume's limit", 3, 1, "4", 3, 0, "", v1beta2.ConditionTrue, 1,
			"Snapshots count is 3 at or over the warning threshold 3"},
		{"still", 4, 1, "4", 9, 0, v1beta2.ConditionTrue, v1beta2.ConditionTrue, 0,
			"Snapshots count is 4 at or over the warning threshold 4"},
		{"one more", 5, 1, "4", 9, 0, v1beta2.ConditionTrue, v1beta2.ConditionTrue, 0,
			"Snapshots count is 5 at or over the warning threshold 4"},
		{"not any more", 3, 1, "4", 9, 0, v1beta2.ConditionTrue, v1beta2.ConditionFalse, 0, ""},
		{"below the size", 2, 5, "4", 9, 11, "", v1beta2.ConditionFalse, 0, ""},
		{"at the size", 2, 5, "4", 9, 10, "", v1beta2.ConditionTrue, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := &v1beta2.Volume{}
			v.Spec.SnapshotMaxCount, v.Spec.SnapshotMaxSize = tt.count, tt.size
			e := &v1beta2.Engine{}
			e.Status.Snapshots = map[string]v1beta2.SnapshotInfo{v1beta2.VolumeHeadName: {Size: "1000"}}
			if tt.snapshots < 0 {
				e.Status.Snapshots = nil
			}
			for i := range max(tt.snapshots, 0) {
				e.Status.Snapshots[fmt.Sprint(i)] = v1beta2.SnapshotInfo{Size: fmt.Sprint(tt.bytes)}
			}
			kind := v1beta2.VolumeConditionTooManySnapshots
			if tt.had != "" {
				v.Status.Conditions, _ = v1beta2.SetCondition(nil, v1beta2.Condition{Type: kind, Status: tt.had}, now)
			}
			p := newPass(now, v, seen{Engine: e, Settings: setting.Values{setting.SnapshotCountWarningThreshold: tt.threshold}})
			p.noteSnapshots()
			got, said := v1beta2.ConditionStatus(""), ""
			for _, c := range v.Status.Conditions {
				got, said = c.Status, c.Message
			}
			if tt.says != "" && said != tt.says {
				t.Errorf("says %q, want %q", said, tt.says)
			}
			if got != tt.want || len(p.events) != tt.events {
				t.Errorf("%q, events %+v", got, p.events)
			}
		})
	}
}

// TestSnapshotSpace: what snapshots may occupy is what the volume says, else the multiple of its
// size that was written down when it was created; its processes and its condition follow.
func TestSnapshotSpace(t *testing.T) {
	for _, tt := range []struct {
		field  int64
		factor string
		size   int64
		want   int64
	}{
		{0, "", 100, 0}, {0, "10", 100, 1000}, {0, "10", 200, 2000}, {300, "10", 100, 300}, {300, "", 100, 300},
		{0, "none", 100, 0}, {0, "-1", 100, 0}, {0, "0", 100, 0}, {0, "1000", math.MaxInt64 / 2, math.MaxInt64},
	} {
		v := &v1beta2.Volume{}
		v.Spec.Size, v.Spec.SnapshotMaxSize, v.Spec.SnapshotMaxCount = tt.size, tt.field, 9
		if tt.factor != "" {
			v.Annotations = map[string]string{"longhorn.io/snapshot-space-factor": tt.factor}
		}
		e := &v1beta2.Engine{}
		e.Spec.SnapshotMaxCount = 9
		e.Status.Snapshots = map[string]v1beta2.SnapshotInfo{"s": {Size: fmt.Sprint(tt.want)}}
		p := newPass(now, v, seen{Engine: e, Settings: setting.Values{}})
		e.Spec.RebuildConcurrentSyncLimit = p.rebuildConcurrency()
		if got := (creating{p}).instanceSpec().SnapshotMaxSize; got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
		if changed := p.limits() != nil; changed != (tt.want != 0) {
			t.Errorf("%+v: the engine is told: %t", tt, changed)
		}
		p.noteSnapshots()
		full := v1beta2.IsConditionTrue(v.Status.Conditions, v1beta2.VolumeConditionTooManySnapshots)
		if full != (tt.want != 0) {
			t.Errorf("%+v: TooManySnapshots %t", tt, full)
		}
	}
}
