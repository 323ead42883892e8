package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"ankole.storage/backup"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
)

const (
	block = format.DefaultBlockBytes
	name  = "vol1"
)

// snapshot is one of a model volume, which is also a target.
type snapshot struct {
	name    string
	content []byte
	// written are the blocks that were written since the one before.
	written []int64
	before  *snapshot
	at      time.Time // when it was made, unless it is zero

	mu   sync.Mutex
	read []int64 // offsets that were read
}

var epoch = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// next makes a snapshot in which blocks have other content: random, or zero where fill is 0.
func (s *snapshot) next(snap string, random *rand.PCG, fill byte, blocks ...int64) *snapshot {
	n := &snapshot{name: snap, content: bytes.Clone(s.content), written: blocks, before: s}
	for _, i := range blocks {
		part := n.content[i*block : (i+1)*block]
		clear(part)
		if fill != 0 {
			for j := 0; j < block; j += 512 {
				part[j], part[j+1] = byte(random.Uint64())|1, fill
			}
		}
	}
	return n
}

func empty(blocks int64) *snapshot { return &snapshot{content: make([]byte, blocks*block)} }

// draw returns random numbers; content does not depend on the run.
func draw(seed uint64) *rand.PCG {
	return rand.NewPCG(seed, 1)
}

// created is a minute after the snapshot before where nothing else is said.
func (s *snapshot) created() time.Time {
	if !s.at.IsZero() {
		return s.at
	}
	at := epoch
	for ; s != nil; s = s.before {
		at = at.Add(time.Minute)
	}
	return at
}

func (s *snapshot) SizeBytes() int64 { return int64(len(s.content)) }

func (s *snapshot) Changed(_ context.Context, since backup.Base) iter.Seq2[backup.Extent, error] {
	return func(yield func(backup.Extent, error) bool) {
		for at := s; at != nil; at = at.before {
			if at.name == since.Snapshot && (at.name == "" || at.created().Equal(since.Created)) {
				return
			}
			if at.name == "" {
				yield(backup.Extent{}, fmt.Errorf("snapshot %s: %w", since.Snapshot, backup.ErrNoBase))
				return
			}
			for _, i := range at.written { // part of the block is enough
				if !yield(backup.Extent{Offset: i*block + 4096, Length: 4096}, nil) {
					return
				}
			}
		}
	}
}

func (s *snapshot) ReadAt(ctx context.Context, p []byte, offset int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = append(s.read, offset/block)
	copy(p, s.content[offset:])
	return ctx.Err()
}

// reads returns the blocks that were read since the last call, sorted.
func (s *snapshot) reads() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.read
	s.read = nil
	slices.Sort(r)
	return r
}

func (s *snapshot) WriteAt(p []byte, offset int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = append(s.written, offset/block)
	return copy(s.content[offset:], p), nil
}

func (s *snapshot) ZeroAt(offset, length int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.content[offset : offset+length])
	return nil
}

func create(ctx context.Context, s object.Store, snap *snapshot, change ...func(*backup.CreateOptions)) (*format.Backup,
	error) {
	o := backup.CreateOptions{Volume: name, Backup: "b-" + snap.name, Snapshot: snap.name,
		SnapshotCreated: snap.created(), Workers: 2}
	for _, c := range change {
		c(&o)
	}
	return backup.Create(ctx, s, snap, o)
}

func mustCreate(t *testing.T, s object.Store, snap *snapshot, change ...func(*backup.CreateOptions)) *format.Backup {
	t.Helper()
	b, err := create(t.Context(), s, snap, change...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// madeAt is when a backup was made, zero if there is none that is complete.
func madeAt(t *testing.T, s object.Store, volume, backupName string) time.Time {
	t.Helper()
	if backupName == "" {
		return time.Time{}
	}
	b, err := backup.LoadBackup(t.Context(), s, volume, backupName)
	if err != nil {
		return time.Time{}
	}
	return b.Created.Time
}

// mustHold restores the backup of a snapshot and compares the content.
func mustHold(t *testing.T, s object.Store, snap *snapshot) {
	t.Helper()
	target := &snapshot{content: make([]byte, len(snap.content))}
	r, err := backup.Restore(t.Context(), s, target, backup.RestoreOptions{Volume: name, Backup: "b-" + snap.name,
		Workers: 2})
	if err != nil || r.SizeBytes < snap.SizeBytes() || !bytes.Equal(target.content, snap.content) {
		t.Fatalf("restored %s: %+v, %v; equal: %v", snap.name, r, err, bytes.Equal(target.content, snap.content))
	}
}

// objects returns the names of all objects.
func objects(t *testing.T, s object.Store, folder string) (all []string) {
	t.Helper()
	for info, err := range s.List(t.Context(), folder, true) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Name)
	}
	slices.Sort(all)
	return all
}

// consistent checks what holds at every moment: each complete backup has all its blocks, sound.
func consistent(t *testing.T, s object.Store, snaps ...*snapshot) {
	t.Helper()
	for _, snap := range snaps {
		b, err := backup.LoadBackup(t.Context(), s, name, "b-"+snap.name)
		if errors.Is(err, backup.ErrNotFound) || err == nil && b.InProgress() {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		mustHold(t, s, snap)
	}
}
