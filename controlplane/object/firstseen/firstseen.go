// Package firstseen remembers since when this process has seen what others have stamped with a
// time.
//
// A stamp in an object is of the clock of whoever has written it: of another leader, of a kubelet,
// of the API server, or of this machine before it was suspended. Two clocks may be minutes apart,
// and a wait that is judged by both ends at once, or never. So a wait after which something is
// ended or deleted begins when this process first sees the stamp, and is measured by its own
// clock. It lives in memory: a process that takes over waits anew. Of a wait that is longer than
// Least it sees no more than that itself, and takes the stamp's word for the rest, or a process
// that is replaced now and then would never come to an end of it: a stamp of a clock that is ahead
// then makes the wait longer, and one of a clock that is behind no shorter than Least.
package firstseen

import (
	"maps"
	"sync"
	"time"
)

// Stamps are those that have been seen, one for each subject.
type Stamps struct {
	mu sync.Mutex
	of map[string]stamp
	// parts are those of subjects that have several, by subject and part.
	parts map[string]map[string]stamp
}

type stamp struct {
	text string
	at   time.Time
}

// New returns none.
func New() *Stamps {
	return &Stamps{of: map[string]stamp{}, parts: map[string]map[string]stamp{}}
}

// Keep forgets the subjects of which ok does not hold.
func (s *Stamps) Keep(ok func(subject string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.of, func(subject string, _ stamp) bool { return !ok(subject) })
	maps.DeleteFunc(s.parts, func(subject string, _ map[string]stamp) bool { return !ok(subject) })
}

// At is when a subject's stamp was first seen: now, if it had another one or none when it was asked
// for last. An empty stamp is none, and is forgotten with the subject; then the time is zero.
func (s *Stamps) At(now time.Time, subject, text string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == "" {
		delete(s.of, subject)
		return time.Time{}
	}
	if have := s.of[subject]; have.text == text {
		return have.at
	}
	s.of[subject] = stamp{text, now}
	return now
}

// Each is At for the parts of a subject, by their stamps: those that are not named are forgotten,
// and the subject with the last one.
func (s *Stamps) Each(now time.Time, subject string, texts map[string]string) map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	had, have, at := s.parts[subject], map[string]stamp{}, map[string]time.Time{}
	for part, text := range texts {
		if text == "" {
			continue
		}
		have[part] = stamp{text, now}
		if had[part].text == text {
			have[part] = had[part]
		}
		at[part] = have[part].at
	}
	if s.parts[subject] = have; len(have) == 0 {
		delete(s.parts, subject)
	}
	return at
}

// Least is how much of a long wait a process has to see itself.
const Least = 10 * time.Minute

// Left is what is left of a wait that began at stamped, by another clock, and that this process
// sees since seen; it is over at 0 or below.
func Left(now, stamped, seen time.Time, wait time.Duration) time.Duration {
	left := seen.Add(min(wait, Least)).Sub(now)
	if wait > Least {
		left = max(left, stamped.Add(wait).Sub(now))
	}
	return left
}
