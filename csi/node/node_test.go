package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/test/lack"
)

// kinds of volumes: the file system, empty for a block volume, and a size that it takes.
var kinds = []struct {
	name, fs string
	size     int64
}{{"ext4", "ext4", 64 * mib}, {"xfs", "xfs", minXFS}, {"block", "", 64 * mib}}

// content writes through a target, as the kind of volume needs it, and reads it back.
func (b *bed) content(fs string, n int, write string) string {
	b.Helper()
	if fs != "" {
		if write != "" {
			b.write(n, write)
		}
		return b.read(n)
	}
	f, err := os.OpenFile(b.target(n), os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if write != "" {
		if _, err := f.WriteAt(append([]byte(write), make([]byte, 64-len(write))...), 4096); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	p := make([]byte, 64)
	if _, err := f.ReadAt(p, 4096); err != nil {
		b.Fatal(err)
	}
	return strings.TrimRight(string(p), "\x00")
}

// TestLifeOnANode: each call twice, as callers do that have not heard the answer; what a Pod wrote
// is there for the next one, and nothing is left at the end.
func TestLifeOnANode(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, k.size)
			c := csitest.Capability(k.fs, csitest.Once)
			b.must(b.unpublish(1), b.unstage()) // before there was anything
			b.must(b.stage(c), b.stage(c), b.publish(1, c, false), b.publish(1, c, false), b.publish(2, c, false))
			if n := b.mountsOf(b.target(1)); n != 1 {
				t.Errorf("%d mounts at a target that was published twice", n)
			}
			b.content(k.fs, 1, "written by Pod 1")
			if got := b.content(k.fs, 2, ""); got != "written by Pod 1" {
				t.Errorf("Pod 2 reads %q", got)
			}
			b.must(b.unpublish(1), b.unpublish(1), b.unpublish(2), b.unstage(), b.unstage())
			for _, path := range []string{b.target(1), b.target(2)} {
				if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left: %v", path, err)
				}
			}
			b.detach()
			csitest.Wants(t, b.stage(c), codes.NotFound)
			b.attach()
			b.must(b.stage(c), b.publish(3, c, false))
			if got := b.content(k.fs, 3, ""); got != "written by Pod 1" {
				t.Errorf("after the volume was away the next Pod reads %q", got)
			}
		})
	}
}

// killed stands for the end of the process at a step.
type killed struct{ step string }

// until runs calls until the step is reached; false: it never was.
func (b *bed) until(step string, calls func()) (reached bool) {
	b.restart()
	b.Server.step = func(s string) {
		if s == step {
			panic(killed{s})
		}
	}
	defer func() {
		if k := recover(); k != nil {
			if _, ok := k.(killed); !ok {
				panic(k)
			}
			reached = true
		}
		b.restart()
	}()
	calls()
	return false
}

// TestEndAtEachStep: the driver ends at each boundary between two steps, on a volume that is new
// and on one that has data; the calls are repeated and all is as if nothing had been.
func TestEndAtEachStep(t *testing.T) {
	steps := map[string][]string{
		"ext4": {"stage-begun", "formatted", "checked", "staged-mounted", "resized", "staged", "target-made", "published",
			"unpublished", "unmounted", "unstaged"},
		"block": {"stage-begun", "staged", "target-made", "published", "unpublished", "unstaged"},
	}
	steps["xfs"] = steps["ext4"]
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, k.size)
			c := csitest.Capability(k.fs, csitest.Once)
			wrote := ""
			for _, step := range steps[k.name] {
				if step == "formatted" { // only a volume that is new is
					b, wrote = newBed(t, k.size), ""
				}
				life := func() {
					b.must(b.stage(c), b.publish(1, c, true))
					b.must(b.unpublish(1), b.unstage())
				}
				if !b.until(step, life) {
					t.Fatalf("step %s was never reached", step)
				}
				b.must(b.stage(c), b.publish(2, c, false))
				if wrote != "" {
					if got := b.content(k.fs, 2, ""); got != wrote {
						t.Errorf("after an end at %s: %q, want %q", step, got, wrote)
					}
				}
				wrote = "after an end at " + step
				b.content(k.fs, 2, wrote)
				b.must(b.unpublish(1), b.unpublish(2), b.unstage())
				if n := b.mountsOf(b.staging()) + b.mountsOf(b.target(1)); n != 0 {
					t.Errorf("after an end at %s %d mounts are left", step, n)
				}
			}
		})
	}
}

