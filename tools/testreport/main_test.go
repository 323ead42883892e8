package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReport(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		ok       bool
		want     []string
		not      []string
	}{
		{
			name: "passed tests say nothing",
			in: `{"Action":"output","Package":"a","Test":"TestX","Output":"noise\n"}
{"Action":"pass","Package":"a","Test":"TestX","Elapsed":0.1}
{"Action":"pass","Package":"a","Elapsed":0.2}`,
			ok:   true,
			want: []string{"ok  \ta\t0.200s\t1 tests\n", "ok: 1 tests passed, 0 failed, 0 skipped"},
			not:  []string{"noise"},
		},
		{
			name: "results of an earlier run are told apart",
			in: `{"Action":"pass","Package":"a","Test":"TestX","Elapsed":0.1}
{"Action":"output","Package":"a","Output":"ok  \ta\t(cached)\n"}
{"Action":"pass","Package":"a","Elapsed":0.2}`,
			ok:   true,
			want: []string{"ok  \ta\t(cached)\t1 tests\n", "ok: 1 tests passed, 0 failed, 0 skipped"},
		},
		{
			name: "but for their sum",
			in: `{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:1: sum: 20 rounds\n"}
{"Action":"pass","Package":"a","Test":"TestX","Elapsed":0.1}
{"Action":"pass","Package":"a","Elapsed":0.2}`,
			ok:   true,
			want: []string{"\t20 rounds\n", "ok  \ta"},
		},
		{
			name: "a failed test is shown whole and named at the end",
			in: `{"Action":"output","Package":"a","Test":"TestX","Output":"why\n"}
{"Action":"fail","Package":"a","Test":"TestX"}
{"Action":"fail","Package":"a"}`,
			want: []string{
				"why\n",
				"FAIL\ta",
				"FAILED: a TestX\n  | why\n  again: go test -count=1 -run '^TestX$' a\n",
				"FAIL: 0 tests passed, 1 failed",
			},
		},
		{
			name: "a test leaves what failed to its subtest",
			in: `{"Action":"output","Package":"a","Test":"TestX/y","Output":"why\n"}
{"Action":"fail","Package":"a","Test":"TestX/y"}
{"Action":"output","Package":"a","Test":"TestX","Output":"the state of all\n"}
{"Action":"fail","Package":"a","Test":"TestX"}
{"Action":"fail","Package":"a"}`,
			want: []string{"the state of all\n", "FAILED: a TestX/y\n  | why\n  again: ", "FAILED: a TestX\nFAIL: "},
			not:  []string{"| the state"},
		},
		{
			name: "of a long output the last lines repeat its two ends, message by message",
			in: `{"Action":"output","Package":"a","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:1: m1\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"        more\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"        more\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"        cut\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:2: m2\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:3: m3\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:4: m4\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"        what of it\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:5: m5\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:6: m6\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:7: m7\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:8: m8\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"--- FAIL: TestX (0.00s)\n"}
{"Action":"fail","Package":"a","Test":"TestX"}
{"Action":"fail","Package":"a"}`,
			want: []string{"FAILED: a TestX\n  | x_test.go:1: m1\n  | more\n  | more\n  | x_test.go:2: m2\n" +
				"  | x_test.go:4: m4\n  | what of it\n  | x_test.go:5: m5\n  | x_test.go:6: m6\n" +
				"  | x_test.go:7: m7\n  | x_test.go:8: m8\n  again: "},
		},
		{
			name: "a skipped test gives its reason",
			in: `{"Action":"output","Package":"a","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:1: needs root\n"}
{"Action":"skip","Package":"a","Test":"TestX"}
{"Action":"pass","Package":"a"}`,
			ok:   true,
			want: []string{"skipped: a TestX: x_test.go:1: needs root\n"},
		},
		{
			name: "a package that does not compile",
			in: `{"Action":"build-output","ImportPath":"a [a.test]","Output":"a.go:1: undefined\n"}
{"Action":"build-fail","ImportPath":"a [a.test]"}
{"Action":"fail","Package":"a","FailedBuild":"a [a.test]"}`,
			want: []string{"a.go:1: undefined\n", "FAILED: a\n  again: go test -count=1 a\n"},
		},
		{
			name: "a package that never ended",
			in:   `{"Action":"output","Package":"a","Test":"TestX","Output":"stuck\n"}`,
			want: []string{"stuck\n", "FAILED: a did not end\n"},
		},
		{name: "no test at all", in: "", want: []string{"FAIL: 0 tests passed"}},
		{name: "words of go itself", in: "go: no module\n", want: []string{"go: no module\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			r := newReport(&out, options{})
			if err := r.follow(strings.NewReader(tt.in), nil); err != nil {
				t.Fatal(err)
			}
			if ok := r.finish(); ok != tt.ok {
				t.Errorf("ok = %v, want %v", ok, tt.ok)
			}
			for _, w := range tt.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("output lacks %q:\n%s", w, out.String())
				}
			}
			for _, w := range tt.not {
				if strings.Contains(out.String(), w) {
					t.Errorf("output has %q:\n%s", w, out.String())
				}
			}
		})
	}
}

