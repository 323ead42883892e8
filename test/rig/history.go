package rig

import (
	"fmt"
	"strings"
	"time"
)

// Kinds of requests.
type opKind byte

const (
	opRead opKind = iota
	opWrite
	opFUA
	opZero
	opDiscard
	opFlush
)

// kinds says how often each kind is made.
var kinds = [...]opKind{opRead, opRead, opRead, opRead, opRead, opWrite, opWrite, opWrite, opWrite, opWrite, opWrite,
	opWrite, opFUA, opZero, opDiscard, opFlush}

func (k opKind) String() string {
	return [...]string{"read", "write", "write through", "zero", "discard", "flush"}[k]
}

// request is one request of a journal and its outcome.
type request struct {
	worker       int
	kind         opKind
	first, n     int    // in sectors
	order        uint64 // of the plan
	version      uint64 // what is written, 0 for zeroes
	began, ended time.Time
	err          error
	late         bool // the worker was abandoned before
}

func (r request) String() string {
	text := fmt.Sprintf("%s of %d sectors at %d by worker %d", r.kind, r.n, r.first, r.worker)
	if r.late {
		text += " (abandoned)"
	}
	if r.version != 0 {
		text += fmt.Sprintf(", version %d", r.version)
	}
	return text
}

// history keeps the newest requests and marks, to explain a violation.
type history struct {
	ring     []request
	next     int
	versions uint64
	marks    []mark
}

// mark is something that happened beside the requests.
type mark struct {
	at   time.Time
	text string
}

const (
	// kept requests: more than a round makes.
	kept = 1 << 16
	// explained is how many lines a violation shows.
	explained = 40
)

// version returns a version nobody has used.
func (h *history) version() uint64 {
	h.versions++
	return h.versions
}

func (h *history) add(r request) {
	if len(h.ring) < kept {
		h.ring = append(h.ring, r)
		return
	}
	h.ring[h.next] = r
	h.next = (h.next + 1) % kept
}

// of returns what is known to have been done to a sector, and the marks among it.
func (h *history) of(sector int) string {
	var lines []string
	clock := func(t time.Time) string { return t.Format("15:04:05.000000") }
	m := 0
	for i := range h.ring {
		r := h.ring[(h.next+i)%len(h.ring)]
		if sector < r.first || sector >= r.first+r.n {
			continue
		}
		for ; m < len(h.marks) && h.marks[m].at.Before(r.began); m++ {
			lines = append(lines, fmt.Sprintf("  %s -- %s", clock(h.marks[m].at), h.marks[m].text))
		}
		outcome := "ok"
		if r.err != nil {
			outcome = r.err.Error()
		}
		lines = append(lines, fmt.Sprintf("  %s to %s  %s: %s", clock(r.began), clock(r.ended), r, outcome))
	}
	for ; m < len(h.marks); m++ {
		lines = append(lines, fmt.Sprintf("  %s -- %s", clock(h.marks[m].at), h.marks[m].text))
	}
	return strings.Join(lines[max(0, len(lines)-explained):], "\n")
}

// Mark notes something that explains what comes after it.
func (j *Journal) Mark(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.history.marks = append(j.history.marks, mark{time.Now(), fmt.Sprintf(format, args...)})
}
