package backup_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ankole.storage/backup"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object/objecttest"
)

// TestRestoreStep: from one backup to another only what differs is read and written, and what the
// later one has not becomes zero.
func TestRestoreStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(40)
		one := empty(8).next("one", r, 1, 0, 1, 2, 5)
		two := one.next("two", r, 2, 1, 7)
		two = two.next("two", r, 0, 5)
		two.written, two.before = []int64{1, 5, 7}, one
		mustCreate(t, s, one)
		mustCreate(t, s, two)
		for _, step := range []struct {
			from, to *snapshot
			write    []int64
		}{{one, two, []int64{1, 7}}, {two, one, []int64{1, 5}}, {one, one, nil}} {
			target := &snapshot{content: bytes.Clone(step.from.content)}
			o := backup.RestoreOptions{Volume: name, Backup: "b-" + step.to.name, From: "b-" + step.from.name,
				FromCreated: madeAt(t, s, name, "b-"+step.from.name)}
			_, err := backup.Restore(t.Context(), s, target, o)
			slices.Sort(target.written)
			if err != nil || !bytes.Equal(target.content, step.to.content) || !slices.Equal(target.written, step.write) {
				t.Errorf("from %s to %s: %v, wrote %v", step.from.name, step.to.name, err, target.written)
			}
		}
	})
}

// TestRestoreFromAnotherOfTheName: a backup that has the name of the one that the target holds, and
// was made later, is no base.
func TestRestoreFromAnotherOfTheName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(42)
		one := empty(8).next("one", r, 1, 0, 1)
		mustCreate(t, s, one)
		mustCreate(t, s, one.next("two", r, 1, 1))
		held := madeAt(t, s, name, "b-one").Add(-time.Second)
		target, begun := &snapshot{content: bytes.Clone(one.content)}, 0
		o := backup.RestoreOptions{Volume: name, Backup: "b-two", From: "b-one", FromCreated: held,
			Begin: func(b backup.Beginning) error {
				begun++
				if want := (backup.Beginning{SizeBytes: one.SizeBytes(), Created: madeAt(t, s, name, "b-two")}); b != want {
					t.Errorf("begins with %+v, want %+v", b, want)
				}
				return errTarget
			}}
		if _, err := backup.Restore(t.Context(), s, target, o); !errors.Is(err, backup.ErrNoBase) || begun > 0 {
			t.Errorf("%v", err)
		}
		o.From = ""
		if _, err := backup.Restore(t.Context(), s, target, o); !errors.Is(err, errTarget) || begun != 1 ||
			len(target.written) > 0 {
			t.Errorf("an end that Begin wants: %v, wrote %v", err, target.written)
		}
	})
}

func TestRestoreRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(41)
		one := empty(8).next("one", r, 1, 0)
		mustCreate(t, s, one)
		mustCreate(t, s, one.next("two", r, 1, 1), func(o *backup.CreateOptions) { o.BlockBytes = 16 << 20 })
		crash(s, 9)
		_, _ = create(t.Context(), s, one.next("crashed", r, 1, 1)) // crashes behind its marker
		s.Before = nil
		for _, tt := range []struct {
			volume, backup, from string
			want                 error
		}{
			{"other", "b-one", "", backup.ErrNotFound}, {name, "b-none", "", backup.ErrNotFound},
			{name, "b-crashed", "", backup.ErrInProgress}, {name, "b-one", "b-none", backup.ErrNoBase},
			{name, "b-one", "b-crashed", backup.ErrNoBase}, {name, "b-one", "b-two", backup.ErrNoBase},
			{"../x", "b-one", "", format.ErrName}, {name, "a/b", "", format.ErrName},
		} {
			target := &snapshot{content: make([]byte, 16<<20)}
			_, err := backup.Restore(t.Context(), s, target,
				backup.RestoreOptions{Volume: tt.volume, Backup: tt.backup, From: tt.from,
					FromCreated: madeAt(t, s, name, tt.from), Begin: func(backup.Beginning) error {
						t.Errorf("%+v begins", tt)
						return nil
					}})
			if !errors.Is(err, tt.want) || len(target.written) > 0 {
				t.Errorf("%+v: %v", tt, err)
			}
		}
	})
}

