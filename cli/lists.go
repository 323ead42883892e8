package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"ankole.storage/rest/client"
)

// selection is what --sort and --filter say of a list.
type selection struct {
	sort    []string
	filters []string
}

// filter is one condition that a row must meet.
type filter struct {
	column, op, value string
}

// filterOps are the operators of --filter; a longer one comes before those it begins with.
var filterOps = []string{"!=", "=", "~"}

// addSelection adds --sort and --filter to a command that lists objects of a kind.
func addSelection[T any](c *cobra.Command, k kind[T]) *selection {
	s := &selection{}
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

func (k kind[T]) columnNames() []string {
	var names []string
	for _, c := range k.columns {
		names = append(names, key(c.header))
	}
	return names
}

func (k kind[T]) column(name string) (column[T], error) {
	for _, c := range k.columns {
		if key(c.header) == key(name) {
			return c, nil
		}
	}
	return column[T]{}, usagef("there is no column %q; use one of %s", name, strings.Join(k.columnNames(), ", "))
}

// selected returns the rows that the flags ask for, in their order.
func selected[T any](k kind[T], rows []T, s *selection) ([]T, error) {
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
		out = slices.DeleteFunc(out, func(row T) bool { return !f.holds(c.value(row)) })
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
		return filter{}, usagef("--filter %q: write COLUMN=VALUE, COLUMN!=VALUE or COLUMN~PART", text)
	}
	return best, nil
}

// holds compares with the text of a cell; "-" stands for an empty one, as in the table.
func (f filter) holds(cell string) bool {
	cell, value := strings.ToLower(orDash(cell)), strings.ToLower(orDash(f.value))
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
func (c column[T]) compare(x, y T) int {
	if c.number != nil {
		return cmp.Compare(c.number(x), c.number(y))
	}
	return naturally(c.value(x), c.value(y))
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

// listing is a command that lists all objects of a kind.
func listing[T any](a *app, k kind[T], short string,
	all func(context.Context, *client.Client) ([]T, error)) *cobra.Command {
	c := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: short, Args: exactly()}
	s := addSelection(c, k)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		rows, err := all(cmd.Context(), api)
		if err != nil {
			return err
		}
		return showSelected(a, k, rows, s)
	}
	a.addOutput(c)
	return c
}

// showSelected shows a list as its flags say.
func showSelected[T any](a *app, k kind[T], rows []T, s *selection) error {
	chosen, err := selected(k, rows, s)
	if err != nil {
		return err
	}
	if len(chosen) == 0 && len(rows) > 0 {
		k.none = fmt.Sprintf("none of %d matches; leave --filter out to see all", len(rows))
	}
	return show(a, k, chosen, false)
}

// getting is a command that shows objects by name: one alone, several as a list.
func getting[T any](a *app, k kind[T], short, what string,
	names func(context.Context, *client.Client) ([]string, error),
	one func(context.Context, *client.Client, string) (*T, error)) *cobra.Command {
	c := &cobra.Command{Use: "get NAME…", Short: short, Args: atLeast(1, what),
		ValidArgsFunction: a.completeNames(0, names)}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		var rows []T
		err = a.each(args, func(name string) error {
			row, err := one(cmd.Context(), api, name)
			if err == nil {
				rows = append(rows, *row)
			}
			return err
		})
		if len(rows) > 0 {
			err = errors.Join(show(a, k, rows, len(args) == 1), err)
		}
		return err
	}
	a.addOutput(c)
	return c
}

// someFailed is the error of a command for several names after each failure was told.
type someFailed struct{ failed, of int }

func (e *someFailed) Error() string { return fmt.Sprintf("%d of %d failed", e.failed, e.of) }

// each does something for every name, whatever happens to the others. With several names each
// failure is told at once, and the error returned counts them.
func (a *app) each(names []string, do func(string) error) error {
	if len(names) == 1 {
		return do(names[0])
	}
	failed := 0
	for _, name := range names {
		err := do(name)
		switch {
		case err == nil, errors.Is(err, client.ErrDryRun):
			continue
		case errors.Is(err, context.Canceled):
			return err
		}
		var mistyped *usageError
		if errors.As(err, &mistyped) {
			return err
		}
		failed++
		fmt.Fprintf(a.err, "error: %s\n", a.spelled(a.explain(err).Error()))
	}
	if failed > 0 {
		return &someFailed{failed, len(names)}
	}
	return nil
}

// atLeast is the argument rule of commands that take as many names as are given, after others that
// have one meaning each; what are the words for the arguments that must be there.
func atLeast(n int, what ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return usagef("%s is missing", what[len(args)])
		}
		return nil
	}
}

// sortBy sorts rows by a text of theirs.
func sortBy[T any](rows []T, text func(T) string) {
	slices.SortStableFunc(rows, func(x, y T) int { return strings.Compare(text(x), text(y)) })
}
