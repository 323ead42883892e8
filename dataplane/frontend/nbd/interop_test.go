package nbd_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend/frontendtest"
	"ankole.storage/dataplane/loop"
	"ankole.storage/test/lack"
)

// tool returns the path of another project's client, or skips.
func tool(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		lack.Skip(t, fmt.Sprintf("%s is not installed (Debian package %s)", name, pkg))
	}
	return path
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// serve brings a device up and returns its rig and the URI other clients use.
func serve(t *testing.T, size int64) (*frontendtest.Rig, string) {
	tr := &transport{network: "unix"}
	r := frontendtest.Up(t, tr, size, nil)
	return r, "nbd+unix:///vol?socket=" + strings.TrimPrefix(tr.addr, "unix:")
}

func TestNbdinfoAgrees(t *testing.T) {
	info := tool(t, "nbdinfo", "libnbd-bin")
	_, uri := serve(t, 1<<20+512)
	out := run(t, info, uri)
	for _, want := range []string{
		"export-size: 1049088", "can_flush: true", "can_fua: true", "can_trim: true", "can_zero: true",
		"can_multi_conn: true", "can_fast_zero: false", "is_read_only: false",
		"block_size_minimum: 512", "block_size_preferred: 4096", "block_size_maximum: 33554432",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nbdinfo does not say %q:\n%s", want, out)
		}
	}
	list := run(t, info, "--list", strings.Replace(uri, "/vol", "/", 1))
	if !strings.Contains(list, `export="vol"`) {
		t.Errorf("nbdinfo --list does not name the export:\n%s", list)
	}
}

func TestNbdcopyCopiesBothWays(t *testing.T) {
	nbdcopy := tool(t, "nbdcopy", "libnbd-bin")
	r, uri := serve(t, 64<<20)
	dir := t.TempDir()
	in, back := filepath.Join(dir, "in"), filepath.Join(dir, "back")
	data := make([]byte, 64<<20)
	rnd := rand.NewChaCha8([32]byte{1})
	for i := 0; i < len(data); i += 1 << 20 { // every other MiB, so that there is something to zero
		if i>>20&1 == 0 {
			rnd.Read(data[i : i+1<<20])
		}
	}
	if err := os.WriteFile(in, data, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nbdcopy, "--flush", in, uri)
	r.Do(func(v *frontendtest.Device, _ *[]loop.Op) {
		if !bytes.Equal(v.Mem, data) {
			t.Error("the device holds something else")
		}
		if v.Seen[block.Flush] == 0 {
			t.Error("nbdcopy --flush sent no flush")
		}
	})
	run(t, nbdcopy, uri, back)
	got, err := os.ReadFile(back)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("the copy back differs (%v)", err)
	}
}

func TestQemuIO(t *testing.T) {
	qemu := tool(t, "qemu-io", "qemu-utils")
	r, uri := serve(t, 16<<20)
	out := run(t, qemu, "-f", "raw", uri,
		"-c", "write -P 0x5a 0 3M", "-c", "write -f -P 0x77 1M 4k", "-c", "write -z 2M 64k", "-c", "discard 8M 1M",
		"-c", "aio_write -P 0x11 4M 2M", "-c", "aio_flush", "-c", "flush",
		"-c", "read -P 0x5a 0 1M", "-c", "read -P 0x77 1M 4k", "-c", "read -P 0 2M 64k", "-c", "read -P 0x11 4M 2M",
		"-c", "read -P 0x5a 512 512")
	if strings.Contains(out, "failed") || strings.Contains(out, "error") {
		t.Fatalf("qemu-io:\n%s", out)
	}
	r.Do(func(v *frontendtest.Device, _ *[]loop.Op) {
		for _, k := range []block.Kind{block.Read, block.Write, block.Flush, block.Discard, block.WriteZeroes} {
			if v.Seen[k] == 0 {
				t.Errorf("qemu-io sent no %v: %v", k, v.Seen)
			}
		}
		if v.Stable[1<<20] != 0x77 || v.Stable[4<<20] != 0x11 {
			t.Error("what was flushed is not stable")
		}
	})
}
