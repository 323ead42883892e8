package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pierrec/lz4/v4"

	"ankole.storage/backup"
	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
	"ankole.storage/backup/object/objecttest"
)

// picture is a backing image, and what one is restored to: its length is no multiple of the size
// of blocks.
type picture struct {
	name, sum string
	content   []byte

	mu    sync.Mutex
	reads int
}

// newPicture has so many blocks, and 512 bytes more. A letter says what a block holds, a dot that
// it is a hole, 0 that it was written with zeroes; the last letter is that of the 512 bytes.
func newPicture(name, letters string) *picture {
	p := &picture{name: name, content: make([]byte, (len(letters)-1)*block+512)}
	for i, letter := range []byte(letters) {
		if letter != '.' && letter != '0' {
			part := p.content[i*block : min((i+1)*block, len(p.content))]
			for j := 0; j < len(part); j += 512 {
				part[j], part[j+1] = letter, byte(i)
			}
			part[1] = 0 // blocks of the same letter differ by their number, but in the first block
		}
	}
	p.sum = strings.Repeat(half(p.content), 2) // something that is of this content
	return p
}

// SizeBytes implements backup.Source.
func (p *picture) SizeBytes() int64 { return int64(len(p.content)) }

// Changed implements backup.Source.
func (p *picture) Changed(_ context.Context, since backup.Base) iter.Seq2[backup.Extent, error] {
	return func(yield func(backup.Extent, error) bool) {
		for offset := int64(0); offset < p.SizeBytes() && since == (backup.Base{}); offset += block {
			length := min(block, p.SizeBytes()-offset)
			if isHole := bytes.Equal(p.content[offset:offset+length], make([]byte, length)); isHole {
				continue
			}
			if !yield(backup.Extent{Offset: offset + length - 512, Length: 512}, nil) {
				return
			}
		}
	}
}

// ReadAt implements backup.Source; a read behind the end is a defect.
func (p *picture) ReadAt(ctx context.Context, to []byte, offset int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	copy(to, p.content[offset:offset+int64(len(to))])
	return ctx.Err()
}

// WriteAt implements io.WriterAt; so is a write.
func (p *picture) WriteAt(from []byte, offset int64) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return copy(p.content[offset:offset+int64(len(from))], from), nil
}

// ZeroAt implements backup.Target.
func (p *picture) ZeroAt(int64, int64) error { return errors.New("a target of an image reads zero") }

func createImage(ctx context.Context, s object.Store, p *picture, k encryption.Keys) (*format.Image, error) {
	return backup.CreateImage(ctx, s, p, backup.ImageCreateOptions{Image: p.name, Checksum: p.sum,
		Labels: map[string]string{"k": "v"}, Secret: "s", SecretNamespace: "ns", Keys: k, Workers: 2})
}

