package process

import (
	"fmt"
	"strconv"
	"strings"
)

// PortRange is a run of TCP ports, both ends included. The zero value is no port.
type PortRange struct {
	Start, End int
}

// ParsePortRange reads "10000-20000".
func ParsePortRange(s string) (PortRange, error) {
	first, last, ok := strings.Cut(s, "-")
	start, err1 := strconv.Atoi(first)
	end, err2 := strconv.Atoi(last)
	if !ok || err1 != nil || err2 != nil || start < 1 || end > 65535 || end < start {
		return PortRange{}, fmt.Errorf("port range %q: want FIRST-LAST with 1 <= FIRST <= LAST <= 65535", s)
	}
	return PortRange{Start: start, End: end}, nil
}

// String gives the form that ParsePortRange reads.
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.Start, r.End) }

// Len is the number of ports.
func (r PortRange) Len() int {
	if r.Start == 0 {
		return 0
	}
	return r.End - r.Start + 1
}

// portMap hands out contiguous runs of ports. It searches on from the end of the last run and wraps
// around once, so a port is reused as late as possible: a client that still knows an old address
// meets nobody, not a stranger.
type portMap struct {
	bounds PortRange
	used   []bool
	next   int // index where the next search starts
	inUse  int
}

func newPortMap(bounds PortRange) *portMap {
	return &portMap{bounds: bounds, used: make([]bool, bounds.Len())}
}

// take reserves n contiguous ports; n = 0 gives the empty range.
func (m *portMap) take(n int) (PortRange, error) {
	if n == 0 {
		return PortRange{}, nil
	}
	at, ok := m.search(m.next, len(m.used), n)
	if !ok {
		// Runs that begin before the last end; they may reach over it.
		at, ok = m.search(0, min(m.next+n-1, len(m.used)), n)
	}
	if !ok {
		return PortRange{}, fmt.Errorf("%w: cannot allocate %d ports: %d of %d in %s are in use; delete unused processes",
			ErrNoPorts, n, m.inUse, len(m.used), m.bounds)
	}
	m.mark(at, n, true)
	m.next = (at + n) % len(m.used)
	return PortRange{Start: m.bounds.Start + at, End: m.bounds.Start + at + n - 1}, nil
}

// search finds n free indexes in [from, to).
func (m *portMap) search(from, to, n int) (int, bool) {
	run := 0
	for i := from; i < to; i++ {
		if m.used[i] {
			run = 0
			continue
		}
		if run++; run == n {
			return i - n + 1, true
		}
	}
	return 0, false
}

// release gives a run back; it must have been taken.
func (m *portMap) release(r PortRange) {
	if r.Len() > 0 {
		m.mark(r.Start-m.bounds.Start, r.Len(), false)
	}
}

func (m *portMap) mark(at, n int, used bool) {
	for i := at; i < at+n; i++ {
		if m.used[i] == used {
			panic(fmt.Sprintf("process: port %d marked twice as used=%v", m.bounds.Start+i, used))
		}
		m.used[i] = used
	}
	if used {
		m.inUse += n
	} else {
		m.inUse -= n
	}
}
