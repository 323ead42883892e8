package controller

import (
	"errors"
	"testing"
	"testing/synctest"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
)

// TestOvertakenDeletion: a driver judges a volume to have no place, and stands still. Another one
// completes it meanwhile, and it is used. The first one goes on, and deletes nothing.
func TestOvertakenDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		fast, slow := newController(f), newController(f)
		behind := &overtaken{f, nil}
		slow.manager = behind
		r := createRequest("vol-1", gib)
		r.Parameters = map[string]string{request.ParamTopology: request.TopologyZonal}
		r.AccessibilityRequirements = &spec.TopologyRequirement{Preferred: []*spec.Topology{
			{Segments: map[string]string{request.LabelZone: "zone-1"}}}}
		ordered(t, fast, r)
		r.AccessibilityRequirements.Preferred[0].Segments[request.LabelZone] = "zone-2"
		behind.meanwhile = func() {
			if _, err := fast.ControllerPublishVolume(background, &spec.ControllerPublishVolumeRequest{VolumeId: "vol-1",
				NodeId: "node-1", VolumeCapability: csitest.Capability("ext4", csitest.Once)}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := slow.CreateVolume(background, r)
		csitest.Wants(t, err, codes.Aborted)
		csitest.Says(t, err, "has changed meanwhile")
		if v := f.volumes["vol-1"]; v == nil || v.State != stateAttached {
			t.Fatalf("a volume in use is deleted: %+v", v)
		}
	})
}

// TestOvertakenBeforeItsTicket: a driver that stands still between its look at a volume and its
// ticket, while others detach the volume, files none; nor does one that waits for the volume then.
func TestOvertakenBeforeItsTicket(t *testing.T) {
	publish := func(c *Server) error {
		_, err := c.ControllerPublishVolume(background, &spec.ControllerPublishVolumeRequest{VolumeId: "vol-1",
			NodeId: "node-1", VolumeCapability: csitest.Capability("ext4", csitest.Once)})
		return err
	}
	unpublish := func(c *Server, node string) error {
		_, err := c.ControllerUnpublishVolume(background, &spec.ControllerUnpublishVolumeRequest{VolumeId: "vol-1",
			NodeId: node})
		return err
	}
	for name, meanwhile := range map[string]func(fast *Server) error{
		"attached and detached": func(fast *Server) error {
			return errors.Join(publish(fast), unpublish(fast, "node-1"))
		},
		"detached, with nothing there": func(fast *Server) error { return unpublish(fast, "node-1") },
		"detached from all nodes":      func(fast *Server) error { return unpublish(fast, "") },
	} {
		for _, ready := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				fast, slow := newController(f), newController(f)
				ordered(t, fast, createRequest("vol-1", gib))
				behind := &overtaken{f, nil}
				slow.manager = behind
				looked := func() {
					if err := meanwhile(fast); err != nil {
						t.Error(err)
					}
					f.volumes["vol-1"].Ready = true
				}
				f.volumes["vol-1"].Ready = ready
				if !ready {
					fast.manager = &changed{fake: f, volume: func(v *resource.Volume) { v.Ready = true }}
				}
				// The first look is for what the call may do at all, the second for the ticket.
				behind.meanwhile = func() { behind.meanwhile = looked }
				err := publish(slow)
				csitest.Wants(t, err, codes.Aborted)
				csitest.Says(t, err, "detached by another call")
				if left := f.volumes["vol-1"].VolumeAttachment.Attachments; len(left) != 0 {
					t.Errorf("%s, ready %v: a ticket is filed late: %v", name, ready, left)
				}
				if err := publish(slow); err != nil { // called now, it means what is wanted now
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
}

// TestOvertakenCalls: a driver that stood still while another one detached a volume and attached it
// again, or the reverse, undoes nothing of that.
func TestOvertakenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.looks = 1
		fast, slow := newController(f), newController(f)
		behind := &overtaken{f, nil}
		slow.manager = behind
		ordered(t, fast, createRequest("vol-1", gib))
		publish := func(c *Server) error {
			_, err := c.ControllerPublishVolume(background, &spec.ControllerPublishVolumeRequest{VolumeId: "vol-1",
				NodeId: "node-1", VolumeCapability: csitest.Capability("ext4", csitest.Once)})
			return err
		}
		unpublish := func(c *Server) error {
			_, err := c.ControllerUnpublishVolume(background, &spec.ControllerUnpublishVolumeRequest{VolumeId: "vol-1",
				NodeId: "node-1"})
			return err
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(publish(fast))
		behind.meanwhile = func() { must(unpublish(fast)); must(publish(fast)) }
		csitest.Wants(t, unpublish(slow), codes.Aborted)
		if len(f.volumes["vol-1"].VolumeAttachment.Attachments) != 1 {
			t.Error("a newer ticket was withdrawn")
		}
		must(unpublish(slow)) // called now, it means what is there now
		var when func(looks int, do func()) func()
		when = func(looks int, do func()) func() {
			if looks == 0 {
				return do
			}
			return func() { behind.meanwhile = when(looks-1, do) }
		}
		behind.meanwhile = when(2, func() { must(unpublish(fast)) }) // when the ticket is filed
		clear(f.seen)
		f.looks = 9
		csitest.Wants(t, publish(slow), codes.Aborted)
		if len(f.volumes["vol-1"].VolumeAttachment.Attachments) != 0 {
			t.Error("a ticket that was withdrawn is filed again")
		}
	})
}