func mustCreateImage(t *testing.T, s object.Store, p *picture, k encryption.Keys) *format.Image {
	t.Helper()
	i, err := createImage(t.Context(), s, p, k)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func restoreImage(ctx context.Context, s object.Store, p *picture, k encryption.Keys) (*picture, error) {
	to := &picture{}
	_, err := backup.RestoreImage(ctx, s, to, backup.ImageRestoreOptions{Image: p.name, Keys: k, Workers: 2,
		Begin: func(size int64) error { to.content = make([]byte, size); return nil }})
	return to, err
}

func mustHoldImage(t *testing.T, s object.Store, p *picture, k encryption.Keys) {
	t.Helper()
	got, err := restoreImage(t.Context(), s, p, k)
	if err != nil || !bytes.Equal(got.content, p.content) {
		t.Fatalf("restored %s: %d bytes, %v; equal: %v", p.name, len(got.content), err, bytes.Equal(got.content, p.content))
	}
}

var noKeys = encryption.Keys{}

// TestImages: images are backed up, listed, restored and deleted; what they have in common is
// stored once, and stays as long as one of them lists it.
func TestImages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		one, two := newPicture("one", "ab.c0a"), newPicture("two", "ab.xx")
		for _, p := range []*picture{one, two} {
			i := mustCreateImage(t, s, p, noKeys)
			if i.InProgress() || i.SizeBytes != p.SizeBytes() || i.Checksum != p.sum || i.Secret != "s" ||
				i.SecretNamespace != "ns" || i.Labels["k"] != "v" || i.Compression != "lz4" {
				t.Errorf("%+v", i)
			}
			mustHoldImage(t, s, p, noKeys)
		}
		if n := len(objects(t, s, string(format.ImagePool))); n != 6 { // a b c a' x x', where a' is 512 bytes
			t.Errorf("%d blocks", n)
		}
		names, err := backup.Images(t.Context(), s)
		if err != nil || !slices.Equal(names, []string{"one", "two"}) {
			t.Errorf("%v, %v", names, err)
		}
		one.reads = 0
		if mustCreateImage(t, s, one, noKeys); one.reads != 0 {
			t.Errorf("%d reads for a backup that is there", one.reads)
		}
		other := newPicture("one", "zz")
		if _, err := createImage(t.Context(), s, other, noKeys); !errors.Is(err, backup.ErrExists) {
			t.Errorf("another image of the name: %v", err)
		}
		d, err := backup.DeleteImage(t.Context(), s, "one")
		if err != nil || d.Blocks != 2 || d.Kept != "" {
			t.Errorf("%+v, %v", d, err)
		}
		mustHoldImage(t, s, two, noKeys)
		if _, err := backup.DeleteImage(t.Context(), s, "one"); !errors.Is(err, backup.ErrNotFound) {
			t.Errorf("%v", err)
		}
		if _, err := restoreImage(t.Context(), s, one, noKeys); !errors.Is(err, backup.ErrNotFound) {
			t.Errorf("%v", err)
		}
		if d, err = backup.DeleteImage(t.Context(), s, "two"); err != nil || len(objects(t, s, "")) != 0 {
			t.Errorf("%+v, %v: %v", d, err, objects(t, s, ""))
		}
	})
}

// TestImagesOfTheLayout: an image is restored by the description of the layout alone, and nothing
// else is in the store. Its locks are those of no volume, and no volume has their name.
func TestImagesOfTheLayout(t *testing.T) {
	t.Parallel()
	allowed := regexp.MustCompile(`^backupstore/backing-images/(backing-images/one/backing-image\.cfg|` +
		`blocks/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{64}\.blk)$`)
	synctest.Test(t, func(t *testing.T) {
		s, one := &objecttest.Memory{}, newPicture("one", "ab.c0a")
		s.Before = func(op, object string) error {
			lock := strings.HasPrefix(object, (page{t, s}).folder("BACKINGIMAGE")+"/locks/lock-")
			if (op == "put" || op == "delete") && !lock && !allowed.MatchString(object) {
				t.Errorf("%s of %s", op, object)
			}
			return nil
		}
		mustCreateImage(t, s, one, noKeys)
		s.Before = nil
		p := page{t, s}
		record := p.record("backupstore/backing-images/backing-images/one/backing-image.cfg", "Name", "Size", "BlockCount",
			"Checksum", "Labels", "CompressionMethod", "CreatedTime", "CompleteTime", "Secret", "SecretNamespace",
			"ProcessingBlocks", "Blocks")
		blocks := record["Blocks"].([]any)
		if p.number(record, "Size") != one.SizeBytes() || p.number(record, "BlockCount") != int64(len(blocks)) ||
			record["Checksum"] != one.sum || !rfc3339.MatchString(record["CompleteTime"].(string)) {
			t.Errorf("%v", record)
		}
		content := make([]byte, 6*block)
		for _, each := range blocks {
			at := each.(map[string]any)
			sum := at["BlockChecksum"].(string)
			r := lz4.NewReader(bytes.NewReader(p.get("backupstore/backing-images/blocks/" + sum[:2] + "/" + sum[2:4] + "/" +
				sum + ".blk")))
			data := make([]byte, block+1)
			if n, _ := io.ReadFull(r, data); n != block || half(data[:block]) != sum {
				t.Fatalf("block %s has %d bytes", sum, n)
			}
			copy(content[int64(at["Offset"].(float64)):], data[:block])
		}
		if !bytes.Equal(content[:one.SizeBytes()], one.content) {
			t.Error("content differs")
		}
		lock := format.LockObject(format.ImageLocks, "lock-0123456789abcdef")
		if err := s.Put(t.Context(), lock, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if volumes, err := backup.Volumes(t.Context(), s); err != nil || len(volumes) != 0 {
			t.Errorf("%v, %v", volumes, err)
		}
		if _, err := backup.LoadVolume(t.Context(), s, format.ImageLocks); err == nil || errors.Is(err, backup.ErrNotFound) {
			t.Errorf("a volume of that name: %v", err)
		}
	})
}

// TestEncryptedImages: with a key the content is seen nowhere, and comes back with that key alone.
func TestEncryptedImages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, one := &objecttest.Memory{}, newPicture("one", "ab.c")
		i := mustCreateImage(t, s, one, withKeys(1))
		if !i.Encrypted() {
			t.Errorf("%+v", i)
		}
		mustHoldImage(t, s, one, withKeys(2, 1))
		for what, k := range map[string]encryption.Keys{"none": noKeys, "another one": withKeys(2)} {
			if _, err := restoreImage(t.Context(), s, one, k); !errors.Is(err, encryption.ErrNoKey) {
				t.Errorf("%s: %v", what, err)
			}
			if _, err := createImage(t.Context(), s, one, k); !errors.Is(err, encryption.ErrNoKey) {
				t.Errorf("again, %s: %v", what, err)
			}
		}
		record := string((page{t, s}).get(format.ImageRecord("one")))
		changed := strings.Replace(record, `"Size":"`, `"Size":"9`, 1)
		if err := s.Put(t.Context(), format.ImageRecord("one"), []byte(changed)); err != nil {
			t.Fatal(err)
		}
		if _, err := restoreImage(t.Context(), s, one, withKeys(1)); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("a record that was changed: %v", err)
		}
		o := backup.ImageCreateOptions{Image: "two", Compression: "encrypted-lz4"}
		if _, err := backup.CreateImage(t.Context(), s, one, o); err == nil {
			t.Error("no key, and no error")
		}
		if d, err := backup.DeleteImage(t.Context(), s, "one"); err != nil || d.Blocks != 3 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// TestImageDamage: what the store lost, or has damaged, is told of, and the next backup of another
