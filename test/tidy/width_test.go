package tidy

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// codeColumns and commentColumns are how wide a line may be; a tab counts as one column.
	codeColumns, commentColumns = 120, 100
	// longLiteral is the length from which a string is left in one piece, however long its line gets.
	longLiteral = 60
)

// prose is a line of a comment that can be wrapped: no directive, no indented text, no drawing.
var prose = regexp.MustCompile(`^// ?[^ \t+#|]`)

// directive is a comment for a tool, which has to stay on one line.
var directive = regexp.MustCompile(`^//([a-z]+:|nolint|lint|export )`)

func TestLineWidth(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, s.name))
		if err != nil {
			t.Fatal(err)
		}
		comments := commentColumns
		if strings.HasPrefix(s.name, "api/") {
			comments = codeColumns // they become descriptions in CRDs, which keep their line breaks
		}
		for _, w := range tooWide(src, comments) {
			t.Errorf("%s:%d: %d columns, more than %d", s.name, w.line, w.columns, w.allowed)
		}
	}
}

// mdFixed are lines of pages that are not wrapped: tables, blocks, headings, comments.
var mdFixed = regexp.MustCompile(`^(\||#|<|>|    |\t)`)

// TestPagesAreWrapped: prose of pages is read in editors and in differences, too.
func TestPagesAreWrapped(t *testing.T) {
	t.Parallel()
	for _, name := range files(t, ".md") {
		if strings.Contains(name, "testdata/") {
			continue
		}
		for line := range strings.Lines(mdFence.ReplaceAllString(read(t, name), "")) {
			line = strings.TrimRight(line, "\n")
			if n := utf8.RuneCountInString(line); n > codeColumns && !mdFixed.MatchString(line) && strings.Contains(line, " ") {
				t.Errorf("%s: %d columns, more than %d: %.60s…", name, n, codeColumns, line)
			}
		}
	}
}

type wide struct{ line, columns, allowed int }

// tooWide returns the lines that could be wrapped and are wider than allowed.
func tooWide(src []byte, comments int) []wide {
	fixed := unbreakable(src)
	var found []wide
	for i, line := range strings.Split(string(src), "\n") {
		text, allowed := strings.TrimLeft(line, "\t"), codeColumns
		if strings.HasPrefix(text, "//") {
			if !prose.MatchString(text) || directive.MatchString(text) || strings.Contains(text, "   ") {
				continue
			}
			allowed = comments
		}
		if n := utf8.RuneCountInString(line); n > allowed && !fixed[i+1] {
			found = append(found, wide{i + 1, n, allowed})
		}
	}
	return found
}

// unbreakable returns the lines with a part that stays in one piece: raw strings, comments between
// /* and */, and string literals and names of some length.
func unbreakable(src []byte) map[int]bool {
	fixed := map[int]bool{}
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return fixed
		}
		whole := tok == token.STRING && (lit[0] == '`' || len(lit) > longLiteral) ||
			tok == token.IDENT && len(lit) > longLiteral || strings.HasPrefix(lit, "/*")
		if !whole {
			continue
		}
		for first, n := file.Line(pos), strings.Count(lit, "\n"); n >= 0; n-- {
			fixed[first+n] = true
		}
	}
}

func TestTooWide(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 25)
	for _, c := range []struct {
		name, src string
		want      int
	}{
		{"a narrow line", "package a\n", 0},
		{"a sum", "package a\n\nvar x = " + strings.Repeat("a + ", 30) + "a\n", 1},
		{"a comment", "package a\n\n// " + long + "\n", 1},
		{"a drawing", "package a\n\n//\t" + long + "\n", 0},
		{"a directive", "package a\n\n//go:generate " + long + "\n", 0},
		{"a literal", "package a\n\nvar x = \"" + long + "\"\n", 0},
		{"a raw string", "package a\n\nvar x = `\n" + long + "`\n", 0},
	} {
		if got := tooWide([]byte(c.src), commentColumns); len(got) != c.want {
			t.Errorf("%s: %v, want %d lines", c.name, got, c.want)
		}
	}
}
