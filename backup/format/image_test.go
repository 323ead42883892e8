package format_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
)

// imageKey is a key of backing images.
func imageKey(b byte) *encryption.Volume {
	return format.ImageKey((*encryption.Key)(bytes.Repeat([]byte{b}, 32)))
}

var imageSum = strings.Repeat("0a", 64)

// image is the record of a complete backup, encrypted if there is a key.
func image(key *encryption.Volume) *format.Image {
	at := format.Time{Time: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}
	return &format.Image{Name: "backed", SizeBytes: 4<<20 + 512, Checksum: imageSum, Created: at, Completed: at,
		Labels: map[string]string{"k": "<v>"}, Compression: "lz4", Secret: "s", SecretNamespace: "ns", Key: key.ID(),
		Blocks: []format.Block{{Offset: 0, Checksum: format.Sum(nil)}, {Offset: 4 << 20, Checksum: format.Sum([]byte{1})}}}
}

func mustImage(t testing.TB, i *format.Image, key *encryption.Volume) []byte {
	t.Helper()
	data, err := i.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestImageRecord: the keys and their order are those of the reference, and the record comes back.
func TestImageRecord(t *testing.T) {
	t.Parallel()
	sum := format.Sum(nil).String()
	want := `{"Name":"backed","Size":"4194816","BlockCount":"2","Checksum":"` + imageSum + `","Labels":{"k":"\u003cv\u003e"},` +
		`"CompressionMethod":"lz4","CreatedTime":"2026-03-04T05:06:07Z","CompleteTime":"2026-03-04T05:06:07Z","Secret":"s",` +
		`"SecretNamespace":"ns","ProcessingBlocks":{},"Blocks":[{"Offset":0,"BlockChecksum":"` + sum + `"},` +
		`{"Offset":4194304,"BlockChecksum":"` + format.Sum([]byte{1}).String() + `"}]}`
	data := mustImage(t, image(nil), nil)
	if string(data) != want {
		t.Errorf("%s\nwant\n%s", data, want)
	}
	got, err := format.ParseImage(append(data, '\n'), "backed")
	if err != nil || !reflect.DeepEqual(got, image(nil)) || got.InProgress() || got.Encrypted() {
		t.Errorf("%+v, %v", got, err)
	}
	begun, err := format.ParseImage([]byte(`{"Name":"backed","Size":"512","BlockCount":"0","Checksum":"",`+
		`"CompressionMethod":"gzip","CreatedTime":"2026-03-04T05:06:07Z","CompleteTime":"","ProcessingBlocks":null}`), "backed")
	if err != nil || !begun.InProgress() || begun.Compression != "gzip" {
		t.Errorf("%+v, %v", begun, err)
	}
}

// TestDamagedImageRecords: what contradicts itself is no record, and one that was sealed is as it
// was, or damaged.
func TestDamagedImageRecords(t *testing.T) {
	t.Parallel()
	plain, key := string(mustImage(t, image(nil), nil)), imageKey(1)
	change := func(old, new string) string { return strings.Replace(plain, old, new, 1) }
	for _, bad := range []string{"", "{}", "[]", plain[:len(plain)-1], change("backed", "other"),
		change("4194816", "4194304"), change("4194816", "-512"),
		change("4194816", "4194817"), change(`"0a`, `"0A`), change("lz4", "zip"),
		change("lz4", "encrypted-lz4"), change(`"Offset":0`, `"Offset":1`), change(`"Offset":0`, `"Offset":8388608`),
		change("2026-03", "26-03")} {
		if _, err := format.ParseImage([]byte(bad), "backed"); bad == plain || !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	data := string(mustImage(t, image(key), key))
	got, err := format.ParseImage([]byte(data), "backed")
	if err != nil || !strings.Contains(data, `"encrypted-lz4"`) || got.Key != key.ID() || got.Compression != "lz4" ||
		got.CheckAuthentic(key) != nil {
		t.Errorf("%+v, %v: %s", got, err, data)
	}
	if err := got.CheckAuthentic(imageKey(2)); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("another key: %v", err)
	}
	shifted := strings.Replace(data, `"Offset":4194304`, `"Offset":2097152`, 1)
	got, err = format.ParseImage([]byte(shifted), "backed")
	if err != nil || !errors.Is(got.CheckAuthentic(key), format.ErrCorrupt) {
		t.Errorf("a block is shifted: %v", err)
	}
}

// TestImageNames: the objects of images are where the description of the layout says.
func TestImageNames(t *testing.T) {
	t.Parallel()
	sum := format.Sum([]byte("x"))
	h := sum.String()
	block := "backupstore/backing-images/blocks/" + h[:2] + "/" + h[2:4] + "/" + h + ".blk"
	for got, want := range map[string]string{
		format.ImageRecord("img.1"):                "backupstore/backing-images/backing-images/img.1/backing-image.cfg",
		format.ImagePool.Object(sum):               block,
		format.LocksFolder(format.ImageLocks)[26:]: "BACKINGIMAGE/locks/",
		format.LocksFolder(format.ImageLocks)[:20]: "backupstore/volumes/",
		format.ImagesFolder():                      "backupstore/backing-images/backing-images/",
		format.PoolOf("vol1").Object(sum):          format.BlockObject("vol1", sum),
		string(format.ImagePool):                   "backupstore/backing-images/blocks/",
	} {
		if got = strings.TrimPrefix(got, "/"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for folder, want := range map[string]string{format.ImagesFolder() + "img.1/": "img.1",
		format.ImagesFolder() + "img.1": "", format.ImagesFolder() + ".tmp/": "", format.VolumeFolder("vol1"): ""} {
		if got, ok := format.ImageOf(folder); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s, %v", folder, got, ok)
		}
	}
}
