package backup_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"ankole.storage/backup"
	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
	"ankole.storage/backup/object/directory"
	"ankole.storage/backup/object/objecttest"
)

// withKeys has a current key, 0 for none, and old ones: 32 equal bytes each.
func withKeys(current byte, old ...byte) (k encryption.Keys) {
	of := func(b byte) encryption.Key { return encryption.Key(bytes.Repeat([]byte{b}, 32)) }
	if current != 0 {
		key := of(current)
		k.Current = &key
	}
	for _, b := range old {
		k.Old = append(k.Old, of(b))
	}
	return k
}

// by has a backup made with keys.
func by(k encryption.Keys) func(*backup.CreateOptions) {
	return func(o *backup.CreateOptions) { o.Keys = k }
}

// restored restores the backup of a snapshot, and returns what was written too.
func restored(t *testing.T, s object.Store, snap *snapshot, k encryption.Keys) (*snapshot, error) {
	t.Helper()
	target := &snapshot{content: make([]byte, len(snap.content))}
	_, err := backup.Restore(t.Context(), s, target, backup.RestoreOptions{Volume: name, Backup: "b-" + snap.name, Keys: k,
		Begin: func(backup.Beginning) error { target.name = "begun"; return nil }})
	return target, err
}

// mustHoldBy is mustHold of an encrypted backup.
func mustHoldBy(t *testing.T, s object.Store, k encryption.Keys, snaps ...*snapshot) {
	t.Helper()
	for _, snap := range snaps {
		if got, err := restored(t, s, snap, k); err != nil || !bytes.Equal(got.content, snap.content) {
			t.Fatalf("restored %s: %v; equal: %v", snap.name, err, err == nil)
		}
	}
}

// marked has each of some blocks begin with a text that is looked for, and differ from the others.
func (s *snapshot) marked(text string, blocks ...int64) *snapshot {
	for _, i := range blocks {
		part := s.content[i*block : (i+1)*block]
		copy(part, bytes.Repeat([]byte(text), block/len(text)))
		part[block-1] = byte(i)
	}
	return s
}

// TestEncrypted: of the files of a store none has a byte run of the volume, or a name that tells a
// content. Increments read and send what has changed; equal blocks are stored once. What was made
// with a key is restored with it, in full and by what differs.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	for _, method := range []format.Compression{"none", "gzip", "encrypted-lz4"} {
		t.Run(string(method), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				s, err := directory.Open(dir, "vfs://"+dir)
				if err != nil {
					t.Fatal(err)
				}
				const secret = "the text of a user, "
				one := empty(8).next("one", draw(70), 1, 0, 1, 2, 5).marked(secret, 0, 1, 2, 5)
				copy(one.content[2*block:3*block], one.content[:block])
				two := one.next("two", draw(71), 2, 1, 7).marked(secret+secret, 1)
				k := withKeys(1)
				var all []*format.Backup
				for _, snap := range []*snapshot{one, two} {
					all = append(all, mustCreate(t, s, snap, by(k), func(o *backup.CreateOptions) { o.Compression = method }))
				}
				if reads := two.reads(); !all[1].Incremental || !slices.Equal(reads, []int64{1, 7}) || len(all[0].Blocks) != 4 {
					t.Errorf("incremental %v, read %v, %d blocks", all[1].Incremental, reads, len(all[0].Blocks))
				}
				if blocks := objects(t, s, format.BlocksFolder(name)); len(blocks) != 5 {
					t.Errorf("%d blocks are stored", len(blocks))
				}
				mustHoldBy(t, s, k, one, two)
				step := &snapshot{content: bytes.Clone(one.content)}
				_, err = backup.Restore(t.Context(), s, step, backup.RestoreOptions{Volume: name, Backup: "b-two", Keys: k,
					From: "b-one", FromCreated: madeAt(t, s, name, "b-one")})
				if err != nil || !bytes.Equal(step.content, two.content) || len(step.written) != 2 {
					t.Errorf("by what differs: %v, wrote %v", err, step.written)
				}
				nothingIsSeen(t, dir, secret, two)
			})
		})
	}
}

// nothingIsSeen looks through the files below a folder.
func nothingIsSeen(t *testing.T, dir, secret string, snap *snapshot) {
	t.Helper()
	var names []string
	for i := 0; i < len(snap.content); i += block {
		names = append(names, format.Sum(snap.content[i:i+block]).String())
	}
	blocks := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(secret[:12])) {
			t.Errorf("%s has the text of the volume", path)
		}
		for _, sum := range names {
			if strings.Contains(path, sum) || bytes.Contains(data, []byte(sum)) {
				t.Errorf("%s has the hash of a content", path)
			}
		}
		if strings.HasSuffix(path, ".blk") {
			blocks++
			if id, ok := encryption.KeyOf(data); !ok || id != withKeys(1).Current.ID() {
				t.Errorf("%s names key %s, %v", path, id, ok)
			}
		}
		return err
	})
	if err != nil || blocks == 0 {
		t.Errorf("%d blocks, %v", blocks, err)
	}
}

