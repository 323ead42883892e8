package memdisk_test

import (
	"bytes"
	"errors"
	"testing"

	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// Rot changes bytes and nothing else; a bad page gives errors until it is written.
func TestRotAndUnreadable(t *testing.T) {
	fs := memdisk.New()
	if err := fs.WriteFileAtomic("/a", bytes.Repeat([]byte{0xf0}, 8192)); err != nil {
		t.Fatal(err)
	}
	before, _ := fs.Stat("/a")
	if err := fs.Rot("/a", 4095, 2); err != nil {
		t.Fatal(err)
	}
	if after, _ := fs.Stat("/a"); after != before {
		t.Errorf("%+v became %+v", before, after)
	}
	for _, f := range []*memdisk.FS{fs, fs.Crash(1)} {
		data, err := f.ReadFile("/a", 8192)
		if err != nil || !bytes.Equal(data[4094:4098], []byte{0xf0, 0x0f, 0x0f, 0xf0}) {
			t.Fatalf("%x, %v", data[4094:4098], err)
		}
	}
	if err := fs.Unreadable("/a", 4096, 1); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open("/a", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, 4096)
	if _, err := f.ReadAt(p, 0); err != nil {
		t.Error(err)
	}
	if _, err := f.ReadAt(p, 4000); !errors.Is(err, disk.ErrIO) {
		t.Errorf("bad page: %v", err)
	}
	if _, err := fs.ReadFile("/a", 8192); !errors.Is(err, disk.ErrIO) {
		t.Errorf("file with a bad page: %v", err)
	}
	if _, err := f.WriteAt(p, 4096); err != nil {
		t.Error(err)
	}
	if _, err := f.ReadAt(p, 4096); err != nil {
		t.Error(err)
	}
	if err := errors.Join(fs.Rot("/none", 0, 1)); !errors.Is(err, disk.ErrNotFound) {
		t.Error(err)
	}
	if err := fs.Unreadable("/none", 0, 1); !errors.Is(err, disk.ErrNotFound) {
		t.Error(err)
	}
}
