package chain_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
)

// handOver closes the chain for another process and returns the map for it.
func (w *world) handOver() []byte {
	w.t.Helper()
	var b bytes.Buffer
	w.must(w.c.CloseFor(func(m io.WriterTo) error {
		n, err := m.WriteTo(&b)
		if n != int64(b.Len()) {
			w.t.Fatalf("%d bytes written, %d told", b.Len(), n)
		}
		return err
	}))
	return b.Bytes()
}

// openWith opens the directory as a process that was given a map.
func (w *world) openWith(m []byte) (taken bool) {
	w.t.Helper()
	opts := w.opts
	opts.Map = func() []byte { return m }
	c, err := chain.Open(w.fs, w.dir, opts)
	w.must(err)
	w.c = c
	w.must(c.CheckMap())
	return c.MapTaken()
}

func (w *world) epoch(n uint64) {
	w.t.Helper()
	w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: n, Self: "v-1"}))
}

// handedWorld has data in three layers and has been closed for the next process.
func handedWorld(t *testing.T) (w *world, handed []byte) {
	t.Helper()
	w, _ = newWorld(t, 64*mib)
	w.epoch(1)
	w.fill(0, 3*mib, 1)
	w.snapshot("a")
	w.fill(mib, mib, 2)
	w.snapshot("b")
	w.fill(40*mib, 4096, 3)
	w.fill(2*mib, 8192, 3)
	return w, w.handOver()
}

func TestMapIsHandedOver(t *testing.T) {
	w, m := handedWorld(t)
	if !w.openWith(m) {
		t.Fatal("the map was not taken over")
	}
	w.wantByte(0, mib, 1)
	w.wantByte(mib, mib, 2)
	w.wantByte(2*mib, 8192, 3)
	w.wantByte(2*mib+8192, mib-8192, 1)
	w.wantByte(40*mib, 4096, 3)
	w.wantByte(50*mib, mib, 0)
	w.zero(40*mib, 4096) // nothing is below: it is punched
	w.zero(2*mib, 4096)
	w.fill(50*mib, 4096, 4)
	if !w.openWith(w.handOver()) {
		t.Fatal("the second map was not taken over")
	}
	w.wantByte(40*mib, 4096, 0)
	w.wantByte(2*mib, 4096, 0)
	w.must(w.c.Close())
}

// A map counts for the process after the one that handed it over, and for nobody else.
func TestOldMapIsNotUsed(t *testing.T) {
	for name, since := range map[string]func(w *world){
		"nobody waited for it":          func(w *world) { w.open(); w.must(w.c.Close()) },
		"somebody has written":          func(w *world) { w.open(); w.fill(8*mib, 4096, 5); w.must(w.c.Close()) },
		"another one was handed over":   func(w *world) { w.open(); w.handOver() },
		"a crash came after the open":   func(w *world) { w.open(); w.must(w.c.Abandon()) },
		"an older engine had a session": func(w *world) { w.asOlder(func() { w.epoch(2); w.fill(8*mib, 4096, 5) }) },
		"an older tool has written":     func(w *world) { w.asOlder(func() { w.fill(8*mib, 4096, 5) }) },
		"an older one took a snapshot":  func(w *world) { w.asOlder(func() { w.snapshot("c") }) },
		"an older one has reverted":     func(w *world) { w.asOlder(func() { w.must(w.c.Revert("a", "")) }) },
		"an older one made it larger":   func(w *world) { w.asOlder(func() { w.must(w.c.Expand(128*mib, "")) }) },
		"an older one has punched":      func(w *world) { w.asOlder(func() { w.zero(40*mib, 4096) }) },
		"an older one crashed":          func(w *world) { w.asOlder(func() {}); w.editMeta("Dirty", true) },
	} {
		t.Run(name, func(t *testing.T) {
			w, m := handedWorld(t)
			since(w)
			if w.openWith(m) {
				t.Error("the map was taken over")
			}
			w.must(w.c.Close())
		})
	}
}

// asOlder does something to the directory as a program does that carries along keys it does not
// know.
func (w *world) asOlder(f func()) {
	w.t.Helper()
	token := w.editMeta("", nil)["AnkoleMap"]
	if token == nil {
		w.t.Fatal("the map has no token")
	}
	w.open()
	f()
	w.must(w.c.Close())
	w.editMeta("AnkoleMap", token)
	w.unseal() // it would not know of a seal
}

// editMeta changes a key of volume.meta, if one is given, and returns all.
func (w *world) editMeta(key string, value any) map[string]any {
	w.t.Helper()
	data, err := w.fs.ReadFile(w.dir+"/volume.meta", mib)
	w.must(err)
	all := map[string]any{}
	w.must(json.Unmarshal(data, &all))
	if key == "" {
		return all
	}
	all[key] = value
	data, err = json.Marshal(all)
	w.must(err)
	w.must(w.fs.WriteFileAtomic(w.dir+"/volume.meta", data))
	return all
}

