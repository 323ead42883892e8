package backup_test

import (
	"bytes"
	"context"
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

// TestIncremental: what did not change is not read, zeroes are not stored, each backup is whole.
func TestIncremental(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(1)
		one := empty(8).next("one", r, 1, 0, 1, 2, 5)
		two := one.next("two", r, 2, 1, 7)
		three := two.next("three", r, 0, 2, 7)
		first := mustCreate(t, s, one)
		if first.Incremental || len(first.Blocks) != 4 || first.NewBytes == 0 || first.RewrittenBytes != 0 {
			t.Errorf("%+v", first)
		}
		if reads := one.reads(); !slices.Equal(reads, []int64{0, 1, 2, 5}) {
			t.Errorf("read %v", reads)
		}
		second := mustCreate(t, s, two)
		if reads := two.reads(); !second.Incremental || len(second.Blocks) != 5 || !slices.Equal(reads, []int64{1, 7}) {
			t.Errorf("read %v, %+v", reads, second)
		}
		third := mustCreate(t, s, three)
		if reads := three.reads(); len(third.Blocks) != 3 || third.NewBytes != 0 || !slices.Equal(reads, []int64{2, 7}) {
			t.Errorf("zeroes are not stored: read %v, %+v", reads, third)
		}
		for _, snap := range []*snapshot{one, two, three} {
			mustHold(t, s, snap)
		}
		v, err := backup.LoadVolume(t.Context(), s, name)
		if err != nil || v.LastBackup != "b-three" || v.BlockCount != 6 || v.SizeBytes != 8*block ||
			!v.LastBackupAt.Equal(third.SnapshotCreated.Time) {
			t.Errorf("%+v, %v", v, err)
		}
		if locks := objects(t, s, format.LocksFolder(name)); len(locks) != 0 {
			t.Errorf("locks stay: %v", locks)
		}
	})
}

// TestFullWhenThereIsNoBase: what cannot be an increment is read whole.
func TestFullWhenThereIsNoBase(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(t *testing.T, s object.Store, two *snapshot, o *backup.CreateOptions){
		"snapshot is gone": func(_ *testing.T, _ object.Store, two *snapshot, _ *backup.CreateOptions) {
			two.before.name = "other"
		},
		"another snapshot has its name": func(_ *testing.T, _ object.Store, two *snapshot, _ *backup.CreateOptions) {
			two.before.at = epoch.Add(time.Hour)
		},
		"other block size": func(_ *testing.T, _ object.Store, _ *snapshot, o *backup.CreateOptions) {
			o.BlockBytes = 16 << 20
		},
		"asked for in full": func(_ *testing.T, _ object.Store, _ *snapshot, o *backup.CreateOptions) { o.Full = true },
		"record is gone": func(t *testing.T, s object.Store, _ *snapshot, _ *backup.CreateOptions) {
			if err := s.Delete(t.Context(), format.BackupRecord(name, "b-one")); err != nil {
				t.Fatal(err)
			}
		},
		"record is damaged": func(t *testing.T, s object.Store, _ *snapshot, _ *backup.CreateOptions) {
			if err := s.Put(t.Context(), format.BackupRecord(name, "b-one"), []byte("{")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, r := &objecttest.Memory{}, draw(2)
				one := empty(8).next("one", r, 1, 0, 1)
				two := one.next("two", r, 2, 2)
				mustCreate(t, s, one)
				b := mustCreate(t, s, two, func(o *backup.CreateOptions) { change(t, s, two, o) })
				want := []int64{0, 1, 2}
				if b.BlockBytes != block {
					want = []int64{0}
				}
				if reads := two.reads(); b.Incremental || !slices.Equal(reads, want) {
					t.Errorf("incremental %v, read %v", b.Incremental, reads)
				}
				if strings.HasPrefix(what, "asked") && (b.RewrittenBytes == 0 || b.Parameters["backup-mode"] != "full") {
					t.Errorf("%+v", b)
				}
				two.name = "two"
				mustHold(t, s, two)
			})
		})
	}
}

// TestRequests: a backup costs a request for each changed block and 20 more, whatever the volume.
func TestRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(3)
		one := empty(16).next("one", r, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		two := one.next("two", r, 2, 1, 2, 3)
		back := two.next("back", r, 3, 1)
		copy(back.content, one.content) // contents that the store has
		back.written = []int64{1, 2, 3}
		for _, tt := range []struct {
			snap    *snapshot
			changed int
		}{{one, 10}, {two, 3}, {back, 3}} {
			s.Counts()
			mustCreate(t, s, tt.snap)
			counts, sum := s.Counts(), 0
			delete(counts, "commit") // none to a server
			for _, n := range counts {
				sum += n
			}
			// Each list here would be 8 requests to S3 where the store is large.
			if sum+7 > tt.changed+20 {
				t.Errorf("%s: %d requests for %d blocks: %v", tt.snap.name, sum, tt.changed, counts)
			}
			if tt.snap == back && counts["put"] > 6 {
				t.Errorf("blocks are written that are there: %v", counts)
			}
		}
		mustHold(t, s, back)
	})
}

