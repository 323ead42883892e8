package logs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestSearch(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*maxLine)
	tests := []struct {
		name, log string
		want      []int // lines
	}{
		{"nothing", "", nil},
		{"a usual log", "level=INFO msg=\"engine serves\"\nlevel=ERROR msg=\"replica dropped\"\n", nil},
		{"words of a panic that was none", "no need to panic\nfatal errors are logged\nrestarts=0\n", nil},
		{"a panic", "hello\npanic: runtime error: index out of range\n\ngoroutine 1 [running]:\n", []int{2}},
		{"a panic behind a prefix", "2026/01/02 http: panic serving 127.0.0.1: boom\nx: panic: boom\n", []int{2}},
		{"a panic while another panics", "panic: one [recovered]\n\tpanic: two\n", []int{1}},
		{"a fatal error", "fatal error: all goroutines are asleep - deadlock!\n", []int{1}},
		{"an address", "unexpected fault address 0xdead\n", []int{1}},
		{"a data race", "==================\nWARNING: DATA RACE\nRead at 0x00c\n", []int{2}},
		{"a panic that Kubernetes has caught", "E1 runtime.go:1] Observed a panic: boom\n", []int{1}},
		{"a signal", "SIGSEGV: segmentation violation\n", []int{1}},
		{"a container started", "level=INFO msg=\"container started\" container=a pid=7 restarts=0\n", nil},
		{"a right is missing", `msg=failed err="pods is forbidden: User \"system:serviceaccount:longhorn-system:longhorn-csi\" cannot list"` + "\n",
			[]int{1}},
		{"a user has no right", `err="pods is forbidden: User \"system:serviceaccount:longhorn-system:viewer\" cannot list"` + "\n", nil},
		{"a container restarted", "level=INFO msg=\"container started\" container=a pid=7 restarts=10\n", []int{1}},
		{
			"restarts do not hide each other",
			strings.Repeat("msg=\"container started\" restarts=1\n", 3),
			[]int{1, 2, 3},
		},
		{"a second panic later", "panic: a\n" + strings.Repeat("\n", after) + "panic: b\n", []int{1, after + 2}},
		{"no line break at the end", "panic: a", []int{1}},
		{"long lines", long + "\n" + long, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			faults, err := Search("a.log", strings.NewReader(tt.log))
			if err != nil {
				t.Fatal(err)
			}
			var lines []int
			for _, f := range faults {
				lines = append(lines, f.Line)
			}
			if fmt.Sprint(lines) != fmt.Sprint(tt.want) {
				t.Errorf("faults in lines %v, want %v: %v", lines, tt.want, faults)
			}
		})
	}
}

// childVariable makes this test binary a process that dies of something.
const childVariable = "ANKOLE_TEST_DIES"

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "panic":
		panic("of a test")
	case "stack":
		debug.SetMaxStack(1 << 16)
		fmt.Fprintln(os.Stderr, deep(0))
	}
	os.Exit(m.Run())
}

// deep needs more stack than there is.
func deep(n int) int {
	if n < 0 {
		return 0 // never: n grows
	}
	return n + deep(n+1)
}

// What the Go runtime of now writes is found, not only what this package thinks that it writes.
func TestRealDeaths(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"panic", "stack"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "child.log")
			f, err := os.Create(log)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), childVariable+"="+how)
			c.Stderr = f
			if err := c.Run(); err == nil {
				t.Fatal("it lives")
			}
			var r recorder
			if (&Watch{}).Check(&r, log); len(r.said) != 1 {
				t.Errorf("found %q", r.said)
			}
		})
	}
}

// recorder notes what a test would have failed with.
type recorder struct{ said []string }

func (*recorder) Helper()      {}
func (*recorder) Name() string { return "TestRecorder" }

func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	write("a/engine.log", "panic: the engine\n\nmain.go:7\n")
	write("a/data.img", "panic: what a user stored\n")
	out := write("output", "fatal error: out of memory\n")
	write("many/x.log", strings.Repeat("msg=\"container started\" container=m restarts=1\n", maxFaults+2))
	tests := []struct {
		name   string
		permit string
		paths  []string
		want   []string
	}{
		{
			"below a folder only logs",
			"",
			[]string{filepath.Join(dir, "a")},
			[]string{"engine.log:1: panic: the engine"},
		},
		{"a file by its name", "", []string{out}, []string{"out of memory"}},
		{"announced", "the engine(?s:.*)main.go", []string{filepath.Join(dir, "a")}, nil},
		{"another one announced", "the replica", []string{filepath.Join(dir, "a")}, []string{"the engine"}},
		{"not there", "", []string{filepath.Join(dir, "none")}, nil},
		{
			"many",
			"",
			[]string{filepath.Join(dir, "many")},
			[]string{":1:", ":2:", ":3:", ":4:", ":5:", "and 2 faults more"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var w Watch
			if tt.permit != "" {
				w.Permit(tt.permit)
			}
			var r recorder
			if w.Check(&r, tt.paths...); len(r.said) != len(tt.want) {
				t.Fatalf("said %q, want %q", r.said, tt.want)
			}
			for i, want := range tt.want {
				if !strings.Contains(r.said[i], want) {
					t.Errorf("said %q, want %q", r.said[i], want)
				}
			}
		})
	}
}
