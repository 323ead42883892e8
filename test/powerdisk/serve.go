package powerdisk

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// server answers the kernel for one disk. It is used by one goroutine.
type server struct {
	d    *Disk
	fd   int
	wake int // readable when the server is to end
	buf  []byte
	rng  *rand.Rand
	// now and later are answers that are due when no more requests are there, and one round after
	// that.
	now, later []reply
	// answered are the events of writes that the kernel knows are done and no flush has covered.
	answered []int
}

// reply is an answer that is ready.
type reply struct {
	unique uint64
	body   []byte
	event  int // of a write; -1 otherwise
	covers []int
	sync   bool
}

const (
	// together bounds how many requests are taken in before the first of them is answered.
	together = 64
	// holdOneIn is how often a write waits for the next round.
	holdOneIn = 8
	// holdFor is how long it waits at most when nothing else comes, in milliseconds.
	holdFor = 1
)

// run serves until the disk is closed or the file system is unmounted.
func (s *server) run() error {
	for {
		timeout := -1
		if len(s.later) > 0 {
			timeout = holdFor
		}
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, timeout); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("powerdisk: poll: %w", err)
		}
		if fds[1].Revents != 0 {
			return nil
		}
		s.now, s.later = s.later, nil
		if gone, err := s.takeIn(); gone || err != nil {
			return err
		}
		s.giveOut()
	}
}

// takeIn handles the requests that are there.
func (s *server) takeIn() (gone bool, err error) {
	for range together {
		n, err := unix.Read(s.fd, s.buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false, nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT): // ENOENT: the request was given up
			continue
		// ECONNABORTED: it ended while a request was handed over
		case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ECONNABORTED):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("powerdisk: read a request: %w", err)
		}
		m, err := parse(s.buf[:n])
		if err != nil {
			return false, err
		}
		s.handle(&m)
	}
	return false, nil
}

// handle carries out a request. Errors of answers are not looked at: the kernel has forgotten the
// request then.
func (s *server) handle(m *message) {
	switch m.opcode {
	case opForget, opBatchForget:
	case opRead:
		s.read(m)
	case opWrite:
		off, n := int64(ne.Uint64(m.body[8:])), int64(ne.Uint32(m.body[16:]))
		data := append([]byte(nil), m.body[writeHeader:]...)
		s.change(m, Event{Kind: Write, Off: off, Len: n, Data: data})
	case opFallocate:
		off, n, mode := int64(ne.Uint64(m.body[8:])), int64(ne.Uint64(m.body[16:])), ne.Uint32(m.body[24:])
		if mode&(punchHole|zeroRange) == 0 {
			_ = answer(s.fd, m.unique, unix.EOPNOTSUPP, nil)
			return
		}
		s.change(m, Event{Kind: Zero, Off: off, Len: n})
	case opFsync:
		s.d.mu.Lock()
		broken := s.d.broken
		s.d.mu.Unlock()
		if broken {
			_ = answer(s.fd, m.unique, unix.EIO, nil)
			return
		}
		s.now = append(s.now, reply{unique: m.unique, event: -1, covers: s.answered, sync: true})
		s.answered = nil
	default:
		errno, body := about(m, s.d.size)
		_ = answer(s.fd, m.unique, errno, body)
	}
}

func (s *server) read(m *message) {
	off, n := int64(ne.Uint64(m.body[8:])), int64(ne.Uint32(m.body[16:]))
	n = max(0, min(n, s.d.size-off))
	p := make([]byte, n)
	s.d.mu.Lock()
	s.d.image.Read(p, off)
	s.d.mu.Unlock()
	_ = answer(s.fd, m.unique, 0, p)
}

// change applies a write or zeroing and answers it later.
func (s *server) change(m *message, e Event) {
	if e.Off < 0 || e.Len <= 0 || e.Off%SectorSize != 0 || e.Len%SectorSize != 0 || e.Off+e.Len > s.d.size ||
		(e.Kind == Write && int64(len(e.Data)) != e.Len) {
		_ = answer(s.fd, m.unique, unix.EINVAL, nil)
		return
	}
	r := reply{unique: m.unique, event: -1}
	if e.Kind == Write {
		r.body = make([]byte, 8)
		ne.PutUint32(r.body, uint32(e.Len))
	}
	e.Disk = s.d.number
	s.d.mu.Lock()
	apply(s.d.image, &e)
	journal := s.d.journal
	s.d.mu.Unlock()
	if journal != nil {
		r.event = journal.Add(e)
		if s.rng.IntN(holdOneIn) == 0 {
			s.later = append(s.later, r)
			return
		}
	}
	s.now = append(s.now, r)
}

// giveOut sends what is due, in any order.
func (s *server) giveOut() {
	s.rng.Shuffle(len(s.now), func(a, b int) { s.now[a], s.now[b] = s.now[b], s.now[a] })
	for _, r := range s.now {
		if r.sync {
			s.d.mu.Lock()
			journal := s.d.journal
			s.d.mu.Unlock()
			if journal != nil {
				journal.Add(Event{Kind: Sync, Disk: s.d.number, Covers: r.covers})
			}
		}
		err := answer(s.fd, r.unique, 0, r.body)
		if err == nil && r.event >= 0 {
			s.answered = append(s.answered, r.event)
		}
	}
	s.now = s.now[:0]
}
