package node

import (
	"context"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
)

// TestWithoutDiscard: what mkfs is told of discards is added to what the class wants of it, and
// nothing is if that says something about it.
func TestWithoutDiscard(t *testing.T) {
	for _, c := range []struct{ fs, wanted, want string }{
		{request.Ext4, "", "-E nodiscard"},
		{request.Ext4, "-b 1024 -O ^64bit", "-b 1024 -O ^64bit -E nodiscard"},
		{request.Ext4, "-E stride=4 -b 4096", "-E stride=4,nodiscard -b 4096"},
		{request.Ext4, "-Estride=4", "-Estride=4,nodiscard"},
		{request.Ext4, "-E discard", "-E discard"},
		{request.Ext4, "-K", "-K"},
		{request.XFS, "", "-K"},
		{request.XFS, "-m bigtime=0", "-m bigtime=0 -K"},
		{request.XFS, "-K", "-K"},
	} {
		wanted := strings.Fields(c.wanted)
		if got := strings.Join(withoutDiscard(c.fs, wanted), " "); got != c.want {
			t.Errorf("%s %q: %q", c.fs, c.wanted, got)
		}
		if strings.Join(wanted, " ") != c.wanted {
			t.Errorf("%s %q was changed to %q", c.fs, c.wanted, wanted)
		}
	}
}

// TestFormattingDiscardsNothing: both programs take what they are told, and the device is staged.
func TestFormattingDiscardsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ fs, params string }{{request.Ext4, "-E stride=4"}, {request.XFS, "-m bigtime=0"}} {
		b := newBed(t, 320*mib)
		_, err := b.NodeStageVolume(context.Background(), &spec.NodeStageVolumeRequest{VolumeId: b.volume,
			StagingTargetPath: b.staging(), VolumeCapability: csitest.Capability(c.fs, csitest.Once),
			VolumeContext: map[string]string{request.ParamMkfs: c.params, "numberOfReplicas": "3"}})
		b.must(err)
		b.must(b.unstage())
	}
}
