package tidy

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// troubleshootingPage has, by symptom, what a user does.
const troubleshootingPage = "docs/guide/troubleshooting.md"

// saidByOthers are states, reasons of events and messages in the first columns of that page that
// Kubernetes and its parts show, each with who says it.
var saidByOthers = map[string]string{
	"Pending":                 "phase of a claim or Pod",
	"ContainerCreating":       "kubelet, as kubectl shows it",
	"CrashLoopBackOff":        "kubelet",
	"ImagePullBackOff":        "kubelet",
	"ErrImagePull":            "kubelet",
	"Terminating":             "kubectl, of what has a deletion timestamp",
	"FailedMount":             "kubelet",
	"FailedAttachVolume":      "attach-detach controller",
	"Multi-Attach error":      "attach-detach controller",
	"FileSystemResizePending": "condition of a claim, by the resizer",
	"OutOfcpu":                "kubelet",
	"failed calling webhook":  "API server",
	"violates PodSecurity":    "API server",
	"not found in the list of registered CSI drivers": "kubelet",
	"Cannot evict pod": "API server, of the Eviction API",
}

// pieces returns the text of an expression, and where it is a sum of more than literals the pieces
// between the rest.
func pieces(e ast.Expr) []string {
	switch x := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(x.Value); err == nil && x.Kind == token.STRING {
			return []string{text}
		}
	case *ast.ParenExpr:
		return pieces(x.X)
	case *ast.BinaryExpr:
		if x.Op == token.ADD {
			left, right := pieces(x.X), pieces(x.Y)
			last := len(left) - 1
			return slices.Concat(left[:last], []string{left[last] + right[0]}, right[1:])
		}
	}
	return []string{"", ""}
}

// literals returns the strings of a file; literals that are added up are one.
func literals(s *source) (all []string) {
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit, *ast.BinaryExpr:
			all = append(all, pieces(x.(ast.Expr))...)
		}
		return true
	})
	return slices.DeleteFunc(all, func(text string) bool { return text == "" })
}

// messages returns by file what the programs and the templates of an installation can say.
func messages(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, s := range sources(t) {
		if !s.test {
			// %% is what a user sees as one.
			all[s.name] = strings.Split(strings.ReplaceAll(strings.Join(literals(s), "\x00"), "%%", "%"), "\x00")
		}
	}
	for _, name := range files(t, ".yaml") {
		if strings.HasPrefix(name, "deploy/manifests/") {
			all[name] = []string{read(t, name)}
		}
	}
	return all
}

// rowFirst is the first cell of a row of a table; codeText what stands between backticks.
var (
	rowFirst = regexp.MustCompile(`(?m)^\| (.*?) \|`)
	codeText = regexp.MustCompile("`([^`]+)`")
)

// symptoms returns the texts in backticks of the first columns of a page.
func symptoms(page string) []string {
	found := map[string]bool{}
	for _, row := range rowFirst.FindAllStringSubmatch(mdFence.ReplaceAllString(page, ""), -1) {
		for _, m := range codeText.FindAllStringSubmatch(row[1], -1) {
			found[m[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// placeholder stands for a value in a message.
const placeholder = "…"

// leastPart is what one part of a text with placeholders has at least, in bytes: shorter ones are
// in every file.
const leastPart = 7

// unsaid returns the texts that no file has: the parts of a text between placeholders must all be
// in one file.
func unsaid(texts []string, said map[string][]string) (out []string) {
	files := make([]string, 0, len(said)) // the messages of each; no text goes from one to the next
	for _, all := range said {
		files = append(files, strings.Join(all, "\x00"))
	}
	for _, text := range texts {
		var parts []string
		longest := 0
		for part := range strings.SplitSeq(text, placeholder) {
			if part != "" {
				parts, longest = append(parts, part), max(longest, len(part))
			}
		}
		has := func(file string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(file, part) })
		}
		known := len(parts) > 0 && (len(parts) == 1 || longest >= leastPart)
		if !known || !slices.ContainsFunc(files, has) {
			out = append(out, text)
		}
	}
	return out
}

// TestTroubleshooting: what the page says is seen can be seen.
func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	texts, used := symptoms(read(t, troubleshootingPage)), map[string]bool{}
	if len(texts) < 100 {
		t.Errorf("%s names %d messages: does this test look in the right place?", troubleshootingPage, len(texts))
	}
	own := slices.DeleteFunc(texts, func(text string) bool {
		used[text] = saidByOthers[text] != ""
		return used[text]
	})
	for _, text := range unsaid(own, messages(t)) {
		t.Errorf("%s: %q is said by no program and no template; correct it, or list in saidByOthers who says it",
			troubleshootingPage, text)
	}
	for text, who := range saidByOthers {
		if !used[text] {
			t.Errorf("%s does not name %q (%s) any more: take it out of saidByOthers", troubleshootingPage, text, who)
		}
	}
}

func TestSymptomsAreFound(t *testing.T) {
	t.Parallel()
	page := "`no row`\n\n| seen | do |\n| --- | --- |\n| condition `A` False, `disk … is full` | `ankole` |\n" +
		"```\n| `fenced` | x |\n```\n| plain | `b` |\n"
	if have, want := symptoms(page), []string{"A", "disk … is full"}; !slices.Equal(have, want) {
		t.Errorf("symptoms %q, want %q", have, want)
	}
	said := map[string][]string{"a.go": {"disk ", " is full of ", "waits: %d % done"}, "b.go": {" is not there"}}
	for text, want := range map[string]bool{
		"disk … is full":      true,
		"is full":             true,
		"… is full of …":      true,
		"waits: … % done":     true,
		"waits: …":            true,
		"disk … is not there": false, // in two files
		"disk … is empty":     false,
		"disk is full":        false,
		"di…ll":               false, // too short to say anything
		"…":                   false,
	} {
		if have := len(unsaid([]string{text}, said)) == 0; have != want {
			t.Errorf("%q is said: %v, want %v", text, have, want)
		}
	}
}