// image that has it mends it.
func TestImageDamage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, one := &objecttest.Memory{}, newPicture("one", "abcd")
		i := mustCreateImage(t, s, one, noKeys)
		lost, bad := format.ImagePool.Object(i.Blocks[0].Checksum), format.ImagePool.Object(i.Blocks[3].Checksum)
		if err := errors.Join(s.Delete(t.Context(), lost), s.Put(t.Context(), bad, []byte("rot"))); err != nil {
			t.Fatal(err)
		}
		_, err := restoreImage(t.Context(), s, one, noKeys)
		var d *backup.DamageError
		if !errors.As(err, &d) || len(d.Damage) != 2 || !d.Damage[0].Missing || d.Damage[1].Length != 512 ||
			!strings.Contains(err.Error(), "backing image one") {
			t.Fatalf("%v", err)
		}
		two := newPicture("two", "abcd")
		mustCreateImage(t, s, two, noKeys)
		mustHoldImage(t, s, two, noKeys)
		mustHoldImage(t, s, one, noKeys)
	})
}

// TestImagesAreRefused: what is no image is not begun.
func TestImagesAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		odd := newPicture("odd", "ab")
		odd.content = odd.content[:700]
		for what, p := range map[string]*picture{"a length": odd, "nothing": {name: "none"},
			"a name": newPicture("../x", "ab")} {
			if _, err := createImage(t.Context(), s, p, noKeys); err == nil {
				t.Errorf("%s: no error", what)
			}
		}
		begun := `{"Name":"begun","Size":"512","CompleteTime":"","BlockCount":"0","Checksum":""}`
		if err := s.Put(t.Context(), format.ImageRecord("begun"), []byte(begun)); err != nil {
			t.Fatal(err)
		}
		if _, err := restoreImage(t.Context(), s, &picture{name: "begun"}, noKeys); !errors.Is(err, backup.ErrInProgress) {
			t.Errorf("%v", err)
		}
		if n := len(objects(t, s, "")); n != 1 {
			t.Errorf("%d objects", n)
		}
	})
}

