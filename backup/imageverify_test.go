package backup_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ankole.storage/backup"
	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
	"ankole.storage/backup/object/objecttest"
)

// imageBlock is the object of a block of an image's backup.
func imageBlock(i *format.Image, n int) string { return format.ImagePool.Object(i.Blocks[n].Checksum) }

func flipped(data []byte) []byte {
	data[len(data)/2] ^= 1
	return data
}

// imageFaults verifies an image in one part, and returns what is wrong by object.
func imageFaults(t *testing.T, s object.Store, image string) map[string]string {
	t.Helper()
	v, err := backup.VerifyImage(t.Context(), s, image, backup.VerifyOptions{})
	if err != nil || v.Next != (format.Checksum{}) || v.Done != v.Total {
		t.Fatalf("%s: %+v, %v", image, v, err)
	}
	found := map[string]string{}
	for _, f := range v.Faults {
		found[f.Object] = fmt.Sprintf("%s %v", f.Kind, f.Backups)
	}
	return found
}

// TestVerifyImages: what is wrong with an image's backup is found, with all images that it hurts,
// and nothing else. The next backup of an image that is complete reads and writes that, and no
// more.
func TestVerifyImages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		one, two, other := newPicture("one", "abcdefgh"), newPicture("two", "ab..xx"), newPicture("other", "yz")
		i := mustCreateImage(t, s, one, noKeys)
		mustCreateImage(t, s, two, noKeys)
		mustCreateImage(t, s, other, noKeys)
		if v, err := backup.VerifyImage(t.Context(), s, "one", backup.VerifyOptions{}); err != nil || len(v.Faults) > 0 ||
			fmt.Sprint(v.Backups) != "[one]" || v.Blocks != 8 || v.Done != 8 || v.Total != 8 {
			t.Fatalf("a sound image: %+v, %v", v, err)
		}
		harm(t, s, imageBlock(i, 0), nil)
		harm(t, s, imageBlock(i, 1), flipped)
		harm(t, s, imageBlock(i, 2), flipped)
		harm(t, s, imageBlock(i, 7), func([]byte) []byte { return nil })
		both := map[string]string{imageBlock(i, 0): "missing [one two]", imageBlock(i, 1): "damaged [one two]"}
		if got := imageFaults(t, s, "two"); fmt.Sprint(got) != fmt.Sprint(both) {
			t.Errorf("two: %v, want %v", got, both)
		}
		all := map[string]string{imageBlock(i, 2): "damaged [one]", imageBlock(i, 7): "damaged [one]"}
		for object, what := range both {
			all[object] = what
		}
		if got := imageFaults(t, s, "one"); fmt.Sprint(got) != fmt.Sprint(all) {
			t.Errorf("one: %v, want %v", got, all)
		}
		if got := imageFaults(t, s, "other"); len(got) > 0 {
			t.Errorf("other: %v", got)
		}
		if marks := objects(t, s, format.ImagePool.Marks()); len(marks) != 4 {
			t.Errorf("%d blocks are marked, of 4", len(marks))
		}
		two.reads, one.reads = 0, 0
		mustCreateImage(t, s, two, noKeys)
		mustHoldImage(t, s, two, noKeys)
		mustCreateImage(t, s, one, noKeys)
		mustHoldImage(t, s, one, noKeys)
		if two.reads != 2 || one.reads != 2 {
			t.Errorf("%d and %d blocks of the images were read, of 2 that the first one mends, and 2 that are left", two.reads,
				one.reads)
		}
		if marks := objects(t, s, format.ImagePool.Marks()); len(marks) > 0 {
			t.Errorf("marks: %v", marks)
		}
		if got := imageFaults(t, s, "one"); len(got) > 0 {
			t.Errorf("it is mended, and has %v", got)
		}
	})
}

