package tidy

import (
	"bytes"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxFile is the size in bytes above which a file is not a source.
const maxFile = 1 << 20

// leftovers are names of files that tools leave behind.
var leftovers = []string{".orig", ".rej", ".bak", ".swp", "~", ".tmp", ".prof", ".pprof", ".test", ".out", ".log",
	".DS_Store", ".exe", ".so", ".a", ".o"}

func TestStrayFiles(t *testing.T) {
	t.Parallel()
	r := newRule(t, "everybody who clones pays for every byte, for ever", exceptions{})
	for _, name := range files(t) {
		fi, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		testdata := strings.Contains(name, "testdata/")
		if fi.Size() > maxFile && !testdata {
			r.broken(name, "%s has %d bytes, more than %d", name, fi.Size(), maxFile)
		}
		if strings.Contains(name, "/testdata/rapid/") {
			r.broken(name, "%s is a failure that a property test saved; make a test of it, or remove it", name)
		}
		if slices.ContainsFunc(leftovers, func(s string) bool { return strings.HasSuffix(name, s) }) {
			r.broken(name, "%s looks like a leftover; remove it", name)
		}
		if !testdata && !strings.HasPrefix(name, pictures) && isBinary(t, name) {
			r.broken(name, "%s is a binary; keep the source it is made of", name)
		}
	}
}

// isBinary looks for a NUL byte at the beginning, as git does.
func isBinary(t *testing.T, name string) bool {
	t.Helper()
	return bytes.IndexByte([]byte(read(t, name)[:min(8000, len(read(t, name)))]), 0) >= 0
}

// unwelcome are texts that say nothing to a reader of the repository. A pattern is looked for in
// lines that have one of the words, in small letters: patterns cost a thousand times as much.
var unwelcome = []struct {
	words   []string
	pattern *regexp.Regexp
	why     string
}{
	{[]string{"work/", "home/", "users/", "root/", "tmp/bash"},
		regexp.MustCompile(`/(work|home|Users)/[a-z]+/|(?:^|[^\w./-])/root/[a-z.]|/tmp/bash`),
		"a path of one person's machine"},
	{[]string{"design", "acceptance", "style", "readings", "testbeds"},
		regexp.MustCompile(`\b(DESIGN|ACCEPTANCE|STYLE|READINGS|TESTBEDS)(\.md\b| §)`),
		"a document that is not in the repository; say what holds, or link to a page of docs/"},
	{[]string{"issue", "ticket", "task", "phase"},
		regexp.MustCompile(`(?i)\b(issue|ticket|task|phase) #?[0-9]+\b(?: of the plan)?`),
		"how the work was organised; say what is missing, and list it in docs/guide/limitations.md"},
	{[]string{"colleague", "agent", "assistant"},
		regexp.MustCompile(`(?i)\b(a|the|my) colleagues?\b|\bsub-?agents?\b|\bcoding assistant\b`), "who did the work"},
	{[]string{"<<<<<<<", ">>>>>>>"}, regexp.MustCompile(`^(<{7}|>{7}) `), "an unresolved conflict"},
	{[]string{"artifactory", "nexus", "mirror", "goproxy", "verdaccio"},
		regexp.MustCompile(`(?i)\bhttps?://[\w.-]*(artifactory|nexus|mirror|goproxy|verdaccio)[\w.-]*`),
		"a package server that not everybody can reach"},
}

// unwelcomeExceptions are keyed by file and text.
var unwelcomeExceptions = exceptions{
	"test/tidy/stray_test.go":                     "holds the patterns",
	"rest/volume/testdata/fields.txt ticket 4096": "an attachment ticket whose name is a value that the test chose",
}

func TestUnwelcomeWords(t *testing.T) {
	t.Parallel()
	r := newRule(t, "the repository stands alone: whoever reads it has nothing else", unwelcomeExceptions)
	for _, name := range files(t) {
		if isBinary(t, name) || strings.HasSuffix(name, "go.sum") || strings.HasSuffix(name, "LICENSE") {
			continue
		}
		n := 0
		for line := range strings.Lines(read(t, name)) {
			n++
			for what, why := range unwelcomeIn(line) {
				key := name
				if _, ok := unwelcomeExceptions[key]; !ok {
					key = name + " " + what
				}
				r.broken(key, "%s:%d: %q is %s", name, n, what, why)
			}
		}
	}
}

// unwelcomeIn yields the unwelcome texts of a line, each with what it is.
func unwelcomeIn(line string) iter.Seq2[string, string] {
	return func(yield func(what, why string) bool) {
		small := strings.ToLower(line)
		for _, u := range unwelcome {
			if !slices.ContainsFunc(u.words, func(w string) bool { return strings.Contains(small, w) }) {
				continue
			}
			for _, what := range u.pattern.FindAllString(line, -1) {
				if !yield(what, u.why) {
					return
				}
			}
		}
	}
}

func TestUnwelcomeWordsAreSeen(t *testing.T) {
	t.Parallel()
	for i, line := range []string{"in /" + "work/x/y", "see STYLE" + ".md", "see Issue" + " 12", "my colleague" + " says",
		"<<<<<<" + "< HEAD", "from https://Proxy.Nexus" + ".example"} {
		found := ""
		for _, why := range unwelcomeIn(line) {
			found = why
		}
		if found != unwelcome[i].why {
			t.Errorf("%q is %q, want %q", line, found, unwelcome[i].why)
		}
	}
}

func TestGeneratedFilesAreFresh(t *testing.T) {
	t.Parallel()
	if out, err := command("sh", "tools/generate.sh", "check"); err != nil {
		t.Errorf("%v\n%.4000s", err, out)
	}
}