// TestRestoreWithDamage: what is damaged is told by range; the rest is restored.
func TestRestoreWithDamage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		one := empty(8).next("one", draw(42), 1, 0, 1, 2, 5, 6)
		copy(one.content[6*block:7*block], one.content[5*block:6*block]) // one block at two offsets
		b := mustCreate(t, s, one)
		harm(t, s, format.BlockObject(name, b.Blocks[1].Checksum), nil)
		harm(t, s, format.BlockObject(name, b.Blocks[3].Checksum), func(data []byte) []byte { data[99] ^= 1; return data })
		o := backup.RestoreOptions{Volume: name, Backup: "b-one"}
		target := &snapshot{content: bytes.Repeat([]byte{7}, 8*block)}
		_, err := backup.Restore(t.Context(), s, target, o)
		var damage *backup.DamageError
		if !errors.As(err, &damage) || len(damage.Damage) != 3 || !strings.Contains(err.Error(), "[2097152, 4194304)") {
			t.Fatalf("%v", err)
		}
		for i, want := range []struct {
			offset  int64
			missing bool
		}{{1, true}, {5, false}, {6, false}} {
			if d := damage.Damage[i]; d.Offset != want.offset*block || d.Length != block || d.Missing != want.missing {
				t.Errorf("%+v, want %+v", d, want)
			}
		}
		o.AcceptDamage = true
		r, err := backup.Restore(t.Context(), s, target, o)
		if err != nil || !slices.Equal(r.Damage, damage.Damage) {
			t.Errorf("%+v, %v", r, err)
		}
		for i := range int64(8) {
			want := one.content[i*block : (i+1)*block]
			switch i {
			case 1, 5, 6:
				want = make([]byte, block)
			case 3, 4, 7: // not in the backup: a target is new
				continue
			}
			if !bytes.Equal(target.content[i*block:(i+1)*block], want) {
				t.Errorf("block %d differs", i)
			}
		}
	})
}

// failing is a target that takes no writes.
type failing struct{ *snapshot }

var errTarget = errors.New("the target is broken")

func (failing) WriteAt([]byte, int64) (int, error) { return 0, errTarget }

func TestRestoreEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &objecttest.Memory{}
		one := empty(8).next("one", draw(43), 1, 0, 1, 2, 5, 6)
		mustCreate(t, s, one)
		o := backup.RestoreOptions{Volume: name, Backup: "b-one", Workers: 1}
		if _, err := backup.Restore(t.Context(), s, failing{one}, o); !errors.Is(err, errTarget) {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var seen []int
		o.Progress = func(done, total int) {
			if seen = append(seen, done); done == 2 || total != 5 {
				cancel()
			}
		}
		target := &snapshot{content: make([]byte, 16<<20)}
		_, err := backup.Restore(ctx, s, target, o)
		// The other worker may be about to write a block.
		if !errors.Is(err, context.Canceled) || len(seen) > 3 || !slices.Equal(seen[:2], []int{1, 2}) {
			t.Errorf("%v, %v", seen, err)
		}
		// An error of the store is none of the content.
		o.Progress, o.AcceptDamage = nil, true
		s.Before = func(op, object string) error {
			if op == "get" && strings.HasSuffix(object, ".blk") {
				return errCrash
			}
			return nil
		}
		if _, err := backup.Restore(t.Context(), s, target, o); !errors.Is(err, errCrash) {
			t.Errorf("%v", err)
		}
		if locks := objects(t, s, format.LocksFolder(name)); len(locks) != 0 {
			t.Errorf("locks stay: %v", locks)
		}
	})
}

// TestRangesOf: neighbours are one range, and of very many not all are named.
func TestRangesOf(t *testing.T) {
	t.Parallel()
	at := func(blocks ...int64) (all []backup.Damage) {
		for _, i := range blocks {
			all = append(all, backup.Damage{Extent: backup.Extent{Offset: i * block, Length: block}})
		}
		return all
	}
	for want, damage := range map[string][]backup.Damage{"": nil, "2097152 bytes: [0, 2097152)": at(0),
		"8388608 bytes: [2097152, 6291456) [8388608, 12582912)": at(1, 2, 4, 5)} {
		if got := backup.RangesOf(damage); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var many []int64
	for i := range int64(250) {
		many = append(many, 2*i)
	}
	if got := backup.RangesOf(at(many...)); !strings.HasSuffix(got, ") and 50 ranges more") {
		t.Error(got)
	}
}
