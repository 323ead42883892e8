package output

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFormats(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1Ki", 1 << 30: "1Gi", 1536 << 20: "1.5Gi",
		1<<63 - 1: "8Ei", -2048: "-2Ki"} {
		if got := Size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
	now := time.Date(2026, 5, 10, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{"2026-05-03 09:57:48 +0000 UTC": "6d", "2026-05-09T23:59:50Z": "10s",
		"2026-05-09T23:00:00Z": "60m",
		"2026-05-09T12:00:00Z": "12h", "2027-01-01T00:00:00Z": "0s", "soon": "soon"} {
		if got := Age(text, now); got != want {
			t.Errorf("age(%s) = %s, want %s", text, got, want)
		}
	}
}

// thing is what the tests of this file list.
type thing struct{ name, size, state string }

var thingKind = Kind[thing]{Name: "thing", Id: func(t thing) string { return t.name }, None: "no things",
	Columns: []Column[thing]{
		{Header: "NAME", Value: func(t thing) string { return t.name }},
		{Header: "SIZE", Right: true, Value: func(t thing) string { return SizeText(t.size) },
			Number: func(t thing) float64 { return BytesIn(t.size) }},
		{Header: "STATE", Value: func(t thing) string { return t.state }}}}

// Text from the cluster cannot drive the terminal or break a table.
func TestTableEscapesControlCharacters(t *testing.T) {
	var b bytes.Buffer
	rows := []thing{{"a", "7", "x\x1b[2Jy\nz"}, {"日本", "12", "wide"}}
	if err := Write(&b, thingKind.Columns, rows, false); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b") || strings.Count(b.String(), "\n") != 3 {
		t.Errorf("%q", b.String())
	}
	if !strings.Contains(b.String(), "日本     12   wide") {
		t.Errorf("wide characters are not aligned:\n%s", b.String())
	}
}

// TestSorting: by numbers where the text has lost them, by runs of digits in names, several
// columns.
func TestSorting(t *testing.T) {
	rows := []thing{{"v-10", "1610612737", "attached"}, {"v-2", "1610612736", "detached"}, {"v-1", "900", "attached"}}
	for by, want := range map[string]string{"name": "v-1 v-2 v-10", "-name": "v-10 v-2 v-1", "size": "v-1 v-2 v-10",
		"state,-name": "v-10 v-1 v-2", "-STATE,name": "v-2 v-1 v-10", "": "v-10 v-2 v-1"} {
		s := &Selection{}
		if by != "" {
			s.sort = strings.Split(by, ",")
		}
		got, err := Selected(thingKind, rows, s)
		var names []string
		for _, r := range got {
			names = append(names, r.name)
		}
		if names := strings.Join(names, " "); err != nil || names != want {
			t.Errorf("by %q: %s, %v; want %s", by, names, err, want)
		}
	}
	for _, c := range []struct {
		x, y string
		want int
	}{{"a", "b", -1}, {"a2", "a10", -1}, {"a", "a", 0}, {"a1", "a", 1}, {"01", "1", -1},
		{"99999999999999999999", "99999999999999999998", 1}} {
		if got := naturally(c.x, c.y); got != c.want || naturally(c.y, c.x) != -c.want {
			t.Errorf("%s to %s: %d, want %d", c.x, c.y, got, c.want)
		}
	}
}

// TestProgressWithoutATerminal: a log has one line for a change, not more than one in printEvery.
func TestProgressWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := NewLine(&b, false)
		defer p.Stop()
		p.Set(UnknownPercent, "begun")
		p.Set(10, "in the same second")
		<-time.After(printEvery)
		p.Set(20, "%d of %d", 2, 10)
		<-time.After(printEvery)
		p.Set(20, "%d of %d", 2, 10)
		if got := b.String(); got != "begun\n[ 20%] 2 of 10\n" {
			t.Errorf("%q", got)
		}
		if line := p.line(); line != "[██████░░░░░░░░░░░░░░░░░░░░░░░░]  20% 2 of 10 (2s)" {
			t.Error(line)
		}
		quick := NewSlowLine(&b, false)
		b.Reset()
		quick.Set(50, "over before anybody waits")
		if b.Len() > 0 {
			t.Errorf("%q", b.String())
		}
	})
}

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"1", "10Gi", "10GiB", "1.5Gi", "-1", "", "9223372036854775807", "8Ei", " 4 Ki "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseBytes(text)
		if err != nil {
			return
		}
		if n <= 0 {
			t.Errorf("%q is %d bytes", text, n)
		}
		if text := Size(n); !strings.Contains(text, ".") && !strings.HasSuffix(text, "Ei") && !strings.HasSuffix(text, "Pi") {
			if again, err := ParseBytes(text); err != nil || again != n && Size(again) != text {
				t.Errorf("%d written as %s reads %d, %v", n, text, again, err)
			}
		}
	})
}
