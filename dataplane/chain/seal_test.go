package chain_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
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

// sealedWorld is a directory with a snapshot that was closed, or whose process was killed.
func sealedWorld(t *testing.T, closed bool) *world {
	w, _ := newWorld(t, mib)
	w.fill(0, 8192, 1)
	w.snapshot("a")
	w.fill(4096, 4096, 2)
	w.must(w.c.Discard(0, 4096))
	w.must(errors.Join(w.c.CopyMeta(), w.c.Sync()))
	if closed {
		w.must(w.c.Close())
	} else {
		w.must(w.c.Abandon())
	}
	return w
}

// opens opens a directory; want is what the refusal says, "" for none.
func (w *world) opens(want string) {
	w.t.Helper()
	c, err := chain.Open(w.fs, w.dir, w.opts)
	if want != "" {
		wantErr(w.t, err, chain.ErrCorrupt)
		if err != nil && !strings.Contains(err.Error(), want) {
			w.t.Errorf("%v does not say %q", err, want)
		}
		return
	}
	w.must(err)
	w.must(c.Close())
}

// TestSeal: what the copy says of an image whose times or inode are others.
func TestSeal(t *testing.T) {
	number := func(e map[string]any, key string) int64 {
		n, _ := e[key].(json.Number).Int64()
		return n
	}
	more := func(image, key string, by int64) func(w *world) {
		return func(w *world) {
			w.editCopy(func(e map[string]any) {
				if e["Name"] == image {
					e[key] = number(e, key) + by
				}
			})
		}
	}
	set := func(image string, before, now int64) func(w *world) {
		return func(w *world) {
			w.editCopy(func(e map[string]any) {
				if e["Name"] == image {
					e["MTime"] = before
				}
			})
			w.must(w.mem().Utime("/r/"+image, now))
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
	for _, state := range []struct {
		name, image string
		closed      bool
	}{
		{"closed, head", "volume-head-001.img", true},
		{"closed, snapshot", "volume-snap-a.img", true},
		{"killed, snapshot", "volume-snap-a.img", false},
	} {
		image := state.image
		for name, c := range map[string]struct {
			do   func(w *world)
			want string
		}{
			"nothing": {func(*world) {}, ""},
			// fdatasync does not write the times to the disk.
			"times that a loss of power has taken": {all(more(image, "MTime", 1), more(image, "CTime", 1)), ""},
			"touched, as by chmod":                 {more(image, "CTime", -1), ""},
			"its own time set, in seconds":         {set(image, 5e9+123456789, 5e9), ""},
			"its own time set, in microseconds":    {set(image, 5e9+123456789, 5e9+123456000), ""},
			"another time set, in seconds":         {set(image, 5e9+123456789, 4e9), "was written to"},
			"written to within a second, time set": {set(image, 5e9+123456789, 5e9+100), "was written to"},
			"another name for a moment": {func(w *world) {
				w.must(w.fs.Link("/r/"+image, "/r/x"))
				w.must(w.fs.Remove("/r/x"))
			}, ""},
			"written to since":                 {more(image, "MTime", -1), "was written to"},
			"an older file with its own times": {all(more(image, "MTime", 1), more(image, "CTime", -1)), "was written to"},
			"copied by an earlier build":       {all(more(image, "CTime", -1), without("MTime")), ""},
			"another file":                     {more(image, "Inode", 1), "it is another file"},
			"the whole directory was copied": {func(w *world) {
				w.editCopy(func(e map[string]any) {
					for _, e := range []any{e, e["Whiteouts"]} {
						if e, ok := e.(map[string]any); ok {
							e["Inode"], e["CTime"], e["MTime"] = number(e, "Inode")+100, 1, 1
						}
					}
				})
			}, ""},
			"no copy": {func(w *world) { w.unseal(); w.image("volume-snap-x.img", 0) }, ""},
			"a snapshot that was not there": {func(w *world) {
				w.image("volume-snap-x.img", 0)
				w.put("volume-snap-x.img.meta", headMeta("volume-snap-a.img"))
			}, "it was not there"},
		} {
			t.Run(state.name+"/"+name, func(t *testing.T) {
				w := sealedWorld(t, state.closed)
				c.do(w)
				w.opens(c.want)
			})
		}
	}
}

// TestSealOfARunningDirectory: what the copy says after a kill of what had not come to its end, and
// of what it does not know.
func TestSealOfARunningDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *world)
		want string
	}{
		"the head is written to": {func(w *world) {
			f, err := w.fs.Open("/r/volume-head-001.img", 0)
			w.must(err)
			_, err = f.WriteAt(make([]byte, 4096), 8192)
			w.must(errors.Join(err, f.Sync(), f.Close()))
		}, ""},
		"the head is another file": {func(w *world) {
			w.must(w.fs.Rename("/r/volume-head-001.img", "/r/x"))
			w.must(w.fs.Rename("/r/volume-snap-a.img", "/r/volume-head-001.img"))
			w.must(w.fs.Rename("/r/x", "/r/volume-snap-a.img"))
		}, "it is another file"},
		"the head's whiteouts are another file": {func(w *world) {
			name := w.whiteoutFiles()[0]
			data, err := w.fs.ReadFile(name, mib)
			w.must(err)
			w.must(w.fs.WriteFileAtomic(name, data))
		}, "it is another file"},
		"a rotation that was not committed": {func(w *world) {
			w.must(w.fs.Link("/r/volume-head-001.img", "/r/volume-snap-x.img"))
			w.put("volume-snap-x.img.meta", headMeta("volume-snap-a.img"))
		}, ""},
		"the metadata of one": {func(w *world) { w.put("volume-snap-x.img.meta", headMeta("volume-snap-a.img")) }, ""},
		"volume.meta is changed": {func(w *world) {
			text, err := w.fs.ReadFile("/r/volume.meta", mib)
			w.must(err)
			w.put("volume.meta", strings.Replace(string(text), `"Dirty":true`, `"Dirty":false`, 1))
		}, "volume.meta was changed since its process ended: Dirty was true and is false"},
		"an earlier build or another engine has opened it": {func(w *world) {
			text, err := w.fs.ReadFile("/r/volume.meta", mib)
			w.must(err)
			w.put("volume.meta", strings.Replace(string(text), `"AnkoleSeal"`, `"Other"`, 1))
			text, err = w.fs.ReadFile("/r/volume-snap-a.img.meta", mib)
			w.must(err)
			w.put("volume-snap-a.img.meta", strings.Replace(string(text), `"Removed":false`, `"Removed":true`, 1))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := sealedWorld(t, false)
			c.do(w)
			w.opens(c.want)
		})
	}
}

