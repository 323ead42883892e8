package backup_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ankole.storage/backup"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
	"ankole.storage/backup/object/objecttest"
)

// TestVerifyFindsPlantedFaults: of 20 faults all are found, with the backups they hurt, and no
// other.
func TestVerifyFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(50)
		var all []int64
		for i := range int64(24) {
			all = append(all, i)
		}
		one := empty(32).next("one", r, 1, all...)
		two := one.next("two", r, 2, 0, 1, 2, 3, 24, 25)
		three := two.next("three", r, 3, 30)
		for _, snap := range []*snapshot{one, two, three} {
			mustCreate(t, s, snap)
		}
		if v, err := backup.Verify(t.Context(), s, name, backup.VerifyOptions{}); err != nil || len(v.Faults) > 0 ||
			len(v.Backups) != 3 || v.Blocks != 31 || v.Done != 31 || v.Total != 31 {
			t.Fatalf("a sound store: %+v, %v", v, err)
		}
		first, err := backup.LoadBackup(t.Context(), s, name, "b-one")
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		other, err := s.Get(t.Context(), format.BlockObject(name, first.Blocks[23].Checksum), nil, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		damages := []func([]byte) []byte{
			nil,
			func(data []byte) []byte { data[len(data)-1] ^= 1; return data },
			func(data []byte) []byte { data[len(data)/2] ^= 0x80; return data },
			func(data []byte) []byte { data[0] ^= 1; return data },
			func(data []byte) []byte { return data[:len(data)-1] },
			func(data []byte) []byte { return append(data, 1) },
			func([]byte) []byte { return nil },
			func([]byte) []byte { return other },
			func([]byte) []byte { return make([]byte, block) },
		}
		for i := range 18 { // 0 to 3 are of the first backup only
			object := format.BlockObject(name, first.Blocks[i].Checksum)
			harm(t, s, object, damages[i%len(damages)])
			want[object] = "damaged [b-one b-three b-two]"
			if i < 4 {
				want[object] = "damaged [b-one]"
			}
			if damages[i%len(damages)] == nil {
				want[object] = strings.Replace(want[object], "damaged", "missing", 1)
			}
		}
		orphan := format.BlockObject(name, format.Sum([]byte("orphan")))
		record := format.BackupRecord(name, "b-bad")
		for object, data := range map[string]string{orphan: "x", record: "{"} {
			if err := s.Put(t.Context(), object, []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		want[orphan], want[record] = "damaged []", "record [b-bad]"
		v, err := backup.Verify(t.Context(), s, name, backup.VerifyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range v.Faults {
			if got := fmt.Sprintf("%s %v", f.Kind, f.Backups); got != want[f.Object] || f.Err == nil {
				t.Errorf("%s: %s, want %q", f.Object, got, want[f.Object])
			}
			delete(want, f.Object)
		}
		if len(want) > 0 || len(v.Faults) != 20 {
			t.Errorf("not found: %v", want)
		}
		mended(t, s, three)
	})
}

// mustVerify verifies all parts and returns the faults.
func mustVerify(t *testing.T, s object.Store) (faults []backup.Fault) {
	t.Helper()
	for o := (backup.VerifyOptions{}); ; {
		v, err := backup.Verify(t.Context(), s, name, o)
		if err != nil {
			t.Fatal(err)
		}
		faults = append(faults, v.Faults...)
		if o.After = v.Next; o.After == (format.Checksum{}) {
			return faults
		}
	}
}

// mended: the next backup writes again what a verification has found and the volume holds. What the
// volume holds no more stays marked.
func mended(t *testing.T, s *objecttest.Memory, last *snapshot) {
	t.Helper()
	if marks := objects(t, s, format.PoolOf(name).Marks()); len(marks) != 18 {
		t.Errorf("%d blocks are marked, of 18 that backups list", len(marks))
	}
	four := last.next("four", draw(51), 4, 31)
	mustCreate(t, s, four)
	mustHold(t, s, four)
	mustHold(t, s, last)
	if marks := objects(t, s, format.PoolOf(name).Marks()); len(marks) != 4 {
		t.Errorf("%d blocks are marked, of 4 that the volume holds no more", len(marks))
	}
	for _, f := range mustVerify(t, s) {
		if len(f.Backups) > 0 && !slices.Equal(f.Backups, []string{"b-one"}) && f.Kind != backup.FaultRecord {
			t.Errorf("not mended: %+v", f)
		}
	}
}

// TestVerifyRate: no more is read than is allowed, from the first byte on.
func TestVerifyRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		mustCreate(t, s, empty(16).next("one", draw(52), 1, 0, 1, 2, 3, 4, 5, 6, 7), func(o *backup.CreateOptions) {
			o.Compression = format.CompressionNone
		})
		began := time.Now()
		v, err := backup.Verify(t.Context(), s, name, backup.VerifyOptions{BytesPerSecond: 1 << 20})
		if took := time.Since(began); err != nil || v.ReadBytes != 8*block || took < 16*time.Second || took > 17*time.Second {
			t.Errorf("%+v in %v, %v", v, took, err)
		}
	})
}

