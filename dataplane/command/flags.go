package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// inert is a flag that managers pass to engines of every kind and that changes nothing here.
// docs/design/engine-cli.md has the reasons. The values that mean what this engine does anyway, or
// does in its own way, are accepted; any other is refused: whoever asks for something must not be
// left to believe that it happens.
type inert struct {
	name string
	// value: nil for a switch.
	value func(string) error
}

func oneOf(words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("%q is none of %s", v, strings.Join(words, ", "))
		}
		return nil
	}
}

func number(v string) error {
	if n, err := strconv.Atoi(v); err != nil || n < 0 {
		return fmt.Errorf("%q is not a number", v)
	}
	return nil
}

func anything(string) error { return nil }

// notBuilt refuses every value.
func notBuilt(what string) func(string) error {
	return func(string) error { return fmt.Errorf("%s not built yet", what) }
}

var (
	controllerInert = []inert{
		{name: "disableRevCounter"}, {name: "salvageRequested"}, {"enable-backend", oneOf("tcp")},
		{"data-server-protocol", oneOf("tcp", "unix")}, {"file-sync-http-client-timeout", number},
	}
	replicaInert = []inert{
		{name: "disableRevCounter"}, {name: "unmap-mark-disk-chain-removed"}, {"data-server-protocol", oneOf("tcp", "unix")},
		{"sync-agent", oneOf("true", "false")}, {"sync-agent-port-count", number},
		{"restore-from", notBuilt("--restore-from: backup and restore are")},
		{"restore-name", notBuilt("--restore-name: backup and restore are")},
	}
	addReplicaInert = []inert{
		{"size", anything}, {"current-size", anything}, {name: "fast-sync"}, {"sync-local", anything},
		{"file-sync-http-client-timeout", number}, {"grpc-timeout-seconds", number}, {"replica-instance-name", anything},
	}
)

var cloneInert = []inert{{"file-sync-http-client-timeout", number}, {"grpc-timeout-seconds", number}}

// accept adds flags to a command.
func accept(c *cobra.Command, flags []inert) {
	for _, f := range flags {
		c.Flags().Var(inertValue{f.value}, f.name, "accepted; docs/design/engine-cli.md says why it changes nothing")
		flag := c.Flags().Lookup(f.name)
		flag.Hidden = true
		if f.value == nil || f.name == "sync-agent" {
			flag.NoOptDefVal = "true"
		}
	}
}

// inertValue checks a value and forgets it.
type inertValue struct{ check func(string) error }

func (v inertValue) String() string { return "" }

// Type names the value in help texts.
func (v inertValue) Type() string { return "value" }

// Set refuses values that mean something this engine does not do.
func (v inertValue) Set(s string) error {
	if v.check == nil {
		return oneOf("true", "false")(s)
	}
	return v.check(s)
}
