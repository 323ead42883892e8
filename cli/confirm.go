package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
)

// confirming is --yes of commands that give something up.
type confirming struct{ yes bool }

func (y *confirming) addTo(c *cobra.Command) {
	c.Flags().BoolVarP(&y.yes, "yes", "y", false, "do not ask; needed where there is no terminal")
}

// maxAnswer bounds what is read of the answer to a question.
const maxAnswer = 64

var (
	errNotAsked = errors.New("nothing was changed, as this is no terminal and nobody can be asked; add --yes to go on")
	errNo       = errors.New("nothing was changed")
)

// confirm asks before something is given up; the lines say what, one at least. Without a terminal
// at both ends it refuses unless --yes is given, so that a script says in its own text what it
// means. A dry run gives nothing up and is not asked.
func (a *app) confirm(in io.Reader, y confirming, question string, lines ...string) error {
	if y.yes || a.dryRun {
		return nil
	}
	if f, ok := in.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) || !a.terminal {
		more := ""
		if len(lines) > 1 {
			more = fmt.Sprintf(" (and %d more)", len(lines)-1)
		}
		return fmt.Errorf("%s%s: %w", output.OneLine(lines[0]), more, errNotAsked)
	}
	for _, l := range lines {
		fmt.Fprintln(a.err, output.OneLine(l))
	}
	fmt.Fprintf(a.err, "%s Type yes: ", question)
	line, err := bufio.NewReader(io.LimitReader(in, maxAnswer)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "yes", "y":
		return nil
	}
	return errNo
}

// noDryRun has a command refuse --dry-run: it would do more than send requests.
func (a *app) noDryRun(c *cobra.Command) {
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if a.dryRun {
			return usage.Errorf("%s does more than send requests, so it cannot be a dry run", c.CommandPath())
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

// target is one object of a command that deletes several: its name, and the arguments before the
// names, such as the volume of a snapshot.
type target struct {
	lead []string
	name string
}

// targetFunc does something about one object and returns a line about it.
type targetFunc func(context.Context, *client.Client, target) (string, error)

// deleting is a command that deletes objects by name, after it has said what goes with them and
// asked. The first lead arguments are no names. what tells of one object, and fails if it is not
// there; remove orders the deletion of one and tells what became of it.
func (a *app) deleting(c *cobra.Command, lead int, what, remove targetFunc) *cobra.Command {
	var y confirming
	c.Aliases = []string{"rm"}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		var lines, names []string
		err = a.each(args[lead:], func(name string) error {
			text, err := what(cmd.Context(), api, target{args[:lead], name})
			if err == nil {
				names, lines = append(names, name), append(lines, text)
			}
			return err
		})
		if len(names) == 0 {
			return err
		}
		question := "Delete it?"
		if len(names) > 1 {
			question = fmt.Sprintf("Delete these %d?", len(names))
		}
		if err := a.confirm(cmd.InOrStdin(), y, question, lines...); err != nil {
			return err
		}
		return errors.Join(err, a.each(names, func(name string) error {
			done, err := remove(cmd.Context(), api, target{args[:lead], name})
			if err == nil {
				fmt.Fprintln(a.out, done)
			}
			return err
		}))
	}
	y.addTo(c)
	return c
}
