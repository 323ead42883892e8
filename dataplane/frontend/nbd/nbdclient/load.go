package nbdclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Load describes a stream of requests of one size.
type Load struct {
	// Addr and Export are as for Dial.
	Addr, Export string
	// Depth is how many requests are kept under way. Default 1.
	Depth int
	// BlockSize in bytes. Default 4096.
	BlockSize int
	// ReadPercent of the requests are reads, the others writes.
	ReadPercent int
	// Sequential walks through the span; otherwise offsets are random.
	Sequential bool
	// Start and Span limit the offsets; a Span of 0 reaches to the end of the export.
	Start, Span int64
	// FlushEvery sends a flush after so many writes and waits for it before going on; 0 never does.
	// It needs Depth 1.
	FlushEvery int
	// FUA makes every write a FUA write.
	FUA bool
	// The load ends after Requests or after Duration, whichever is set and comes first.
	Requests int64
	Duration time.Duration
	// Seed makes offsets and data repeatable.
	Seed uint64
}

// Result is what a load did.
type Result struct {
	Requests, Bytes, Errors int64
	Elapsed                 time.Duration
	// Latency is of single requests; with FlushEvery 1 of a write and its flush together.
	Latency Histogram
}

// PerSecond is the rate of requests.
func (r *Result) PerSecond() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

// maxDepth bounds a load's queue: far beyond what any volume is asked for.
const maxDepth = 1024

// maxOutstanding bounds the memory of a load.
const maxOutstanding = 512 << 20

func (l *Load) defaults() error {
	if l.Depth == 0 {
		l.Depth = 1
	}
	if l.BlockSize == 0 {
		l.BlockSize = 4096
	}
	switch {
	case l.Depth < 1 || l.Depth > maxDepth || l.BlockSize < 512 || l.BlockSize%512 != 0 || l.BlockSize > maxTransfer:
		return fmt.Errorf("load: depth %d (1 to %d) or block size %d (multiple of 512 up to %d) is out of range",
			l.Depth, maxDepth, l.BlockSize, maxTransfer)
	case l.Depth*l.BlockSize > maxOutstanding:
		return fmt.Errorf("load: %d requests of %d bytes are more than %d bytes", l.Depth, l.BlockSize, maxOutstanding)
	case l.FlushEvery > 0 && l.Depth != 1:
		return errors.New("load: flushing needs depth 1: only then is it clear what a flush covers")
	case l.ReadPercent < 0 || l.ReadPercent > 100 || l.Start < 0 || l.Span < 0 || l.Start%512 != 0:
		return errors.New("load: percentage, start or span is out of range")
	case l.Requests == 0 && l.Duration == 0:
		return errors.New("load: it would never end: set Requests or Duration")
	}
	return nil
}

// Run drives the load on a connection of its own until it has ended, ctx is cancelled or the
// connection breaks. It uses one thread: one write for all requests that can be sent, one read for
// all answers there are.
func (l Load) Run(ctx context.Context) (*Result, error) {
	if err := l.defaults(); err != nil {
		return nil, err
	}
	conn, export, err := dial(ctx, l.Addr, l.Export)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if l.Span == 0 {
		l.Span = export.Size - l.Start
	}
	if l.Span < int64(l.BlockSize) || l.Start+l.Span > export.Size {
		return nil, fmt.Errorf("load: %d bytes from %d do not fit the export of %d", l.Span, l.Start, export.Size)
	}
	d := newDriver(&l)
	raw, err := rawConn(conn)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, raw.abort)()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d.fd = raw.fd
	if err := d.run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("load on %s: %w", l.Addr, err)
	}
	return &d.result, nil
}

// raw is a connection's descriptor apart from the runtime's poller: waiting in poll costs less than
// parking.
type raw struct {
	fd     int
	mu     sync.Mutex
	closed bool
}

func rawConn(c net.Conn) (*raw, error) {
	f, err := c.(interface {
		SyscallConn() (syscall.RawConn, error)
	}).SyscallConn()
	if err != nil {
		return nil, err
	}
	r := &raw{}
	var dup error
	if err := f.Control(func(fd uintptr) {
		r.fd, dup = syscall.Dup(int(fd))
		if dup == nil {
			syscall.CloseOnExec(r.fd)
			// Blocking or not is a property of what the descriptors share; the original is not used
			// any more.
			dup = syscall.SetNonblock(r.fd, true)
		}
	}); err != nil {
		return nil, err
	}
	return r, dup
}

// abort makes blocked calls return.
func (r *raw) abort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		_ = syscall.Shutdown(r.fd, syscall.SHUT_RDWR)
	}
}

// Close closes the descriptor.
func (r *raw) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		syscall.Close(r.fd)
	}
}

// driver is a load in progress.
type driver struct {
	load   *Load
	fd     int
	rand   *rand.Rand
	result Result
	blocks int64
	next   int64 // block of a sequential load

	slots  []slot
	free   []int
	out    []byte // encoded requests
	outAt  int    // bytes of out that are sent
	data   []byte // written everywhere, with a stamp per request
	in     []byte
	sent   int64
	writes int
	poll   [1]unix.PollFd
	start  time.Time
}

type slot struct {
	cmd   Command
	since time.Time
}

