package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ankole.storage/rest/resource"
	"ankole.storage/test/lack"
)

func TestFormats(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1Ki", 1 << 30: "1Gi", 1536 << 20: "1.5Gi",
		1<<63 - 1: "8Ei", -2048: "-2Ki"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
	now := time.Date(2026, 5, 10, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{"2026-05-03 09:57:48 +0000 UTC": "6d", "2026-05-09T23:59:50Z": "10s",
		"2026-05-09T23:00:00Z": "60m",
		"2026-05-09T12:00:00Z": "12h", "2027-01-01T00:00:00Z": "0s", "soon": "soon"} {
		if got := age(text, now); got != want {
			t.Errorf("age(%s) = %s, want %s", text, got, want)
		}
	}
}

// Text from the cluster cannot drive the terminal or break a table.
func TestTableEscapesControlCharacters(t *testing.T) {
	var b bytes.Buffer
	rows := []settingRow{{Name: "a", Value: "x\x1b[2Jy\nz"},
		{Name: "日本", Value: "wide", Definition: resource.SettingDefinition{Category: "c"}}}
	if err := table(&b, settingKind.columns, rows, false); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b") || strings.Count(b.String(), "\n") != 3 {
		t.Errorf("%q", b.String())
	}
	if !strings.Contains(b.String(), "日本   wide") {
		t.Errorf("wide characters are not aligned:\n%s", b.String())
	}
}

func TestStandaloneIsLookedForBesideTheProgram(t *testing.T) {
	if _, err := os.Stat(standaloneBeside(t)); err == nil {
		lack.Unfit(t, "a standalone program lies beside the test binary")
	}
	if r := runArgs(t.Context(), "standalone", "--dir", "/x"); r.status != 1 ||
		!strings.Contains(r.err, "build it with: make build") {
		t.Errorf("%+v", r)
	}
}

func standaloneBeside(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(filepath.Dir(self), standaloneProgram)
}