// What an operation changes is marked before, so that a kill in the middle refuses nothing. What it
// does not change is still known, and everything when the directory was closed.
func TestMarkedFiles(t *testing.T) {
	killed, closed := (*chain.Chain).Abandon, (*chain.Chain).Close
	for name, c := range map[string]struct {
		// copied: there is a copy between two pieces of the operation.
		copied  bool
		end     func(c *chain.Chain) error
		changed string
		want    string
	}{
		"nothing":                       {false, killed, "", ""},
		"another file":                  {false, killed, "volume-snap-c.img.meta", "Removed was false and is true"},
		"what is merged":                {false, killed, "volume-snap-b.img.meta", ""},
		"the image, after a copy":       {true, killed, "volume-snap-a.img", ""},
		"what is merged, after a close": {false, closed, "volume-snap-b.img.meta", "Removed was false and is true"},
		"the image, after a close":      {false, closed, "volume-snap-a.img", "it was written to"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newWorld(t, mib)
			for i, name := range []string{"a", "b", "c"} {
				w.fill(0, 8192, byte(i+1))
				w.snapshot(name)
			}
			w.must(w.c.MarkRemoved("a"))
			w.must(w.c.CopyMeta())
			p, err := w.c.NewPurge()
			w.must(err)
			step, _ := p.Next()
			w.must(p.Note(w.c.Sidecars, &step))
			_, err = p.Work(&step, w.c.DurableWhiteouts(0)) // a has the blocks of b, and takes its place later
			w.must(err)
			if c.copied {
				w.must(w.c.CopyMeta())
			}
			w.must(c.end(w.c))
			switch {
			case strings.HasSuffix(c.changed, ".meta"):
				text, err := w.fs.ReadFile("/r/"+c.changed, mib)
				w.must(err)
				w.put(c.changed, strings.Replace(string(text), `"Removed":false`, `"Removed":true`, 1))
			case c.changed != "":
				f, err := w.fs.Open("/r/"+c.changed, 0)
				w.must(err)
				_, err = f.WriteAt(make([]byte, 4096), 0)
				w.must(errors.Join(err, f.Close()))
			}
			w.opens(c.want)
		})
	}
}

// Without room for another copy there is none, rather than one that is wrong.
func TestMarkWithoutRoom(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, 8192, 1)
	w.snapshot("a")
	w.must(w.c.CopyMeta())
	fs.SetCapacity(fs.Used())
	w.must(w.c.MarkRemoved("a"))
	w.must(w.c.Abandon())
	w.openOnly()
	list, err := w.c.Snapshots()
	w.must(err)
	if len(list) != 2 || !list[0].Removed {
		t.Errorf("%+v", list)
	}
	w.must(w.c.Close())
}

// replacing is a file system on which a process takes a snapshot while somebody else looks.
type replacing struct {
	disk.Meta
	c *chain.Chain
}

func (r *replacing) ReadFile(path string, limit int64) ([]byte, error) {
	data, err := r.Meta.ReadFile(path, limit)
	if c := r.c; c != nil && strings.HasSuffix(path, "/volume.meta") {
		r.c = nil
		err = errors.Join(err, c.Snapshot("b", true, "", nil))
	}
	return data, err
}

// Whoever looks at a directory that a process has is not told that somebody has changed it.
func TestSealIsReadBesideAProcess(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, 4096, 1)
	w.snapshot("a")
	w.must(w.c.CopyMeta())
	s, err := chain.ReadSurvey(&replacing{w.fs, w.c}, w.dir)
	w.must(err)
	if s.Changed != nil {
		t.Error(s.Changed)
	}
	w.must(w.c.Close())
}
