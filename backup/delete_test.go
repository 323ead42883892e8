package backup_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ankole.storage/backup"
	"ankole.storage/backup/format"
	"ankole.storage/backup/lock"
	"ankole.storage/backup/object/objecttest"
)

// TestDelete collects what no backup lists, and nothing else.
func TestDelete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(20)
		one := empty(6).next("one", r, 1, 0, 1, 2)
		two := one.next("two", r, 2, 2, 3)
		three := two.next("three", r, 3, 3)
		for _, snap := range []*snapshot{one, two, three} {
			mustCreate(t, s, snap)
		}
		orphan := format.BlockObject(name, format.Sum([]byte("orphan")))
		if err := s.Put(t.Context(), orphan, []byte("x")); err != nil {
			t.Fatal(err)
		}
		d, err := backup.Delete(t.Context(), s, name, "b-two")
		if err != nil || d.Blocks != 2 || d.Kept != "" { // block 3 of two, and the orphan
			t.Errorf("%+v, %v", d, err)
		}
		mustHold(t, s, one)
		mustHold(t, s, three)
		if d, err = backup.Delete(t.Context(), s, name, "b-three"); err != nil || d.Blocks != 2 {
			t.Errorf("%+v, %v", d, err)
		}
		v, err := backup.LoadVolume(t.Context(), s, name)
		if err != nil || v.LastBackup != "b-one" || v.BlockCount != 3 || !v.LastBackupAt.Equal(epoch.Add(2*time.Minute)) {
			t.Errorf("%+v, %v", v, err)
		}
		if _, err := backup.Delete(t.Context(), s, name, "b-three"); !errors.Is(err, backup.ErrNotFound) {
			t.Errorf("%v", err)
		}
		if d, err = backup.Delete(t.Context(), s, name, "b-one"); err != nil || d.Blocks != 3 {
			t.Errorf("%+v, %v", d, err)
		}
		if got := objects(t, s, ""); !slices.Equal(got, []string{format.VolumeRecord(name)}) {
			t.Errorf("%v", got)
		}
		mustCreate(t, s, three)
		mustHold(t, s, three)
	})
}

// TestDeleteKeepsWhatIsUnknown: a backup whose blocks are not known holds off the collection.
func TestDeleteKeepsWhatIsUnknown(t *testing.T) {
	t.Parallel()
	for what, record := range map[string]string{
		"in progress": `{"Name":"b-x","VolumeName":"vol1","CreatedTime":"","Size":"0","NewlyUploadedDataSize":"0",` +
			`"ReUploadedDataSize":"0"}`,
		"damaged": `{"Name":"b-x"`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &objecttest.Memory{}
			mustCreate(t, s, empty(6).next("one", draw(21), 1, 0, 1, 2))
			if err := s.Put(t.Context(), format.BackupRecord(name, "b-x"), []byte(record)); err != nil {
				t.Fatal(err)
			}
			d, err := backup.Delete(t.Context(), s, name, "b-one")
			if err != nil || d.Blocks != 0 || !strings.Contains(d.Kept, "b-x") {
				t.Errorf("%s: %+v, %v", what, d, err)
			}
			v, err := backup.LoadVolume(t.Context(), s, name)
			if err != nil || v.LastBackup != "" || v.BlockCount != 3 {
				t.Errorf("%s: %+v, %v", what, v, err)
			}
			if d, err = backup.Delete(t.Context(), s, name, "b-x"); err != nil || d.Blocks != 3 || d.Kept != "" {
				t.Errorf("%s: %+v, %v", what, d, err)
			}
		})
	}
}

// TestDeleteBesideBackup: a deletion and a backup of the same volume, in every order: both end, and
// what is there is whole.
func TestDeleteBesideBackup(t *testing.T) {
	t.Parallel()
	for delay := -8 * time.Second; delay <= 8*time.Second; delay += 1300 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			// Each operation takes time, so that the two are interleaved; a block goes late.
			s := &objecttest.Memory{Before: func(op, object string) error {
				pause := 300 * time.Millisecond
				if op == "delete" && strings.HasSuffix(object, ".blk") {
					pause *= 10
				}
				<-time.After(pause)
				return nil
			}}
			r := draw(22)
			one := empty(6).next("one", r, 1, 0, 1, 2)
			two := one.next("two", r, 2, 0, 3)
			three := two.next("three", r, 3, 1)
			copy(three.content[4*block:5*block], one.content[:block]) // the block that the deletion is after
			three.written = append(three.written, 4)
			mustCreate(t, s, one)
			mustCreate(t, s, two)
			ended := make(chan error, 2)
			go func() {
				<-time.After(max(0, delay))
				_, err := create(t.Context(), s, three)
				ended <- err
			}()
			go func() {
				<-time.After(max(0, -delay))
				_, err := backup.Delete(t.Context(), s, name, "b-one")
				ended <- err
			}()
			for range 2 {
				if err := <-ended; err != nil {
					t.Errorf("delay %v: %v", delay, err)
				}
			}
			s.Before = nil
			mustHold(t, s, two)
			mustHold(t, s, three)
			mustCollect(t, s)
		})
	}
}

