package backup_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pierrec/lz4/v4"

	"ankole.storage/backup"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
	"ankole.storage/backup/object/directory"
	"ankole.storage/backup/object/objecttest"
	"ankole.storage/test/archive"
)

// page restores a backup by what the description of the layout says, with nothing of package
// format.
type page struct {
	t *testing.T
	s object.Store
}

func (p page) get(name string) []byte {
	p.t.Helper()
	data, err := p.s.Get(p.t.Context(), name, nil, 1<<30)
	if err != nil {
		p.t.Fatal(err)
	}
	return data
}

// half is a hash as names have it.
func half(data []byte) string {
	sum := sha512.Sum512(data)
	return hex.EncodeToString(sum[:])[:64]
}

func (p page) record(name string, keys ...string) map[string]any {
	p.t.Helper()
	data := p.get(name)
	if bytes.ContainsAny(data, "\n") {
		p.t.Errorf("%s is not one line", name)
	}
	record := map[string]any{}
	if err := json.Unmarshal(data, &record); err != nil {
		p.t.Fatal(err)
	}
	// The order of keys is that of the reference, so that a byte comparison shows no difference.
	at := 0
	for _, key := range keys {
		i := bytes.Index(data, []byte(`"`+key+`":`))
		if i < at {
			p.t.Errorf("%s: %s is missing or out of order: %s", name, key, data)
		}
		at = i
	}
	return record
}

func (p page) number(record map[string]any, key string) int64 {
	p.t.Helper()
	text, ok := record[key].(string)
	n, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		p.t.Errorf("%s is %v, not a number in a string", key, record[key])
	}
	return n
}

func (p page) folder(volume string) string {
	h := half([]byte(volume))
	return path.Join("backupstore/volumes", h[:2], h[2:4], volume)
}

var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)

func (p page) volume(volume string) (size int64, method string) {
	p.t.Helper()
	v := p.record(p.folder(volume)+"/volume.cfg", "Name", "Size", "Labels", "CreatedTime", "LastBackupName",
		"LastBackupAt", "BlockCount", "BackingImageName",
		"BackingImageChecksum", "CompressionMethod", "StorageClassName", "DataEngine")
	p.number(v, "BlockCount")
	for _, key := range []string{"BackingImageName", "BackingImageChecksum", "CompressionMethod", "StorageClassName",
		"DataEngine"} {
		var inner string
		if err := json.Unmarshal([]byte(v[key].(string)), &inner); err != nil {
			p.t.Errorf("%s is %v: %v", key, v[key], err)
		}
		if key == "CompressionMethod" {
			method = inner
		}
	}
	for _, key := range []string{"CreatedTime", "LastBackupAt"} {
		if !rfc3339.MatchString(v[key].(string)) {
			p.t.Errorf("%s is %v", key, v[key])
		}
	}
	return p.number(v, "Size"), method
}

