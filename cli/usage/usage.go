// Package usage is how a command line that was not understood is refused: the rules for arguments,
// and the error that has the command end with the status for that.
package usage

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Error is a command that was not understood.
type Error struct{ Err error }

// Error is what was not understood.
func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf is fmt.Errorf for a command that was not understood.
func Errorf(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }

// Exactly is the argument rule of commands that take a fixed number of arguments, given by name.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return Errorf("%s is missing", names[len(args)])
		}
		if len(args) > len(names) {
			return Errorf("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// AtLeast is the argument rule of commands that take as many names as are given, after others that
// have one meaning each; what are the words for the arguments that must be there.
func AtLeast(n int, what ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return Errorf("%s is missing", what[len(args)])
		}
		return nil
	}
}

// AtMost is the argument rule of commands whose arguments are optional.
func AtMost(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return Errorf("unexpected argument %q", args[n])
		}
		return nil
	}
}
