package chain_test

import (
	"bytes"
	"reflect"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/qcow2/qcow2test"
)

// TestBackingFile: what no file of the chain holds is read from the image below it, whatever form
// that has, and where zeroes were asked for it never shows again.
func TestBackingFile(t *testing.T) {
	content := bytes.Repeat([]byte{9}, 6144)
	images := map[string][]byte{"raw": content}
	for name, form := range map[string]qcow2test.Image{"qcow2": {Bits: 16, Version: 3},
		"small clusters": {Bits: 9, Version: 2}, "zstd": {Bits: 12, Version: 3, Compression: 1},
		"extended": {Bits: 14, Version: 3, Extended: true}} {
		form.Size = int64(len(content))
		images[name] = form.Build(t, content, func(n int) qcow2test.Stored { return qcow2test.Plain + qcow2test.Stored(n%2) })
		images[name+", packed"] = form.Build(t, content, func(int) qcow2test.Stored { return qcow2test.Packed })
	}
	for name, image := range images {
		t.Run(name, func(t *testing.T) { onImage(t, image) })
	}
}

func onImage(t *testing.T, image []byte) {
	fs := memdisk.New()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(fs.Mkdir("/b"))
	must(fs.WriteFileAtomic("/b/backing", image))
	spec := testSpec(mib)
	spec.BackingFile = "/b"
	must(chain.Create(fs, "/r", spec, testOptions()))
	w := &world{t: t, fs: fs, dir: "/r", opts: testOptions()}
	w.open()
	for range 2 {
		if !w.c.Empty() || !w.c.OnImage() {
			t.Error("a new volume is not empty")
		}
		w.wantByte(0, 6144, 9)
		w.wantByte(6144, mib-6144, 0)
		w.reopen()
	}
	w.fill(512, 512, 1)
	if w.c.Empty() {
		t.Error("something was written, and the volume is empty")
	}
	w.zero(4096, 4096) // may not be a hole: the backing file would show
	w.snapshot("a")
	w.zero(0, 512)
	for range 2 {
		w.wantByte(0, 512, 0)
		w.wantByte(512, 512, 1)
		w.wantByte(1024, 3072, 9)
		w.wantByte(4096, 4096, 0)
		w.reopen()
	}
	if u, err := w.c.Usage(); err != nil || u.Count != 1 || u.Total != 3 {
		t.Fatalf("usage %+v, %v", u, err)
	}
	// Whoever copies what is listed to another volume on the image has to bring the zeroes too.
	w.must(w.c.Discard(0, 4096))
	w.must(w.c.Discard(65536, 4096))
	w.snapshot("b")
	v := w.view("b")
	if got, next := v.Ranges(0, 100); !reflect.DeepEqual(got, [][2]int64{{0, 8192}}) || next != -1 {
		t.Errorf("listed are %v, %d", got, next)
	}
	w.must(v.Close())
	w.must(w.c.Close())
}

// TestBackingFileIsRefused: what cannot be below a volume is not put there.
func TestBackingFileIsRefused(t *testing.T) {
	fs := memdisk.New()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(fs.Mkdir("/b"))
	must(fs.WriteFileAtomic("/b/backing", make([]byte, 4096)))
	spec := testSpec(mib)
	spec.BackingFile = "/b"
	must(chain.Create(fs, "/r", spec, testOptions()))
	w := &world{t: t, fs: fs, dir: "/r", opts: testOptions()}
	must(fs.WriteFileAtomic("/b/second", nil))
	_, err := chain.Open(fs, "/r", w.opts)
	wantErr(t, err, chain.ErrCorrupt)
	must(fs.Remove("/b/second"))
	large := qcow2test.Image{Bits: 16, Version: 3, Size: mib + 512}
	for _, tt := range []struct {
		image []byte
		want  error
	}{
		{append([]byte("QFI\xfb"), make([]byte, 508)...), disk.ErrUnsupported},
		{make([]byte, mib+512), chain.ErrInvalid},
		{large.Build(t, make([]byte, large.Size), func(int) qcow2test.Stored { return qcow2test.Hole }), chain.ErrInvalid},
	} {
		must(fs.WriteFileAtomic("/b/backing", tt.image))
		_, err = chain.Open(fs, "/r", w.opts)
		wantErr(t, err, tt.want)
	}
}
