package chain_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
)

// editCopy changes the entries of ankole.meta.
func (w *world) editCopy(edit func(e map[string]any)) {
	w.t.Helper()
	text, err := w.fs.ReadFile(w.dir+"/ankole.meta", mib)
	w.must(err)
	_, body, _ := strings.Cut(string(text), "\n")
	var list []map[string]any
	dec := json.NewDecoder(strings.NewReader(body))
	dec.UseNumber()
	w.must(dec.Decode(&list))
	for _, e := range list {
		edit(e)
	}
	p, err := json.Marshal(list)
	w.must(err)
	sum := sha256.Sum256(p)
	w.put("ankole.meta", hex.EncodeToString(sum[:])+"\n"+string(p))
}

// TestSeal: what the seal says of files that differ in time or inode only.
func TestSeal(t *testing.T) {
	number := func(e map[string]any, key string) int64 {
		n, _ := e[key].(json.Number).Int64()
		return n
	}
	more := func(key string, by int64) func(w *world) {
		return func(w *world) {
			w.editCopy(func(e map[string]any) {
				if e["Name"] == "volume-head-001.img" {
					e[key] = number(e, key) + by
				}
			})
		}
	}
	without := func(key string) func(w *world) {
		return func(w *world) { w.editCopy(func(e map[string]any) { delete(e, key) }) }
	}
	all := func(edits ...func(w *world)) func(w *world) {
		return func(w *world) {
			for _, edit := range edits {
				edit(w)
			}
		}
	}
	for name, c := range map[string]struct {
		do   func(w *world)
		want string
	}{
		"nothing": {func(*world) {}, ""},
		// fdatasync does not write the times to the disk.
		"times that a loss of power has taken": {all(more("MTime", 1), more("CTime", 1)), ""},
		"touched, as by chmod":                 {more("CTime", -1), ""},
		"another name for a moment": {func(w *world) {
			w.must(w.fs.Link("/r/volume-head-001.img", "/r/x"))
			w.must(w.fs.Remove("/r/x"))
		}, ""},
		"written to since":                 {more("MTime", -1), "was written to"},
		"an older file with its own times": {all(more("MTime", 1), more("CTime", -1)), "was written to"},
		"sealed by an earlier build":       {all(more("CTime", -1), without("MTime")), ""},
		"another file":                     {more("Inode", 1), "it is another file"},
		"the whole directory was copied": {func(w *world) {
			w.editCopy(func(e map[string]any) { e["Inode"], e["CTime"], e["MTime"] = number(e, "Inode")+100, 1, 1 })
		}, ""},
		"no copy": {func(w *world) { w.unseal(); w.image("volume-snap-x.img", 0) }, ""},
		"a snapshot that was not there": {func(w *world) { w.image("volume-snap-x.img", 0) },
			"volume-snap-x.img was changed since the directory was closed: it was not there"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newWorld(t, mib)
			w.fill(0, 8192, 1)
			w.snapshot("a")
			w.fill(4096, 4096, 2)
			w.must(w.c.Close())
			c.do(w)
			got, err := chain.Open(w.fs, w.dir, w.opts)
			if c.want != "" {
				wantErr(t, err, chain.ErrCorrupt)
				if err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v does not say %q", err, c.want)
				}
				return
			}
			w.must(err)
			w.must(got.Close())
		})
	}
}
