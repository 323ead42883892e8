package usage

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

// TestArguments: what is missing is named, what is too much is quoted; both are errors of usage.
func TestArguments(t *testing.T) {
	two := []string{"the volume's name", "the node"}
	for _, c := range []struct {
		rule cobra.PositionalArgs
		args []string
		want string
	}{
		{Exactly(two...), []string{"v", "n"}, ""},
		{Exactly(two...), []string{"v"}, "the node is missing"},
		{Exactly(two...), []string{"v", "n", "x"}, `unexpected argument "x"`},
		{AtLeast(2, two...), []string{"v", "n", "m"}, ""},
		{AtLeast(2, two...), nil, "the volume's name is missing"},
		{AtMost(1), nil, ""},
		{AtMost(1), []string{"v", "w"}, `unexpected argument "w"`},
	} {
		err := c.rule(nil, c.args)
		var mistyped *Error
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || err.Error() != c.want):
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		case err != nil && !errors.As(fmt.Errorf("of a command: %w", err), &mistyped):
			t.Errorf("%v: %T is no error of usage", c.args, err)
		}
	}
}