// TestBothKinds: backups of both kinds in one store: the first of a kind is made in full, each is
// restored, and a deletion takes the blocks of its backup alone.
func TestBothKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(72)
		one := empty(8).next("one", r, 1, 0, 1)
		two := one.next("two", r, 2, 2)
		three := two.next("three", r, 3, 3)
		four := three.next("four", r, 4, 4)
		k, off := withKeys(1), withKeys(0, 1)
		for _, tt := range []struct {
			snap        *snapshot
			keys        encryption.Keys
			reads       []int64
			incremental bool
		}{{one, encryption.Keys{}, []int64{0, 1}, false}, {two, k, []int64{0, 1, 2}, false}, {three, k, []int64{3}, true},
			{four, off, []int64{0, 1, 2, 3, 4}, false}} {
			b := mustCreate(t, s, tt.snap, by(tt.keys))
			if reads := tt.snap.reads(); b.Incremental != tt.incremental || !slices.Equal(reads, tt.reads) ||
				b.Encrypted() != (tt.keys.Current != nil) {
				t.Errorf("%s: incremental %v, encrypted %v, read %v", tt.snap.name, b.Incremental, b.Encrypted(), reads)
			}
		}
		mustHoldBy(t, s, encryption.Keys{}, one, four)
		mustHoldBy(t, s, off, one, two, three, four)
		if v, err := backup.Verify(t.Context(), s, name, backup.VerifyOptions{Keys: k}); err != nil || len(v.Faults) > 0 ||
			v.Blocks != 9 {
			t.Errorf("%+v, %v", v, err)
		}
		for _, snap := range []string{"one", "three", "two"} {
			if d, err := backup.Delete(t.Context(), s, name, "b-"+snap); err != nil || d.Kept != "" {
				t.Errorf("%s: %+v, %v", snap, d, err)
			}
		}
		if left := objects(t, s, format.BlocksFolder(name)); len(left) != 5 {
			t.Errorf("%d blocks are left of the one backup with 5", len(left))
		}
		mustHoldBy(t, s, encryption.Keys{}, four)
	})
}

// TestRotation: with another current key and the earlier one among the old ones, the next backup is
// made in full with the new key, and the earlier ones are restored. When they are deleted nothing
// needs the old key.
func TestRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(73)
		one := empty(8).next("one", r, 1, 0, 1)
		two := one.next("two", r, 2, 2)
		three := two.next("three", r, 3, 3)
		mustCreate(t, s, one, by(withKeys(1)))
		rotated := withKeys(2, 1)
		second := mustCreate(t, s, two, by(rotated))
		if reads := two.reads(); second.Incremental || !slices.Equal(reads, []int64{0, 1, 2}) ||
			second.Key != rotated.Current.ID() {
			t.Errorf("incremental %v, key %s, read %v", second.Incremental, second.Key, reads)
		}
		if third := mustCreate(t, s, three, by(withKeys(2, 3, 1))); !third.Incremental {
			t.Error("the one after it is no increment")
		}
		mustHoldBy(t, s, rotated, one, two, three)
		from := &snapshot{content: bytes.Clone(one.content)}
		o := backup.RestoreOptions{Volume: name, Backup: "b-two", Keys: rotated, From: "b-one",
			FromCreated: madeAt(t, s, name, "b-one")}
		if _, err := backup.Restore(t.Context(), s, from, o); err != nil || !bytes.Equal(from.content, two.content) {
			t.Errorf("from a backup of the old key: %v", err)
		}
		o.Keys = withKeys(2)
		if _, err := backup.Restore(t.Context(), s, from, o); !errors.Is(err, backup.ErrNoBase) ||
			errors.Is(err, encryption.ErrNoKey) {
			t.Errorf("from a backup whose key is gone: %v", err)
		}
		if d, err := backup.Delete(t.Context(), s, name, "b-one"); err != nil || d.Blocks != 2 {
			t.Errorf("%+v, %v", d, err)
		}
		mustHoldBy(t, s, withKeys(2), two, three)
		if v, err := backup.Verify(t.Context(), s, name, backup.VerifyOptions{Keys: withKeys(2)}); err != nil ||
			len(v.Faults) > 0 {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// TestMissingKey: without its key, or with another one, a backup is not restored, verified or
// continued: the error names the key, and nothing was written. Deletion needs none.
func TestMissingKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(74)
		one := empty(8).next("one", r, 1, 0, 1)
		two := one.next("two", r, 2, 2)
		mustCreate(t, s, one, by(withKeys(1)))
		before := objects(t, s, "")
		refused := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, encryption.ErrNoKey) || !strings.Contains(err.Error(), withKeys(1).Current.ID().String()) ||
				!strings.Contains(err.Error(), "BACKUP_ENCRYPTION_OLD_KEYS") {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, k := range map[string]encryption.Keys{"none": {}, "another one": withKeys(2),
			"other old ones": withKeys(2, 3)} {
			got, err := restored(t, s, one, k)
			refused(what+", restore", err)
			if len(got.written) > 0 || got.name != "" {
				t.Errorf("%s: begun %q, wrote %v", what, got.name, got.written)
			}
			_, err = backup.Restore(t.Context(), s, got, backup.RestoreOptions{Volume: name, Backup: "b-one", Keys: k,
				AcceptDamage: true})
			refused(what+", restore that accepts damage", err)
			for _, full := range []bool{false, true} {
				_, err = create(t.Context(), s, two, by(k), func(o *backup.CreateOptions) { o.Full = full })
				refused(what+", create", err)
			}
			_, err = backup.Verify(t.Context(), s, name, backup.VerifyOptions{Keys: k})
			refused(what+", verify", err)
		}
		if after := objects(t, s, ""); !slices.Equal(before, after) {
			t.Errorf("the store has %v, and had %v", after, before)
		}
		_, err := create(t.Context(), s, two, func(o *backup.CreateOptions) { o.Compression = "encrypted-lz4" })
		if err == nil || !strings.Contains(err.Error(), "set BACKUP_ENCRYPTION_KEY") {
			t.Errorf("an encrypted one without a key: %v", err)
		}
		if d, err := backup.Delete(t.Context(), s, name, "b-one"); err != nil || d.Blocks != 2 {
			t.Errorf("%+v, %v", d, err)
		}
		if b := mustCreate(t, s, two); b.Encrypted() {
			t.Error("encrypted without a key")
		}
		mustHold(t, s, two)
	})
}

