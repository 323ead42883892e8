package volume

import (
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// TestReplacementIsOfTheEnginesImage holds K4 of docs/defects.md: an attached volume of which
// another image is wanted gets its replacement of the image that it runs, or it would never be
// started.
func TestReplacementIsOfTheEnginesImage(t *testing.T) {
	v, s := fixture()
	v.Spec.Image = "img:2"
	fail(s, 1, 48*time.Hour)
	s.Replicas[1].Spec.RebuildRetryCount = v1beta2.MaxRebuildRetryCount
	degrade(v, time.Hour)
	c, ok := settle(v, s).Do.(loop.Create)
	if !ok {
		t.Fatalf("no replica is created (state %s)", v.Status.State)
	}
	if r, ok := c.Object.(*v1beta2.Replica); !ok || r.Spec.Image != "img:1" {
		t.Errorf("created %+v, want a replica of img:1", c.Object)
	}
}
