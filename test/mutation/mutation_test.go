package mutation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/test/lack"
)

var update = flag.Bool("update", false, "write docs/design/mutations.md")

const (
	root = "../.."
	page = root + "/docs/design/mutations.md"
	// bound is how long a test may take to notice, compilation included. It is far above what any
	// needs, for slow machines.
	bound = 8 * time.Minute
	// compiled is what of it compiling may take.
	compiled = 2 * time.Minute
	// least is how many bugs there must be: whoever removes one has to say so here.
	least = 47
)

// mutation is a deliberate bug.
type mutation struct {
	name string
	// title says what is wrong, in the words of the promise it breaks.
	title string
	// promise is the line of docs/guide/promise.md that would no longer hold.
	promise string
	// pkg and test are what must notice; says is a pattern of what the failing test prints.
	pkg, test string
	says      *regexp.Regexp
	quick     bool
	edits     []edit
}

// edit replaces a text that occurs exactly once in a file.
type edit struct{ file, old, new string }

// load reads a file of testdata: lines "key: value", then for each edit "--- old <file>", the text,
// "--- new", the text.
func load(path string) (*mutation, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &mutation{name: strings.TrimSuffix(filepath.Base(path), ".txt")}
	var into *string
	for line := range strings.Lines(string(data)) {
		rest, marker := strings.CutPrefix(line, "--- ")
		switch file, old := strings.CutPrefix(strings.TrimSpace(rest), "old "); {
		case marker && old:
			m.edits = append(m.edits, edit{file: file})
			into = &m.edits[len(m.edits)-1].old
		case marker && strings.TrimSpace(rest) == "new" && len(m.edits) > 0:
			into = &m.edits[len(m.edits)-1].new
		case marker:
			return nil, fmt.Errorf("%s: what is %q?", path, line)
		case into != nil:
			*into += line
		default:
			if err := m.set(line); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	for i := range m.edits {
		e := &m.edits[i]
		// The last line break belongs to the file of testdata, so that a text may be a part of a
		// line.
		e.old, e.new = strings.TrimSuffix(e.old, "\n"), strings.TrimSuffix(e.new, "\n")
		if e.old == "" {
			return nil, fmt.Errorf("%s: an edit of %s without a text to replace", path, e.file)
		}
	}
	if m.title == "" || m.promise == "" || m.pkg == "" || m.test == "" || m.says == nil || len(m.edits) == 0 {
		return nil, fmt.Errorf("%s: title, promise, test, says and an edit are needed", path)
	}
	return m, nil
}

func (m *mutation) set(line string) (err error) {
	key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
	switch {
	case line == "\n":
	case !ok:
		err = fmt.Errorf("what is %q?", line)
	case key == "title":
		m.title = value
	case key == "promise":
		m.promise = value
	case key == "test":
		m.pkg, m.test, ok = strings.Cut(value, " ")
		if !ok {
			err = fmt.Errorf("test %q is not a package and a test", value)
		}
	case key == "says":
		m.says, err = regexp.Compile(value)
	case key == "quick":
		m.quick = value == "yes"
	default:
		err = fmt.Errorf("what is %q?", key)
	}
	return err
}

func loadAll(t *testing.T) []*mutation {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []*mutation
	for _, f := range files {
		m, err := load(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if len(all) < least {
		t.Errorf("%d deliberate bugs, at least %d are wanted", len(all), least)
	}
	return all
}

// overlay writes the changed files to dir and returns the overlay file for the go command. An edit
// whose text is not there exactly once is an error: the code has changed and the bug with it.
func (m *mutation) overlay(dir string) (string, error) {
	replace := map[string]string{}
	for i, e := range m.edits {
		path, err := filepath.Abs(filepath.Join(root, e.file))
		if err != nil {
			return "", err
		}
		from := path
		if replace[path] != "" {
			from = replace[path]
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if n := bytes.Count(data, []byte(e.old)); n != 1 {
			return "", fmt.Errorf(
				"%s: the text to replace is there %d times, not once; let testdata/%s.txt follow the code:\n%s", e.file,
				n, m.name, e.old)
		}
		to := filepath.Join(dir, fmt.Sprintf("%d-%s", i, filepath.Base(e.file)))
		if err := os.WriteFile(to, bytes.Replace(data, []byte(e.old), []byte(e.new), 1), 0o600); err != nil {
			return "", err
		}
		replace[path] = to
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, data, 0o600)
}

// TestMutationsApply looks only whether every bug still fits the code; nothing is compiled.
func TestMutationsApply(t *testing.T) {
	for _, m := range loadAll(t) {
		if _, err := m.overlay(t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if _, err := os.Stat(filepath.Join(root, m.pkg)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// chosen tells whether the bug with that place in the list is to be tried. which is "all", or a
// list of names, "quick" for those that are, and shares such as 2/4 for the second of every four.
func chosen(which string, place int, m *mutation) bool {
	for word := range strings.SplitSeq(which, ",") {
		var k, n int
		if c, err := fmt.Sscanf(word, "%d/%d", &k, &n); c == 2 && err == nil && n > 0 && place%n == k%n {
			return true
		}
		if word == "all" || word == "quick" && m.quick || word == m.name {
			return true
		}
	}
	return false
}

// TestChosen: shares together are everything, once.
func TestChosen(t *testing.T) {
	t.Parallel()
	m := &mutation{name: "lost"}
	for place := range 9 {
		times := 0
		for _, share := range []string{"1/4", "2/4,kept", "3/4", "4/4"} {
			if chosen(share, place, m) {
				times++
			}
		}
		if times != 1 {
			t.Errorf("number %d is in %d of 4 quarters", place, times)
		}
	}
	for _, tt := range []struct {
		which string
		quick bool
		want  bool
	}{
		{"all", false, true}, {"quick", false, false}, {"quick", true, true}, {"quick,3/4", true, true},
		{"kept,lost", false, true}, {"kept", true, false},
	} {
		if got := chosen(tt.which, 1, &mutation{name: "lost", quick: tt.quick}); got != tt.want {
			t.Errorf("MUTATIONS=%q, quick %v: %v, want %v", tt.which, tt.quick, got, tt.want)
		}
	}
}

// TestMutations makes each bug that MUTATIONS chooses and expects its test to fail for it.
func TestMutations(t *testing.T) {
	which := os.Getenv("MUTATIONS")
	if which == "" {
		lack.Later(t, "compiles packages again for every bug; MUTATIONS=all tries them all, MUTATIONS=name,… some")
	}
	tried := 0
	for i, m := range loadAll(t) {
		if !chosen(which, i, m) {
			continue
		}
		tried++
		t.Run(m.name, func(t *testing.T) {
			t.Parallel() // as many as there are processors
			m.mustBeCaught(t)
		})
	}
	if tried == 0 {
		t.Errorf("MUTATIONS=%s names no bug", which)
	}
}

func (m *mutation) mustBeCaught(t *testing.T) {
	overlay, err := m.overlay(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	cmd := exec.CommandContext(ctx, "go", "test", "-v", "-count=1", "-timeout", (bound - compiled).String(),
		"-run", "^"+m.test+"$", m.pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay,
		"RAPID_NOFAILFILE=true", "RAPID_SHRINKTIME=1s")
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	name, _, _ := strings.Cut(m.test, "/")
	switch {
	case ctx.Err() != nil:
		t.Fatalf("neither passed nor failed within %v:\n%s", bound, out)
	case err == nil && bytes.Contains(out, []byte("--- SKIP: "+name)):
		lack.Skip(t, "what the test that is to notice lacks:\n", string(out))
	case err == nil:
		t.Fatalf("%s, and %s does not notice: strengthen it, or name the test that does", m.title, m.test)
	case !errors.As(err, &failed):
		t.Fatal(err)
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		t.Fatalf("the bug does not compile:\n%s", out)
	case !bytes.Contains(out, []byte("--- FAIL: "+name)) && !bytes.Contains(out, []byte("panic: ")):
		t.Fatalf("%s is not what failed:\n%s", name, out)
	case !m.says.Match(out):
		t.Fatalf("%s fails, but does not say %q:\n%s", m.test, m.says, out)
	}
	t.Logf("noticed:\n%s", bytes.Join(bytes.SplitN(out, []byte("\n"), 7)[:min(6, bytes.Count(out, []byte("\n")))],
		[]byte("\n")))
}

// table is the generated part of the page.
func table(all []*mutation) string {
	var b strings.Builder
	b.WriteString("| deliberate bug | breaks | in | noticed by |\n| --- | --- | --- | --- |\n")
	for _, m := range all {
		var files []string
		for _, e := range m.edits {
			// What is edited in a test only makes it faster to see it fail.
			if name := "`" + e.file + "`"; !slices.Contains(files, name) && !strings.HasSuffix(e.file, "_test.go") {
				files = append(files, name)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` |\n", m.title, m.promise, strings.Join(files, ", "),
			filepath.Base(m.pkg)+"."+strings.SplitN(m.test, "/", 2)[0])
	}
	return b.String()
}

const (
	tableBegins = "<!-- begin: generated by go test ./test/mutation -update -->\n"
	tableEnds   = "<!-- end -->"
)

// TestPage compares docs/design/mutations.md with testdata.
func TestPage(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), tableBegins)
	_, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	want := before + tableBegins + table(loadAll(t)) + tableEnds + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(data) {
		t.Errorf("docs/design/mutations.md is not what testdata says; write it with: go test ./test/mutation -run TestPage -update")
	}
}
