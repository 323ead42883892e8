package node

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/host/luks"
	"ankole.storage/test/lack"
)

// cryptsetup runs what stands for it, as a person does.
func (b *bed) cryptsetup(input string, args ...string) {
	b.Helper()
	cmd := b.run.Command("cryptsetup", args...)
	cmd.SetStdin(strings.NewReader(input))
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("cryptsetup %q: %v: %s", args, err, out)
	}
}

// locked fails the test unless the volume has no mapper device.
func (b *bed) locked() {
	b.Helper()
	if m, err := b.mapping(b.volume); err != nil || m != nil {
		b.Errorf("the volume has a mapper device: %+v, %v", m, err)
	}
}

// TestEncryptedLife: what a Pod wrote is there for the next one with the same key, and nobody
// else; each call twice.
func TestEncryptedLife(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newEncryptedBed(t, k.size)
			c := csitest.Capability(k.fs, csitest.Once)
			b.must(b.unpublish(1), b.unstage()) // before there was anything
			b.must(b.stage(c), b.stage(c), b.publish(1, c, false), b.publish(1, c, false), b.publish(2, c, false))
			m, err := b.mapping(b.volume)
			if err != nil || m == nil || !m.luks || !m.former() {
				t.Fatalf("no mapper device: %+v, %v", m, err)
			}
			if at, err := mounted(b.staging()); k.fs != "" && (err != nil || len(at) != 1 ||
				at[0].Device != deviceText(m.number)) {
				t.Errorf("staged is %+v, %v; the mapper device is %s", at, err, deviceText(m.number))
			}
			b.content(k.fs, 1, "written by Pod 1")
			if got := b.content(k.fs, 2, ""); got != "written by Pod 1" {
				t.Errorf("Pod 2 reads %q", got)
			}
			if k.fs == "" {
				if got := b.stats(b.target(1)).Usage[0].Total; got != k.size {
					t.Errorf("the block volume has %d bytes, %d are the user's", got, k.size)
				}
				csitest.Wants(t, b.unstage(), codes.Internal) // still published
			}
			b.must(b.unpublish(1), b.unpublish(1), b.unpublish(2), b.unstage(), b.unstage())
			b.locked()
			b.detach()
			csitest.Wants(t, b.stage(c), codes.NotFound)
			b.attach()
			b.must(b.stage(c), b.publish(3, c, false))
			if got := b.content(k.fs, 3, ""); got != "written by Pod 1" {
				t.Errorf("after the volume was away the next Pod reads %q", got)
			}
			b.must(b.unpublish(3), b.unstage())
			b.locked()
		})
	}
}

// otherKey is a Secret with another value.
func otherKey(secrets map[string]string, value string) map[string]string {
	other := map[string]string{}
	maps.Copy(other, secrets)
	other[luks.SecretValue] = value
	return other
}

// TestWrongKey: without the key that a volume has nothing is opened or changed.
func TestWrongKey(t *testing.T) {
	t.Parallel()
	b := newEncryptedBed(t, 64*mib)
	c := csitest.Capability("ext4", csitest.Once)
	right := b.secrets
	b.secrets = nil
	err := b.stage(c)
	csitest.Wants(t, err, codes.InvalidArgument)
	csitest.Says(t, err, luks.SecretValue, "node-stage-secret-name")
	b.secrets = right
	b.must(b.stage(c), b.publish(1, c, false))
	b.content("ext4", 1, "kept")
	b.must(b.unpublish(1), b.unstage())
	before := b.sum("80M")
	b.secrets = otherKey(right, "guessed")
	err = b.stage(c)
	csitest.Wants(t, err, codes.PermissionDenied)
	csitest.Says(t, err, b.volume, "nothing is changed")
	if strings.Contains(err.Error(), "guessed") {
		t.Errorf("the key is in the error: %v", err)
	}
	b.locked()
	if b.sum("80M") != before {
		t.Error("the volume was changed")
	}
	b.secrets = right
	b.must(b.stage(c), b.publish(2, c, false))
	if got := b.content("ext4", 2, ""); got != "kept" {
		t.Errorf("read %q", got)
	}
	b.must(b.unpublish(2), b.unstage())
}

// TestEncryptedEndAtEachStep: the driver ends between any two steps, and the calls are repeated.
func TestEncryptedEndAtEachStep(t *testing.T) {
	steps := map[string][]string{
		"ext4": {"stage-begun", "luks-formatted", "unlocked", "formatted", "checked", "staged-mounted", "staged",
			"target-made", "published", "unpublished", "unmounted", "locked", "unstaged"},
		"block": {"luks-formatted", "unlocked", "staged", "published", "unpublished", "locked"},
	}
	steps["xfs"] = steps["ext4"]
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newEncryptedBed(t, k.size)
			c := csitest.Capability(k.fs, csitest.Once)
			wrote := ""
			for _, step := range steps[k.name] {
				if slices.Contains([]string{"luks-formatted", "unlocked", "formatted"}, step) { // of a volume that is new
					b, wrote = newEncryptedBed(t, k.size), ""
				}
				if !b.until(step, func() { b.must(b.stage(c), b.publish(1, c, false), b.unpublish(1), b.unstage()) }) {
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
				b.locked()
			}
		})
	}
}