func (p page) restore(volume, name string) []byte {
	p.t.Helper()
	size, method := p.volume(volume)
	b := p.record(p.folder(volume)+"/backups/backup_"+name+".cfg", "Name", "VolumeName", "SnapshotName",
		"SnapshotCreatedAt", "CreatedTime", "Size", "Labels",
		"Parameters", "IsIncremental", "CompressionMethod", "NewlyUploadedDataSize",
		"ReUploadedDataSize", "ProcessingBlocks", "Blocks", "SingleFile")
	if b["CompressionMethod"] != method || b["VolumeName"] != volume || !rfc3339.MatchString(b["CreatedTime"].(string)) {
		p.t.Errorf("%v", b)
	}
	blockSize := int64(2 << 20)
	if text := b["Parameters"].(map[string]any)["backup-block-size"]; text != nil {
		blockSize, _ = strconv.ParseInt(text.(string), 10, 64)
	}
	content, last := make([]byte, size), -1.0
	blocks := b["Blocks"].([]any)
	for _, each := range blocks {
		at := each.(map[string]any)
		offset, sum := at["Offset"].(float64), at["BlockChecksum"].(string)
		if offset <= last {
			p.t.Errorf("offset %v after %v", offset, last)
		}
		last = offset
		stored := p.get(p.folder(volume) + "/blocks/" + sum[:2] + "/" + sum[2:4] + "/" + sum + ".blk")
		var r io.Reader = bytes.NewReader(stored)
		var err error
		switch method {
		case "lz4":
			if !bytes.HasPrefix(stored, []byte{4, 0x22, 0x4d, 0x18}) {
				p.t.Errorf("no LZ4 frame: % x", stored[:4])
			}
			r = lz4.NewReader(r)
		case "gzip":
			r, err = gzip.NewReader(r)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil || int64(len(data)) != blockSize || half(data) != sum {
			p.t.Fatalf("block %s: %d bytes, %v", sum, len(data), err)
		}
		copy(content[int64(offset):], data)
	}
	if p.number(b, "Size") != int64(len(blocks))*blockSize {
		p.t.Errorf("size %v of %d blocks", b["Size"], len(blocks))
	}
	return content
}

// TestWhatIsWrittenIsOfTheLayout: an independent reader restores each method and size of blocks,
// and nothing else is in the store.
func TestWhatIsWrittenIsOfTheLayout(t *testing.T) {
	t.Parallel()
	allowed := regexp.MustCompile(`^backupstore/volumes/[0-9a-f]{2}/[0-9a-f]{2}/vol1/(volume\.cfg|backups/backup_b-[a-z]+\.cfg|` +
		`blocks/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{64}\.blk)$`)
	for _, method := range []format.Compression{"none", "gzip", "lz4"} {
		for _, size := range []int64{2 << 20, 16 << 20} {
			t.Run(fmt.Sprintf("%s of %d", method, size), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s, r := &objecttest.Memory{}, draw(30)
					one := empty(16).next("one", r, 1, 0, 9)
					two := one.next("two", r, 2, 1)
					for _, snap := range []*snapshot{one, two} {
						mustCreate(t, s, snap, func(o *backup.CreateOptions) {
							o.Compression, o.BlockBytes = method, size
							o.Labels, o.Parameters = map[string]string{"k": "<v>"}, map[string]string{"other": "x"}
							o.StorageClass = "class"
						})
					}
					for _, snap := range []*snapshot{one, two} {
						if got := (page{t, s}).restore(name, "b-"+snap.name); !bytes.Equal(got, snap.content) {
							t.Errorf("%s differs", snap.name)
						}
					}
					for _, o := range objects(t, s, "") {
						if !allowed.MatchString(o) {
							t.Errorf("%s is not of the layout", o)
						}
					}
				})
			})
		}
	}
}

// fixture is a store that a reference engine wrote: volume "backed" of 24 MiB with three backups.
func fixture(t *testing.T) object.Store {
	t.Helper()
	dir := t.TempDir()
	archive.Unpack(t, "../dataplane/chain/testdata/longhorn-v1.tgz", dir, "./backupstore")
	s, err := directory.Open(filepath.Join(dir, "backupstore"), "vfs://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fixtureSums are the backups of the fixture, and the SHA-256 of their content.
var fixtureSums = []struct{ backup, sum string }{
	{"backup-0-lz4", "0439399f633efd68ae0713df94c8e500061f1882e7746f3b41be3a92de96f225"},
	{"backup-1-gzip", "f77d8ed831a3b33ef0f78d49cd44d2d99301d9021a1dda833890e63983d0f40d"},
	{"backup-2-none", "03903c1cda88362dba1881b433212e1b25a21ada9239a7fd857185bee217a245"},
}

// TestStoreOfTheReference is restored in full and step by step, verified, continued and cleared.
func TestStoreOfTheReference(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fixture(t)
		standby := &snapshot{content: make([]byte, 24<<20)}
		from := ""
		for _, f := range fixtureSums {
			whole := &snapshot{content: make([]byte, 24<<20)}
			for target, from := range map[*snapshot]string{whole: "", standby: from} {
				o := backup.RestoreOptions{Volume: "backed", Backup: f.backup, From: from,
					FromCreated: madeAt(t, s, "backed", from)}
				_, err := backup.Restore(t.Context(), s, target, o)
				if sum := sha256.Sum256(target.content); err != nil || hex.EncodeToString(sum[:]) != f.sum {
					t.Errorf("%s from %q: %x, %v", f.backup, from, sum, err)
				}
			}
			from = f.backup
		}
		v, err := backup.Verify(t.Context(), s, "backed", backup.VerifyOptions{})
		if err != nil || len(v.Faults) > 0 || v.Blocks != 24 || len(v.Backups) != 3 {
			t.Errorf("%+v, %v", v, err)
		}
		newest, err := backup.LoadVolume(t.Context(), s, "backed")
		if err != nil {
			t.Fatal(err)
		}
		last := &snapshot{name: "snap-2", content: bytes.Clone(standby.content), before: empty(12),
			at: newest.LastBackupAt.Time}
		next := last.next("next", draw(31), 1, 3)
		o := backup.CreateOptions{Volume: "backed", Backup: "b-next", Snapshot: "next",
			SnapshotCreated: epoch.AddDate(1, 0, 0)}
		b, err := backup.Create(t.Context(), s, next, o)
		if err != nil || !b.Incremental || b.Compression != "lz4" || !slices.Equal(next.reads(), []int64{3}) {
			t.Fatalf("%+v, %v", b, err)
		}
		if got := (page{t, s}).restore("backed", "b-next"); !bytes.Equal(got, next.content) {
			t.Error("the backup after those of the reference differs")
		}
		d, err := backup.Delete(t.Context(), s, "backed", "backup-0-lz4")
		if err != nil || d.Blocks == 0 || d.Kept != "" {
			t.Errorf("%+v, %v", d, err)
		}
		got := (page{t, s}).restore("backed", "backup-1-gzip")
		if fmt.Sprintf("%x", sha256.Sum256(got)) != fixtureSums[1].sum {
			t.Error("a deletion broke another backup")
		}
		if err := backup.DeleteVolume(t.Context(), s, "backed"); err != nil || len(objects(t, s, "")) > 0 {
			t.Errorf("%v, %v", err, objects(t, s, ""))
		}
	})
}