// exchange gives two objects the content of each other.
func exchange(t *testing.T, s object.Store, a, b string) {
	t.Helper()
	var other []byte
	harm(t, s, a, func(data []byte) []byte { other = bytes.Clone(data); return data })
	harm(t, s, b, func(data []byte) []byte { other, data = data, other; return data })
	harm(t, s, a, func([]byte) []byte { return other })
}

// TestTamperedBlocks: what somebody without the key has done to blocks is told as damage with its
// range, a verification finds it, and the next backup mends it.
func TestTamperedBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r, k := &objecttest.Memory{}, draw(75), withKeys(1)
		one := empty(8).next("one", r, 1, 0, 1, 2, 3, 4, 5, 6)
		b := mustCreate(t, s, one, by(k))
		of := func(i int) string { return format.BlockObject(name, b.Blocks[i].Checksum) }
		harm(t, s, of(0), func(data []byte) []byte { data[len(data)/2] ^= 1; return data })
		exchange(t, s, of(1), of(2))
		harm(t, s, of(3), func([]byte) []byte { return one.content[3*block : 4*block] })
		harm(t, s, of(4), func(data []byte) []byte { data[9] ^= 1; return data }) // the id of the key
		harm(t, s, of(5), nil)
		var d *backup.DamageError
		if _, err := restored(t, s, one, k); !errors.As(err, &d) || len(d.Damage) != 6 || d.Damage[0].Offset != 0 ||
			d.Damage[0].Missing || !d.Damage[5].Missing {
			t.Fatalf("%+v, %v", d, err)
		}
		target := &snapshot{content: bytes.Repeat([]byte{0xff}, len(one.content))}
		got, err := backup.Restore(t.Context(), s, target, backup.RestoreOptions{Volume: name, Backup: "b-one", Keys: k,
			AcceptDamage: true})
		if err != nil || len(got.Damage) != 6 || !bytes.Equal(target.content[:6*block], make([]byte, 6*block)) ||
			!bytes.Equal(target.content[6*block:7*block], one.content[6*block:7*block]) {
			t.Errorf("damage that is accepted: %+v, %v", got, err)
		}
		v, err := backup.Verify(t.Context(), s, name, backup.VerifyOptions{Keys: k})
		if err != nil || len(v.Faults) != 6 {
			t.Fatalf("%+v, %v", v, err)
		}
		two := one.next("two", r, 2, 7)
		mustCreate(t, s, two, by(k))
		mustHoldBy(t, s, k, one, two)
		if v, err := backup.Verify(t.Context(), s, name, backup.VerifyOptions{Keys: k}); err != nil || len(v.Faults) > 0 {
			t.Errorf("after the next backup: %+v, %v", v, err)
		}
	})
}

