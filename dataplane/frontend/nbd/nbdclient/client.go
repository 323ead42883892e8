package nbdclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// Options configure a Client.
type Options struct {
	// Export is the volume's name; "" is the server's default.
	Export string
	// Reconnect is how long a request goes on trying when the connection is lost: it dials again
	// and repeats, which is safe since every request may be repeated. 0 fails at once.
	Reconnect time.Duration
}

// maxInFlight bounds the requests of one Client; more wait for their turn.
const maxInFlight = 128

// redialEvery is the pause between attempts to reach a server that does not answer.
const redialEvery = 20 * time.Millisecond

// Client is a connection to an export for concurrent use. It implements io.ReaderAt and
// io.WriterAt.
type Client struct {
	ctx    context.Context
	cancel context.CancelFunc
	addr   string
	opts   Options

	mu      sync.Mutex
	session *session
	closed  bool
}

// Dial connects to addr ("unix:path" or "tcp:host:port"). The Client ends with ctx.
func Dial(ctx context.Context, addr string, opts Options) (*Client, error) {
	s, err := newSession(ctx, addr, opts.Export)
	if err != nil {
		return nil, err
	}
	c := &Client{addr: addr, opts: opts, session: s}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c, nil
}

// Export returns what the server said at the last connect.
func (c *Client) Export() Export {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.export
}

// Size returns the size of the export in bytes.
func (c *Client) Size() int64 { return c.Export().Size }

// ReadAt fills p from offset off.
func (c *Client) ReadAt(p []byte, off int64) (int, error) { return c.transfer(Read, 0, p, off) }

// WriteAt writes p at offset off.
func (c *Client) WriteAt(p []byte, off int64) (int, error) { return c.transfer(Write, 0, p, off) }

// WriteAtFUA is WriteAt that returns when the data is on stable storage.
func (c *Client) WriteAtFUA(p []byte, off int64) (int, error) {
	return c.transfer(Write, FlagFUA, p, off)
}

// Flush returns when everything written before is on stable storage.
func (c *Client) Flush() error { return c.Do(Flush, 0, nil, 0, 0) }

// Trim discards n bytes at off.
func (c *Client) Trim(off, n int64) error { return c.Do(Trim, 0, nil, off, uint32(n)) }

// WriteZeroes zeroes n bytes at off.
func (c *Client) WriteZeroes(off, n int64) error { return c.Do(WriteZeroes, 0, nil, off, uint32(n)) }

func (c *Client) transfer(cmd Command, flags uint16, p []byte, off int64) (int, error) {
	for done := 0; ; {
		q := p[done:min(len(p), done+maxTransfer)]
		if err := c.Do(cmd, flags, q, off+int64(done), uint32(len(q))); err != nil {
			return done, err
		}
		if done += len(q); done == len(p) {
			return done, nil
		}
	}
}

// Do sends one request as it is, sensible or not, and waits for its answer. The server's error is a
// syscall.Errno; anything else means that the connection is lost. p is the payload of a Write, or
// filled by a Read.
func (c *Client) Do(cmd Command, flags uint16, p []byte, off int64, size uint32) error {
	start := time.Now()
	for {
		s, err := c.current(start)
		if err != nil {
			return err
		}
		err = s.do(cmd, flags, p, off, size)
		var errno syscall.Errno
		if err == nil || errors.As(err, &errno) || c.opts.Reconnect == 0 {
			return err
		}
		if time.Since(start) > c.opts.Reconnect {
			return err
		}
	}
}

// current returns a session, dialling again where the last one is broken and that is wanted.
func (c *Client) current(start time.Time) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.closed {
			return nil, net.ErrClosed
		}
		if !c.session.broken() || c.opts.Reconnect == 0 {
			return c.session, nil
		}
		s, err := newSession(c.ctx, c.addr, c.opts.Export)
		if err == nil {
			c.session.kill(net.ErrClosed)
			c.session = s
			return s, nil
		}
		if time.Since(start) > c.opts.Reconnect || c.ctx.Err() != nil {
			return nil, err
		}
		select {
		case <-c.ctx.Done():
		case <-time.After(redialEvery):
		}
	}
}

