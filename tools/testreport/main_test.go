package main

import (
	"strings"
	"testing"
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
			want: []string{"why\n", "FAIL\ta", "FAILED: a TestX\n", "FAIL: 0 tests passed, 1 failed"},
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
			want: []string{"a.go:1: undefined\n", "FAILED: a\n"},
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
			r := newReport(&out, false)
			if err := r.read(strings.NewReader(tt.in)); err != nil {
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
