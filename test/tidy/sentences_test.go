package tidy

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sentencesFile has what is checked of the sentences of the proposals: not their words, but a hash
// of each word, in their order.
const sentencesFile = "test/tidy/testdata/proposals.txt"

var originals = flag.String("originals", "", "folder of the proposals; with -update: write "+sentencesFile)

// originalFiles are the proposals, in the order of the table.
var originalFiles = []string{"consolidate-instance-managers.md", "enhanced-cpu-reservation.md",
	"storage-network-through-grpc-proxy.md", "data-locality.md", "automatic-engine-upgrade.md"}

// quotation is what a line of the table quotes; elision parts it.
var (
	quotation = regexp.MustCompile(`"((?:[^"\\]|\\.)+)"`)
	elision   = regexp.MustCompile(`\.\.\.|…|\[[^\]]*\]`)
)

// A sentence of a proposal is of a kind: a statement; a statement of what is not a goal; or a
// listing (output of kubectl, YAML, code) or headline, which a line may quote and need not.
const (
	statement = "statement"
	nonGoal   = "non-goal"
	listing   = "listing"
)

// sentence is one of a proposal.
type sentence struct {
	kind  string
	words []string // a hash of each
}

var (
	word        = regexp.MustCompile(`[\pL\pN]+`)
	bullet      = regexp.MustCompile(`^(?:[•*]|-|\d+\.)\s+`)
	yamlItem    = regexp.MustCompile(`^- (?:[\w.]+:( |$)|instance-manager$|--|daemon$|[\d.]+:)`)
	yamlKey     = regexp.MustCompile(`^[a-zA-Z]+: *("[^"]*"|\S+|"2880" #.*)?$`)
	sentenceEnd = regexp.MustCompile(`[.!?]\s+([\p{Lu}` + "`" + `(])`)
	link        = regexp.MustCompile(`\(?https?://\S+`)
)

// hashes are those of the words of a text. Case and punctuation do not count.
func hashes(text string) []string {
	var all []string
	for _, w := range word.FindAllString(strings.ToLower(text), -1) {
		sum := sha256.Sum256([]byte(w))
		all = append(all, hex.EncodeToString(sum[:2]))
	}
	return all
}

// paragraph is a text of an original without its line breaks.
type paragraph struct {
	kind string
	text string
}

// paragraphs are those of an original, in their order.
func paragraphs(text string) []paragraph {
	var all []paragraph
	kind, fenced, open := statement, false, false
	for _, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		indent := len(line) - len(strings.TrimLeft(line, " "))
		item := bullet.MatchString(trimmed) && !yamlItem.MatchString(trimmed)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced, open = !fenced, false
		case trimmed == "":
			open = false
		case !fenced && strings.HasPrefix(trimmed, "#") || !item && !open && indent == 0 && isHeadline(trimmed):
			if kind = statement; strings.HasPrefix(strings.Trim(trimmed, "# "), "Non-goals") {
				kind = nonGoal
			}
			all, open = append(all, paragraph{listing, trimmed}), false
		case fenced || !item && (indent >= 4 || yamlKey.MatchString(trimmed)) || yamlItem.MatchString(trimmed):
			all, open = append(all, paragraph{listing, trimmed}), false
		case item || !open:
			all, open = append(all, paragraph{kind, bullet.ReplaceAllString(trimmed, "")}), true
		default:
			all[len(all)-1].text += " " + trimmed
		}
	}
	return all
}

// isHeadline: a headline of a text without markup is short and ends without a full stop;
// a word or two and a
// colon are one too.
func isHeadline(line string) bool {
	words := len(strings.Fields(line))
	return words <= 12 && !strings.ContainsAny(line[len(line)-1:], ".,:;`") || words <= 3 && strings.HasSuffix(line, ":")
}

// split parts the paragraphs of an original into sentences.
func split(text string) []paragraph {
	var all []paragraph
	for _, p := range paragraphs(text) {
		parts := []string{p.text}
		if p.kind != listing {
			parts = strings.Split(sentenceEnd.ReplaceAllString(link.ReplaceAllString(p.text, ""), ".\n$1"), "\n")
		}
		for _, part := range parts {
			if len(hashes(part)) > 0 {
				all = append(all, paragraph{p.kind, part})
			}
		}
	}
	return all
}