// What a test has found is shown before it ends.
func TestFoundAtOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	r := newReport(&out, options{})
	r.line([]byte(`{"Action":"run","Package":"sim","Test":"TestSeeds"}`), time.Time{})
	r.line(
		[]byte(
			`{"Action":"output","Package":"sim","Test":"TestSeeds","Output":"    sim_test.go:1: found: seed 7: lost\n"}`,
		),
		time.Time{},
	)
	r.line(
		[]byte(`{"Action":"output","Package":"sim","Test":"TestSeeds","Output":"progress: 1000 seeds\n"}`),
		time.Time{},
	)
	if !strings.Contains(out.String(), "\tseed 7: lost\n     \t1000 seeds\n") {
		t.Errorf("nothing is said of it yet: %q", out.String())
	}
}

func TestRunning(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	r := running{}
	for _, e := range []struct {
		at           int
		action, test string
	}{
		{0, "run", "TestA"}, {1, "run", "TestA/one"}, {1, "pause", "TestA/one"}, {2, "run", "TestA/two"},
		{3, "run", "TestB"}, {4, "run", "TestC"}, {5, "pass", "TestC"}, {6, "run", "TestD"}, {6, "skip", "TestD"},
		{10, "cont", "TestA/one"}, {11, "run", "TestA/twofold"},
	} {
		r.take(event{Action: e.action, Package: "p", Test: e.test}, at(e.at))
	}
	if got, want := r.String(at(33)), "p TestA/two (31 s), p TestB (30 s), p TestA/one (23 s), p TestA/twofold (22 s)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for i := range 5 {
		r.take(event{Action: "run", Package: "q", Test: fmt.Sprintf("Test%d", i)}, at(40+i))
	}
	if got, want := r.String(at(50)), "q Test1 (9 s), and 3 more"; !strings.HasSuffix(got, want) {
		t.Errorf("%q does not end with %q", got, want)
	}
}

// The tests that run are named while nothing comes.
func TestRunningIsNamed(t *testing.T) {
	t.Parallel()
	in, feed := io.Pipe()
	var out strings.Builder
	r := newReport(&out, options{})
	ticks, done := make(chan time.Time), make(chan error)
	go func() { done <- r.follow(in, ticks) }()
	for _, line := range []string{
		`{"Action":"run","Package":"a","Test":"TestX"}`,
		`{"Action":"output","Package":"a","Test":"TestX","Output":"x\n"}`,
		"go: words",
	} {
		if _, err := fmt.Fprintln(feed, line); err != nil {
			t.Fatal(err)
		}
	}
	ticks <- time.Now()
	feed.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "running: a TestX (") {
		t.Errorf("output %q", out.String())
	}
}

func TestAgain(t *testing.T) {
	t.Parallel()
	r := newReport(
		io.Discard,
		options{
			module:      "standalone",
			args:        strings.Fields("-count=1 -race -run TestX ./test/powerloss -deep -trials 150"),
			environment: []string{"SEED=7", "MUTATIONS=", "HOME=/root", "FAULT=engine killed"},
		},
	)
	got := r.again("ankole.storage/test/powerloss", "TestX/it's")
	want := `FAULT='engine killed' SEED=7 go -C standalone test -count=1 -race -run '^TestX$/^it'\''s$' ankole.storage/test/powerloss -deep -trials 150`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestSkippedAreListed(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "skipped")
	for _, line := range []string{
		"a TestX: x_test.go:7: no fio", "a TestX/y: y_test.go:8: needs root: mount", "b TestY: needs root: mount",
	} {
		if err := appendLines(name, []string{line}); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := printSkipped(&out, name); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "     2 needs root: mount\n         a TestX/y, b TestY\n     1 no fio\n         a TestX\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
