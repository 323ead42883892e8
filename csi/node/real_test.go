package node

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/host/luks"
	"ankole.storage/test/lack"
)

// TestRealDeviceMapper: what only the kernel and cryptsetup themselves can show.
func TestRealDeviceMapper(t *testing.T) {
	if os.Getenv(realVariable) == "" {
		lack.Later(t, "tools/hunt.sh vm has a kernel with dm_crypt")
	}
	c := csitest.Capability("ext4", csitest.Once)
	t.Run("ciphertext", func(t *testing.T) {
		b := newEncryptedBed(t, 64*mib)
		b.must(b.stage(c), b.publish(1, c, false))
		b.content("ext4", 1, "a sentence that nobody shall read on a disk")
		b.must(b.unpublish(1), b.unstage())
		b.command("sync")
		p, err := os.ReadFile(b.file)
		b.must(err)
		if strings.Contains(string(p), "nobody shall read") {
			t.Error("plain text lies on the device")
		}
		if out := b.command("cryptsetup", "luksDump", b.loop); !strings.Contains(out, "aes-xts-plain64") ||
			!strings.Contains(out, "Version:       \t2") || !strings.Contains(out, "offset: 16777216") {
			t.Errorf("the header says %s", out)
		}
	})
	t.Run("argon2i", func(t *testing.T) {
		b := newEncryptedBed(t, 64*mib)
		b.secrets = map[string]string{luks.SecretValue: "a key\nof two lines\n", luks.SecretMemory: "65536",
			luks.SecretIterations: "4"}
		b.must(b.stage(c), b.unstage(), b.stage(c), b.unstage())
		if out := b.command("cryptsetup", "luksDump", b.loop); !strings.Contains(out, "argon2i\n") {
			t.Errorf("the header says %s", out)
		}
	})
	t.Run("discards", func(t *testing.T) {
		b := newEncryptedBed(t, 64*mib)
		b.must(b.stage(c), b.publish(1, c, false))
		b.must(os.WriteFile(filepath.Join(b.target(1), "big"), []byte(strings.Repeat("x", 32*mib)), 0o600))
		b.command("sync")
		blocks := func() int64 {
			info, err := os.Stat(b.file)
			b.must(err)
			return info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		before := blocks()
		b.must(os.Remove(filepath.Join(b.target(1), "big")))
		b.command("sync") // blocks are free when the journal says so
		b.command("fstrim", b.target(1))
		b.command("sync")
		if after := blocks(); after > before-24*mib {
			t.Errorf("%d bytes before the trim and %d after", before, after)
		}
		b.must(b.unpublish(1), b.unstage())
	})
	t.Run("another header", func(t *testing.T) {
		b := newEncryptedBed(t, 64*mib)
		b.command("sh", "-c", "echo words | cryptsetup luksFormat --batch-mode --type luks1 --iter-time 1 "+b.loop+" -")
		csitest.Wants(t, b.stage(c), codes.Internal)
		b.locked()
	})
	t.Run("a crypt device of the node", func(t *testing.T) {
		b, other := newEncryptedBed(t, 64*mib), newEncryptedBed(t, 64*mib)
		own, err := lookup(other.volume)
		b.must(err)
		k, err := request.ReadKey(b.secrets)
		b.must(err, vault{b.Server}.luksFormat(own, k))
		b.cryptsetup(k.Value, "open", "--batch-mode", "--key-file", "-", other.loop, b.volume)
		csitest.Wants(t, b.stage(c), codes.FailedPrecondition)
		b.must(b.unstage())
		b.cryptsetup("", "close", b.volume) // it is still there
		b.must(b.stage(c), b.unstage())
	})
}