// TestSameContentIsStoredOnce also where it occurs in one backup.
func TestSameContentIsStoredOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		snap := empty(8).next("one", draw(4), 1, 0, 1, 2, 3, 4, 5, 6, 7)
		for i := range int64(8) {
			copy(snap.content[i*block:(i+1)*block], snap.content[:block])
		}
		if b := mustCreate(t, s, snap); len(b.Blocks) != 8 || len(objects(t, s, format.BlocksFolder(name))) != 1 {
			t.Errorf("%+v", b)
		}
		s.Counts()
		mustHold(t, s, snap)
		if n := s.Counts()["get"]; n != 3 {
			t.Errorf("a restore reads %d objects, not two records and one block", n)
		}
	})
}

// TestDamagedBlocksAreNotTakenForPresent: a later backup mends what it comes across.
func TestDamagedBlocksAreNotTakenForPresent(t *testing.T) {
	t.Parallel()
	for what, damage := range map[string]func(data []byte) []byte{
		"flipped": func(data []byte) []byte { data[len(data)/2] ^= 1; return data },
		"short":   func(data []byte) []byte { return data[:len(data)/2] },
		"empty":   func([]byte) []byte { return nil },
		"long":    func(data []byte) []byte { return append(data, make([]byte, 20<<20)...) },
		"gone":    nil,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, r := &objecttest.Memory{}, draw(5)
				one := empty(4).next("one", r, 1, 0, 1)
				first := mustCreate(t, s, one)
				for i, b := range first.Blocks {
					harm(t, s, format.BlockObject(name, b.Checksum), damage)
					if i == 1 && what == "gone" {
						break // found in the list although it did not change
					}
				}
				two := one.next("two", r, 2, 3)
				two.written = []int64{0, 3} // written with what it was
				if what != "gone" {         // without a verification nobody knows of a block that does not change
					mustVerify(t, s)
				}
				mustCreate(t, s, two)
				mustHold(t, s, two)
				mustHold(t, s, one)
				if marks := objects(t, s, format.PoolOf(name).Marks()); len(marks) > 0 {
					t.Errorf("sound blocks are marked: %v", marks)
				}
			})
		})
	}
}

// harm damages an object, or deletes it.
func harm(t *testing.T, s object.Store, object string, damage func([]byte) []byte) {
	t.Helper()
	data, err := s.Get(t.Context(), object, nil, 1<<30)
	if err == nil && damage == nil {
		err = s.Delete(t.Context(), object)
	} else if err == nil {
		err = s.Put(t.Context(), object, damage(data))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestImageContent: what is written down of a backup over an image, and so what its restore is told
// to find below: a backup that stands on one of another program has not all of the image either.
func TestImageContent(t *testing.T) {
	t.Parallel()
	for of, shown := range map[string]string{"": "img", format.ImageIncluded: ""} {
		synctest.Test(t, func(t *testing.T) {
			s, r := &objecttest.Memory{}, draw(6)
			onImage := func(o *backup.CreateOptions) { o.BackingImage = "img" }
			one := empty(4).next("one", r, 1)
			b := mustCreate(t, s, one, onImage)
			if b.Parameters[format.ImageParameter] != format.ImageIncluded {
				t.Errorf("%+v", b.Parameters)
			}
			b.Parameters[format.ImageParameter] = of
			data, err := b.Marshal()
			if err == nil {
				err = s.Put(t.Context(), format.BackupRecord(name, "b-one"), data)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, full := range []bool{false, true} {
				b := mustCreate(t, s, one.next(fmt.Sprint("full-", full), r, 2), onImage,
					func(o *backup.CreateOptions) { o.Full = full })
				if b.Incremental == full {
					t.Fatalf("%+v", b)
				}
				want := shown
				if full {
					want = ""
				}
				_, err := backup.Restore(t.Context(), s, &snapshot{content: make([]byte, 8<<20)},
					backup.RestoreOptions{Volume: name, Backup: b.Name, Begin: func(b backup.Beginning) error {
						if b.Image != want {
							t.Errorf("%q, full %t: image %q shows, want %q", of, full, b.Image, want)
						}
						return nil
					}})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestBackingImage: zeroes over an image are content.
func TestBackingImage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		b := mustCreate(t, s, empty(4).next("one", draw(6), 0, 2), func(o *backup.CreateOptions) { o.BackingImage = "img" })
		if len(b.Blocks) != 1 {
			t.Errorf("%+v", b)
		}
	})
}

func TestCreateRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(7)
		one := empty(4).next("one", r, 1, 0)
		two := one.next("two", r, 2, 1)
		mustCreate(t, s, one)
		before := objects(t, s, "")
		for what, change := range map[string]func(*backup.CreateOptions){
			"name of volume": func(o *backup.CreateOptions) { o.Volume = "../x" },
			"name of backup": func(o *backup.CreateOptions) { o.Backup = "a/b" },
			"exists":         func(o *backup.CreateOptions) { o.Backup = "b-one" },
			"compression":    func(o *backup.CreateOptions) { o.Compression = "zip" },
			"block size":     func(o *backup.CreateOptions) { o.BlockBytes = 4 << 20 },
			"multiple":       func(o *backup.CreateOptions) { o.BlockBytes = 16 << 20 },
		} {
			_, err := create(t.Context(), s, two, change)
			if err == nil || what == "exists" != errors.Is(err, backup.ErrExists) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if after := objects(t, s, ""); !slices.Equal(before, after) {
			t.Errorf("a refused backup left something: %v, was %v", after, before)
		}
		again := mustCreate(t, s, one) // the same again is the same
		if again.Name != "b-one" || len(one.reads()) != 1 {
			t.Errorf("%+v", again)
		}
	})
}

func TestProgressAndCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		one := empty(8).next("one", draw(8), 1, 0, 1, 2, 3, 4, 5)
		var seen []int
		ctx, cancel := context.WithCancel(t.Context())
		_, err := create(ctx, s, one, func(o *backup.CreateOptions) {
			o.Workers = 1
			o.Progress = func(done, total int) {
				if seen = append(seen, done); done == 3 || total != 6 {
					cancel()
				}
			}
		})
		if !errors.Is(err, context.Canceled) || !slices.Equal(seen, []int{1, 2, 3}) {
			t.Errorf("%v, %v", seen, err)
		}
		if locks := objects(t, s, format.LocksFolder(name)); len(locks) != 0 {
			t.Errorf("locks stay: %v", locks)
		}
		s.Counts()
		mustCreate(t, s, one)
		if puts := s.Counts()["put"]; puts != 3+2+2+1 { // blocks, lock, records of backup and volume
			t.Errorf("the next run does not go on: %d puts", puts)
		}
		mustHold(t, s, one)
	})
}