// resum gives a map that was changed a checksum that holds.
func resum(m []byte) []byte {
	if len(m) < 4 {
		return m
	}
	at := len(m) - 4
	binary.LittleEndian.PutUint32(m[at:], crc32.Checksum(m[:at], crc32.MakeTable(crc32.Castagnoli)))
	return m
}

// What is no map of this directory is refused, and the directory is what it was.
func TestDamagedMapIsNotUsed(t *testing.T) {
	for name, damage := range map[string]func(m []byte) []byte{
		"nothing":            func([]byte) []byte { return []byte{} },
		"a byte":             func([]byte) []byte { return []byte{1} },
		"another version":    func(m []byte) []byte { m[7]++; return resum(m) },
		"cut short":          func(m []byte) []byte { return resum(m[:len(m)-100]) },
		"too long":           func(m []byte) []byte { return resum(append(m, make([]byte, 64)...)) },
		"a flipped bit":      func(m []byte) []byte { m[len(m)-100] ^= 1; return m },
		"a huge header":      func(m []byte) []byte { binary.LittleEndian.PutUint32(m[8:], 1<<31); return resum(m) },
		"another header":     func(m []byte) []byte { m[14] ^= 1; return resum(m) },
		"a layer too many":   func(m []byte) []byte { m[len(m)-100] = 77; return resum(m) },
		"a block too many":   func(m []byte) []byte { return resum(replaceLast(m, 0, 255)) },
		"a block is missing": func(m []byte) []byte { return resum(replaceLast(m, 255, 0)) },
		"more than allocated": func(m []byte) []byte {
			copy(m[len(m)-4096-4:], bytes.Repeat([]byte{3}, 4096))
			return resum(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := handedWorld(t)
			d := damage(bytes.Clone(m))
			if bytes.Equal(d, m) {
				t.Fatal("nothing was damaged")
			}
			if w.openWith(d) {
				t.Error("the map was taken over")
			}
			w.wantByte(40*mib, 4096, 3)
			w.must(w.c.Close())
		})
	}
}

// replaceLast changes the last byte of a value.
func replaceLast(m []byte, from, to byte) []byte {
	m[bytes.LastIndexByte(m[:len(m)-4], from)] = to
	return m
}

// A map that cannot be handed over costs nothing but time.
func TestMapThatIsNotHandedOver(t *testing.T) {
	w, _ := newWorld(t, 4*mib)
	w.epoch(1)
	w.fill(0, 4096, 1)
	w.must(w.c.CloseFor(func(io.WriterTo) error { return io.ErrShortWrite }))
	if w.openWith(nil) || w.editMeta("", nil)["AnkoleMap"] != nil {
		t.Error("a map is said to exist")
	}
	w.wantByte(0, 4096, 1)
	w.must(w.c.Close())
}

// opHandOver passes the directory to the next process.
func (m *model) opHandOver(t *rapid.T) {
	m.epoch(uint64(1 + m.next))
	if !m.openWith(m.handOver()) {
		t.Fatal("the map was not taken over")
	}
}

// Nothing that comes as a map makes Open fail, or serve something else than the files.
func FuzzHandedMap(f *testing.F) {
	fs := memdisk.New()
	w := &world{fs: fs, dir: "/r", opts: testOptions()}
	if err := chain.Create(fs, w.dir, testSpec(mib), w.opts); err != nil {
		f.Fatal(err)
	}
	c, err := chain.Open(fs, w.dir, w.opts)
	if err != nil {
		f.Fatal(err)
	}
	if err := c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Self: "v-1"}); err != nil {
		f.Fatal(err)
	}
	if err := c.WriteHead(bytes.Repeat([]byte{7}, 8192), 4096); err != nil {
		f.Fatal(err)
	}
	var b bytes.Buffer
	if err := c.CloseFor(func(m io.WriterTo) error { _, err := m.WriteTo(&b); return err }); err != nil {
		f.Fatal(err)
	}
	image := fs.Crash(1)
	good := b.Bytes()
	for at := range slices.Values([]int{0, 7, 8, 12, 40, len(good) / 2, len(good) - 5}) {
		f.Add(at, []byte{1}, 0)
	}
	f.Add(0, []byte{}, 5)
	f.Fuzz(func(t *testing.T, at int, p []byte, cut int) {
		m := bytes.Clone(good)
		if at >= 0 && at < len(m) {
			copy(m[at:], p)
		}
		m = resum(m[:len(m)-max(0, min(cut, len(m)))])
		v := &world{t: t, fs: image.Crash(2), dir: "/r", opts: testOptions()}
		v.openWith(m) // compares it with the files
		v.wantByte(4096, 8192, 7)
		v.must(v.c.Close())
	})
}
