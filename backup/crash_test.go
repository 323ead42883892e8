package backup_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"ankole.storage/backup"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
	"ankole.storage/backup/object/objecttest"
)

var errCrash = errors.New("the process is dead")

// crash makes all operations fail from the n-th on: the process is dead, or cut off. It returns how
// many there were.
func crash(s *objecttest.Memory, n int64) *atomic.Int64 {
	count := new(atomic.Int64)
	s.Before = func(string, string) error {
		if count.Add(1) > n {
			return errCrash
		}
		return nil
	}
	return count
}

// crashed runs an operation again and again, and lets it crash one operation of the store later
// each time, until it ends without. prepare makes the store, check looks at what a crash left.
func crashed(t *testing.T, prepare func(t *testing.T) *objecttest.Memory,
	run func(ctx context.Context, s object.Store) error, check func(t *testing.T, s *objecttest.Memory)) {
	t.Helper()
	for n := int64(0); ; n++ {
		ended := false
		synctest.Test(t, func(t *testing.T) {
			s := prepare(t)
			count := crash(s, n)
			err := run(t.Context(), s)
			ended = count.Load() <= n
			if ended != (err == nil) && !ended {
				t.Logf("crash at %d: only an unlock was lost", n) // what follows the success of an operation
			} else if !ended && !errors.Is(err, errCrash) || ended && err != nil {
				t.Errorf("crash at %d: %v", n, err)
			}
			s.Before = nil
			s.Crash()
			t.Logf("after a crash at operation %d", n)
			check(t, s)
		})
		if t.Failed() {
			t.Fatalf("crash at operation %d", n)
		}
		if ended {
			if n < 8 {
				t.Errorf("only %d operations", n)
			}
			return
		}
	}
}

// TestCreateCrashes: wherever a backup crashes the store is consistent, and the next run goes on.
func TestCreateCrashes(t *testing.T) {
	t.Parallel()
	r := draw(11)
	one := empty(6).next("one", r, 1, 0, 1, 2)
	two := one.next("two", r, 2, 2, 3, 4)
	three := two.next("three", r, 3, 0)
	for _, tt := range []struct {
		name    string
		earlier []*snapshot
		snap    *snapshot
	}{{"first", nil, one}, {"second", []*snapshot{one}, two}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			crashed(t, func(t *testing.T) *objecttest.Memory {
				s := &objecttest.Memory{}
				for _, e := range tt.earlier {
					mustCreate(t, s, e)
				}
				return s
			}, func(ctx context.Context, s object.Store) error {
				_, err := create(ctx, s, tt.snap)
				return err
			}, func(t *testing.T, s *objecttest.Memory) {
				consistent(t, s, one, two)
				had := len(objects(t, s, format.VolumesFolder()))
				blocks := len(objects(t, s, format.BlocksFolder(name)))
				s.Counts()
				mustCreate(t, s, tt.snap)
				new := len(objects(t, s, format.BlocksFolder(name))) - blocks
				if puts := s.Counts()["put"]; puts > new+2+4 { // lock; records of volume, marker, backup, volume
					t.Errorf("%d puts for %d blocks that were not there, of %d objects", puts, new, had)
				}
				// Another backup, and a deletion that collects what the crash may have left.
				mustCreate(t, s, three)
				consistent(t, s, one, two, three)
				mustHold(t, s, tt.snap)
				mustHold(t, s, three)
				mustCollect(t, s)
			})
		})
	}
}

