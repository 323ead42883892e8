package powerdisk

import (
	"slices"
	"sync"
)

// Kind is what an event is.
type Kind uint8

// Kinds of events.
const (
	// Write is data that has reached a disk and is not certain to stay.
	Write Kind = iota
	// Zero is a discard or a zeroing, likewise.
	Zero
	// Sync is a flush that the disk is about to answer.
	Sync
	// Note is something the test wants to have its place among the others.
	Note
)

// Event is one thing that happened.
type Event struct {
	Kind Kind
	// Disk is the number of the disk.
	Disk int
	// Off and Len are the range of Write and Zero, in bytes.
	Off, Len int64
	// Data of a Write. Nobody may change it.
	Data []byte
	// Covers are the events that a Sync made certain and no earlier one had.
	Covers []int
	// Note is what the test noted.
	Note any
}

// Journal is the history of some disks. It is safe for concurrent use.
type Journal struct {
	mu     sync.Mutex
	events []Event
	bytes  int64
}

// Add appends an event and returns its number.
func (j *Journal) Add(e Event) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
	j.bytes += int64(len(e.Data))
	return len(j.events) - 1
}

// Note appends something of the test's own. Whoever notes what was acknowledged does so after it
// was, whoever notes what will be asked for before it is.
func (j *Journal) Note(v any) int { return j.Add(Event{Kind: Note, Disk: -1, Note: v}) }

// Events returns what has happened so far.
func (j *Journal) Events() []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clip(j.events)
}

// Bytes returns how much data the journal holds.
func (j *Journal) Bytes() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.bytes
}