// writeSentences makes the file of the originals.
func writeSentences(t *testing.T, folder string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("# The sentences of the five proposals: kind, and a hash of each word. Made by:\n" +
		"# go test ./test/tidy -run TestSentencesAreQuoted -update -originals <folder of the proposals>\n")
	for _, name := range originalFiles {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		title, rest, _ := strings.Cut(string(text), "\n")
		fmt.Fprintf(&b, "\n%s\n", title)
		for _, s := range split(rest) {
			fmt.Fprintf(&b, "%s %s\n", s.kind, strings.Join(hashes(s.text), " "))
		}
	}
	if err := os.WriteFile(filepath.Join(root, sentencesFile), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// original is what is known of a proposal.
type original struct {
	sentences []sentence
	words     []string // of all sentences, one after the other
	in        []int    // the sentence of each word
	quoted    []bool   // by some line
}

// parseOriginals reads the file of sentences; the titles are those of the table.
func parseOriginals(text string) ([]*original, error) {
	var all []*original
	for _, line := range strings.Split(text, "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		switch {
		case kind == "#" && strings.Contains(rest, "go test") || kind == "" || strings.HasSuffix(rest, "Made by:"):
		case kind == "#":
			all = append(all, &original{})
		case (kind == statement || kind == nonGoal || kind == listing) && len(all) > 0 && rest != "":
			o := all[len(all)-1]
			words := strings.Fields(rest)
			for _, w := range words {
				o.words, o.in, o.quoted = append(o.words, w), append(o.in, len(o.sentences)), append(o.quoted, false)
			}
			o.sentences = append(o.sentences, sentence{kind, words})
		default:
			return nil, fmt.Errorf("%q is no sentence", line)
		}
	}
	return all, nil
}

// quote marks the words of a quotation wherever they are, and returns the kinds of their sentences.
func (o *original) quote(words []string) (kinds []string) {
	for at := 0; len(words) > 0 && at+len(words) <= len(o.words); at++ {
		if !slices.Equal(o.words[at:at+len(words)], words) {
			continue
		}
		for i := at; i < at+len(words); i++ {
			o.quoted[i] = true
		}
		kinds = append(kinds, o.sentences[o.in[at]].kind)
	}
	return kinds
}

// demands are words of sentences that are more than context.
var demands = hashes("should must verify validate")

// misquoted says what is wrong with the quotations of a line: it has one, and each is in the
// proposal; what is said to be no goal is listed there as one, and what is said to be context
// demands nothing.
func (o *original) misquoted(f *fact) string {
	all := quotation.FindAllStringSubmatch(f.text, -1)
	if len(all) == 0 {
		return "quotes no sentence of the proposal"
	}
	goal, context := strings.HasPrefix(f.what, nonGoal), strings.HasPrefix(f.what, "context: ")
	for _, q := range all {
		for _, piece := range elision.Split(q[1], -1) {
			words := hashes(piece)
			demand := slices.ContainsFunc(words, func(w string) bool { return slices.Contains(demands, w) })
			switch kinds := o.quote(words); {
			case len(words) == 0:
			case context && demand:
				return fmt.Sprintf("%q is more than context", strings.TrimSpace(piece))
			case len(kinds) == 0:
				return fmt.Sprintf("the proposal does not say %q", strings.TrimSpace(piece))
			case goal && !slices.Contains(kinds, nonGoal):
				return fmt.Sprintf("the proposal does not list %q as a non-goal", strings.TrimSpace(piece))
			}
		}
	}
	return ""
}

// unquoted are the numbers of the sentences, counted from 1, of which no line quotes half.
func (o *original) unquoted() (all []int) {
	count := make([]int, len(o.sentences))
	for i, quoted := range o.quoted {
		if quoted {
			count[o.in[i]]++
		}
	}
	for i, s := range o.sentences {
		if s.kind != listing && 2*count[i] < len(s.words) {
			all = append(all, i+1)
		}
	}
	return all
}

// TestSentencesAreQuoted: each line quotes its proposal, and each sentence of a proposal has a
// line. With -originals the words of the sentences that have none are told.
func TestSentencesAreQuoted(t *testing.T) {
	t.Parallel()
	if *originals != "" && *update {
		writeSentences(t, *originals)
	}
	all, err := proposals(read(t, proposalsFile))
	if err != nil {
		t.Fatal(err)
	}
	known, err := parseOriginals(read(t, sentencesFile))
	if err != nil || len(known) != len(all) {
		t.Fatalf("%s: %d proposals, want those %d of %s; %v", sentencesFile, len(known), len(all), proposalsFile, err)
	}
	for i, s := range all {
		for j := range s.facts {
			if why := known[i].misquoted(&s.facts[j]); why != "" {
				t.Errorf("%s: %s: %s", proposalsFile, s.facts[j].id, why)
			}
		}
		for _, n := range known[i].unquoted() {
			t.Errorf("%s: sentence %d of %q has no line%s", proposalsFile, n, s.title, spelt(t, i, n))
		}
	}
}

// spelt is a sentence in words, where the originals are at hand.
func spelt(t *testing.T, i, n int) string {
	t.Helper()
	if *originals == "" {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(*originals, originalFiles[i]))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	return ": " + split(rest)[n-1].text
}

func TestQuotationsAreJudged(t *testing.T) {
	t.Parallel()
	text := "\n# Goals\n\nA volume has replicas. It should\nheal by itself. Nobody waits for it.\n\n## Non-goals\n\n" +
		"1. Backups of a volume.\n\n```yaml\nname: x\n```\n"
	var b strings.Builder
	b.WriteString("# A proposal\n")
	for _, s := range split(text) {
		fmt.Fprintf(&b, "%s %s\n", s.kind, strings.Join(hashes(s.text), " "))
	}
	known, err := parseOriginals(b.String())
	if err != nil || len(known) != 1 {
		t.Fatalf("%v, %v", known, err)
	}
	for _, tt := range []struct{ text, what, want string }{
		{"a volume has replicas", "`x.TestA`", "quotes no sentence"},
		{`"A volume has two replicas"`, "`x.TestA`", "does not say"},
		{`"a volume ... replicas"`, "non-goal: x", "does not list"},
		{`"should heal"`, "context: x", "more than context"},
		{`"A volume ... replicas."`, "`x.TestA`", ""}, {`it "should heal"`, "`x.TestA`", ""},
		{`"backups of a ..."`, "non-goal: x", ""}, {`"name: x"`, "`x.TestA`", ""},
	} {
		got := known[0].misquoted(&fact{text: tt.text, what: tt.what})
		if !strings.Contains(got, tt.want) || got != "" && tt.want == "" {
			t.Errorf("%s, %s: %q, want %q", tt.text, tt.what, got, tt.want)
		}
	}
	if got := known[0].unquoted(); !slices.Equal(got, []int{3, 4}) {
		t.Errorf("sentences %v have no line: two of five words are not half of them, and none at all", got)
	}
	if _, err := parseOriginals("# A proposal\nsentence 0123"); err == nil {
		t.Error("a sentence of no kind is taken")
	}
}
