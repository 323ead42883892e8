package main

import (
	"archive/tar"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const dockerfile = `# comment
FROM scratch AS one
LABEL title="one" kind="test"
ENV PATH=/bin
USER 7:8
COPY bin/program /bin/program
COPY tree/ /
ENTRYPOINT ["/bin/program","-x"]

FROM scratch AS two
COPY bin/program /
`

// context makes files in a fresh folder, in the order given, and packs them.
func context(t *testing.T, order []string, at time.Time) options {
	t.Helper()
	dir := t.TempDir()
	for _, f := range order {
		path := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if f == "tree/link" {
			if err := os.Symlink("/bin/program", path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		mode := os.FileMode(0o600)
		if strings.HasPrefix(f, "bin/") {
			mode = 0o700
		}
		if err := os.WriteFile(path, []byte("content of "+f), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	o := options{dockerfile: filepath.Join(dir, "Dockerfile"), context: dir, out: filepath.Join(dir, "out"),
		prefix: "test/", tag: "v1"}
	if err := os.WriteFile(o.dockerfile, []byte(dockerfile), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(o, nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	return o
}

var files = []string{"bin/program", "tree/etc/b", "tree/etc/a", "tree/link"}

// TestReproducible: the same files give the same archives, whenever and in whatever order they were
// made; other content gives another digest.
func TestReproducible(t *testing.T) {
	backwards := slices.Clone(files)
	slices.Reverse(backwards)
	one, two := context(t, files, time.Unix(1, 0)), context(t, backwards, time.Unix(1e9, 0))
	for _, name := range []string{"one.tar", "one.digest", "one.contents.txt", "two.tar", "two.digest"} {
		a, errA := os.ReadFile(filepath.Join(one.out, name))
		b, errB := os.ReadFile(filepath.Join(two.out, name))
		if errA != nil || errB != nil || len(a) == 0 || string(a) != string(b) {
			t.Errorf("%s differs (%v, %v)", name, errA, errB)
		}
	}
	before, err := os.ReadFile(filepath.Join(one.out, "one.digest"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(one.context, "tree/etc/a"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(one, []string{"one"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(filepath.Join(one.out, "one.digest"))
	if err != nil || string(before) == string(after) {
		t.Errorf("other content, and digest %s (%v)", after, err)
	}
}

// TestImage looks at an archive as a container engine does.
func TestImage(t *testing.T) {
	o := context(t, files, time.Now())
	image, err := tarball.ImageFromPath(filepath.Join(o.out, "one.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.OS != "linux" || c.Config.User != "7:8" || !slices.Equal(c.Config.Env, []string{"PATH=/bin"}) ||
		!slices.Equal(c.Config.Entrypoint, []string{"/bin/program", "-x"}) ||
		!maps.Equal(c.Config.Labels, map[string]string{"title": "one", "kind": "test"}) {
		t.Errorf("configuration %+v", c.Config)
	}
	r := mutate.Extract(image)
	defer func() { _ = r.Close() }()
	got := map[string]int64{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[strings.TrimSuffix(h.Name, "/")] = h.Mode
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s: owner %d:%d, time %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
	}
	want := map[string]int64{"bin": 0o755, "bin/program": 0o755, "etc": 0o755, "etc/a": 0o644, "etc/b": 0o644,
		"link": 0o777,
		"tmp":  0o1777}
	if !maps.Equal(got, want) {
		t.Errorf("files %v\nwant  %v", got, want)
	}
	list, err := os.ReadFile(filepath.Join(o.out, "one.contents.txt"))
	if err != nil || strings.Count(string(list), "sha256:") != 3 {
		t.Errorf("list of contents (%v):\n%s", err, list)
	}
}

// TestContents: the list has each file, the compiler and modules of a Go program, and packages.
func TestContents(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tools.list"), []byte("mount 2.38 sha256:0a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := contents(dir, &target{copies: []copied{{"tools/", "/"}}}, tree{"bin/x": {from: program, mode: 0o755}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"file /bin/x sha256:", "go go1.", "module github.com/google/go-containerregistry v",
		"package mount 2.38 sha256:0a"} {
		if !strings.Contains("\n"+list, "\n"+want) {
			t.Errorf("no line %q in\n%s", want, list)
		}
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"FROM debian AS x":                       "line 1",
		"COPY a /a":                              "comes before FROM",
		"FROM scratch AS x\nRUN make":            "needs a container engine",
		"FROM scratch AS x\nCOPY --from=y a /a":  "only COPY",
		"FROM scratch AS x\nCOPY a b":            "only COPY",
		"FROM scratch AS x\nENV A B":             "only ENV",
		"FROM scratch AS x\nLABEL a=b":           "only LABEL",
		"FROM scratch AS x\nENTRYPOINT /program": "only a JSON list",
	} {
		if _, err := parse(text); !errors.Is(err, errDockerfile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	o := options{dockerfile: "../../deploy/images/Dockerfile", context: t.TempDir(), out: t.TempDir()}
	if err := run(o, []string{"nothing"}, io.Discard); err == nil || !strings.Contains(err.Error(), "no target nothing") {
		t.Errorf("an unknown target: %v", err)
	}
	if err := run(o, []string{"engine"}, io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
}