// TestFormattingCutShort: what mkfs has left of a file system is made anew, and stages.
func TestFormattingCutShort(t *testing.T) {
	for name, spoil := range map[string]struct {
		fs     string
		at     int64
		bytes  []byte
		reason string
	}{
		"xfs":  {request.XFS, 126, []byte{1}, "sb_inprogress is cleared last"},
		"ext4": {request.Ext4, 0, make([]byte, 4096), "the first block is written last"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, minXFS)
			b.command("mkfs."+spoil.fs, b.loop)
			f, err := os.OpenFile(b.loop, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(spoil.bytes, spoil.at); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.Sync(), f.Close()); err != nil {
				t.Fatal(err)
			}
			b.must(b.stage(csitest.Capability(spoil.fs, csitest.Once)))
		})
	}
}

// TestWhatIsThereIsKept: a volume that holds something else than what is asked for is not
// formatted.
func TestWhatIsThereIsKept(t *testing.T) {
	for name, make := range map[string]func(b *bed){
		"another file system": func(b *bed) { b.command("mkfs.ext4", "-q", b.loop) },
		"partitions": func(b *bed) {
			mbr := append(slices.Repeat([]byte{0}, 446), 0, 1, 1, 0, 0x83, 1, 1, 1, 1, 0, 0, 0, 0, 16, 0, 0)
			mbr = append(append(mbr, slices.Repeat([]byte{0}, 48)...), 0x55, 0xaa)
			if err := os.WriteFile(b.loop, mbr, 0); err != nil {
				b.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, minXFS)
			make(b)
			b.command("sync", b.loop)
			before := b.command("sha256sum", b.loop)
			csitest.Wants(t, b.stage(csitest.Capability("xfs", csitest.Once)), codes.FailedPrecondition)
			if after := b.command("sha256sum", b.loop); after != before {
				t.Error("the volume was changed")
			}
		})
	}
}

// TestCheckBeforeMount: errors that can be mended safely are, others are left to a person.
func TestCheckBeforeMount(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	b.command("mkfs.ext4", "-q", b.loop)
	b.command("debugfs", "-w", "-R", "set_super_value free_blocks_count 7", b.loop)
	b.command("debugfs", "-w", "-R", "set_super_value state 2", b.loop)
	b.must(b.stage(csitest.Capability("ext4", csitest.Once)), b.unstage())
	if out := b.command("dumpe2fs", "-h", b.loop); !strings.Contains(out, "Filesystem state:         clean") {
		t.Errorf("the file system was not mended: %s", out)
	}
	b.command("debugfs", "-w", "-R", "clri <2>", b.loop) // the root directory
	b.command("debugfs", "-w", "-R", "set_super_value state 2", b.loop)
	err := b.stage(csitest.Capability("ext4", csitest.Once))
	csitest.Wants(t, err, codes.Internal)
	if !strings.Contains(status.Convert(err).Message(), "fsck") || b.mountsOf(b.staging()) != 0 {
		t.Errorf("%v, %d mounts", err, b.mountsOf(b.staging()))
	}
}

// shutdown ends a file system as an error of its device may.
func (b *bed) shutdown(path string) {
	b.Helper()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const goingDown = 0x8004587d // FS_IOC_SHUTDOWN
	noFlush := uint32(2)
	if err := ioctl(f, goingDown, unsafe.Pointer(&noFlush)); err != nil {
		b.Fatal(err)
	}
}

