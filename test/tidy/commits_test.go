package tidy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/test/lack"
)

// firstRuled is the last commit to which the rules of TestCommitsSayWhy do not apply.
const firstRuled = "7f889a05"

// maxSubject is the length of a subject that tools show whole, in columns.
const maxSubject = 72

// TestCommitsSayWhy: a commit has a subject that is shown whole, and a body.
func TestCommitsSayWhy(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		lack.Later(t, "a checkout has commits to look at")
	}
	if _, err := command("git", "merge-base", "--is-ancestor", firstRuled, "HEAD"); err != nil {
		lack.Later(t, "a checkout whose history goes back to "+firstRuled)
	}
	out, err := command("git", "log", "--no-merges", "--format=%h%x00%s%x00%b%x01", firstRuled+"..HEAD")
	if err != nil {
		t.Fatal(err)
	}
	for entry := range strings.SplitSeq(string(out), "\x01") {
		if parts := strings.Split(strings.TrimSpace(entry), "\x00"); len(parts) == 3 {
			for _, problem := range unruly(parts[1], parts[2]) {
				t.Errorf("%s %q: %s", parts[0], parts[1], problem)
			}
		}
	}
}

// unruly returns what is wrong with a commit's message.
func unruly(subject, body string) (problems []string) {
	if n := len([]rune(subject)); n > maxSubject {
		problems = append(problems, "the subject is too long for one line")
	}
	if folder, what, ok := strings.Cut(subject, ": "); !ok || folder == "" || what == "" {
		problems = append(problems, "the subject does not begin with a folder")
	}
	if strings.TrimSpace(body) == "" {
		problems = append(problems, "the body does not say why")
	}
	return problems
}

func TestUnrulyCommits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		subject, body string
		problems      int
	}{
		{"chain: a head is synced", "It was not.", 0},
		{"chain, engine: a head is synced", "It was not.", 0},
		{"chain: a head is synced", " \n", 1},
		{"a head is synced", "It was not.", 1},
		{"chain: " + strings.Repeat("x", 66), "It was not.", 1},
		{strings.Repeat("ä", 73), "", 3},
	} {
		if got := unruly(tt.subject, tt.body); len(got) != tt.problems {
			t.Errorf("%q: %q", tt.subject, got)
		}
	}
}