// TestMarkedBlocksOfImages: another image writes a block again that is marked, and a verification
// takes away the marks of its own blocks alone.
func TestMarkedBlocksOfImages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		one, two := newPicture("one", "abc"), newPicture("two", "xyz")
		i, j := mustCreateImage(t, s, one, noKeys), mustCreateImage(t, s, two, noKeys)
		for _, sum := range []format.Checksum{i.Blocks[0].Checksum, j.Blocks[0].Checksum} {
			if err := s.Put(t.Context(), format.ImagePool.Mark(sum), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if got := imageFaults(t, s, "one"); len(got) > 0 {
			t.Errorf("%v", got)
		}
		left := format.ImagePool.Mark(j.Blocks[0].Checksum)
		if marks := objects(t, s, format.ImagePool.Marks()); len(marks) != 1 || marks[0] != left {
			t.Errorf("marks: %v, want %v", marks, left)
		}
		harm(t, s, imageBlock(j, 0), flipped)
		mustCreateImage(t, s, newPicture("three", "x.c"), noKeys)
		mustHoldImage(t, s, two, noKeys)
		if marks := objects(t, s, format.ImagePool.Marks()); len(marks) > 0 {
			t.Errorf("marks: %v", marks)
		}
	})
}

// TestVerifyImageInParts: at the rate that is given, from the first byte on, and each block once.
func TestVerifyImageInParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		random := draw(60)
		p := newPicture("one", "abcdefghi")
		for at := range p.content {
			if at%8 == 0 {
				p.content[at] = byte(random.Uint64())
			}
		}
		i := mustCreateImage(t, s, p, noKeys)
		stored := int64(0)
		for _, name := range objects(t, s, string(format.ImagePool)) {
			data, err := s.Get(t.Context(), name, nil, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			stored += int64(len(data))
		}
		harm(t, s, imageBlock(i, 5), nil)
		began := time.Now()
		o, parts, faults, blocks := backup.VerifyOptions{BytesPerSecond: 1 << 20, Workers: 2, For: time.Second}, 0, 0, 0
		for {
			v, err := backup.VerifyImage(t.Context(), s, "one", o)
			if err != nil {
				t.Fatal(err)
			}
			parts, faults, blocks = parts+1, faults+len(v.Faults), blocks+v.Blocks
			if o.After = v.Next; o.After == (format.Checksum{}) {
				break
			}
		}
		if parts < 2 || faults != 1 || blocks != 9 {
			t.Errorf("%d parts, %d faults, %d blocks", parts, faults, blocks)
		}
		if took, least := time.Since(began), time.Duration(stored*7/9)*time.Second>>20; took < least {
			t.Errorf("%d bytes were read in %v, by 1 MiB per second", stored, took)
		}
	})
}

// TestVerifyImageRefuses: what cannot be verified is no fault, and a record that is damaged is one.
func TestVerifyImageRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		one, keys := newPicture("one", "ab"), withKeys(1)
		verify := func(image string, k encryption.Keys) error {
			_, err := backup.VerifyImage(t.Context(), s, image, backup.VerifyOptions{Keys: k})
			return err
		}
		if err := verify("one", noKeys); !errors.Is(err, backup.ErrNotFound) {
			t.Errorf("none: %v", err)
		}
		i := mustCreateImage(t, s, one, keys)
		if err := verify("one", noKeys); !errors.Is(err, encryption.ErrNoKey) {
			t.Errorf("without its key: %v", err)
		}
		if err := verify("one", keys); err != nil {
			t.Error(err)
		}
		harm(t, s, imageBlock(i, 0), flipped)
		if v, err := backup.VerifyImage(t.Context(), s, "one", backup.VerifyOptions{Keys: keys}); err != nil ||
			len(v.Faults) != 1 {
			t.Errorf("%+v, %v", v, err)
		}
		mustCreateImage(t, s, one, withKeys(2, 1)) // it stays one of the first key
		mustHoldImage(t, s, one, keys)
		harm(t, s, format.ImageRecord("one"), func([]byte) []byte { return []byte("{") })
		got := imageFaults(t, s, "one")
		if want := map[string]string{format.ImageRecord("one"): "record [one]"}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v", got)
		}
		if err := verify("../x", keys); !errors.Is(err, format.ErrName) {
			t.Errorf("%v", err)
		}
	})
}
