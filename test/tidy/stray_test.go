package tidy

import (
	"bytes"
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

// unwelcome are texts that say nothing to a reader of the repository.
var unwelcome = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`/(work|home|Users)/[a-z]+/|(?:^|[^\w./-])/root/[a-z.]|/tmp/bash`),
		"a path of one person's machine"},
	{regexp.MustCompile(`\b(DESIGN|ACCEPTANCE|STYLE|READINGS|TESTBEDS)(\.md\b| §)`),
		"a document that is not in the repository; say what holds, or link to a page of docs/"},
	{regexp.MustCompile(`(?i)\b(issue|ticket|task|phase) #?[0-9]+\b(?: of the plan)?`),
		"how the work was organised; say what is missing, and list it in docs/guide/limitations.md"},
	{regexp.MustCompile(`(?i)\b(a|the|my) colleagues?\b|\bsub-?agents?\b|\bcoding assistant\b`), "who did the work"},
	{regexp.MustCompile(`(?m)^(<{7}|>{7}) `), "an unresolved conflict"},
	{regexp.MustCompile(`(?i)\bhttps?://[\w.-]*(artifactory|nexus|mirror|goproxy|verdaccio)[\w.-]*`),
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
		text := read(t, name)
		for _, u := range unwelcome {
			for _, at := range u.pattern.FindAllStringIndex(text, -1) {
				line := 1 + strings.Count(text[:at[0]], "\n")
				key := name
				if _, ok := unwelcomeExceptions[key]; !ok {
					key = name + " " + text[at[0]:at[1]]
				}
				r.broken(key, "%s:%d: %q is %s", name, line, text[at[0]:at[1]], u.why)
			}
		}
	}
}

func TestGeneratedFilesAreFresh(t *testing.T) {
	t.Parallel()
	if out, err := command("sh", "tools/generate.sh", "check"); err != nil {
		t.Errorf("%v\n%.4000s", err, out)
	}
}
