package output

import (
	"fmt"
	"io"
	"time"
)

// Sheet prints what is known of one thing: words with their values, then tables.
type Sheet struct {
	w   io.Writer
	Now func() time.Time
	// waits is what the thing waits for.
	waits []string
	// Spelled writes the commands in a text as they are typed.
	Spelled func(string) string
	Err     error
}

// NewSheet begins a sheet about a thing that waits for something, or for nothing.
func NewSheet(w io.Writer, now func() time.Time, waits []string, spelled func(string) string) *Sheet {
	return &Sheet{w: w, Now: now, waits: waits, Spelled: spelled}
}

// pairWidth is the width of the words.
const pairWidth = 16

// Printf prints as it is given.
func (s *Sheet) Printf(format string, args ...any) {
	if _, err := fmt.Fprintf(s.w, format, args...); err != nil && s.Err == nil {
		s.Err = err
	}
}

// Pair prints a word with its value, nothing if that is empty.
func (s *Sheet) Pair(name, format string, args ...any) {
	text := OneLine(fmt.Sprintf(format, args...))
	if text != "" {
		s.Printf("%-*s%s\n", pairWidth, name, text)
	}
}

// WaitsFor prints what the thing waits for; it comes between the words and the tables.
func (s *Sheet) WaitsFor() {
	if len(s.waits) > 0 {
		s.Title("Waits for")
	}
	for _, w := range s.waits {
		s.Printf("  %s\n", s.Spelled(OneLine(w)))
	}
}

// Title prints what stands above a table or a list.
func (s *Sheet) Title(name string) { s.Printf("\n%s\n", name) }

// SheetTable prints a table below a title, or nothing if there are no rows.
func SheetTable[T any](s *Sheet, title string, columns []Column[T], rows []T) {
	if len(rows) == 0 {
		return
	}
	s.Title(title)
	if err := WriteIn(s.w, "  ", columns, rows); err != nil && s.Err == nil {
		s.Err = err
	}
}
