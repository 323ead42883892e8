package loop

import (
	"slices"
	"strings"

	"ankole.storage/api/longhorn/v1beta2"
)

// Condition is the part of a status condition that the loop compares. An event is recorded when
// Status flips, never for a new reason or message alone.
type Condition struct {
	Type, Status, Reason, Message string
	// Of names the part of the object the condition is about, e.g. a disk of a node; empty for the
	// object itself.
	Of string
	// Expected says that for this reason the condition is not True at the beginning, or where nobody
	// lacks what it tells of: that is no news until it has been True.
	Expected bool
}

// Conditions are those of an object itself.
func Conditions(all []v1beta2.Condition) []Condition {
	var out []Condition
	for _, c := range all {
		out = append(out, Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message})
	}
	return out
}

// Expect marks those conditions that have a type and a reason by which they begin.
func Expect(all []Condition, kind string, reasons ...string) []Condition {
	for i := range all {
		if all[i].Type == kind && slices.Contains(reasons, all[i].Reason) {
			all[i].Expected = true
		}
	}
	return all
}

// conditionEvents gives the events for what changed between two condition lists: the reason is the
// condition's type, Normal when it became True and Warning otherwise. A condition that appears for
// the first time counts as a change only if it is not True and that is not expected: a fresh
// healthy object is no news. What was expected and now is not counts as a change too.
func conditionEvents(before, after []Condition) []Event {
	type subject struct{ of, kind string }
	old := make(map[subject]Condition, len(before))
	for _, c := range before {
		old[subject{c.Of, c.Type}] = c
	}
	var events []Event
	for _, c := range after {
		was, known := old[subject{c.Of, c.Type}]
		fine := c.Status == "True" || c.Expected
		if !known && fine || known && was.Status == c.Status && (fine || !was.Expected) {
			continue
		}
		message := c.Message
		if message == "" {
			message = strings.TrimSpace(c.Of+" "+c.Type) + " is " + c.Status
			if c.Reason != "" {
				message += ": " + c.Reason
			}
		}
		events = append(events, Event{Warning: c.Status != "True", Reason: c.Type, Message: message})
	}
	return events
}
