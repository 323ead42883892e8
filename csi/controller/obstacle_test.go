package controller

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/rest/resource"
)

// TestAttachNamesAnObstacle: a call whose ticket names an obstacle is answered after 12 s, with the
// reason; one for which work is under way is not.
func TestAttachNamesAnObstacle(t *testing.T) {
	const node = "node-1"
	down := resource.Condition{ConditionType: "Satisfied", Status: "False", Message: "node node-1 is down"}
	going := resource.Condition{ConditionType: "Satisfied", Status: "False", Reason: "UnderWay", Message: "being attached"}
	for name, c := range map[string]struct {
		// until is the condition of the ticket until after, then it is the other one.
		until, then resource.Condition
		after       time.Duration
		answered    time.Duration
		says        string
	}{
		"an obstacle": {down, down, 0, 12 * time.Second, "node node-1 is down"},
		"nothing said yet, then as if": {resource.Condition{}, down, 5 * time.Second, 17 * time.Second,
			"node node-1 is down"},
		"under way":                       {going, going, 0, 50 * time.Second, "being attached"},
		"under way, then an obstacle":     {going, down, 20 * time.Second, 32 * time.Second, "node node-1 is down"},
		"an obstacle that goes, no other": {down, going, 10 * time.Second, 50 * time.Second, "being attached"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				ct := newController(f)
				ordered(t, ct, createRequest("vol-1", gib))
				ct.patience = 50 * time.Second
				f.stuck = map[string]func() resource.Condition{}
				began := time.Now()
				f.stuck[node] = func() resource.Condition {
					if time.Since(began) < c.after {
						return c.until
					}
					return c.then
				}
				_, err := ct.ControllerPublishVolume(background, &spec.ControllerPublishVolumeRequest{VolumeId: "vol-1",
					NodeId: node, VolumeCapability: csitest.Capability("ext4", csitest.Once)})
				csitest.Wants(t, err, codes.DeadlineExceeded)
				csitest.Says(t, err, c.says, "attaching volume vol-1 to node node-1", "retry")
				if took := time.Since(began); took < c.answered-time.Second || took > c.answered+2*time.Second {
					t.Errorf("answered after %v, want %v", took, c.answered)
				}
				if len(f.volumes["vol-1"].VolumeAttachment.Attachments) != 1 {
					t.Error("the ticket is not kept")
				}
			})
		})
	}
}

// TestOneBadNodeStarvesNobody: an attacher with ten workers, and a dozen volumes for a node that
// takes none, attaches a volume to another node within 15 s.
func TestOneBadNodeStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newController(f)
		const bad, workers = 12, 10
		for i := range bad + 1 {
			ordered(t, c, createRequest(fmt.Sprint("vol-", i), gib))
		}
		c.patience = 110 * time.Second
		f.stuck = map[string]func() resource.Condition{"node-1": func() resource.Condition {
			return resource.Condition{ConditionType: "Satisfied", Status: "False",
				Message: "volume is being attached to node node-1, where no instance manager runs"}
		}}
		began := time.Now()
		calls := make(chan int, bad+1)
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for i := range calls {
					node := "node-1"
					if i == bad {
						node = "node-2"
					}
					_, err := c.ControllerPublishVolume(background, &spec.ControllerPublishVolumeRequest{
						VolumeId: fmt.Sprint("vol-", i), NodeId: node, VolumeCapability: csitest.Capability("ext4", csitest.Once)})
					if took := time.Since(began); i == bad && (err != nil || took > 15*time.Second) {
						t.Errorf("the volume for the other node is attached after %v: %v", took, err)
					}
				}
			})
		}
		for i := range bad + 1 {
			calls <- i
		}
		close(calls)
		all.Wait()
	})
}