// TestBrokenMounts: a file system that was shut down is recognised, told as condition, and mounted
// anew by the next calls, although somebody still has a file open on it.
func TestBrokenMounts(t *testing.T) {
	for _, k := range kinds[:2] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, k.size)
			c := csitest.Capability(k.fs, csitest.Once)
			b.must(b.stage(c), b.publish(1, c, false))
			b.write(1, "kept")
			held, err := os.Open(filepath.Join(b.target(1), "data"))
			if err != nil {
				t.Fatal(err)
			}
			if got := b.condition(b.target(1)); got.GetAbnormal() {
				t.Errorf("nothing is wrong, yet: %v", got)
			}
			b.shutdown(b.staging())
			if got := b.condition(b.target(1)); !got.GetAbnormal() {
				t.Errorf("shut down, yet: %v", got)
			}
			b.must(b.unpublish(1)) // broken and busy
			held.Close()
			b.must(b.stage(c), b.publish(1, c, false))
			if got := b.read(1); got != "kept" {
				t.Errorf("read %q", got)
			}
		})
	}
}

func (b *bed) stats(path string) *spec.NodeGetVolumeStatsResponse {
	b.Helper()
	r, err := b.NodeGetVolumeStats(context.Background(), &spec.NodeGetVolumeStatsRequest{VolumeId: b.volume,
		VolumePath: path})
	b.must(err)
	return r
}

func (b *bed) condition(path string) *spec.VolumeCondition { return b.stats(path).GetVolumeCondition() }

// TestGrowth: the device grows under a file system that is used.
func TestGrowth(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			if k.fs == request.Ext4 && !lack.GrowingExt4(t) {
				lack.Skip(t, "CAP_SYS_RESOURCE: without it ext4 does not grow while it is mounted")
			}
			b := newBed(t, k.size)
			c := csitest.Capability(k.fs, csitest.Once)
			b.must(b.stage(c), b.publish(1, c, false))
			b.content(k.fs, 1, "before")
			before := b.stats(b.target(1)).Usage[0].Total
			if err := os.Truncate(b.file, 2*k.size); err != nil {
				t.Fatal(err)
			}
			b.command("losetup", "--set-capacity", b.loop)
			for range 2 {
				got, err := b.NodeExpandVolume(context.Background(), &spec.NodeExpandVolumeRequest{VolumeId: b.volume,
					VolumePath: b.target(1), CapacityRange: &spec.CapacityRange{RequiredBytes: 2 * k.size}})
				b.must(err)
				if got.CapacityBytes != 2*k.size {
					t.Errorf("%d bytes, want %d", got.CapacityBytes, 2*k.size)
				}
			}
			if after := b.stats(b.target(1)).Usage[0].Total; after < before+k.size*9/10 {
				t.Errorf("%d bytes before and %d after", before, after)
			}
			if got := b.content(k.fs, 1, ""); got != "before" {
				t.Errorf("read %q", got)
			}
			// Grown while nobody used it: the next staging has it.
			b.must(b.unpublish(1), b.unstage())
			if err := os.Truncate(b.file, 3*k.size); err != nil {
				t.Fatal(err)
			}
			b.command("losetup", "--set-capacity", b.loop)
			b.must(b.stage(c), b.publish(1, c, false))
			if after := b.stats(b.target(1)).Usage[0].Total; after < before+2*k.size*9/10 {
				t.Errorf("%d bytes before and %d after", before, after)
			}
		})
	}
}

// TestOptions: arguments of mkfs and mount options reach their programs.
func TestOptions(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	_, err := b.NodeStageVolume(context.Background(), &spec.NodeStageVolumeRequest{VolumeId: b.volume,
		StagingTargetPath: b.staging(), VolumeCapability: csitest.Capability("ext4", csitest.Once, "noatime", "data=journal"),
		VolumeContext: map[string]string{request.ParamMkfs: "-b 1024 -O ^64bit", "numberOfReplicas": "3"}})
	b.must(err)
	if out := b.command("dumpe2fs", "-h", b.loop); !strings.Contains(out, "Block size:               1024") {
		t.Errorf("mkfs did not get its arguments: %s", out)
	}
	at, err := mounted(b.staging())
	if err != nil || len(at) != 1 || !slices.Contains(at[0].Options, "noatime") || !slices.Contains(at[0].Super,
		"data=journal") {
		t.Errorf("%+v, %v", at, err)
	}
	b.must(b.unstage())
	err = b.stage(csitest.Capability("ext4", csitest.Once, "data=nonsense"))
	csitest.Wants(t, err, codes.Internal)
	csitest.Says(t, err, "mounting volume "+b.volume+" ", " on "+devicePath(b.volume)+")", "nonsense")
}

