package output

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"ankole.storage/cli/usage"
)

// Selection is what --sort and --filter say of a list.
type Selection struct {
	sort    []string
	filters []string
}

// filter is one condition that a row must meet.
type filter struct {
	column, op, value string
}

// filterOps are the operators of --filter; a longer one comes before those it begins with.
var filterOps = []string{"!=", "=", "~"}

// AddSelection adds --sort and --filter to a command that lists objects of a kind.
func AddSelection[T any](c *cobra.Command, k Kind[T]) *Selection {
	s := &Selection{}
	c.Flags().StringSliceVar(&s.sort, "sort", nil,
		"columns to sort by, for instance size; with - before it the largest comes first")
	c.Flags().StringArrayVarP(&s.filters, "filter", "l", nil,
		"rows to show: COLUMN=VALUE, COLUMN!=VALUE or COLUMN~PART; may be repeated")
	names := k.columnNames()
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("filter", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoSpace))
	return s
}

// key is how a column is named in flags.
func key(header string) string { return strings.ReplaceAll(strings.ToLower(header), " ", "-") }

func (k Kind[T]) columnNames() []string {
	var names []string
	for _, c := range k.Columns {
		names = append(names, key(c.Header))
	}
	return names
}

func (k Kind[T]) column(name string) (Column[T], error) {
	for _, c := range k.Columns {
		if key(c.Header) == key(name) {
			return c, nil
		}
	}
	return Column[T]{}, usage.Errorf("there is no column %q; use one of %s", name, strings.Join(k.columnNames(), ", "))
}

// Selected returns the rows that the flags ask for, in their order.
func Selected[T any](k Kind[T], rows []T, s *Selection) ([]T, error) {
	out := slices.Clone(rows)
	for _, text := range s.filters {
		f, err := parseFilter(text)
		if err != nil {
			return nil, err
		}
		c, err := k.column(f.column)
		if err != nil {
			return nil, err
		}
		out = slices.DeleteFunc(out, func(row T) bool { return !f.holds(c.Value(row)) })
	}
	// Sorting by the last column first leaves the order of the first one on top.
	for _, name := range slices.Backward(s.sort) {
		name, down := strings.CutPrefix(name, "-")
		c, err := k.column(name)
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(out, func(x, y T) int {
			n := c.compare(x, y)
			if down {
				return -n
			}
			return n
		})
	}
	return out, nil
}

func parseFilter(text string) (filter, error) {
	best, at := filter{}, -1
	for _, op := range filterOps {
		if i := strings.Index(text, op); i > 0 && (at < 0 || i < at) {
			best, at = filter{text[:i], op, text[i+len(op):]}, i
		}
	}
	if at < 0 {
		return filter{}, usage.Errorf("--filter %q: write COLUMN=VALUE, COLUMN!=VALUE or COLUMN~PART", text)
	}
	return best, nil
}

// holds compares with the text of a cell; "-" stands for an empty one, as in the table.
func (f filter) holds(cell string) bool {
	cell, value := strings.ToLower(OrDash(cell)), strings.ToLower(OrDash(f.value))
	switch f.op {
	case "!=":
		return cell != value
	case "~":
		return strings.Contains(cell, value)
	}
	return cell == value
}

// compare orders two rows by a column: by its number if it has one, else by its text, in which runs
// of digits count as numbers, so that node-2 comes before node-10.
func (c Column[T]) compare(x, y T) int {
	if c.Number != nil {
		return cmp.Compare(c.Number(x), c.Number(y))
	}
	return naturally(c.Value(x), c.Value(y))
}

func naturally(x, y string) int {
	for x != "" && y != "" {
		dx, dy := digits(x), digits(y)
		if dx > 0 && dy > 0 {
			nx, errX := strconv.ParseUint(x[:dx], 10, 64)
			ny, errY := strconv.ParseUint(y[:dy], 10, 64)
			if n := cmp.Compare(nx, ny); n != 0 && errX == nil && errY == nil {
				return n
			}
			if n := strings.Compare(x[:dx], y[:dy]); n != 0 {
				return n
			}
			x, y = x[dx:], y[dy:]
			continue
		}
		if n := cmp.Compare(x[0], y[0]); n != 0 {
			return n
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Compare(len(x), len(y))
}

// digits is how many bytes of digits a text begins with.
func digits(s string) int {
	n := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsDigit(r) || r > unicode.MaxASCII })
	if n < 0 {
		return len(s)
	}
	return n
}
