package setting

import (
	"testing"
	"time"
)

// TestSchedule: when lines are due, before and after a time.
func TestSchedule(t *testing.T) {
	const form = "2006-01-02 15:04"
	for _, tt := range []struct{ line, at, last, next string }{
		{"0 0 */7 * *", "2026-03-10 12:00", "2026-03-08 00:00", "2026-03-15 00:00"},
		{"0 0 */7 * *", "2026-03-30 12:00", "2026-03-29 00:00", "2026-04-01 00:00"},
		{"* * * * *", "2026-03-10 12:00", "2026-03-10 12:00", "2026-03-10 12:01"},
		{"@hourly", "2026-01-01 00:00", "2026-01-01 00:00", "2026-01-01 01:00"},
		{"@weekly", "2026-03-10 12:00", "2026-03-08 00:00", "2026-03-15 00:00"},
		{"59 23 31 12 *", "2026-01-01 00:00", "2025-12-31 23:59", "2026-12-31 23:59"},
		{"0 0 29 feb *", "2026-03-10 12:00", "2024-02-29 00:00", "2028-02-29 00:00"},
		{"5/20 4 * * *", "2026-03-10 04:30", "2026-03-10 04:25", "2026-03-10 04:45"},
		// Both days given: one of them is enough. 2026-03-10 is a Tuesday.
		{"0 0 13 * mon", "2026-03-10 12:00", "2026-03-09 00:00", "2026-03-13 00:00"},
		// Days 1, 4, 7, … are days given, so that they and Mondays are enough.
		{"0 0 */3 * mon", "2026-03-11 12:00", "2026-03-10 00:00", "2026-03-13 00:00"},
	} {
		s, err := ParseCron(tt.line)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(form, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		at = at.Add(30 * time.Second)
		if last, next := s.Last(at).Format(form), s.Next(at).Format(form); last != tt.last || next != tt.next {
			t.Errorf("%s at %s: last %s, next %s; want %s, %s", tt.line, tt.at, last, next, tt.last, tt.next)
		}
	}
}
