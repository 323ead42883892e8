package hostpath

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestResolve(t *testing.T) {
	mounts, err := New(map[string]string{
		"/host":                      "/srv/root",
		"/host/var/lib/longhorn/ssd": "/srv/ssd/",
		"/engine-binaries/":          "/srv/root/var/lib/longhorn/engine-binaries",
		"/dev/longhorn":              "/srv/dev",
	})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ pod, want string }{
		{"/host", "/srv/root"},
		{"/host/", "/srv/root"},
		{"/host/var/lib/longhorn", "/srv/root/var/lib/longhorn"},
		{"/host/var/lib/longhorn/ssd/replicas/a", "/srv/ssd/replicas/a"},
		{"/host/var/lib/longhorn/ssd2", "/srv/root/var/lib/longhorn/ssd2"},
		{"/hosts", "/hosts"},
		{"/engine-binaries/ei/longhorn", "/srv/root/var/lib/longhorn/engine-binaries/ei/longhorn"},
		{"/dev/longhorn/demo", "/srv/dev/demo"},
		{"/dev/longhorn/../null", "/dev/null"},
		{"/host/../etc//passwd", "/etc/passwd"},
		{"/etc/passwd", "/etc/passwd"},
		{"relative/../host", "relative/../host"},
		{"", ""},
	}
	for _, test := range tests {
		if got := mounts.Resolve(test.pod); got != test.want {
			t.Errorf("Resolve(%q) = %q, want %q", test.pod, got, test.want)
		}
	}
}

func TestRootMount(t *testing.T) {
	mounts, err := New(map[string]string{"/": "/srv/root", "/tmp": "/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	for pod, want := range map[string]string{"/": "/srv/root", "/a/b": "/srv/root/a/b", "/tmp/x": "/tmp/x"} {
		if got := mounts.Resolve(pod); got != want {
			t.Errorf("Resolve(%q) = %q, want %q", pod, got, want)
		}
	}
}

func TestWithoutMountsEveryPathMeansItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.String().Draw(t, "path")
		if got := (Mounts{}).Resolve(p); got != p {
			t.Fatalf("Resolve(%q) = %q", p, got)
		}
	})
}

func TestNoPathLeavesItsMount(t *testing.T) {
	mounts, err := New(map[string]string{"/host": "/srv/root"})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.StringMatching(`(/(\.\.|\.|host|x)){1,6}/?`).Draw(t, "path")
		got := mounts.Resolve(p)
		inside := got == "/srv/root" || strings.HasPrefix(got, "/srv/root/")
		// What the path means without any mount decides on which side it lies.
		clean := path.Clean(p)
		meant := clean == "/host" || strings.HasPrefix(clean, "/host/")
		if inside != meant || strings.Contains(got, "..") {
			t.Fatalf("Resolve(%q) = %q", p, got)
		}
	})
}

func TestParse(t *testing.T) {
	bad := map[string]string{
		`{`:                          "not a JSON object",
		`["/a"]`:                     "not a JSON object",
		`{"/a":1}`:                   "not a JSON object",
		`{"a":"/b"}`:                 "absolute",
		`{"/a":"b"}`:                 "absolute",
		`{"/a":""}`:                  "absolute",
		`{"/a":"/b","/a/":"/c"}`:     "given twice",
		`{"/a":"/b"} {"/c":"/d"}`:    "not a JSON object",
		`{"/a":"/b","/x/../a":"/c"}`: "given twice",
		"{\"/a\":\"/b\"}\n\x00":      "not a JSON object",
		strings.Repeat("[", 100_000): "not a JSON object",
	}
	for text, why := range bad {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), why) ||
			!strings.Contains(err.Error(), Variable) {
			t.Errorf("Parse(%.40q): error %v, want one with %s and %q", text, err, Variable, why)
		}
	}
	if m, err := Parse(""); err != nil || m.Text() != "" {
		t.Errorf("no text: %v, %v", m, err)
	}
	m, err := Parse(`{"/b/":"/y/","/a":"/x"}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.Text(), `{"/a":"/x","/b":"/y"}`; got != want {
		t.Errorf("text %s, want %s", got, want)
	}
}

// TestEnvironment runs this test again as a child, since the variable is read once per process.
func TestEnvironment(t *testing.T) {
	const childVariable = "HOSTPATH_TEST_CHILD"
	if os.Getenv(childVariable) != "" {
		if err := Check(); err != nil {
			t.Fatal(err)
		}
		if got := Resolve("/host/a"); got != "/srv/root/a" {
			t.Fatalf("Resolve: %q", got)
		}
		return
	}
	for text, ok := range map[string]bool{`{"/host":"/srv/root"}`: true, `{"/host":`: false, `{"/host":"/other"}`: false} {
		child := exec.Command(os.Args[0], "-test.run=^TestEnvironment$", "-test.count=1")
		child.Env = append(os.Environ(), childVariable+"=1", Variable+"="+text)
		out, err := child.CombinedOutput()
		if (err == nil) != ok {
			t.Errorf("with %s: %v\n%s", text, err, out)
		}
	}
}

// Text returns the form that Parse reads, empty for no mounts. Equal mounts have equal texts.
func (m Mounts) Text() string {
	if len(m.real) == 0 {
		return ""
	}
	text, err := json.Marshal(m.real)
	if err != nil {
		panic(err) // A map of strings always has a JSON form.
	}
	return string(text)
}

func FuzzParse(f *testing.F) {
	f.Add(`{"/host":"/srv/root"}`, "/host/a")
	f.Fuzz(func(t *testing.T, text, p string) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(m.Text())
		if err != nil {
			t.Fatalf("text %s of %s: %v", m.Text(), text, err)
		}
		if a, b := m.Resolve(p), again.Resolve(p); a != b {
			t.Errorf("%q resolves to %q, after a round trip to %q", p, a, b)
		}
	})
}
