package controller

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
)

// TestNoPlace: a volume that the scheduler has no place for is told as such after a while.
func TestNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(newFake())
		f := newFake()
		u := &unplaced{f, nil}
		c.manager = u
		r := createRequest("vol-1", gib)
		r.Parameters = map[string]string{request.ParamTopology: request.TopologyZonal}
		r.AccessibilityRequirements = &spec.TopologyRequirement{Preferred: []*spec.Topology{
			{Segments: map[string]string{request.LabelZone: "zone-1"}}}}
		_, err := c.CreateVolume(background, r)
		csitest.Wants(t, err, codes.ResourceExhausted)
		csitest.Says(t, err, "insufficient storage")
		if len(f.volumes) != 0 {
			t.Errorf("nobody deletes what is left of the claim: %v", f.volumes)
		}
		// A driver that ended before it could remove the volume; the claim is to be elsewhere now.
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		_, err = c.CreateVolume(ctx, r)
		csitest.Wants(t, err, codes.DeadlineExceeded)
		r.AccessibilityRequirements.Preferred[0].Segments[request.LabelZone] = "zone-2"
		_, err = c.CreateVolume(background, r)
		csitest.Wants(t, err, codes.Aborted)
		c.manager = f
		if _, err = c.CreateVolume(background, r); err != nil {
			t.Errorf("the claim has no volume in the other zone: %v", err)
		}
		// Partly placed: it may still become one, and is kept.
		u.replicas = []resource.Replica{{Name: "r-1", HostID: "node-1"}, {Name: "r-2"}}
		c.manager = u
		_, err = c.CreateVolume(background, r)
		csitest.Wants(t, err, codes.Aborted)
		if len(f.volumes) != 1 {
			t.Errorf("%v", f.volumes)
		}
	})
}

// TestFailedCloneIsRemoved: a copy that cannot be filled is not left to nobody.
func TestFailedCloneIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newController(f)
		ordered(t, c, createRequest("vol-1", gib))
		f.cloneFails = true
		r := createRequest("vol-2", gib)
		r.VolumeContentSource = &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Volume{
			Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: "vol-1"}}}
		_, err := c.CreateVolume(background, r)
		csitest.Wants(t, err, codes.Internal)
		if len(f.volumes) != 1 {
			t.Errorf("left: %v", f.volumes)
		}
	})
}

// TestCopyThatStillGrows: a call that ordered the growth of a copy ends before that is done. The
// next one does not answer for a volume of the wanted size until the engine has it.
func TestCopyThatStillGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newController(f)
		ordered(t, c, createRequest("vol-1", gib))
		r := createRequest("vol-2", 2*gib)
		r.VolumeContentSource = &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Volume{
			Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: "vol-1"}}}
		f.looks = 20 // longer than either of the two calls
		for f.orders = 0; f.volumes["vol-2"] == nil || f.volumes["vol-2"].Size != fmt.Sprint(2*gib); {
			ctx, cancel := context.WithTimeout(background, time.Second)
			_, err := c.CreateVolume(ctx, r)
			cancel()
			csitest.Wants(t, err, codes.DeadlineExceeded)
		}
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		_, err := c.CreateVolume(ctx, r)
		csitest.Wants(t, err, codes.DeadlineExceeded)
		csitest.Says(t, err, "the engine has another size yet")
		if _, err := c.CreateVolume(background, r); err != nil {
			t.Error(err)
		}
		if v := f.volumes["vol-2"]; v.Controllers[0].Size != v.Size {
			t.Errorf("the engine has %s bytes of %s", v.Controllers[0].Size, v.Size)
		}
	})
}

// TestSmallerAfterNoRoom: a claim that asked for more than there is room for can ask for less, and
// the volume keeps no larger size than it has.
func TestSmallerAfterNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.room = 4 * gib
		c := newController(f)
		ordered(t, c, createRequest("vol-1", gib))
		grow := func(sizeBytes int64) (int64, error) {
			r, err := c.ControllerExpandVolume(background, &spec.ControllerExpandVolumeRequest{VolumeId: "vol-1",
				CapacityRange: &spec.CapacityRange{RequiredBytes: sizeBytes}})
			return r.GetCapacityBytes(), err
		}
		_, err := grow(8 * gib)
		csitest.Wants(t, err, codes.ResourceExhausted)
		csitest.Says(t, err, "no room on disk d")
		if got := f.volumes["vol-1"].Size; got != fmt.Sprint(gib) {
			t.Errorf("the volume is still to have %s bytes", got)
		}
		if got, err := grow(2 * gib); err != nil || got != 2*gib {
			t.Errorf("%d bytes, %v", got, err)
		}
	})
}

// TestGrowthBeforeTheFirstAttachment: the engine of a volume that was never attached tells no size.
// Its growth takes the time that it takes, and ends where there is no room, as any other.
func TestGrowthBeforeTheFirstAttachment(t *testing.T) {
	for _, room := range []int64{0, gib} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			c := newController(f)
			c.manager = &changed{fake: f, volume: func(v *resource.Volume) {
				v.ExpansionRequired = v.Controllers[0].Size != v.Size
				v.Controllers[0].Size = "0"
			}}
			ordered(t, c, createRequest("vol-1", gib))
			f.room, f.looks = room, 20
			grow := func() error {
				ctx, cancel := context.WithTimeout(background, time.Second)
				defer cancel()
				_, err := c.ControllerExpandVolume(ctx, &spec.ControllerExpandVolumeRequest{VolumeId: "vol-1",
					CapacityRange: &spec.CapacityRange{RequiredBytes: 2 * gib}})
				return err
			}
			if room > 0 {
				csitest.Wants(t, grow(), codes.ResourceExhausted)
				if got := f.volumes["vol-1"].Size; got != fmt.Sprint(gib) {
					t.Errorf("the volume is still to have %s bytes", got)
				}
				return
			}
			csitest.Wants(t, grow(), codes.DeadlineExceeded)
			csitest.Wants(t, grow(), codes.DeadlineExceeded) // nor does the next call, which orders nothing
			f.looks = 0
			csitest.Wants(t, grow(), codes.OK)
		})
	}
}