// A client whose store does not answer loses its lock: nothing it does later counts, and what it
// has staged is not committed, since the volume may be deleted by then. Who ends for another reason
// commits it.
func TestBackupEndsWithItsLock(t *testing.T) {
	t.Parallel()
	errOrdered := errors.New("the backup was to end")
	for _, tt := range []struct {
		name       string
		lost       bool
		want       error
		wantBlocks bool
	}{{"lost", true, lock.ErrLost, false}, {"ended", false, errOrdered, true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &objecttest.Memory{}
				ctx, end := context.WithCancelCause(t.Context())
				defer end(nil)
				var down atomic.Bool
				s.Before = func(op, object string) error {
					switch {
					case strings.HasSuffix(object, ".lck") && op == "put" && down.Load():
						return errCrash
					case strings.HasSuffix(object, ".blk") && op == "put" && tt.lost:
						down.Store(true)
						<-time.After(110 * time.Second) // longer than a lock holds
					case strings.HasSuffix(object, ".blk") && op == "put":
						end(errOrdered)
					}
					return nil
				}
				one := empty(6).next("one", draw(23), 1, 0, 1, 2, 3, 4, 5)
				_, err := create(ctx, s, one, func(o *backup.CreateOptions) { o.Workers = 1 })
				if !errors.Is(err, tt.want) {
					t.Errorf("%v", err)
				}
				if b, err := backup.LoadBackup(t.Context(), s, name, "b-one"); err != nil || !b.InProgress() {
					t.Errorf("%+v, %v", b, err)
				}
				if blocks := objects(t, s, format.BlocksFolder(name)); len(blocks) > 0 != tt.wantBlocks {
					t.Errorf("blocks in the store: %v", blocks)
				}
			})
		})
	}
}

// lists says whether a volume is among those of a store.
func lists(volumes []backup.Listed, name string) bool {
	return slices.ContainsFunc(volumes, func(v backup.Listed) bool { return v.Name == name })
}

// TestVolumes: those of a store are found, and nothing else, for a request each and one more.
func TestVolumes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		one := empty(1).next("one", draw(24), 1, 0)
		for _, v := range []string{"vol2", "vol1", "a.b"} {
			o := backup.CreateOptions{Volume: v, Backup: "b1", Snapshot: "one"}
			if _, err := backup.Create(t.Context(), s, one, o); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Delete(t.Context(), format.VolumeRecord("vol2")); err != nil { // still seen
			t.Fatal(err)
		}
		for _, name := range []string{"00/00/.snapshot/x", "00/00/.snapshot/y/z", "ff/ff/vol1/volume.cfg", "ff/ff/vol1/x"} {
			if err := s.Put(t.Context(), "backupstore/volumes/"+name, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		s.Counts()
		v, err := backup.Volumes(t.Context(), s)
		if err != nil || len(v) != 3 || v[0].Name != "a.b" || v[1].Name != "vol1" || v[2].Name != "vol2" ||
			!v[2].Modified.IsZero() {
			t.Errorf("%v, %v", v, err)
		}
		for _, v := range v[:2] {
			if info, err := s.Stat(t.Context(), format.VolumeRecord(v.Name)); err != nil || !info.Modified.Equal(v.Modified) {
				t.Errorf("%+v, %v, want %+v", v, err, info)
			}
		}
		// One for each volume, one more, and one for each kind of folder that is no volume's.
		if c := s.Counts(); c["after"] != 3+1+2 || c["list"] != 0 {
			t.Errorf("%v", c)
		}
		b, err := backup.Backups(t.Context(), s, "vol1")
		if err != nil || !slices.Equal(b, []string{"b1"}) {
			t.Errorf("%v, %v", b, err)
		}
	})
}