func newDriver(l *Load) *driver {
	d := &driver{
		load: l, rand: rand.New(rand.NewPCG(l.Seed, 0x616e6b6f6c65)), blocks: l.Span / int64(l.BlockSize),
		slots: make([]slot, l.Depth),
		data:  make([]byte, l.BlockSize),
		out:   make([]byte, 0, l.Depth*(requestHeader+l.BlockSize)),
		in:    make([]byte, max(64<<10, 2*(l.BlockSize+replyHeader))),
	}
	for i := 0; i+8 <= len(d.data); i += 8 {
		binary.LittleEndian.PutUint64(d.data[i:], d.rand.Uint64())
	}
	for i := range l.Depth {
		d.free = append(d.free, i)
	}
	return d
}

func (d *driver) run() error {
	d.start = time.Now()
	have := 0
	for {
		d.fill(time.Now())
		if len(d.free) == len(d.slots) {
			d.result.Elapsed = time.Since(d.start)
			return nil
		}
		if err := d.write(); err != nil {
			return err
		}
		n, err := syscall.Read(d.fd, d.in[have:])
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			if err := d.wait(); err != nil {
				return err
			}
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		default:
			if have, err = d.answers(have + n); err != nil {
				return err
			}
		}
	}
}

// write sends as much of out as the socket takes. It never waits: a server that wants to be read
// from first must not find us waiting for it.
func (d *driver) write() error {
	for d.outAt < len(d.out) {
		n, err := syscall.Write(d.fd, d.out[d.outAt:])
		switch err {
		case nil:
			d.outAt += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return nil
		default:
			return err
		}
	}
	d.out, d.outAt = d.out[:0], 0
	return nil
}

// wait sleeps until there are answers, or room for what is left to send.
func (d *driver) wait() error {
	d.poll[0] = unix.PollFd{Fd: int32(d.fd), Events: unix.POLLIN}
	if d.outAt < len(d.out) {
		d.poll[0].Events |= unix.POLLOUT
	}
	if _, err := unix.Poll(d.poll[:], -1); err != nil && err != unix.EINTR {
		return err
	}
	return nil
}

// fill encodes as many requests as there are free slots, once the last ones are sent.
func (d *driver) fill(now time.Time) {
	l := d.load
	if d.outAt < len(d.out) {
		return
	}
	for len(d.free) > 0 && !d.over(now) {
		slot := d.free[len(d.free)-1]
		d.free = d.free[:len(d.free)-1]
		cmd, flags := Write, uint16(0)
		if l.ReadPercent == 100 || l.ReadPercent > 0 && d.rand.IntN(100) < l.ReadPercent {
			cmd = Read
		} else if l.FUA {
			flags = FlagFUA
		}
		d.sent++
		d.slots[slot].cmd, d.slots[slot].since = cmd, now
		d.request(cmd, flags, slot, d.offset(), uint32(l.BlockSize))
	}
}

func (d *driver) over(now time.Time) bool {
	l := d.load
	return l.Requests > 0 && d.sent >= l.Requests || l.Duration > 0 && now.Sub(d.start) >= l.Duration
}

func (d *driver) offset() int64 {
	b := d.next
	if d.load.Sequential {
		if d.next++; d.next == d.blocks {
			d.next = 0
		}
	} else {
		b = d.rand.Int64N(d.blocks)
	}
	return d.load.Start + b*int64(d.load.BlockSize)
}

func (d *driver) request(cmd Command, flags uint16, slot int, off int64, size uint32) {
	n := len(d.out)
	d.out = d.out[:n+requestHeader]
	putRequest(d.out[n:], cmd, flags, uint64(slot), off, size)
	if cmd == Write {
		binary.LittleEndian.PutUint64(d.data, uint64(d.sent))
		d.out = append(d.out, d.data...)
	}
}

// answers consumes the answers in in[:have] and returns how many bytes of an incomplete one it has
// moved to the front.
func (d *driver) answers(have int) (int, error) {
	now := time.Now()
	at := 0
	for have-at >= replyHeader {
		cookie, errno, err := parseReply(d.in[at:])
		if err != nil {
			return 0, err
		}
		if cookie >= uint64(len(d.slots)) {
			return 0, fmt.Errorf("answer to a request %d nobody made", cookie)
		}
		size := replyHeader
		if d.slots[cookie].cmd == Read && errno == 0 {
			size += d.load.BlockSize
		}
		if have-at < size {
			break
		}
		at += size
		d.answered(int(cookie), errno, now)
	}
	return copy(d.in, d.in[at:have]), nil
}

func (d *driver) answered(i int, errno syscall.Errno, now time.Time) {
	s := &d.slots[i]
	if errno != 0 {
		d.result.Errors++
	}
	if s.cmd == Write && d.load.FlushEvery > 0 {
		if d.writes++; d.writes == d.load.FlushEvery {
			d.writes = 0
			s.cmd = Flush // the flush continues the write's slot and its time
			d.request(Flush, 0, i, 0, 0)
			return
		}
	}
	d.result.Latency.Add(now.Sub(s.since))
	d.result.Requests++
	d.result.Bytes += int64(d.load.BlockSize)
	d.free = append(d.free, i)
}
