package rig

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ankole.storage/test/wait"
)

// memory is a target that a test can make lie.
type memory struct {
	mu   sync.Mutex
	data []byte
	// write decides what becomes of the nth write: how many bytes arrive, and the answer.
	write func(n int, p []byte) (int, error)
	n     int
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(p, m.data[off:]), nil
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
	n, err := len(p), error(nil)
	if m.write != nil {
		n, err = m.write(m.n, p)
	}
	copy(m.data[off:], p[:n])
	return len(p), err
}

func (m *memory) WriteFUA(p []byte, off int64) (int, error) { return m.WriteAt(p, off) }
func (m *memory) Flush() error                              { return nil }
func (m *memory) Discard(int64, int64) error                { return nil }
func (m *memory) Close() error                              { return nil }

func (m *memory) Zero(off, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.data[off : off+n])
	return nil
}

// TestJournalNotices shows that the journal finds nothing wrong with a device that keeps its word,
// and finds every kind of lie.
func TestJournalNotices(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		write func(n int, p []byte) (int, error)
		may   func(error) bool
		want  string // part of a violation, "" for none
	}{
		{name: "honest"},
		{"a lost write", func(n int, p []byte) (int, error) {
			if n%50 == 0 {
				return 0, nil
			}
			return len(p), nil
		}, nil, "may hold"},
		{"a torn write", func(n int, p []byte) (int, error) {
			if n%50 == 0 {
				return len(p) - sectorSize/2, nil
			}
			return len(p), nil
		}, nil, "never written there"},
		{"an error that nothing explains", func(n int, p []byte) (int, error) {
			if n%50 == 0 {
				return len(p), broken
			}
			return len(p), nil
		}, nil, "broken"},
		{"no space half of the time, what was written is there or not", func(n int, p []byte) (int, error) {
			if n%2 == 0 {
				return rand.IntN(len(p)/sectorSize+1) * sectorSize, syscall.ENOSPC
			}
			return len(p), nil
		}, NoSpace, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &memory{data: make([]byte, 2*mib), write: c.write}
			j := NewJournal(int64(len(m.data)), 1)
			defer j.End()
			j.Tolerate(c.may)
			j.Use(m, true)
			wait.Until(t, "work", func() bool { return j.Counts().Ops() > 20000 || len(j.Violations()) > 0 })
			j.Pause(t)
			if err := j.Verify(m); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(j.Violations(), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Fatalf("violations: %q", got)
			}
		})
	}
}

// TestJournalLateAnswers abandons workers, each of them in the middle of a write that is
// acknowledged afterwards: right if the write is there, wrong if somebody found the old content
// meanwhile.
func TestJournalLateAnswers(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{true, false} {
		hang, entered := make(chan struct{}), make(chan struct{}, 100)
		m := &memory{data: make([]byte, mib)}
		old := &slow{memory: m, hang: hang, entered: entered, there: there}
		j := NewJournal(mib, 1)
		j.Use(old, true)
		for range workers {
			<-entered
		}
		j.Abandon()
		if err := j.Verify(m); err != nil {
			t.Fatal(err)
		}
		close(hang)
		j.End()
		if got := j.Violations(); (len(got) == 0) != there {
			t.Fatalf("write there: %t, violations %v", there, got)
		}
	}
}

// slow acknowledges writes when it is allowed to.
type slow struct {
	*memory
	hang    chan struct{}
	entered chan struct{}
	there   bool
}

func (s *slow) WriteAt(p []byte, off int64) (int, error) {
	if s.there {
		if _, err := s.memory.WriteAt(p, off); err != nil {
			return 0, err
		}
	}
	s.entered <- struct{}{}
	<-s.hang
	return len(p), nil
}

func (s *slow) WriteFUA(p []byte, off int64) (int, error) { return s.WriteAt(p, off) }
