package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
)

// listing is a command that lists all objects of a kind.
func listing[T any](a *app, k output.Kind[T], short string,
	all func(context.Context, *client.Client) ([]T, error)) *cobra.Command {
	c := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: short, Args: usage.Exactly()}
	s := output.AddSelection(c, k)
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
func showSelected[T any](a *app, k output.Kind[T], rows []T, s *output.Selection) error {
	chosen, err := output.Selected(k, rows, s)
	if err != nil {
		return err
	}
	if len(chosen) == 0 && len(rows) > 0 {
		k.None = fmt.Sprintf("none of %d matches; leave --filter out to see all", len(rows))
	}
	return show(a, k, chosen, false)
}

// getting is a command that shows objects by name: one alone, several as a list.
func getting[T any](a *app, k output.Kind[T], short, what string,
	names func(context.Context, *client.Client) ([]string, error),
	one func(context.Context, *client.Client, string) (*T, error)) *cobra.Command {
	c := &cobra.Command{Use: "get NAME…", Short: short, Args: usage.AtLeast(1, what),
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
		var mistyped *usage.Error
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

// addOutput adds --output to a command that shows objects.
func (a *app) addOutput(c *cobra.Command) {
	c.Flags().StringVarP(&a.output, "output", "o", output.Plain,
		"format: "+strings.Join(output.Formats, ", ")+" (default a table)")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.Formats, cobra.ShellCompDirectiveNoFileComp))
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if a.output != output.Plain && !slices.Contains(output.Formats, a.output) {
			return usage.Errorf("unknown output format %q; use one of %s", a.output, strings.Join(output.Formats, ", "))
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

// show prints objects in the format asked for. single says that exactly one object was asked for:
// it is printed alone instead of as a list.
func show[T any](a *app, k output.Kind[T], objects []T, single bool) error {
	switch a.output {
	case output.Name:
		for _, o := range objects {
			fmt.Fprintf(a.out, "%s/%s\n", k.Name, k.Id(o))
		}
		return nil
	case output.JSON, output.YAML:
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
		fmt.Fprintln(a.err, k.None)
		return nil
	}
	return output.Write(a.out, k.Columns, objects, a.output == output.Wide)
}

// encode prints an object in the format asked for, JSON or YAML.
func (a *app) encode(what any) error { return output.Encode(a.out, a.output, what) }
