package setting

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
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
var cronShorthands = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// CheckCron returns an error unless the text is a cron line of five fields, or one of the
// shorthands such as @daily.
func CheckCron(line string) error {
	_, err := ParseCron(line)
	return err
}

// Schedule is when a cron line is due. Times are UTC.
type Schedule struct {
	// at has a bit for each number of each field, in the order of cronFields.
	at [5]uint64
	// anyDay and anyWeekday: the field begins with *, so that only the other one counts.
	anyDay, anyWeekday bool
}

// ParseCron reads a cron line of five fields, or one of the shorthands such as @daily. Where both
// the day of the month and the day of the week are given, one of them is enough, as in crontab(5).
func ParseCron(line string) (Schedule, error) {
	var s Schedule
	long, short := cronShorthands[line]
	if !short {
		long = line
	}
	fields := strings.Fields(long)
	if len(fields) != len(cronFields) {
		return s, fmt.Errorf("cron line %q has %d fields, want %d: minute, hour, day of month, month, day of week",
			line, len(fields), len(cronFields))
	}
	for i, text := range fields {
		for part := range strings.SplitSeq(text, ",") {
			bits, err := cronFields[i].parse(part)
			if err != nil {
				return s, fmt.Errorf("cron line %q: %w", line, err)
			}
			s.at[i] |= bits
		}
	}
	s.anyDay, s.anyWeekday = strings.ContainsAny(fields[2][:1], "*?"), strings.ContainsAny(fields[4][:1], "*?")
	return s, nil
}

// parse takes one element of a list: *, a number or a range of numbers, each with an optional step.
// A number with a step begins a range to the end.
func (f cronField) parse(text string) (bits uint64, err error) {
	span, step, hasStep := strings.Cut(text, "/")
	by := uint64(1)
	if hasStep {
		if by, err = strconv.ParseUint(step, 10, 16); err != nil || by == 0 {
			return 0, fmt.Errorf("%s: step %q should be a number above 0", f.name, step)
		}
	}
	low, high := f.minimum, f.maximum
	if span != "*" && span != "?" {
		first, last, isRange := strings.Cut(span, "-")
		if low, err = f.number(first); err != nil {
			return 0, err
		}
		if isRange {
			if high, err = f.number(last); err != nil {
				return 0, err
			}
		} else if !hasStep {
			high = low
		}
	}
	if low > high {
		return 0, fmt.Errorf("%s: %s begins behind its end", f.name, span)
	}
	for n := low; n <= high; n += int(by) {
		bits |= 1 << n
	}
	return bits, nil
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

// horizon bounds a search: the 29th of February is at most eight years away.
const horizon = 8*366 + 1

// Last returns the newest time at or before t when it was due, zero if there is none within eight
// years.
func (s Schedule) Last(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Minute)
	for range horizon {
		year, month, day := t.Date()
		if s.onDay(t) {
			for minute := t.Hour()*60 + t.Minute(); minute >= 0; minute-- {
				if s.inDay(minute) {
					return time.Date(year, month, day, minute/60, minute%60, 0, 0, time.UTC)
				}
			}
		}
		t = time.Date(year, month, day, 0, -1, 0, 0, time.UTC)
	}
	return time.Time{}
}

// Next returns the first time after t when it is due, zero if there is none within eight years.
func (s Schedule) Next(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Minute).Add(time.Minute)
	for range horizon {
		year, month, day := t.Date()
		if s.onDay(t) {
			for minute := t.Hour()*60 + t.Minute(); minute < 24*60; minute++ {
				if s.inDay(minute) {
					return time.Date(year, month, day, minute/60, minute%60, 0, 0, time.UTC)
				}
			}
		}
		t = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
	}
	return time.Time{}
}

func (s Schedule) has(field, n int) bool { return s.at[field]&(1<<n) != 0 }

func (s Schedule) inDay(minute int) bool { return s.has(0, minute%60) && s.has(1, minute/60) }

func (s Schedule) onDay(t time.Time) bool {
	day, weekday := s.has(2, t.Day()), s.has(4, int(t.Weekday()))
	if s.anyDay || s.anyWeekday {
		return s.has(3, int(t.Month())) && day && weekday
	}
	return s.has(3, int(t.Month())) && (day || weekday)
}
