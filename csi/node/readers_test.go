package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
)

// TestReadOnly: readers cannot write, a target that a killed call left writable is mended, and a
// volume without a file system is not formatted for readers.
func TestReadOnly(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, k.size)
			c, r := csitest.Capability(k.fs, csitest.Once), csitest.Capability(k.fs, csitest.Readers)
			if k.fs != "" {
				csitest.Wants(t, b.stage(r), codes.FailedPrecondition)
			}
			b.must(b.stage(c), b.publish(1, c, false))
			b.content(k.fs, 1, "for readers")
			b.must(b.publish(1, c, true))
			path := b.target(1)
			if k.fs != "" {
				path = filepath.Join(path, "data")
				csitest.Wants(t, b.publish(1, c, false), codes.AlreadyExists)
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt([]byte("no"), 4096)
				err = errors.Join(err, f.Sync(), f.Close())
			}
			if err == nil {
				t.Error("a reader has written")
			}
			b.must(b.unpublish(1), b.publish(1, c, false)) // a writer after a reader, on what is staged
			b.content(k.fs, 1, "for readers")
			b.must(b.unpublish(1), b.unstage())
			b.must(b.stage(r), b.publish(1, r, false))
			if k.fs != "" {
				if got := b.read(1); got != "for readers" {
					t.Errorf("read %q", got)
				}
				if err := os.WriteFile(filepath.Join(b.staging(), "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
					t.Errorf("staged for readers, a write ends with %v", err)
				}
			}
			b.must(b.unpublish(1), b.unstage())
			b.must(b.stage(c), b.publish(1, c, false)) // writers come after readers
			b.content(k.fs, 1, "written again")
		})
	}
}

// TestReadOnlyByFlag: mount option ro makes readers, on each call anew; the last of ro and rw
// counts.
func TestReadOnlyByFlag(t *testing.T) {
	for _, k := range kinds[:2] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, k.size)
			w, r := csitest.Capability(k.fs, csitest.Once, "ro", "rw"), csitest.Capability(k.fs, csitest.Once, "noatime,ro")
			csitest.Wants(t, b.stage(r), codes.FailedPrecondition)
			for range 2 {
				b.must(b.stage(w), b.publish(1, w, false))
			}
			b.write(1, "for readers")
			b.must(b.unpublish(1), b.unstage())
			for range 2 {
				b.must(b.stage(r), b.publish(1, r, false))
			}
			if err := os.WriteFile(filepath.Join(b.target(1), "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("a reader's write ends with %v", err)
			}
			b.must(b.unpublish(1), b.unstage())
			byMode := csitest.Capability(k.fs, csitest.Readers, "rw")
			for range 2 {
				b.must(b.stage(byMode), b.publish(1, byMode, false))
			}
		})
	}
}

// TestOnePod: a volume for one Pod is at one target at a time; others are at several.
func TestOnePod(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, k.size)
			c := csitest.Capability(k.fs, csitest.OncePod)
			b.must(b.stage(c), b.publish(1, c, false), b.publish(1, c, false))
			csitest.Wants(t, b.publish(2, c, false), codes.FailedPrecondition)
			// The kubelet binds what is published once more, and asks again when it has been restarted.
			from, more := b.target(1), filepath.Join(b.dir, "volumeDevices", "pv-1", "dev", "uid-1")
			if k.fs != "" {
				from, more = filepath.Join(b.target(1), "sub"), filepath.Join(b.dir, "volume-subpaths", "sub")
				b.must(os.MkdirAll(from, 0o700), os.MkdirAll(more, 0o700))
			} else {
				b.must(os.MkdirAll(filepath.Dir(more), 0o700), os.WriteFile(more, nil, 0o600))
			}
			b.command("mount", "--bind", from, more)
			b.must(b.stage(c), b.publish(1, c, false))
			csitest.Wants(t, b.publish(2, c, false), codes.FailedPrecondition)
			// What the kubelet has left when its Pod is gone keeps no other Pod from the volume.
			b.must(b.unpublish(1), b.publish(2, c, false))
		})
	}
}

// TestExclusive: a volume of a class with parameter exclusive is for one Pod, whatever its claim
// says.
func TestExclusive(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	c := csitest.Capability("", csitest.Once)
	b.context = map[string]string{request.ParamExclusive: "true"}
	b.must(b.stage(c), b.publish(1, c, false), b.publish(1, c, false))
	csitest.Wants(t, b.publish(2, c, false), codes.FailedPrecondition)
	b.context = map[string]string{request.ParamExclusive: "false"}
	b.must(b.publish(2, c, false))
}

// TestReadersDevice: the device that only readers have stays read-only when it is staged again, and
// is writable again when they have gone.
func TestReadersDevice(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	c := csitest.Capability("", csitest.Once)
	writable := func() bool {
		t.Helper()
		f, err := os.OpenFile(b.loop, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt([]byte("x"), 0)
			err = errors.Join(err, f.Sync(), f.Close())
		}
		return err == nil
	}
	b.must(b.stage(c), b.publish(1, c, true))
	b.must(b.stage(c), b.publish(1, c, true)) // the kubelet was restarted
	if writable() {
		t.Error("after a second staging a reader could write")
	}
	b.must(b.publish(2, c, true), b.unpublish(1))
	if writable() {
		t.Error("a reader is left, and could write")
	}
	b.must(b.unpublish(2))
	if !writable() {
		t.Error("nobody reads any more, and nobody can write")
	}
	r := csitest.Capability("", csitest.Readers)
	b.must(b.stage(r), b.publish(1, r, false), b.unpublish(1))
	b.must(b.unstage())
	if !writable() {
		t.Error("nothing is staged any more, and nobody can write")
	}
}
