// Package patience makes deadlines longer where tests decide about a change on a machine that does
// other things too.
//
// A deadline that a busy machine can miss without anything being wrong (a lease that is renewed, a
// node that is heard of, a replica that answers, an engine that drains) would make the verdict of
// such a test depend on the load. Only tests set the variable; in production every deadline is what
// its constant says.
package patience

import (
	"os"
	"strconv"
	"time"
)

// Variable of the environment names the factor, a whole number from 1 to 100.
const Variable = "ANKOLE_TIMES"

const maxTimes = 100

var times = parse(os.Getenv(Variable))

// parse returns the factor of a text, 1 where it is none.
func parse(text string) time.Duration {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxTimes {
		return 1
	}
	return time.Duration(n)
}

// Of returns the deadline, as many times as long as the environment says.
func Of(deadline time.Duration) time.Duration { return times * deadline }
