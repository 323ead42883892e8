package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// Values of --output.
const (
	outputTable = ""
	outputWide  = "wide"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name"
)

var outputs = []string{outputWide, outputJSON, outputYAML, outputName}

// columnGap is the space between columns.
const columnGap = 3

// column is one column of a table: the one place where it is described.
type column[T any] struct {
	header string
	// wide columns are shown with --output wide only.
	wide bool
	// right columns are numbers.
	right bool
	value func(T) string
	// number is what --sort goes by where the text has lost it, as in rounded sizes; nil: the text.
	number func(T) float64
}

// kind is how objects of one type are shown.
type kind[T any] struct {
	// name is the word before the slash of --output name, and of messages.
	name    string
	id      func(T) string
	columns []column[T]
	// none is said instead of an empty table, with the next step.
	none string
}

// addOutput adds --output to a command that shows objects.
func (a *app) addOutput(c *cobra.Command) {
	c.Flags().StringVarP(&a.output, "output", "o", outputTable,
		"format: "+strings.Join(outputs, ", ")+" (default a table)")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if a.output != outputTable && !slices.Contains(outputs, a.output) {
			return usagef("unknown output format %q; use one of %s", a.output, strings.Join(outputs, ", "))
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

// show prints objects in the format asked for. single says that exactly one object was asked for:
// it is printed alone instead of as a list.
func show[T any](a *app, k kind[T], objects []T, single bool) error {
	switch a.output {
	case outputName:
		for _, o := range objects {
			fmt.Fprintf(a.out, "%s/%s\n", k.name, k.id(o))
		}
		return nil
	case outputJSON, outputYAML:
		var what any = objects
		switch {
		case single:
			what = objects[0]
		case objects == nil:
			what = []T{}
		}
		return a.encode(what)
	}
	if len(objects) == 0 {
		fmt.Fprintln(a.err, k.none)
		return nil
	}
	return table(a.out, k.columns, objects, a.output == outputWide)
}

// encode prints an object in the format asked for, JSON or YAML.
func (a *app) encode(what any) error { return encode(a.out, a.output, what) }

// encode prints an object as JSON or YAML, with the fields in the order of the API.
func encode(w io.Writer, format string, what any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(what); err != nil {
		return err
	}
	if format == outputJSON {
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

// table prints aligned columns. Nothing stands behind the last one.
func table[T any](w io.Writer, columns []column[T], objects []T, wide bool) error {
	var shown []column[T]
	for _, c := range columns {
		if wide || !c.wide {
			shown = append(shown, c)
		}
	}
	return tableOf(w, "", shown, objects)
}

// tableIn is table without the wide columns, with something before each line.
func tableIn[T any](w io.Writer, indent string, columns []column[T], objects []T) error {
	return tableOf(w, indent, slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.wide }), objects)
}

func tableOf[T any](w io.Writer, indent string, shown []column[T], objects []T) error {
	rows := [][]string{nil}
	for _, c := range shown {
		rows[0] = append(rows[0], c.header)
	}
	for _, o := range objects {
		var row []string
		for _, c := range shown {
			row = append(row, orDash(oneLine(c.value(o))))
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
			case shown[i].right:
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

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// oneLine keeps a value from breaking the table, or from driving the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
