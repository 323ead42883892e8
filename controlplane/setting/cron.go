package setting

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// CheckCron returns an error unless Kubernetes takes the text as the schedule of a CronJob: a cron
// line of five fields, or a shorthand such as @daily. It asks the library that Kubernetes asks.
func CheckCron(line string) error {
	_, err := parseCron(line)
	return err
}

func parseCron(line string) (cron.Schedule, error) {
	if strings.Contains(line, "TZ") {
		return nil, fmt.Errorf("cron line %q names a time zone, which CronJobs do not take; times are those of the cluster's "+
			"control plane", line)
	}
	s, err := cron.ParseStandard(line)
	if err != nil {
		return nil, fmt.Errorf("cron line %q: %w", line, err)
	}
	if s.Next(leapYear).IsZero() {
		return nil, fmt.Errorf("cron line %q is never due: no month that it names has such a day", line)
	}
	return s, nil
}

// leapYear begins a year in which every line is due that is ever due.
var leapYear = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// Schedule is when a cron line is due. Times are UTC.
type Schedule struct{ due *cron.SpecSchedule }

// errNoTimes refuses lines that say how often something is due, but not when.
var errNoTimes = errors.New("@every says no times; give five fields: minute, hour, day of month, month, day of week")

// ParseCron reads a cron line of five fields, or one of the shorthands such as @daily. Where both
// the day of the month and the day of the week are given, one of them is enough, as in crontab(5).
func ParseCron(line string) (Schedule, error) {
	due, err := parseCron(line)
	if err != nil {
		return Schedule{}, err
	}
	times, ok := due.(*cron.SpecSchedule)
	if !ok {
		return Schedule{}, fmt.Errorf("cron line %q: %w", line, errNoTimes)
	}
	return Schedule{times}, nil
}

// checkTimes is CheckCron for what needs times.
func checkTimes(line string) error {
	_, err := ParseCron(line)
	return err
}

// horizon bounds the search backwards, in minutes: the 29th of February is at most eight years
// away.
const horizon = (8*366 + 1) * 24 * 60

// Last returns the newest time at or before t when it was due, zero if there is none within eight
// years.
func (s Schedule) Last(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Minute)
	// The later a moment, the later the next time after it. Sought is the latest moment, in minutes
	// before t, whose next time is not after t: that time is the last one.
	minutesAgo := func(n int) time.Time { return t.Add(-time.Duration(n) * time.Minute) }
	reached := func(n int) bool {
		next := s.Next(minutesAgo(n))
		return !next.IsZero() && !next.After(t)
	}
	if !reached(horizon) {
		return time.Time{}
	}
	low, high := 0, horizon // reached(high), and not reached(low)
	for high-low > 1 {
		if middle := (low + high) / 2; reached(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return s.Next(minutesAgo(high))
}

// Next returns the first time after t when it is due, zero if there is none within five years.
func (s Schedule) Next(t time.Time) time.Time { return s.due.Next(t.UTC()) }