// TestStoreIsFull: told as such, and nothing is broken.
func TestStoreIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(9)
		one := empty(8).next("one", r, 1, 0, 1)
		two := one.next("two", r, 2, 2, 3)
		mustCreate(t, s, one)
		s.Before = func(op, name string) error {
			if op == "put" && strings.HasSuffix(name, ".blk") {
				return object.ErrNoSpace
			}
			return nil
		}
		if _, err := create(t.Context(), s, two); !errors.Is(err, object.ErrNoSpace) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v", err)
		}
		s.Before = nil
		consistent(t, s, one, two)
		mustCreate(t, s, two)
		mustHold(t, s, two)
	})
}

// TestExpandedVolume: the next backup has the new size, and is an increment.
func TestExpandedVolume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(10)
		one := empty(4).next("one", r, 1, 0, 3)
		mustCreate(t, s, one)
		larger := &snapshot{name: "one", content: append(bytes.Clone(one.content), make([]byte, 2*block)...),
			before: empty(6)}
		two := larger.next("two", r, 2, 5)
		if b := mustCreate(t, s, two); !b.Incremental || len(b.Blocks) != 3 {
			t.Errorf("%+v", b)
		}
		mustHold(t, s, two)
	})
}

// TestTwoClustersOnOneStore: two volumes of one name, of clusters that know nothing of each other,
// are backed up at a time and in turn. Each backup holds what its volume held, and the deletion of
// one cluster's takes nothing of the other's.
func TestTwoClustersOnOneStore(t *testing.T) {
	t.Parallel()
	for delay := -4 * time.Second; delay <= 4*time.Second; delay += 1300 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			s, r := &objecttest.Memory{Before: func(string, string) error {
				<-time.After(300 * time.Millisecond)
				return nil
			}}, draw(61)
			here, there := empty(6).next("here", r, 1, 0, 1, 2), empty(8).next("there", r, 2, 0, 5, 6)
			copy(there.content[block:2*block], here.content[:block]) // a block that both have
			there.written = append(there.written, 1)
			ended := make(chan error, 2)
			for _, c := range []struct {
				snap  *snapshot
				delay time.Duration
			}{{here, delay}, {there, -delay}} {
				go func() {
					<-time.After(max(0, c.delay))
					_, err := create(t.Context(), s, c.snap)
					ended <- err
				}()
			}
			for range 2 {
				if err := <-ended; err != nil {
					t.Fatalf("delay %v: %v", delay, err)
				}
			}
			s.Before = nil
			later, laterThere := here.next("later", r, 3, 3), there.next("later-there", r, 4, 7)
			for _, snap := range []*snapshot{later, laterThere} { // the last backup is the other cluster's
				mustCreate(t, s, snap)
			}
			for _, snap := range []*snapshot{here, there, later, laterThere} {
				mustHold(t, s, snap)
			}
			for _, snap := range []*snapshot{there, laterThere} {
				if _, err := backup.Delete(t.Context(), s, name, "b-"+snap.name); err != nil {
					t.Fatal(err)
				}
			}
			mustHold(t, s, here)
			mustHold(t, s, later)
			mustCollect(t, s)
		})
	}
}
