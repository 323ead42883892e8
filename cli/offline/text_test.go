package offline

import (
	"strings"
	"testing"

	"ankole.storage/dataplane/offline"
)

// TestWords: what a layer is, and what a comparison has found, in a few words.
func TestWords(t *testing.T) {
	for want, l := range map[string]offline.Layer{
		"head":                          {Name: offline.Head, Live: true},
		"user, checksum":                {Name: "a", UserCreated: true, Live: true, Checksum: true},
		"system, removed, other branch": {Name: "b", Removed: true},
	} {
		if got := layerKind(l); got != want {
			t.Errorf("%+v is %q, want %q", l, got, want)
		}
	}
	for want, c := range map[string]offline.Comparison{
		"only in the second":                {In: offline.InSecond},
		"equal":                             {In: offline.InBoth, Equal: true},
		"sizes differ: 1Ki, 2Ki":            {In: offline.InBoth, SizeBytes: 1 << 10, OtherSizeBytes: 2 << 10},
		"differs, in unflushed writes only": {In: offline.InBoth, Explained: true},
		"differs":                           {In: offline.InBoth},
	} {
		if got := comparisonText(c); got != want {
			t.Errorf("%+v is %q, want %q", c, got, want)
		}
	}
}

// TestLinesAreBroken: at blanks, by the columns that characters take; a longer word stands alone.
func TestLinesAreBroken(t *testing.T) {
	got := wrap("one two  three 日本語 incomprehensible x", "  ", 10)
	if got != "one two\n  three\n  日本語\n  incomprehensible\n  x\n" {
		t.Errorf("%q", got)
	}
	if got := wrap(strings.Repeat("a ", 5), "", 100); got != "a a a a a\n" {
		t.Errorf("%q", got)
	}
}
