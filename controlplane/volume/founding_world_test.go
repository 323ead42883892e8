package volume_test

import (
	"fmt"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestEndsBetweenGrantAndFounding: engines of a volume that was never used end when they have been
// granted an epoch. The volume comes up with the first one that does not, however many there were.
func TestEndsBetweenGrantAndFounding(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		for _, ends := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%d replicas, %d ends", replicas, ends), func(t *testing.T) {
				w := newWorld(t, t.TempDir(), 3)
				w.newVolume(replicas, nil)
				w.endGranted = ends
				w.settle()
				w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
				w.heal(30 * time.Minute)
				if w.endGranted != 0 {
					t.Errorf("%d ends have not come", w.endGranted)
				}
			})
		}
	}
}
