// Package objecttest is for tests of backup stores: the conformance suite of back ends, and a back
// end in memory that fails on request.
package objecttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"ankole.storage/backup/object"
)

// Suite checks what package object promises of a back end. open returns an empty store.
func Suite(t *testing.T, open func(t *testing.T) object.Store) {
	for name, check := range map[string]func(*testing.T, object.Store){
		"get what was put": getPut, "absent": absent, "replace": replace, "delete": remove, "list": list, "after": after,
		"many in a folder": many, "names": names, "limit": limit, "readers see whole objects": whole,
		"canceled": canceled, "modified": modified, "stage": stage, "stage beside commits": stageBeside,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, open(t))
		})
	}
}

// limitBytes is more than any content here.
const limitBytes = 1 << 22

func put(t *testing.T, s object.Store, name, content string) {
	t.Helper()
	if err := s.Put(t.Context(), name, []byte(content)); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

func getPut(t *testing.T, s object.Store) {
	for _, content := range []string{"", "x", strings.Repeat("0123456789abcdef", 1<<17)} {
		put(t, s, "a/b c/d+e.blk", content)
		got, err := s.Get(t.Context(), "a/b c/d+e.blk", []byte("before"), limitBytes)
		if err != nil || string(got) != "before"+content {
			t.Errorf("got %d bytes, %v, want %d bytes after those that were there", len(got), err, len(content))
		}
		info, err := s.Stat(t.Context(), "a/b c/d+e.blk")
		if err != nil || info.SizeBytes != int64(len(content)) || info.Name != "a/b c/d+e.blk" {
			t.Errorf("%+v, %v", info, err)
		}
	}
}

func absent(t *testing.T, s object.Store) {
	put(t, s, "folder/x", "x")
	for _, name := range []string{"y", "folder", "folder/y", "folder/x/y", "other/y"} {
		if _, err := s.Get(t.Context(), name, nil, limitBytes); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("get %s: %v", name, err)
		}
		if _, err := s.Stat(t.Context(), name); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("stat %s: %v", name, err)
		}
		if err := s.Delete(t.Context(), name); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	if got, err := s.Get(t.Context(), "folder/x", nil, limitBytes); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

func replace(t *testing.T, s object.Store) {
	put(t, s, "a/x", "a long content")
	put(t, s, "a/x", "short")
	if got, err := s.Get(t.Context(), "a/x", nil, limitBytes); err != nil || string(got) != "short" {
		t.Errorf("%q, %v", got, err)
	}
}

func remove(t *testing.T, s object.Store) {
	put(t, s, "a/b/x", "x")
	put(t, s, "a/b/xy", "xy")
	if err := s.Delete(t.Context(), "a/b/x"); err != nil {
		t.Fatal(err)
	}
	expect(t, s, "", true, "a/b/xy")
	if err := s.Delete(t.Context(), "a/b/xy"); err != nil {
		t.Fatal(err)
	}
	expect(t, s, "", true)
	expect(t, s, "", false)
	put(t, s, "a/b/x", "again")
	expect(t, s, "", false, "a/")
}

// expect checks a listing.
func expect(t *testing.T, s object.Store, folder string, deep bool, want ...string) {
	t.Helper()
	var got []string
	for info, err := range s.List(t.Context(), folder, deep) {
		if err != nil {
			t.Fatalf("list %q: %v", folder, err)
		}
		got = append(got, info.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("list %q, deep %v: %q, want %q", folder, deep, got, want)
	}
}

func list(t *testing.T, s object.Store) {
	for _, name := range []string{"a/b/x", "a/b/y", "a/bc/z", "a/w", "v"} {
		put(t, s, name, name)
	}
	expect(t, s, "", true, "a/b/x", "a/b/y", "a/bc/z", "a/w", "v")
	expect(t, s, "", false, "a/", "v")
	expect(t, s, "a/", true, "a/b/x", "a/b/y", "a/bc/z", "a/w")
	expect(t, s, "a/", false, "a/b/", "a/bc/", "a/w")
	expect(t, s, "a/b/", false, "a/b/x", "a/b/y")
	expect(t, s, "nothing/", true)
	expect(t, s, "nothing/", false)
	for info, err := range s.List(t.Context(), "a/b/", true) {
		if err != nil || info.SizeBytes != int64(len(info.Name)) || info.Modified.IsZero() {
			t.Errorf("%+v, %v", info, err)
		}
		break // nobody has to hear a list to its end
	}
}

// after: names in the order of bytes, in which a slash comes after a dash.
func after(t *testing.T, s object.Store) {
	for _, name := range []string{"a/b/x", "a/b/y", "a/b-c/z", "a/bc/z", "a/w", "v"} {
		put(t, s, name, name)
	}
	for _, c := range []struct {
		folder, after string
		most          int
		want          []string
	}{
		{"", "", 10, []string{"a/b-c/z", "a/b/x", "a/b/y", "a/bc/z", "a/w", "v"}},
		{"a/", "", 2, []string{"a/b-c/z", "a/b/x"}},
		{"a/", "a/", 1, []string{"a/b-c/z"}},
		{"a/", "a/b/x", 2, []string{"a/b/y", "a/bc/z"}},
		{"a/", "a/b/w", 1, []string{"a/b/x"}},
		{"a/", "a/b0", 10, []string{"a/bc/z", "a/w"}},
		{"a/", "a/w", 10, nil},
		{"nothing/", "", 10, nil},
	} {
		found, err := s.After(t.Context(), c.folder, c.after, c.most)
		var got []string
		for _, i := range found {
			got = append(got, i.Name)
			if i.Modified.IsZero() || i.SizeBytes != int64(len(i.Name)) {
				t.Errorf("%+v", i)
			}
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d below %q after %q: %q, %v; want %q", c.most, c.folder, c.after, got, err, c.want)
		}
	}
}

// many: more than a back end may say in one answer.
func many(t *testing.T, s object.Store) {
	want := map[string]bool{}
	for i := range 1205 {
		name := fmt.Sprintf("blocks/%02x/%04d.blk", i%7, i)
		put(t, s, name, "x")
		want[name] = true
	}
	expect(t, s, "blocks/", true, slices.Collect(maps.Keys(want))...)
}

func names(t *testing.T, s object.Store) {
	for _, name := range []string{"", "/", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a/.", `a\b`, "a\x00"} {
		_, get := s.Get(t.Context(), name, nil, limitBytes)
		_, stat := s.Stat(t.Context(), name)
		for _, err := range []error{get, stat, s.Put(t.Context(), name, nil), s.Stage(t.Context(), name, nil),
			s.Delete(t.Context(), name)} {
			if !errors.Is(err, object.ErrName) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	for _, folder := range []string{"/", "a", "../", "a//"} {
		for _, err := range s.List(t.Context(), folder, true) {
			if !errors.Is(err, object.ErrName) {
				t.Errorf("list %q: %v", folder, err)
			}
		}
	}
}

func limit(t *testing.T, s object.Store) {
	put(t, s, "x", "0123456789")
	if got, err := s.Get(t.Context(), "x", nil, 10); err != nil || len(got) != 10 {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.Get(t.Context(), "x", nil, 9); !errors.Is(err, object.ErrTooLong) {
		t.Errorf("more than was asked for: %v", err)
	}
}

// whole: readers beside a writer get one content or another.
func whole(t *testing.T, s object.Store) {
	content := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 100_000+i) }
	put(t, s, "a/x", string(content(0)))
	var writers sync.WaitGroup
	writers.Go(func() {
		for i := range 50 {
			if err := s.Put(t.Context(), "a/x", content(i%5)); err != nil {
				t.Errorf("put: %v", err)
			}
		}
	})
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		got, err := s.Get(t.Context(), "a/x", nil, limitBytes)
		if err != nil || len(got) == 0 || !bytes.Equal(got, content(int(got[0]-'a'))) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		expect(t, s, "a/", true, "a/x")
	}
}

func canceled(t *testing.T, s object.Store) {
	put(t, s, "x", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, get := s.Get(ctx, "x", nil, limitBytes)
	_, stat := s.Stat(ctx, "x")
	_, after := s.After(ctx, "", "", 1)
	for _, err := range []error{get, stat, after, s.Put(ctx, "x", nil), s.Stage(ctx, "x", nil), s.Delete(ctx, "x")} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	for _, err := range s.List(ctx, "", true) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("list: %v", err)
		}
	}
	if got, err := s.Get(t.Context(), "x", nil, limitBytes); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

// modified: an object that is written again is not older than it was, and a list agrees with stat.
func modified(t *testing.T, s object.Store) {
	put(t, s, "a/x", "1")
	first, err := s.Stat(t.Context(), "a/x")
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "a/x", "2")
	second, err := s.Stat(t.Context(), "a/x")
	if err != nil || second.Modified.Before(first.Modified) || first.Modified.IsZero() {
		t.Errorf("%v after %v, %v", second.Modified, first.Modified, err)
	}
	for info, err := range s.List(t.Context(), "a/", false) {
		// A list may tell a fraction of a second that a description does not, or the reverse.
		if err != nil || info.Modified.Unix() != second.Modified.Unix() {
			t.Errorf("the list says %v, %v, stat %v", info.Modified, err, second.Modified)
		}
	}
}

// stage: what is staged is there when it is committed, and whole before.
func stage(t *testing.T, s object.Store) {
	put(t, s, "a/x", "old")
	for name, content := range map[string]string{"a/x": "new", "a/b/y": "y", "c/z": strings.Repeat("z", 1<<20), "w": ""} {
		data := []byte(content)
		if err := s.Stage(t.Context(), name, data); err != nil {
			t.Fatalf("stage %s: %v", name, err)
		}
		clear(data) // nobody keeps it
	}
	if got, err := s.Get(t.Context(), "a/x", nil, limitBytes); err != nil || string(got) != "old" && string(got) != "new" {
		t.Errorf("before the commit: %q, %v", got, err)
	}
	for range 2 { // there may be nothing to commit
		if err := s.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"a/x": "new", "a/b/y": "y", "c/z": strings.Repeat("z", 1<<20), "w": ""} {
			if got, err := s.Get(t.Context(), name, nil, limitBytes); err != nil || string(got) != content {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		}
	}
	expect(t, s, "", true, "a/x", "a/b/y", "c/z", "w")
}

// stageBeside: who commits makes durable what others have staged too, and folders come and go.
func stageBeside(t *testing.T, s object.Store) {
	var writers sync.WaitGroup
	var want []string
	for i := range 8 {
		for n := range 20 {
			want = append(want, fmt.Sprintf("a/%02x/%d", n, i))
		}
		writers.Go(func() {
			for n := range 20 {
				other := fmt.Sprintf("a/%02x/other-%d", n, i)
				for _, err := range []error{s.Stage(t.Context(), fmt.Sprintf("a/%02x/%d", n, i), []byte("staged")),
					s.Put(t.Context(), other, nil), s.Commit(t.Context()), s.Delete(t.Context(), other)} {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	writers.Wait()
	expect(t, s, "", true, want...)
}