// TestVerifyInParts: parts that go on where the one before has ended read each block once, and find
// together what one finds.
func TestVerifyInParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		mustCreate(t, s, empty(16).next("one", draw(54), 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
			func(o *backup.CreateOptions) { o.Compression = format.CompressionNone })
		b, err := backup.LoadBackup(t.Context(), s, name, "b-one")
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{}
		for _, i := range []int{0, 5, 11} {
			object := format.BlockObject(name, b.Blocks[i].Checksum)
			harm(t, s, object, nil)
			want[object] = true
		}
		// Some marks are of an earlier verification: of a sound block, and of one that is no more.
		for _, sum := range []format.Checksum{b.Blocks[3].Checksum, format.Sum([]byte("gone"))} {
			if err := s.Put(t.Context(), format.PoolOf(name).Mark(sum), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		o, parts, blocks := backup.VerifyOptions{BytesPerSecond: block, Workers: 2, For: 3 * time.Second}, 0, 0
		for {
			v, err := backup.Verify(t.Context(), s, name, o)
			if err != nil || v.Total != 12 || v.Done < blocks {
				t.Fatalf("%+v, %v", v, err)
			}
			for _, f := range v.Faults {
				if !want[f.Object] {
					t.Errorf("%+v: it is sound, or was told already", f)
				}
				delete(want, f.Object)
			}
			parts++
			if blocks = v.Done; v.Next == (format.Checksum{}) {
				break
			}
			o.After = v.Next
		}
		if len(want) > 0 || parts < 3 || blocks != 12 {
			t.Errorf("%d parts, %d blocks, not found: %v", parts, blocks, want)
		}
		if marks := objects(t, s, format.PoolOf(name).Marks()); len(marks) != 3 {
			t.Errorf("marks: %v", marks)
		}
	})
}

// TestMarksTellWhatTheListDoesNot: a store whose blocks are not listed whole has a block that does
// not change and is missing written again, once that was found.
func TestMarksTellWhatTheListDoesNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(55)
		one := empty(4).next("one", r, 1, 0, 1)
		first := mustCreate(t, s, one)
		for i := range 8000 { // what a backup lists at most; they come first
			sum := format.Checksum{0, byte(i >> 8), byte(i)}
			if err := s.Put(t.Context(), format.BlockObject(name, sum), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		harm(t, s, format.BlockObject(name, first.Blocks[1].Checksum), nil)
		mustVerify(t, s)
		two := one.next("two", r, 2, 3)
		mustCreate(t, s, two)
		mustHold(t, s, two)
		mustHold(t, s, one)
	})
}

// TestVerifyBesideDeletion: what is deleted meanwhile is no fault.
func TestVerifyBesideDeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(53)
		one := empty(8).next("one", r, 1, 0, 1, 2, 3)
		mustCreate(t, s, one)
		mustCreate(t, s, one.next("two", r, 2, 0, 1, 2, 3))
		o := backup.VerifyOptions{Workers: 1, Progress: func(done, total int) {
			if done != 1 || total != 8 {
				return
			}
			if _, err := backup.Delete(t.Context(), s, name, "b-one"); err != nil {
				t.Error(err)
			}
		}}
		v, err := backup.Verify(t.Context(), s, name, o)
		if err != nil || len(v.Faults) > 0 {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

func TestVerifyOfNothing(t *testing.T) {
	t.Parallel()
	s := &objecttest.Memory{}
	if _, err := backup.Verify(t.Context(), s, name, backup.VerifyOptions{}); !errors.Is(err, backup.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
