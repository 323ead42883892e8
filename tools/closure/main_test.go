package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository makes one with a module of three packages, of which top imports mid, and mid's test
// imports low.
func repository(t *testing.T) (root string, git func(args ...string) string) {
	t.Helper()
	root = t.TempDir()
	git = func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		c.Dir = root
		c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for name, text := range map[string]string{
		"go.mod":              "module example.org/m\n\ngo 1.24\n",
		"top/top.go":          "package top\n\nimport _ \"example.org/m/mid\"\n",
		"mid/mid.go":          "package mid\n",
		"mid/mid_test.go":     "package mid\n\nimport _ \"example.org/m/low\"\n",
		"mid/testdata/x.txt":  "x\n",
		"mid/inner/inner.go":  "package inner\n",
		"low/low.go":          "package low\n",
		"deploy/objects.yaml": "a: b\n",
		"words/page.md":       "words\n",
	} {
		write(t, root, name, text)
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	return root, git
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	p := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		change   string // a file that is written
		packages []string
		folders  []string
		want     string // "" for unchanged
	}{
		{"nothing", "", []string{"./top"}, nil, ""},
		{"the package", "top/top.go", []string{"./top"}, nil, "top/top.go"},
		{"a new file of it", "top/new.go", []string{"./top"}, nil, "top/new.go"},
		{"what it imports", "mid/mid.go", []string{"./top"}, nil, "mid/mid.go"},
		{"what its test imports", "low/low.go", []string{"./mid"}, nil, "low/low.go"},
		{"what the test of an import imports", "low/low.go", []string{"./top"}, nil, ""},
		{"data of its tests", "mid/testdata/x.txt", []string{"./mid"}, nil, "mid/testdata/x.txt"},
		{"a package below it", "mid/inner/inner.go", []string{"./mid"}, nil, ""},
		{"a package that imports it", "top/top.go", []string{"./mid"}, nil, ""},
		{"a page", "words/page.md", []string{"./..."}, nil, ""},
		{"a folder that is named", "deploy/objects.yaml", []string{"./top"}, []string{"deploy"}, "deploy/objects.yaml"},
		{"a folder that is not", "deploy/objects.yaml", []string{"./top"}, nil, ""},
		{"versions of modules", "go.sum", []string{"./top"}, nil, "go.sum"},
		{"tools", "tools/test.sh", []string{"./low"}, nil, "tools/test.sh"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root, git := repository(t)
			base := git("rev-parse", "HEAD")
			for _, committed := range []bool{false, true} {
				if tt.change != "" && !committed {
					text := "// changed\n"
					if old, err := os.ReadFile(filepath.Join(root, tt.change)); err == nil {
						text = string(old) + text
					} else if strings.HasSuffix(tt.change, ".go") {
						text += "package " + filepath.Base(filepath.Dir(tt.change)) + "\n"
					}
					if strings.HasSuffix(tt.change, "go.sum") {
						text = "\n"
					}
					write(t, root, tt.change, text)
				}
				if committed {
					git("add", ".")
					git("commit", "-q", "--allow-empty", "-m", "second")
				}
				got, err := compare(root, base, tt.packages, tt.folders)
				if err != nil {
					t.Fatal(err)
				}
				if got != tt.want {
					t.Errorf("committed %v: changed %q, want %q", committed, got, tt.want)
				}
			}
		})
	}
}

// A base that nobody knows, and a tree that go does not understand, are never taken for unchanged.
func TestCompareFails(t *testing.T) {
	t.Parallel()
	root, git := repository(t)
	base := git("rev-parse", "HEAD")
	for _, since := range []string{"", "4269badcc592cb3fd761b42d8f3127f33119d567", "no-such-branch", "--stat"} {
		if _, err := compare(root, since, []string{"./top"}, nil); err == nil {
			t.Errorf("no error since %q", since)
		}
	}
	if _, err := compare(root, base, nil, nil); err == nil {
		t.Error("no error without packages")
	}
	write(t, root, "top/top.go", "no Go\n")
	if got, err := compare(root, base, []string{"./top"}, nil); err == nil && got == "" {
		t.Error("a package that cannot be read is unchanged")
	}
}