// mustCollect deletes all backups but the last, and checks that the store holds its blocks only.
func mustCollect(t *testing.T, s object.Store) {
	t.Helper()
	v, err := backup.LoadVolume(t.Context(), s, name)
	if err != nil {
		t.Fatal(err)
	}
	names, err := backup.Backups(t.Context(), s, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range append(slices.DeleteFunc(names, func(b string) bool { return b == v.LastBackup }), "b-none") {
		d, err := backup.Delete(t.Context(), s, name, b)
		if err != nil && !errors.Is(err, backup.ErrNotFound) || d.Kept != "" {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	last, err := backup.LoadBackup(t.Context(), s, name, v.LastBackup)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, b := range last.Blocks {
		want = append(want, format.BlockObject(name, b.Checksum))
	}
	slices.Sort(want)
	if got := objects(t, s, format.BlocksFolder(name)); !slices.Equal(got, slices.Compact(want)) {
		t.Errorf("blocks of the last backup: %d, want %d", len(got), len(want))
	}
	v, err = backup.LoadVolume(t.Context(), s, name)
	if err != nil || v.LastBackup != last.Name || v.BlockCount != int64(len(slices.Compact(want))) {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestDeleteCrashes: wherever a deletion crashes, other backups are whole, and its repetition ends.
func TestDeleteCrashes(t *testing.T) {
	t.Parallel()
	r := draw(12)
	one := empty(6).next("one", r, 1, 0, 1, 2)
	two := one.next("two", r, 2, 2, 3, 4)
	three := two.next("three", r, 3, 0)
	for _, victim := range []*snapshot{one, two, three} {
		t.Run(victim.name, func(t *testing.T) {
			t.Parallel()
			crashed(t, func(t *testing.T) *objecttest.Memory {
				s := &objecttest.Memory{}
				for _, snap := range []*snapshot{one, two, three} {
					mustCreate(t, s, snap)
				}
				return s
			}, func(ctx context.Context, s object.Store) error {
				_, err := backup.Delete(ctx, s, name, "b-"+victim.name)
				return err
			}, func(t *testing.T, s *objecttest.Memory) {
				consistent(t, s, one, two, three)
				if _, err := backup.Delete(t.Context(), s, name, "b-"+victim.name); err != nil &&
					!errors.Is(err, backup.ErrNotFound) {
					t.Fatal(err)
				}
				for _, snap := range []*snapshot{one, two, three} {
					if snap != victim {
						mustHold(t, s, snap)
					}
				}
				four := three.next("four", draw(13), 4, 5)
				mustCreate(t, s, four)
				mustHold(t, s, four)
				mustCollect(t, s)
			})
		})
	}
}

// TestDeleteVolumeCrashes: a volume that is half deleted is seen, and its deletion can be repeated.
func TestDeleteVolumeCrashes(t *testing.T) {
	t.Parallel()
	one := empty(4).next("one", draw(14), 1, 0, 1, 2)
	crashed(t, func(t *testing.T) *objecttest.Memory {
		s := &objecttest.Memory{}
		mustCreate(t, s, one)
		if _, err := backup.Create(t.Context(), s, one, backup.CreateOptions{Volume: "other", Backup: "b-one",
			Snapshot: "one"}); err != nil {
			t.Fatal(err)
		}
		return s
	}, func(ctx context.Context, s object.Store) error {
		return backup.DeleteVolume(ctx, s, name)
	}, func(t *testing.T, s *objecttest.Memory) {
		consistent(t, s, one)
		left := slices.DeleteFunc(objects(t, s, format.VolumeFolder(name)), func(o string) bool {
			return strings.Contains(o, "/locks/")
		})
		volumes, err := backup.Volumes(t.Context(), s)
		if err != nil || len(left) > 0 && !lists(volumes, name) {
			t.Fatalf("%v, %v, left: %v", volumes, err, left)
		}
		if err := backup.DeleteVolume(t.Context(), s, name); err != nil {
			t.Fatal(err)
		}
		volumes, err = backup.Volumes(t.Context(), s)
		if err != nil || !lists(volumes, "other") {
			t.Errorf("%v, %v", volumes, err)
		}
		for _, o := range objects(t, s, format.VolumeFolder(name)) {
			if !strings.Contains(o, "/locks/") { // of the client that crashed; they expire
				t.Errorf("%s stays", o)
			}
		}
	})
}

// TestTwoCrashesInARow: what a crash left and a second crash of its repetition.
func TestTwoCrashesInARow(t *testing.T) {
	t.Parallel()
	one := empty(4).next("one", draw(15), 1, 0, 1, 2)
	for first := range int64(14) {
		for second := first % 3; second < 14; second += 3 {
			synctest.Test(t, func(t *testing.T) {
				s := &objecttest.Memory{}
				for _, n := range []int64{first, second} {
					crash(s, n)
					_, _ = create(t.Context(), s, one) // whether it ended is not asked
					s.Crash()
				}
				s.Before = nil
				consistent(t, s, one)
				mustCreate(t, s, one)
				mustHold(t, s, one)
				mustCollect(t, s)
			})
			if t.Failed() {
				t.Fatalf("crashes at %d and %d", first, second)
			}
		}
	}
}