// TestTwins: a clone of an XFS volume, whose UUID is its source's, is used beside it.
func TestTwins(t *testing.T) {
	t.Parallel()
	c := csitest.Capability("xfs", csitest.Once)
	source := newBed(t, minXFS)
	source.must(source.stage(c), source.publish(1, c, false))
	source.write(1, "the same")
	source.must(source.unpublish(1), source.unstage())
	source.command("sync")
	twin := newBed(t, minXFS)
	twin.detach()
	twin.command("cp", "--sparse=always", source.file, twin.file)
	twin.attach()
	source.must(source.stage(c), source.publish(1, c, false))
	twin.must(twin.stage(c), twin.publish(1, c, false))
	if a, b := source.read(1), twin.read(1); a != "the same" || b != a {
		t.Errorf("%q and %q", a, b)
	}
}

// TestUnstageWhileMounted: a volume whose file system is mounted anywhere on the node has not left
// it, whatever the table of mounts says about the staging path.
func TestUnstageWhileMounted(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	c := csitest.Capability("ext4", csitest.Once)
	b.must(b.stage(c))
	more := filepath.Join(b.dir, "somewhere")
	b.must(os.Mkdir(more, 0o700))
	b.command("mount", "--bind", b.staging(), more)
	err := b.unstage()
	csitest.Wants(t, err, codes.Internal)
	csitest.Says(t, err, more)
	csitest.Wants(t, b.unstage(), codes.Internal) // again: nothing is at the staging path any more
	b.command("umount", more)
	b.must(b.unstage())
}

// TestOrderOfCalls: calls that come too early, or about what is not there, are refused with the
// code that tells the caller what to do.
func TestOrderOfCalls(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	c := csitest.Capability("ext4", csitest.Once)
	csitest.Wants(t, b.publish(1, c, false), codes.FailedPrecondition) // not staged
	ctx := context.Background()
	_, err := b.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: "elsewhere", StagingTargetPath: b.staging(),
		VolumeCapability: c})
	csitest.Wants(t, err, codes.NotFound)
	_, err = b.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: "../../etc", StagingTargetPath: b.staging(),
		VolumeCapability: c})
	csitest.Wants(t, err, codes.NotFound)
	_, err = b.NodeExpandVolume(ctx, &spec.NodeExpandVolumeRequest{VolumeId: b.volume, VolumePath: b.target(1)})
	csitest.Wants(t, err, codes.NotFound)
	_, err = b.NodeGetVolumeStats(ctx, &spec.NodeGetVolumeStatsRequest{VolumeId: b.volume, VolumePath: b.target(1)})
	csitest.Wants(t, err, codes.NotFound)
	// Something else at the target is nobody's to remove.
	if err := os.MkdirAll(filepath.Join(b.target(1), "somebody's"), 0o700); err != nil {
		t.Fatal(err)
	}
	csitest.Wants(t, b.unpublish(1), codes.Internal)
}

// TestCallsAtOnce: of calls about one volume at the same time one works and the others come again;
// whatever they are, nothing is done twice.
func TestCallsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	c := csitest.Capability("ext4", csitest.Once)
	var wg sync.WaitGroup
	fails := make(chan error, 64)
	for range 16 {
		wg.Go(func() { fails <- b.stage(c) })
		wg.Go(func() { fails <- b.publish(1, c, false) })
	}
	wg.Wait()
	close(fails)
	for err := range fails {
		switch status.Code(err) {
		case codes.OK, codes.Aborted, codes.FailedPrecondition: // the last: published before it was staged
		default:
			t.Error(err)
		}
	}
	b.must(b.stage(c), b.publish(1, c, false))
	if s, p := b.mountsOf(b.staging()), b.mountsOf(b.target(1)); s != 1 || p != 1 {
		t.Errorf("%d mounts for the node, %d for the Pod", s, p)
	}
}
