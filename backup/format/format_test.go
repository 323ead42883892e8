package format_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/backup/format"
	"ankole.storage/test/archive"
	"ankole.storage/test/seeded"
)

// fixture unpacks the backup store that a reference engine wrote and returns its root.
func fixture(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	archive.Unpack(t, "../../dataplane/chain/testdata/longhorn-v1.tgz", dir, "./backupstore")
	return filepath.Join(dir, "backupstore")
}

func read(t testing.TB, root, object string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, object))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestNamesOfTheReference: check values of the layout.
func TestNamesOfTheReference(t *testing.T) {
	t.Parallel()
	if got := format.VolumeRecord("vol1"); got != "backupstore/volumes/01/9c/vol1/volume.cfg" {
		t.Error(got)
	}
	zero := format.Sum(make([]byte, 2<<20))
	if zero.String() != "731859029215873fdac1c9f2f8bd25a334abf0f3a9e1b057cf2cacc2826d86b0" {
		t.Error(zero)
	}
	block := format.BlockObject("vol1", zero)
	if block != "backupstore/volumes/01/9c/vol1/blocks/73/18/"+zero.String()+".blk" {
		t.Error(block)
	}
	if c, ok := format.BlockOf(block); !ok || c != zero {
		t.Errorf("%v, %v", c, ok)
	}
	if b, ok := format.BackupOf(format.BackupRecord("vol1", "backup-1")); !ok || b != "backup-1" {
		t.Errorf("%v, %v", b, ok)
	}
	if l, ok := format.LockOf(format.LockObject("vol1", "lock-0123456789abcdef")); !ok || l != "lock-0123456789abcdef" {
		t.Errorf("%v, %v", l, ok)
	}
	if c, ok := format.MarkOf(format.PoolOf("vol1").Mark(zero)); !ok || c != zero {
		t.Errorf("%v, %v", c, ok)
	}
	for _, other := range []string{"a/.backup_x.cfg", "a/backup_.cfg", "a/backup_x.cfg.tmp.1", "a/73.blk", "a/x"} {
		if _, ok := format.BackupOf(other); ok {
			t.Errorf("%s is no backup", other)
		}
		if _, ok := format.BlockOf(other); ok {
			t.Errorf("%s is no block", other)
		}
		if _, ok := format.MarkOf(other); ok {
			t.Errorf("%s is no mark", other)
		}
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"vol1": true, "a.b_c-D": true, "0a": true, "": false, "a": false, "-a": false,
		"../a": false, "a/b": false, "a b": false, "aé": false, ".a": false, "a\n": false} {
		if err := format.CheckName(name); (err == nil) != ok || err != nil && !errors.Is(err, format.ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestRecordsOfTheReference: what the reference wrote is read, and written again it is the same,
// byte by byte.
func TestRecordsOfTheReference(t *testing.T) {
	t.Parallel()
	root := fixture(t)
	data := read(t, root, format.VolumeRecord("backed"))
	v, err := format.ParseVolume(data, "backed")
	if err != nil {
		t.Fatal(err)
	}
	if v.SizeBytes != 24<<20 || v.BlockCount != 24 || v.Compression != "lz4" || v.LastBackup != "backup-2-none" ||
		v.BackingImage != "" || v.StorageClass != "0" || v.DataEngine != "v1" || v.LastBackupAt.Second() != 58 {
		t.Errorf("%+v", v)
	}
	if again, err := v.Marshal(); err != nil || !bytes.Equal(again, data) {
		t.Errorf("%v\n%s\nwas\n%s", err, again, data)
	}
	for name, blocks := range map[string]int{"backup-0-lz4": 9, "backup-1-gzip": 10, "backup-2-none": 12} {
		data := read(t, root, format.BackupRecord("backed", name))
		b, err := format.ParseBackup(data, "backed", name)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Blocks) != blocks || b.BlockBytes != 2<<20 || b.SizeBytes() != int64(blocks)*2<<20 || b.InProgress() {
			t.Errorf("%+v", b)
		}
		// An incremental backup of the reference has null for what is ignored.
		want := strings.Replace(string(data), `"ProcessingBlocks":null`, `"ProcessingBlocks":{}`, 1)
		if again, err := b.Marshal(); err != nil || string(again) != want {
			t.Errorf("%v\n%s\nwas\n%s", err, again, data)
		}
	}
}

func TestVolumeRecordForms(t *testing.T) {
	t.Parallel()
	const begin = `{"Name":"vol1","Size":"2097152","BlockCount":"0"`
	for name, tt := range map[string]struct {
		record string
		method format.Compression
		image  string
	}{
		"old":      {begin + `}`, "gzip", ""},
		"nested":   {begin + `,"CompressionMethod":"\"lz4\"","BackingImageName":"\"img\""}`, "lz4", "img"},
		"plain":    {begin + `,"CompressionMethod":"none","BackingImageName":"img"}`, "none", "img"},
		"no times": {begin + `,"CreatedTime":"","LastBackupAt":"","CompressionMethod":"\"\"","BackingImageName":""}`, "gzip", ""},
	} {
		v, err := format.ParseVolume([]byte(tt.record), "vol1")
		if err != nil || v.Compression != tt.method || v.BackingImage != tt.image || v.DataEngine != "v1" {
			t.Errorf("%s: %+v, %v", name, v, err)
			continue
		}
		out, err := v.Marshal()
		if err != nil || !strings.Contains(string(out), fmt.Sprintf(`"CompressionMethod":"\"%s\""`, tt.method)) ||
			!strings.Contains(string(out), fmt.Sprintf(`"BackingImageName":"\"%s\""`, tt.image)) {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
	for _, bad := range []string{``, `{}`, `[]`, `{"Name":"vol2","Size":"1","BlockCount":"0"}`, begin,
		`{"Name":"vol1","Size":"-1"}`, begin + `,"CompressionMethod":"\"zip\""}`, begin + `,"CreatedTime":"yesterday"}`} {
		if _, err := format.ParseVolume([]byte(bad), "vol1"); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Fields of another program's version are not lost.
func TestUnknownFieldsAreKept(t *testing.T) {
	t.Parallel()
	const extra = `"Later":{"a":[1,2]},"Other":"x"`
	v, err := format.ParseVolume([]byte(`{"Other":"x","Name":"vol1","Size":"0","BlockCount":"0","Later":{"a":[1,2]}}`), "vol1")
	if err != nil {
		t.Fatal(err)
	}
	v.LastBackup = "backup-1"
	data, err := v.Marshal()
	if err != nil || !strings.HasSuffix(string(data), ","+extra+"}") || strings.Count(string(data), `"Name"`) != 1 {
		t.Errorf("%s, %v", data, err)
	}
}

func TestDamagedBackupRecords(t *testing.T) {
	t.Parallel()
	sum := format.Sum(nil).String()
	record := func(blocks, size string) string {
		return `{"Name":"b1","VolumeName":"vol1","CreatedTime":"2026-01-02T03:04:05Z","Size":"0",` +
			`"NewlyUploadedDataSize":"0","ReUploadedDataSize":"0",` +
			`"Parameters":{"backup-block-size":"` + size + `"},"Blocks":[` + blocks + `]}`
	}
	block := func(offset int) string { return fmt.Sprintf(`{"Offset":%d,"BlockChecksum":"%s"}`, offset, sum) }
	b, err := format.ParseBackup([]byte(record(block(0)+","+block(2<<20), "")), "vol1", "b1")
	if err != nil || b.BlockBytes != 2<<20 || b.Compression != "gzip" {
		t.Fatalf("%+v, %v", b, err)
	}
	for _, bad := range []string{
		"", "{}", record("", "5"), record(block(1), ""), record(block(2<<20), "16Mi"), record(block(0)+","+block(0), ""),
		record(block(-2<<20), ""), record(block(2<<20)+","+block(0), ""), record(`{"Offset":0}`, ""),
		record(`{"BlockChecksum":"`+sum+`"}`, ""), record(strings.ReplaceAll(block(0), sum, sum[:62]), ""),
		record(strings.ReplaceAll(block(0), sum, strings.ToUpper(sum)), ""), record("", "")[:40],
	} {
		if _, err := format.ParseBackup([]byte(bad), "vol1", "b1"); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := format.ParseBackup([]byte(record("", "")), "vol1", "b2"); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("another backup's record: %v", err)
	}
}

func TestBlockSizes(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{"": 2 << 20, "0": 2 << 20, "2097152": 2 << 20, "2Mi": 2 << 20, "16Mi": 16 << 20,
		"16777216": 16 << 20, "2048Ki": 2 << 20, "4Mi": 0, "-2Mi": 0, "x": 0, "2MiB": 0, "99999999999": 0} {
		if got, err := format.ParseBlockBytes(s); got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
}

func plain(method format.Compression) format.Form { return format.Form{Compression: method} }

// TestBlocks: each method, each size, whatever the content; and every byte of what is stored
// counts.
func TestBlocks(t *testing.T) {
	t.Parallel()
	random := seeded.New(t, "a block comes back as it was stored, or not at all")
	random.Seed(1)
	for _, method := range []format.Compression{"none", "gzip", "lz4"} {
		for _, size := range []int64{format.DefaultBlockBytes, format.LargeBlockBytes} {
			for _, content := range []string{"zero", "random", "text"} {
				t.Run(fmt.Sprintf("%s of %d %s", method, size, content), func(t *testing.T) {
					var c format.Codec
					block, got := make([]byte, size), make([]byte, size)
					r := random.Rand(uint64(size))
					switch content {
					case "random":
						for i := range block {
							block[i] = byte(r.Uint32())
						}
					case "text":
						copy(block, bytes.Repeat([]byte("a line of text\n"), int(size)/15))
					}
					sum := format.Sum(block)
					for range 2 { // a codec is used again
						data, err := c.Encode(plain(method), block, make([]byte, 0, format.MaxStoredBytes(size)), sum)
						if err != nil || int64(len(data)) > format.MaxStoredBytes(size) {
							t.Fatalf("%d bytes, %v", len(data), err)
						}
						if err := c.Decode(plain(method), data, got, sum); err != nil || !bytes.Equal(got, block) {
							t.Fatal(err)
						}
						for _, other := range []format.Compression{"none", "gzip", "lz4"} { // a volume may hold several
							if err := c.Decode(plain(other), data, got, sum); err != nil {
								t.Errorf("as %s: %v", other, err)
							}
							if err := c.Check(plain(other), data, sum, size); err != nil {
								t.Errorf("check as %s: %v", other, err)
							}
						}
						bad := bytes.Clone(data)
						bad[r.IntN(len(bad)/2)+len(bad)/4] ^= 0x10
						for what, bad := range map[string][]byte{"flipped": bad, "short": data[:len(data)-1], "empty": {},
							"long": append(bytes.Clone(data), 0), "half": data[:len(data)/2], "header": data[:4]} {
							if what == "long" && method == "gzip" || what == "flipped" && bytes.Equal(bad, data) {
								continue // a zero after a gzip stream is padding, and the content is checked
							}
							if err := c.Decode(plain(method), bad, got, sum); !errors.Is(err, format.ErrCorrupt) {
								t.Errorf("%s: %v", what, err)
							}
							if err := c.Check(plain(method), bad, sum, size); !errors.Is(err, format.ErrCorrupt) {
								t.Errorf("check %s: %v", what, err)
							}
						}
					}
				})
			}
		}
	}
}

// TestBlocksOfTheReference: every block of the reference's store has the content of its name.
func TestBlocksOfTheReference(t *testing.T) {
	t.Parallel()
	root := fixture(t)
	var c format.Codec
	block := make([]byte, format.DefaultBlockBytes)
	names, err := filepath.Glob(filepath.Join(root, format.BlocksFolder("backed"), "*/*/*"))
	if err != nil || len(names) != 24 {
		t.Fatalf("%d blocks, %v", len(names), err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum, ok := format.BlockOf(name)
		if !ok {
			t.Errorf("%s is no block", name)
		}
		if err := c.Decode(plain(format.CompressionLZ4), data, block, sum); err != nil {
			t.Error(err)
		}
	}
}

func FuzzRecords(f *testing.F) {
	root := fixture(f)
	f.Add(read(f, root, format.VolumeRecord("backed")))
	f.Add(read(f, root, format.BackupRecord("backed", "backup-0-lz4")))
	f.Add([]byte(`{"Name":"lock-0123456789abcdef","Type":2,"Acquired":true}`))
	f.Add(mustImage(f, image(nil), nil))
	f.Add(mustImage(f, image(imageKey(1)), imageKey(1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if v, err := format.ParseVolume(data, "backed"); err == nil {
			out, err := v.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := format.ParseVolume(out, "backed"); err != nil {
				t.Fatalf("%s\nis written as\n%s\n%v", data, out, err)
			}
		}
		if b, err := format.ParseBackup(data, "backed", "backup-0-lz4"); err == nil {
			out, err := b.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := format.ParseBackup(out, "backed", "backup-0-lz4"); err != nil {
				t.Fatalf("%s\nis written as\n%s\n%v", data, out, err)
			}
		}
		if i, err := format.ParseImage(data, "backed"); err == nil {
			out, err := i.Marshal(imageKey(1))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := format.ParseImage(out, "backed"); err != nil {
				t.Fatalf("%s\nis written as\n%s\n%v", data, out, err)
			}
		}
		_, _ = format.ParseLock(data) // ends
	})
}

func FuzzBlock(f *testing.F) {
	block := bytes.Repeat([]byte("content "), 512)
	sum := format.Sum(block)
	for _, method := range []format.Compression{"none", "gzip", "lz4"} {
		data, err := new(format.Codec).Encode(plain(method), block, nil, sum)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		sealed := format.Form{Compression: method, Key: volumeKey(1)}
		if data, err = new(format.Codec).Encode(sealed, block, nil, sealed.Sum(block)); err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got := make([]byte, len(block))
		for _, method := range []format.Compression{"none", "lz4"} {
			sealed := format.Form{Compression: method, Key: volumeKey(1)}
			err := new(format.Codec).Decode(sealed, bytes.Clone(data), got, sealed.Sum(block))
			if err == nil && !bytes.Equal(got, block) || err != nil && !errors.Is(err, format.ErrCorrupt) {
				t.Fatal(err)
			}
		}
		err := new(format.Codec).Decode(plain(format.CompressionLZ4), data, got, sum)
		if err == nil && !bytes.Equal(got, block) || err != nil && !errors.Is(err, format.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}
