// Package output is how the command prints. An object is shown as a row of aligned columns, or as
// JSON or YAML with the fields in the order of the API; one thing alone as a sheet of words with
// their values; how far something is as a line that is drawn again and again. Rows are filtered and
// sorted by their columns. Sizes and times are written as people type them.
package output

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"go.yaml.in/yaml/v3"
)

// Values of --output.
const (
	Plain = ""
	Wide  = "wide"
	JSON  = "json"
	YAML  = "yaml"
	Name  = "name"
)

// Formats are the values of --output.
var Formats = []string{Wide, JSON, YAML, Name}

// columnGap is the space between columns.
const columnGap = 3

// Column is one column of a table: the one place where it is described.
type Column[T any] struct {
	Header string
	// Wide columns are shown with --output wide only.
	Wide bool
	// Right columns are numbers.
	Right bool
	Value func(T) string
	// Number is what --sort goes by where the text has lost it, as in rounded sizes; nil: the text.
	Number func(T) float64
}

// Kind is how objects of one type are shown.
type Kind[T any] struct {
	// Name is the word before the slash of --output name, and of messages.
	Name    string
	Id      func(T) string
	Columns []Column[T]
	// None is said instead of an empty table, with the next step.
	None string
}

// Encode prints an object as JSON or YAML, with the fields in the order of the API.
func Encode(w io.Writer, format string, what any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(what); err != nil {
		return err
	}
	if format == JSON {
		_, err := w.Write(b.Bytes())
		return err
	}
	// JSON is YAML; taking the node tree over keeps the order of the fields.
	var tree yaml.Node
	if err := yaml.Unmarshal(b.Bytes(), &tree); err != nil {
		return err
	}
	blockStyle(&tree)
	out := yaml.NewEncoder(w)
	out.SetIndent(2)
	if err := out.Encode(&tree); err != nil {
		return err
	}
	return out.Close()
}

// blockStyle takes the braces and quotes of JSON off; a text that would read as something else
// keeps its quotes.
func blockStyle(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		var plain yaml.Node
		if err := yaml.Unmarshal([]byte(n.Value), &plain); err == nil && len(plain.Content) == 1 &&
			plain.Content[0].Tag == "!!str" && plain.Content[0].Value == n.Value {
			n.Style = 0
		}
	} else if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// Write prints aligned columns. Nothing stands behind the last one.
func Write[T any](w io.Writer, columns []Column[T], objects []T, wide bool) error {
	var shown []Column[T]
	for _, c := range columns {
		if wide || !c.Wide {
			shown = append(shown, c)
		}
	}
	return tableOf(w, "", shown, objects)
}

// WriteIn is table without the wide columns, with something before each line.
func WriteIn[T any](w io.Writer, indent string, columns []Column[T], objects []T) error {
	return tableOf(w, indent, slices.DeleteFunc(slices.Clone(columns), func(c Column[T]) bool { return c.Wide }), objects)
}

func tableOf[T any](w io.Writer, indent string, shown []Column[T], objects []T) error {
	rows := [][]string{nil}
	for _, c := range shown {
		rows[0] = append(rows[0], c.Header)
	}
	for _, o := range objects {
		var row []string
		for _, c := range shown {
			row = append(row, OrDash(OneLine(c.Value(o))))
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(shown))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(indent)
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-runewidth.StringWidth(cell))
			switch {
			case shown[i].Right:
				b.WriteString(pad + cell)
			case i == len(row)-1:
				b.WriteString(cell)
			default:
				b.WriteString(cell + pad)
			}
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", columnGap))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// OrDash is a text, or what stands for an empty one.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// OneLine keeps a value from breaking the table, or from driving the terminal.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