// TestTamperedRecord: a record that somebody without the key has changed is damaged: nothing is
// restored from it, a verification tells it, and the next backup takes nothing over.
func TestTamperedRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r, k := &objecttest.Memory{}, draw(76), withKeys(1)
		one := empty(8).next("one", r, 1, 0, 1)
		two := one.next("two", r, 2, 3)
		mustCreate(t, s, one, by(k))
		record := format.BackupRecord(name, "b-one")
		harm(t, s, record, func(data []byte) []byte {
			return bytes.Replace(data, []byte(`"Offset":2097152`), []byte(`"Offset":4194304`), 1)
		})
		got, err := restored(t, s, one, k)
		if !errors.Is(err, format.ErrCorrupt) || len(got.written) > 0 || got.name != "" {
			t.Errorf("%v, wrote %v", err, got.written)
		}
		v, err := backup.Verify(t.Context(), s, name, backup.VerifyOptions{Keys: k})
		if err != nil || !slices.ContainsFunc(v.Faults, func(f backup.Fault) bool {
			return f.Kind == backup.FaultRecord && f.Object == record && slices.Equal(f.Backups, []string{"b-one"})
		}) {
			t.Errorf("%+v, %v", v, err)
		}
		if b := mustCreate(t, s, two, by(k)); b.Incremental || len(b.Blocks) != 3 {
			t.Errorf("%+v", b)
		}
		mustHoldBy(t, s, k, two)
	})
}

// TestEncryptedStoreIsVerified: blocks that no backup lists are judged where their key is there,
// and passed over where it is not; blocks of both sizes are read.
func TestEncryptedStoreIsVerified(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r, k := &objecttest.Memory{}, draw(77), withKeys(1)
		one := empty(16).next("one", r, 1, 0, 9)
		mustCreate(t, s, one, by(k))
		mustCreate(t, s, one.next("two", r, 1, 1), by(k), func(o *backup.CreateOptions) { o.BlockBytes = 16 << 20 })
		orphan := func(b byte, damaged bool) string {
			f := format.Form{Compression: "none", Key: withKeys(b).Current.ForVolume(name)}
			content := bytes.Repeat([]byte{b}, block)
			data, err := new(format.Codec).Encode(f, content, nil, f.Sum(content))
			if err != nil {
				t.Fatal(err)
			}
			if damaged {
				data[100] ^= 1
			}
			o := format.BlockObject(name, f.Sum(content))
			if err := s.Put(t.Context(), o, data); err != nil {
				t.Fatal(err)
			}
			return o
		}
		orphan(2, false)
		orphan(3, true)
		want := orphan(1, true)
		v, err := backup.Verify(t.Context(), s, name, backup.VerifyOptions{Keys: k})
		if err != nil || len(v.Faults) != 1 || v.Faults[0].Object != want || len(v.Faults[0].Backups) > 0 || v.Blocks != 7 {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// TestEncryptedBackupIsRefusedByOthers: a reader made from the description of the layout alone
// refuses an encrypted backup, by its method and by each of its blocks, takes it for no base, and
// counts its blocks among those that a backup needs.
func TestEncryptedBackupIsRefusedByOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &objecttest.Memory{}, draw(78)
		b := mustCreate(t, s, empty(8).next("one", r, 1, 0, 1), by(withKeys(1)))
		p := page{t, s}
		if _, method := p.volume(name); method != "lz4" {
			t.Errorf("the volume's method is %s", method)
		}
		var record struct {
			SnapshotName, CompressionMethod string
			Blocks                          []struct{ BlockChecksum string }
		}
		if err := json.Unmarshal(p.get(p.folder(name)+"/backups/backup_b-one.cfg"), &record); err != nil {
			t.Fatal(err)
		}
		if slices.Contains([]string{"none", "gzip", "lz4", ""}, record.CompressionMethod) {
			t.Errorf("method %s is that of others", record.CompressionMethod)
		}
		// A file of a chain is volume-snap-NAME.img: no name has a slash.
		if !strings.Contains(record.SnapshotName, "/") || b.Snapshot != "one" {
			t.Errorf("snapshot %s may be in a chain", record.SnapshotName)
		}
		there := map[string]bool{}
		for _, o := range objects(t, s, p.folder(name)+"/blocks/") {
			there[strings.TrimSuffix(filepath.Base(o), ".blk")] = true
			data := p.get(o)
			if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) || bytes.HasPrefix(data, []byte{4, 0x22, 0x4d, 0x18}) ||
				len(data) == block || half(data) == filepath.Base(o) {
				t.Errorf("%s can be taken for a block", o)
			}
		}
		listed := map[string]bool{}
		for _, at := range record.Blocks {
			if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(at.BlockChecksum) {
				t.Errorf("block %s", at.BlockChecksum)
			}
			listed[at.BlockChecksum] = true
		}
		if !maps.Equal(there, listed) || len(listed) != 2 {
			t.Errorf("listed %v, stored %v", listed, there)
		}
	})
}
