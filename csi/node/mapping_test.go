package node

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/host/luks"
)

// TestKeyIsNoArgument: what processes are started with can be read by everybody on the node.
func TestKeyIsNoArgument(t *testing.T) {
	t.Parallel()
	b := newEncryptedBed(t, 64*mib)
	s, ok := b.run.(*standIn)
	if !ok {
		return // the arguments are the same where cryptsetup is the real one
	}
	c := csitest.Capability("ext4", csitest.Once)
	b.must(b.stage(c), b.unstage(), b.stage(c), b.unstage())
	if n := s.formats(); n != 1 {
		t.Errorf("formatted %d times", n)
	}
	for _, want := range []string{"luks2", "-", "--cipher=aes-xts-plain64", "--pbkdf=pbkdf2",
		"--pbkdf-force-iterations=1000"} {
		if got := s.arguments("luksFormat"); !slices.Contains(got, want) {
			t.Errorf("luksFormat %q lacks %q", got, want)
		}
	}
	if got := s.arguments("open"); !slices.Contains(got, "--allow-discards") {
		t.Errorf("open %q lets no discards through", got)
	}
	for _, call := range s.calls {
		if strings.Contains(strings.Join(call, " "), b.secrets[luks.SecretValue]) {
			t.Errorf("the key is an argument: %q", call)
		}
	}
}

// TestForeignMapping: a device of the node that happens to have the volume's name is left alone,
// whether cryptsetup has made it or something else.
func TestForeignMapping(t *testing.T) {
	for name, change := range map[string]struct{ file, text string }{
		"of LVM":         {"dm/uuid", "LVM-xyz"},
		"on a disk":      {"slaves/loop0/loop/backing_file", "/var/lib/images/data.img"},
		"of crypttab":    {"slaves/loop0/dev", "8:1"},
		"a former, kept": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newEncryptedBed(t, 64*mib)
			if _, ok := b.run.(*standIn); !ok {
				return // sysfs is the kernel's
			}
			dir := filepath.Join(b.sys, "block/dm-7")
			files := map[string]string{"dev": "253:7", "dm/name": b.volume, "dm/uuid": "CRYPT-LUKS2-1-" + b.volume,
				"slaves/loop0/dev": "7:77", "slaves/loop0/loop/backing_file": "/dev/fuse/" + b.volume + " (deleted)"}
			if change.file != "" {
				files[change.file] = change.text
			}
			if change.text == "8:1" {
				delete(files, "slaves/loop0/loop/backing_file")
			}
			for _, file := range slices.Sorted(maps.Keys(files)) {
				path := filepath.Join(dir, file)
				b.must(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(files[file]+"\n"), 0o600))
			}
			m, err := b.mapping(b.volume)
			b.must(err)
			if m == nil || m.former() != (change.file == "") {
				t.Fatalf("%+v", m)
			}
			if change.file == "" {
				return
			}
			err = b.stage(csitest.Capability("ext4", csitest.Once))
			csitest.Wants(t, err, codes.FailedPrecondition)
			csitest.Says(t, err, "/dev/mapper/"+b.volume, "nothing is changed", "dmsetup rename "+b.volume+" NEW")
			b.must(b.unstage())
			if _, err := os.Stat(dir); err != nil || len(b.run.(*standIn).calls) != 0 {
				t.Errorf("%v; cryptsetup was called: %q", err, b.run.(*standIn).calls)
			}
		})
	}
}
