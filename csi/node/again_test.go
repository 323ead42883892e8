package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/csi/csitest"
)

// TestPublishAfterALostDevice: the device ends while the volume is staged and published, and
// another one has its place. A new Pod gets the file system of that one, without NodeStageVolume;
// what a former Pod has is left until it goes. A device without the file system is not formatted.
func TestPublishAfterALostDevice(t *testing.T) {
	for _, k := range kinds[:2] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, k.size)
			c := csitest.Capability(k.fs, csitest.Once)
			b.must(b.stage(c), b.publish(1, c, false))
			b.write(1, "kept")
			b.shutdown(b.staging())
			b.anew(b.file)
			b.must(b.publish(2, c, false))
			if got := b.read(2); got != "kept" {
				t.Errorf("read %q", got)
			}
			b.write(2, "more")
			b.must(b.unpublish(1), b.publish(3, c, false))
			if got := b.read(3); got != "more" {
				t.Errorf("read %q", got)
			}
			b.must(b.unpublish(2), b.unpublish(3))
			b.shutdown(b.staging())
			empty := filepath.Join(t.TempDir(), "empty")
			if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.Truncate(empty, k.size)); err != nil {
				t.Fatal(err)
			}
			b.anew(empty)
			if err := b.publish(4, c, false); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("published from a device without a file system: %v", err)
			}
			b.must(b.unpublish(4), b.unstage())
		})
	}
}

// TestPublishCutShort: a call that stages a lost volume again ends when what was staged is taken
// away and nothing is there instead. The next call goes on.
func TestPublishCutShort(t *testing.T) {
	for _, k := range kinds[:2] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, k.size)
			c := csitest.Capability(k.fs, csitest.Once)
			b.must(b.stage(c), b.publish(1, c, false))
			b.write(1, "kept")
			b.shutdown(b.staging())
			b.anew(b.file)
			if !b.until("checked", func() { b.must(b.publish(2, c, false)) }) {
				t.Fatal("the volume is not staged again")
			}
			if n := b.mountsOf(b.staging()); n != 0 {
				t.Fatalf("%d mounts at the staging path: the call did not end in the middle", n)
			}
			b.must(b.publish(2, c, false))
			if got := b.read(2); got != "kept" {
				t.Errorf("read %q", got)
			}
			b.must(b.unpublish(1), b.unpublish(2), b.unstage())
		})
	}
}
