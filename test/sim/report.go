package sim

import (
	"fmt"
	"slices"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
)

// reportLines is how much of a history a report has.
const reportLines = 80

// report returns the end of the history: events, and the requests that concern the sector at off,
// or all of them if off is -1.
func (r *run) report(off int64) []string {
	lines := slices.Clone(r.v.lines)
	for i := range r.history {
		q := &r.history[i]
		if from, to := q.wrote(); off >= 0 && q.Kind != block.Flush && (off+block.SectorSize <= from || off >= to) {
			continue
		}
		lines = append(lines, Line{q.Began, q.String()})
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return int(a.At - b.At) })
	var out []string
	for _, l := range lines[max(0, len(lines)-reportLines):] {
		out = append(out, l.String())
	}
	return out
}

// String tells a request in one line.
func (q *Request) String() string {
	s := fmt.Sprintf("  client %d asks %s: %s", q.Client, q.Engine.Name, q.Kind)
	if q.Kind != block.Flush {
		s += fmt.Sprintf(" [%d,+%d)", q.Off, q.Len)
	}
	if q.Write > 0 {
		s += fmt.Sprintf(" write %d", q.Write)
	}
	if q.FUA {
		s += " FUA"
	}
	if q.Ended == clock.Never {
		return s + ": never answered"
	}
	return fmt.Sprintf("%s: %s at %s", s, q.Code, time.Duration(q.Ended))
}
