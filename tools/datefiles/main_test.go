package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDate: the time is that of the content, whoever has written it and when.
func TestDate(t *testing.T) {
	of := func(content string) time.Time {
		dir := t.TempDir()
		file := filepath.Join(dir, "a b", "c")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("nowhere", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		if err := date(dir, strings.NewReader("a b/c\x00link\x00absent/d\x00")); err != nil {
			t.Fatal(err)
		}
		for _, folder := range []string{dir, filepath.Dir(file)} {
			if info, err := os.Stat(folder); err != nil || info.ModTime().Unix() != 0 {
				t.Errorf("%s: %v, %v", folder, info.ModTime(), err)
			}
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	first, again, other := of("one"), of("one"), of("two")
	if !first.Equal(again) || first.Equal(other) || first.After(time.Unix(1<<28, 0)) {
		t.Errorf("%v, %v; other content: %v", first, again, other)
	}
}