// TestEncryptedKeepsWhatIsThere: what holds something else is neither formatted nor opened.
func TestEncryptedKeepsWhatIsThere(t *testing.T) {
	const toDo = "was used without encryption: copy what it holds into a new encrypted volume"
	for name, spoil := range map[string]func(b *bed){
		"a file system": func(b *bed) { b.command("mkfs.ext4", "-q", b.loop) },
		"data":          func(b *bed) { b.put(0, "a data base of its own") },
		"known content": func(b *bed) {
			b.given = map[string]string{request.ContextContent: "Pod app/web-0 has run with it"}
		},
	} {
		for _, fs := range []string{"ext4", ""} {
			t.Run(name+" "+fs, func(t *testing.T) {
				t.Parallel()
				b := newEncryptedBed(t, 64*mib)
				spoil(b)
				before := b.sum("80M")
				err := b.stage(csitest.Capability(fs, csitest.Once))
				csitest.Wants(t, err, codes.FailedPrecondition)
				if name == "a file system" {
					csitest.Says(t, err, "holds ext4: nothing is changed", toDo)
				}
				b.locked()
				if b.sum("80M") != before {
					t.Error("the volume was changed")
				}
			})
		}
	}
}

// TestNoFormatBehindLUKS: data behind a header are not formatted over, whatever they are.
func TestNoFormatBehindLUKS(t *testing.T) {
	t.Parallel()
	b := newEncryptedBed(t, 64*mib)
	block := csitest.Capability("", csitest.Once)
	b.must(b.stage(block), b.publish(1, block, false))
	f, err := os.OpenFile(b.target(1), os.O_RDWR, 0)
	b.must(err)
	_, err = f.WriteAt([]byte("a data base of its own"), 0)
	b.must(err, f.Sync(), f.Close(), b.unpublish(1))
	csitest.Wants(t, b.stage(csitest.Capability("ext4", csitest.Once)), codes.FailedPrecondition)
	b.must(b.unstage())
	b.locked()
}

// TestLUKSFormatCutShort: a header without a key is made anew if nothing lies behind it.
func TestLUKSFormatCutShort(t *testing.T) {
	t.Parallel()
	b := newEncryptedBed(t, 64*mib)
	c := csitest.Capability("ext4", csitest.Once)
	own, err := lookup(b.volume)
	b.must(err)
	k, err := request.ReadKey(b.secrets)
	b.must(err, vault{b.Server}.luksFormat(own, k))
	b.cryptsetup("", "luksErase", "--batch-mode", b.loop)
	b.must(b.stage(c), b.publish(1, c, false))
	b.content("ext4", 1, "written")
	b.must(b.unpublish(1), b.unstage())
	b.cryptsetup("", "luksErase", "--batch-mode", b.loop)
	before := b.sum("80M")
	err = b.stage(c)
	csitest.Wants(t, err, codes.Internal)
	csitest.Says(t, err, "no key any more")
	if b.sum("80M") != before {
		t.Error("the volume was changed")
	}
}

// TestEncryptedGrowth: the device grows under a mapper device that is used, which needs the key,
// and while the volume is closed.
func TestEncryptedGrowth(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			if k.fs == request.Ext4 && !lack.GrowingExt4(t) {
				lack.Skip(t, "CAP_SYS_RESOURCE: without it ext4 does not grow while it is mounted")
			}
			b := newEncryptedBed(t, k.size)
			c := csitest.Capability(k.fs, csitest.Once)
			b.must(b.stage(c), b.publish(1, c, false))
			b.content(k.fs, 1, "before")
			before := b.stats(b.target(1)).Usage[0].Total
			grow := func(to int64) {
				b.must(os.Truncate(b.file, to+16*mib))
				b.command("losetup", "--set-capacity", b.loop)
			}
			grow(2 * k.size)
			r := &spec.NodeExpandVolumeRequest{VolumeId: b.volume, VolumePath: b.target(1),
				CapacityRange: &spec.CapacityRange{RequiredBytes: 2 * k.size}}
			_, err := b.NodeExpandVolume(context.Background(), r)
			csitest.Wants(t, err, codes.InvalidArgument)
			csitest.Says(t, err, "node-expand-secret-name")
			r.Secrets = otherKey(b.secrets, "guessed")
			_, err = b.NodeExpandVolume(context.Background(), r)
			csitest.Wants(t, err, codes.PermissionDenied)
			for _, r.Secrets = range []map[string]string{b.secrets, nil} { // the second has nothing to do
				got, err := b.NodeExpandVolume(context.Background(), r)
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
			b.must(b.unpublish(1))
			grow(3 * k.size) // while it is staged, and nobody says so
			b.must(b.stage(c), b.publish(1, c, false))
			if after := b.stats(b.target(1)).Usage[0].Total; after < before+2*k.size*9/10 {
				t.Errorf("%d bytes before and %d after", before, after)
			}
			b.must(b.unpublish(1), b.unstage())
		})
	}
}

// TestStaleMapping: the device ends under an open volume, and another one has its place. That one
// is opened, without a format, when the last user of the former one has gone.
func TestStaleMapping(t *testing.T) {
	for _, k := range kinds[:2] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newEncryptedBed(t, k.size)
			c := csitest.Capability(k.fs, csitest.Once)
			b.must(b.stage(c), b.publish(1, c, false))
			b.content(k.fs, 1, "kept")
			b.shutdown(b.staging())
			b.anew(b.file)
			csitest.Wants(t, b.publish(2, c, false), codes.Internal) // Pod 1 has the former one
			b.must(b.unpublish(1), b.publish(2, c, false))           // without NodeStageVolume
			if got := b.content(k.fs, 2, ""); got != "kept" {
				t.Errorf("read %q", got)
			}
			b.must(b.unpublish(2), b.unstage())
			b.locked()
		})
	}
}

// TestUnstageWithoutADevice: a mapping whose device has gone is closed.
func TestUnstageWithoutADevice(t *testing.T) {
	t.Parallel()
	b := newEncryptedBed(t, 64*mib)
	c := csitest.Capability("ext4", csitest.Once)
	b.must(b.stage(c))
	b.detach()
	b.must(b.unstage(), b.unstage())
	b.locked()
}
