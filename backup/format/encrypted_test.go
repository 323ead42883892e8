package format_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
)

// volumeKey is a key of volume vol1.
func volumeKey(b byte) *encryption.Volume {
	return encryption.Key(bytes.Repeat([]byte{b}, 32)).ForVolume("vol1")
}

// TestEncryptedBlocks: each method and size comes back with its key alone, whatever the compression
// is said to be. Its name is no hash of the content, nothing of the content is in it, and what was
// changed, or is that of another name, is damaged.
func TestEncryptedBlocks(t *testing.T) {
	t.Parallel()
	for method, sizes := range map[format.Compression][]int64{"none": {format.DefaultBlockBytes},
		"gzip": {format.DefaultBlockBytes}, "lz4": {format.DefaultBlockBytes, format.LargeBlockBytes}} {
		for _, size := range sizes {
			var c format.Codec
			block, got := bytes.Repeat([]byte("secret: hunter2\n"), int(size)/16), make([]byte, size)
			f := format.Form{Compression: method, Key: volumeKey(1)}
			sum := f.Sum(block)
			if sum == format.Sum(block) || sum != f.Sum(block) || sum == (format.Form{Key: volumeKey(2)}).Sum(block) {
				t.Errorf("name %s", sum)
			}
			buf := make([]byte, 0, format.MaxStoredBytes(size))
			data, err := c.Encode(f, block, buf, sum)
			if err != nil || int64(len(data)) > format.MaxStoredBytes(size) || &data[0] != &buf[:1][0] {
				t.Fatalf("%d bytes, not in their buffer, or %v", len(data), err)
			}
			if bytes.Contains(data, []byte("hunter2")) {
				t.Errorf("%s of %d: the content is seen", method, size)
			}
			for _, said := range []format.Compression{"none", "gzip", "lz4"} {
				f := format.Form{Compression: said, Key: f.Key}
				clear(got)
				if err := c.Decode(f, bytes.Clone(data), got, sum); err != nil || !bytes.Equal(got, block) {
					t.Errorf("as %s: %v", said, err)
				}
				if err := c.Check(f, bytes.Clone(data), sum, format.LargeBlockBytes, format.DefaultBlockBytes); err != nil {
					t.Errorf("check as %s: %v", said, err)
				}
			}
			flipped := bytes.Clone(data)
			flipped[len(data)/2] ^= 1
			for what, bad := range map[string]struct {
				form format.Form
				data []byte
				name format.Checksum
			}{"flipped": {f, flipped, sum}, "short": {f, data[:len(data)-1], sum}, "empty": {f, nil, sum},
				"without a key": {plain(method), data, sum}, "its content's name": {plain(method), data, format.Sum(block)},
				"another key":  {format.Form{Compression: method, Key: volumeKey(2)}, data, sum},
				"another name": {f, data, format.Sum(block)}, "in the clear": {f, block, sum}} {
				if err := c.Decode(bad.form, bytes.Clone(bad.data), got, bad.name); !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("%s: %v", what, err)
				}
				if err := c.Check(bad.form, bytes.Clone(bad.data), bad.name, size); !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("check %s: %v", what, err)
				}
			}
		}
	}
}

// encrypted is the record of an encrypted backup.
func encrypted(key *encryption.Volume) *format.Backup {
	return &format.Backup{Name: "b1", Volume: "vol1", Snapshot: "s1", Created: format.Time{Time: time.Now()},
		SnapshotCreated: format.Time{Time: time.Now()}, Labels: map[string]string{"k": "<v>\xff"}, Compression: "lz4",
		Key: key.ID(), BlockBytes: format.DefaultBlockBytes, NewBytes: 7,
		Blocks: []format.Block{{Offset: 0, Checksum: format.Sum(nil)}, {Offset: 4 << 20, Checksum: format.Sum([]byte{1})}}}
}

// TestEncryptedRecords: a record comes back, and is authentic as long as nobody changes it.
func TestEncryptedRecords(t *testing.T) {
	t.Parallel()
	key := volumeKey(1)
	b := encrypted(key)
	if err := b.CheckAuthentic(key); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("before it is authenticated: %v", err)
	}
	data, err := b.MarshalAuthentic(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"CompressionMethod":"encrypted-lz4"`, `"SnapshotName":"encrypted/s1"`,
		`"EncryptionKey":"` + key.ID().String() + `"`, `"Authentication":"`} {
		if !strings.Contains(string(data), part) {
			t.Errorf("no %s: %s", part, data)
		}
	}
	read := func(data string) *format.Backup {
		t.Helper()
		got, err := format.ParseBackup([]byte(data), "vol1", "b1")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := read(string(data))
	if err := got.CheckAuthentic(key); err != nil || got.Snapshot != "s1" || got.Compression != "lz4" ||
		!got.Encrypted() || got.Key != key.ID() || !slices.Equal(got.Blocks, b.Blocks) {
		t.Errorf("%+v, %v", got, err)
	}
	first, second := format.Sum(nil).String(), format.Sum([]byte{1}).String()
	for what, bad := range map[string]string{
		"a block is shifted":  strings.Replace(string(data), `"Offset":4194304`, `"Offset":6291456`, 1),
		"a block is another":  strings.Replace(string(data), second, first, 1),
		"a block is missing":  strings.Replace(string(data), `,{"Offset":4194304,"BlockChecksum":"`+second+`"}`, "", 1),
		"another compression": strings.Replace(string(data), "encrypted-lz4", "encrypted-none", 1),
		"another snapshot":    strings.Replace(string(data), "encrypted/s1", "encrypted/s2", 1),
		"a field behind":      string(data[:len(data)-1]) + `,"Blocks":[]}`,
		"another field":       strings.Replace(string(data), `,"Authentication"`, `,"Blocks":[],"Authentication"`, 1),
		"no authentication":   string(data[:bytes.Index(data, []byte(`,"Authentication"`))]) + "}",
	} {
		if err := read(bad).CheckAuthentic(key); bad == string(data) || !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, bad := range map[string]string{
		"no key":                 strings.Replace(string(data), `"EncryptionKey":"`+key.ID().String()+`",`, "", 1),
		"no id":                  strings.Replace(string(data), key.ID().String(), "x", 1),
		"the clear":              strings.Replace(string(data), "encrypted-lz4", "lz4", 1),
		"a snapshot of a chain":  strings.Replace(string(data), "encrypted/s1", "s1", 1),
		"an unknown compression": strings.Replace(string(data), "encrypted-lz4", "encrypted-zip", 1),
	} {
		_, err := format.ParseBackup([]byte(bad), "vol1", "b1")
		if bad == string(data) || !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestEncryptedMethods(t *testing.T) {
	t.Parallel()
	for method, want := range map[format.Compression]format.Compression{"": "encrypted-lz4", "gzip": "encrypted-gzip"} {
		if got := method.Encrypted(); got != want || got.Check() == nil {
			t.Errorf("%q: %s, which programs without encryption know: %v", method, got, got.Check())
		}
		if inner, encrypted := method.Encrypted().CutEncrypted(); !encrypted || method != "" && inner != method {
			t.Errorf("%q: %s, %v", method, inner, encrypted)
		}
	}
	if inner, encrypted := format.Compression("lz4").CutEncrypted(); encrypted || inner != "lz4" {
		t.Errorf("%s, %v", inner, encrypted)
	}
}