// Close says goodbye and waits for the client's goroutine.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	defer c.cancel()
	c.session.goodbye()
	c.session.kill(net.ErrClosed)
	return nil
}

// Kill breaks the connection off in the middle of whatever goes on.
func (c *Client) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session.kill(net.ErrClosed)
}

// session is one connection and its reader.
type session struct {
	conn   net.Conn
	export Export
	slots  chan int // free ones
	calls  [maxInFlight]call
	done   chan struct{} // closed when the reader has ended

	write   sync.Mutex
	scratch [requestHeader]byte

	mu  sync.Mutex
	err error
}

type call struct {
	buf     []byte // of a read
	waiting bool
	result  chan error
}

func newSession(ctx context.Context, addr, export string) (*session, error) {
	conn, e, err := dial(ctx, addr, export)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, export: e, slots: make(chan int, maxInFlight), done: make(chan struct{})}
	for i := range maxInFlight {
		s.calls[i].result = make(chan error, 1)
		s.slots <- i
	}
	go s.read()
	return s, nil
}

func (s *session) broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// fail ends every call that waits; the first reason stays.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		// Only the text of the cause: a reset connection is an errno too, but not one the server
		// answered with.
		s.err = fmt.Errorf("nbd connection lost: %v", err)
	}
	for i := range s.calls {
		if c := &s.calls[i]; c.waiting {
			c.waiting = false
			c.result <- s.err
		}
	}
}

func (s *session) kill(err error) {
	s.conn.Close()
	<-s.done
	s.fail(err)
}

func (s *session) goodbye() {
	s.write.Lock()
	defer s.write.Unlock()
	putRequest(s.scratch[:], disconnect, 0, 0, 0, 0)
	_, _ = s.conn.Write(s.scratch[:])
}

func (s *session) do(cmd Command, flags uint16, p []byte, off int64, size uint32) error {
	var slot int
	select {
	case slot = <-s.slots:
	case <-s.done:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.err
	}
	c := &s.calls[slot]
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		s.slots <- slot
		return s.err
	}
	c.waiting = true
	if c.buf = nil; cmd == Read {
		c.buf = p
	}
	s.mu.Unlock()
	s.write.Lock()
	putRequest(s.scratch[:], cmd, flags, uint64(slot), off, size)
	bufs := net.Buffers{s.scratch[:]}
	if cmd == Write {
		bufs = append(bufs, p)
	}
	_, err := bufs.WriteTo(s.conn)
	s.write.Unlock()
	if err != nil {
		s.conn.Close() // the reader ends and fails every call, this one included
	}
	err = <-c.result
	s.slots <- slot
	return err
}

// read delivers answers until the connection ends. It is owned by the session: kill waits for it.
func (s *session) read() {
	err := s.answers(bufio.NewReaderSize(s.conn, 64<<10))
	s.conn.Close()
	s.fail(err)
	close(s.done)
}

func (s *session) answers(r *bufio.Reader) error {
	var h [replyHeader]byte
	for {
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return err
		}
		cookie, errno, err := parseReply(h[:])
		if err != nil {
			return err
		}
		if cookie >= maxInFlight {
			return fmt.Errorf("answer to a request %#x nobody made", cookie)
		}
		c := &s.calls[cookie]
		s.mu.Lock()
		waiting, buf := c.waiting, c.buf
		s.mu.Unlock()
		if !waiting {
			return fmt.Errorf("second answer to request %d", cookie)
		}
		var result error
		if errno != 0 {
			result = errno
		} else if _, err := io.ReadFull(r, buf); err != nil {
			return err
		}
		s.mu.Lock()
		c.waiting = false
		s.mu.Unlock()
		c.result <- result
	}
}
