package setting

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cronField is one of the five fields of a cron line.
type cronField struct {
	name             string
	minimum, maximum int
	// words may stand for the numbers from minimum on.
	words []string
}

var cronFields = []cronField{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of week", 0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// cronShorthands may stand for all five fields.
var cronShorthands = []string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}

// CheckCron returns an error unless the text is a cron line of five fields, or one of the
// shorthands such as @daily.
func CheckCron(line string) error {
	if slices.Contains(cronShorthands, line) {
		return nil
	}
	fields := strings.Fields(line)
	if len(fields) != len(cronFields) {
		return fmt.Errorf("cron line %q has %d fields, want %d: minute, hour, day of month, month, day of week",
			line, len(fields), len(cronFields))
	}
	for i, text := range fields {
		for part := range strings.SplitSeq(text, ",") {
			if err := cronFields[i].check(part); err != nil {
				return fmt.Errorf("cron line %q: %w", line, err)
			}
		}
	}
	return nil
}

// check takes one element of a list: *, a number or a range of numbers, each with an optional step.
func (f cronField) check(text string) error {
	span, step, hasStep := strings.Cut(text, "/")
	if hasStep {
		if n, err := strconv.ParseUint(step, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%s: step %q should be a number above 0", f.name, step)
		}
	}
	if span == "*" || span == "?" {
		return nil
	}
	first, last, isRange := strings.Cut(span, "-")
	low, err := f.number(first)
	if err != nil || !isRange {
		return err
	}
	high, err := f.number(last)
	if err != nil {
		return err
	}
	if low > high {
		return fmt.Errorf("%s: %s begins behind its end", f.name, span)
	}
	return nil
}

func (f cronField) number(text string) (int, error) {
	if i := slices.Index(f.words, strings.ToLower(text)); i >= 0 {
		return f.minimum + i, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || int(n) < f.minimum || int(n) > f.maximum {
		return 0, fmt.Errorf("%s: %q should be a number from %d to %d", f.name, text, f.minimum, f.maximum)
	}
	return int(n), nil
}
