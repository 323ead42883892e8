package volume

import (
	"fmt"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestGrow is the decision table of an expansion from 1 to 2 GiB, by the sizes in the objects: what
// the one change is, and which size it writes.
func TestGrow(t *testing.T) {
	const gib = int64(1) << 30
	sizes := func(volume, a, b, engine, has int64) func(*v1beta2.Volume, *seen) {
		return func(v *v1beta2.Volume, s *seen) {
			v.Spec.Size, s.Replicas[0].Spec.VolumeSize, s.Replicas[1].Spec.VolumeSize = volume, a, b
			s.Engine.Spec.VolumeSize, s.Engine.Status.CurrentSize = engine, has
		}
	}
	const luks = v1beta2.LUKSHeaderBytes
	encrypted := func(volume, replicas, has int64) func(*v1beta2.Volume, *seen) {
		return func(v *v1beta2.Volume, s *seen) {
			sizes(volume, replicas, replicas, has, has)(v, s)
			v.Spec.Encrypted = true
		}
	}
	failing := func(why string) func(*v1beta2.Volume, *seen) {
		return func(v *v1beta2.Volume, s *seen) {
			sizes(2*gib, 2*gib, 2*gib, 2*gib, gib)(v, s)
			fail(s, 1, time.Minute)
			degrade(v, time.Minute)
			s.Engine.Status.LastExpansionError = why
		}
	}
	for _, tt := range []struct {
		name     string
		edit     func(v *v1beta2.Volume, s *seen)
		want     string
		required bool
	}{
		{"nothing to do", sizes(gib, gib, gib, gib, gib), "", false},
		{"a replica first", sizes(2*gib, gib, gib, gib, gib), "replica a 2 GiB", true},
		{"then the other", sizes(2*gib, 2*gib, gib, gib, gib), "replica b 2 GiB", true},
		{"then the engine", sizes(2*gib, 2*gib, 2*gib, gib, gib), "engine 2 GiB", true},
		{"not before it has told its size", sizes(2*gib, 2*gib, 2*gib, gib, 0), "", true},
		{"then it is the engine's part", sizes(2*gib, 2*gib, 2*gib, 2*gib, gib), "", true},
		{"done", sizes(2*gib, 2*gib, 2*gib, 2*gib, 2*gib), "", false},
		{"cancelled: the engine is told", sizes(gib, gib, gib, 2*gib, gib), "engine 1 GiB", false},
		{"cancelled: and the replicas", sizes(gib, gib, 2*gib, gib, gib), "replica b 1 GiB", false},
		{"cancelled too late", sizes(gib, 2*gib, 2*gib, 2*gib, 2*gib), "volume 2 GiB", false},
		{"replicas are what the volume is, too", sizes(gib, gib, gib, 2*gib, 2*gib), "replica a 2 GiB", false},
		{"no room", func(v *v1beta2.Volume, s *seen) {
			sizes(80*gib, gib, gib, gib, gib)(v, s)
		}, "", true},
		{"room for one more on each disk", func(v *v1beta2.Volume, s *seen) {
			sizes(60*gib, gib, gib, gib, gib)(v, s)
		}, "replica a 60 GiB", true},
		{"not with what others have of the disk", func(v *v1beta2.Volume, s *seen) {
			sizes(60*gib, gib, gib, gib, gib)(v, s)
			s.ScheduledBytes = map[string]int64{"disk-n2": 42 * gib}
		}, "", true},
		{"a disk that is not known", func(v *v1beta2.Volume, s *seen) {
			sizes(2*gib, gib, gib, gib, gib)(v, s)
			s.Replicas[1].Spec.DiskID = "gone"
		}, "", true},
		{"a replica without a place needs no room", func(v *v1beta2.Volume, s *seen) {
			sizes(2*gib, 2*gib, gib, gib, gib)(v, s)
			s.Replicas[1].Spec.DiskID = ""
		}, "replica b 2 GiB", true},
		{"encrypted, with a header", encrypted(gib, gib+luks, gib+luks), "", false},
		{"encrypted, and an engine without one", encrypted(gib, gib, gib), "replica a 1 GiB and a header", true},
		{"encrypted, larger", encrypted(2*gib, gib+luks, gib+luks), "replica a 2 GiB and a header", true},
		{"encrypted, cancelled too late", encrypted(gib, 2*gib+luks, 2*gib+luks), "volume 2 GiB", false},
		{"no rebuild begins meanwhile", failing(""), "", true},
		{"but when it has failed", failing("no space"), "replica b 2 GiB", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, s := fixture()
			tt.edit(v, s)
			got := ""
			if u, ok := update(settle(v, s)); ok {
				switch o := u.Object.(type) {
				case *v1beta2.Volume:
					got = fmt.Sprintf("volume %d GiB", o.Spec.Size/gib)
				case *v1beta2.Engine:
					got = fmt.Sprintf("engine %d GiB", o.Spec.VolumeSize/gib)
				case *v1beta2.Replica:
					got = fmt.Sprintf("replica %s %d GiB", o.Name, o.Spec.VolumeSize/gib)
					if o.Spec.VolumeSize%gib == luks {
						got += " and a header"
					}
				}
			}
			if got != tt.want || v.Status.ExpansionRequired != tt.required {
				t.Errorf("%q, required %v; want %q, %v", got, v.Status.ExpansionRequired, tt.want, tt.required)
			}
		})
	}
}
