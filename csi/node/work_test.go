package node

import (
	"context"
	"log/slog"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/host/mountinfo"
	"ankole.storage/test/wait"
)

// TestNodeCallsEnd: a volume that does not answer costs a call its patience and no more; further
// calls are told that one is under way, and its end is theirs. Other volumes are served.
func TestNodeCallsEnd(t *testing.T) {
	t.Parallel()
	n := New("node-1", newManager(), 50*time.Millisecond, slog.New(slog.DiscardHandler))
	hang := make(chan struct{})
	calls := map[string]func(volume string) error{
		"NodeStageVolume": func(v string) error {
			_, err := n.NodeStageVolume(t.Context(), &spec.NodeStageVolumeRequest{VolumeId: v, StagingTargetPath: "/none/s",
				VolumeCapability: csitest.Capability("ext4", csitest.Once)})
			return err
		},
		"NodePublishVolume": func(v string) error {
			_, err := n.NodePublishVolume(t.Context(), &spec.NodePublishVolumeRequest{VolumeId: v, TargetPath: "/none/t",
				VolumeCapability: csitest.Capability("ext4", csitest.Once)})
			return err
		},
		"NodeUnpublishVolume": func(v string) error {
			_, err := n.NodeUnpublishVolume(t.Context(), &spec.NodeUnpublishVolumeRequest{VolumeId: v, TargetPath: "/none/t"})
			return err
		},
		"NodeUnstageVolume": func(v string) error {
			_, err := n.NodeUnstageVolume(t.Context(), &spec.NodeUnstageVolumeRequest{VolumeId: v, StagingTargetPath: "/none/s"})
			return err
		},
		"NodeExpandVolume": func(v string) error {
			_, err := n.NodeExpandVolume(t.Context(), &spec.NodeExpandVolumeRequest{VolumeId: v, VolumePath: "/none/t"})
			return err
		},
	}
	csitest.Wants(t, n.work(t.Context(), "vol-1", "a call", func() error { <-hang; return nil }), codes.DeadlineExceeded)
	for name, call := range calls {
		err := call("vol-1")
		csitest.Wants(t, err, codes.Aborted)
		csitest.Says(t, err, name, "a call of it is under way")
		if err := call("vol-2"); err != nil {
			csitest.Wants(t, err, codes.NotFound) // no such device
		}
	}
	close(hang)
	wait.Until(t, "the lock is free again", func() bool { return calls["NodeUnstageVolume"]("vol-1") == nil })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	release := make(chan struct{})
	defer close(release)
	csitest.Wants(t, n.work(gone, "vol-3", "a call", func() error { <-release; return nil }), codes.DeadlineExceeded)
}

// TestUnknownIsNotBroken: a mount at which no helper could look is not taken for broken.
func TestUnknownIsNotBroken(t *testing.T) {
	t.Parallel()
	const unstartable = "a\x00b" // no process can be started with such an argument
	if dead, err := broken(unstartable, &mountinfo.Mount{}); dead || err == nil {
		t.Errorf("%v, %v", dead, err)
	}
	if dead, err := broken(unstartable, &mountinfo.Mount{Super: []string{"shutdown"}}); !dead || err != nil {
		t.Errorf("shut down: %v, %v", dead, err)
	}
}