// TestOldStore: a store as releases before 1.5 wrote it, made by hand: gzip, no method recorded, no
// size of blocks, time zone of a writer, a field of a later program.
func TestOldStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		content := bytes.Repeat([]byte("old block "), block/10+1)[:block]
		sum := half(content)
		var stored bytes.Buffer
		w := gzip.NewWriter(&stored)
		if _, err := w.Write(content); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		folder := page{t, s}.folder("old-1")
		for name, data := range map[string]string{
			"/volume.cfg": `{"Name":"old-1","Size":"8388608","Labels":null,"CreatedTime":"2020-01-02T03:04:05Z",` +
				`"LastBackupName":"backup-0123456789abcdef","LastBackupAt":"2020-01-02T03:04:05Z","BlockCount":"1",` +
				`"BackingImageName":"\"\"","Later":1}`,
			"/backups/backup_backup-0123456789abcdef.cfg": `{"Name":"backup-0123456789abcdef","VolumeName":"old-1",` +
				`"SnapshotName":"s","SnapshotCreatedAt":"2020-01-02T04:04:05+01:00","CreatedTime":"2020-01-02T03:04:06Z",` +
				`"Size":"2097152","Labels":null,"IsIncremental":false,"Blocks":[{"Offset":4194304,"BlockChecksum":"` + sum +
				`"}],"SingleFile":{"FilePath":""}}` + "\n",
			"/blocks/" + sum[:2] + "/" + sum[2:4] + "/" + sum + ".blk": stored.String(),
		} {
			if err := s.Put(t.Context(), folder+name, []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		target := &snapshot{content: make([]byte, 8<<20)}
		r, err := backup.Restore(t.Context(), s, target,
			backup.RestoreOptions{Volume: "old-1", Backup: "backup-0123456789abcdef"})
		if err != nil || r.SizeBytes != 8<<20 || !bytes.Equal(target.content[4<<20:6<<20], content) {
			t.Fatalf("%+v, %v", r, err)
		}
		next := (&snapshot{name: "s", content: target.content, before: empty(4),
			at: time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)}).next("t", draw(32), 1, 0)
		b, err := backup.Create(t.Context(), s, next, backup.CreateOptions{Volume: "old-1", Backup: "b-t", Snapshot: "t",
			SnapshotCreated: epoch})
		if err != nil || b.Compression != "gzip" || !b.Incremental {
			t.Errorf("%+v, %v", b, err)
		}
		if record := string((page{t, s}).get(folder + "/volume.cfg")); !strings.Contains(record, `"Later":1`) {
			t.Errorf("a field is lost: %s", record)
		}
		if got := (page{t, s}).restore("old-1", "b-t"); !bytes.Equal(got, next.content) {
			t.Error("content differs")
		}
	})
}