// soundImages checks that each complete backup of images can be restored.
func soundImages(t *testing.T, s object.Store, all ...*picture) {
	t.Helper()
	for _, p := range all {
		i, err := backup.LoadImage(t.Context(), s, p.name)
		if errors.Is(err, backup.ErrNotFound) || err == nil && i.InProgress() {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		mustHoldImage(t, s, p, noKeys)
	}
}

// TestImageCreateCrashes: wherever the backup of an image crashes, others are whole, and the next
// run goes on without sending again what is there.
func TestImageCreateCrashes(t *testing.T) {
	t.Parallel()
	one, two := newPicture("one", "ab.ca"), newPicture("two", "ab.xyx")
	crashed(t, func(t *testing.T) *objecttest.Memory {
		s := &objecttest.Memory{}
		mustCreateImage(t, s, one, noKeys)
		return s
	}, func(ctx context.Context, s object.Store) error {
		_, err := createImage(ctx, s, two, noKeys)
		return err
	}, func(t *testing.T, s *objecttest.Memory) {
		soundImages(t, s, one, two)
		blocks := len(objects(t, s, string(format.ImagePool)))
		s.Counts()
		mustCreateImage(t, s, two, noKeys)
		fresh := len(objects(t, s, string(format.ImagePool))) - blocks
		if puts := s.Counts()["put"]; puts > fresh+2+2 { // lock; marker, record
			t.Errorf("%d puts for %d blocks that were not there", puts, fresh)
		}
		mustHoldImage(t, s, two, noKeys)
		mustHoldImage(t, s, one, noKeys)
		mustBeEmptied(t, s, "one", "two")
	})
}

// TestImageDeleteCrashes: wherever a deletion crashes, others are whole, and its repetition ends.
func TestImageDeleteCrashes(t *testing.T) {
	t.Parallel()
	one, two := newPicture("one", "ab.ca"), newPicture("two", "ab.xyx")
	crashed(t, func(t *testing.T) *objecttest.Memory {
		s := &objecttest.Memory{}
		mustCreateImage(t, s, one, noKeys)
		mustCreateImage(t, s, two, noKeys)
		return s
	}, func(ctx context.Context, s object.Store) error {
		_, err := backup.DeleteImage(ctx, s, "one")
		return err
	}, func(t *testing.T, s *objecttest.Memory) {
		soundImages(t, s, one, two)
		if _, err := backup.DeleteImage(t.Context(), s, "one"); err != nil && !errors.Is(err, backup.ErrNotFound) {
			t.Fatal(err)
		}
		mustHoldImage(t, s, two, noKeys)
		mustBeEmptied(t, s, "two")
	})
}

// mustBeEmptied deletes all images, and checks that nothing stays but locks of clients that
// crashed.
func mustBeEmptied(t *testing.T, s object.Store, images ...string) {
	t.Helper()
	for _, i := range images {
		if d, err := backup.DeleteImage(t.Context(), s, i); err != nil || d.Kept != "" {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	for _, o := range objects(t, s, "") {
		if !strings.Contains(o, "/locks/") {
			t.Errorf("%s stays", o)
		}
	}
}

// TestImageDeletionKeepsWhatIsUnknown: an image whose blocks are not known holds off the
// collection.
func TestImageDeletionKeepsWhatIsUnknown(t *testing.T) {
	t.Parallel()
	for what, record := range map[string]string{"damaged": `{"Name":"xx"`,
		"in progress": `{"Name":"xx","Size":"512","CompleteTime":"","BlockCount":"0","Checksum":""}`} {
		synctest.Test(t, func(t *testing.T) {
			s := &objecttest.Memory{}
			mustCreateImage(t, s, newPicture("one", "ab"), noKeys)
			if err := s.Put(t.Context(), format.ImageRecord("xx"), []byte(record)); err != nil {
				t.Fatal(err)
			}
			d, err := backup.DeleteImage(t.Context(), s, "one")
			if err != nil || d.Blocks != 0 || !strings.Contains(d.Kept, "backing image xx") {
				t.Errorf("%s: %+v, %v", what, d, err)
			}
			if d, err = backup.DeleteImage(t.Context(), s, "xx"); err != nil || d.Blocks != 2 || d.Kept != "" {
				t.Errorf("%s: %+v, %v", what, d, err)
			}
		})
	}
}
