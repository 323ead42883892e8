// Package nbd offers a volume over the Network Block Device protocol, on a unix socket or TCP:
// newstyle fixed negotiation, simple replies, the commands read, write, flush, trim and write
// zeroes, and the FUA flag.
//
// The Server is a codec inside the engine's step core. Every client is a small state machine over
// one receive buffer. Requests found in the buffer become frontend.Requests at once; the payload of
// a write goes into its own aligned buffer (what is already in the receive buffer is copied, the
// rest is received in place), and the data of a read is sent from the buffer the engine filled, its
// header in the headroom. Answers of one step leave in one send.
//
// Nothing is unbounded: a client has a limit of requests in flight, buffers come from the arena,
// and a client that cannot get one is not read from until some come free. A client that breaks the
// protocol is disconnected; the others do not notice.
package nbd

import (
	"fmt"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// Config describes an NBD server.
type Config struct {
	// Owner marks the tags of the server's operations.
	Owner loop.Owner
	Arena *loop.Arena
	// Listener is a listening non-blocking socket; the server closes it when it stops.
	Listener loop.Handle
	// Export is the volume's name; clients may also ask for the default export "".
	Export string
	// Size of the volume in bytes, a multiple of block.SectorSize.
	Size int64
	// MaxClients bounds connections; more are closed at once. Default 64.
	MaxClients int
	// MaxInFlight bounds unanswered requests per client. Default 128.
	MaxInFlight int
}

const (
	// defaultClients is several programs with as many connections as they like to open, 16 or so.
	defaultClients  = 64
	defaultInFlight = 128
	maxExportName   = 255
	// rxSize is the receive buffer of a client: some fifteen 4 KiB writes or two thousand reads per
	// system call.
	rxSize = 64 << 10
	// txSize is the buffer for answers without data and for the negotiation.
	txSize = 4 << 10
	// clientMemory is what a client has besides its requests. It is set aside: requests, perhaps of
	// a volume that does not answer, must not keep a new client from being heard.
	clientMemory = rxSize + txSize
)

// Server is the NBD frontend of one volume. It implements frontend.Frontend, frontend.Resumer and
// frontend.Expirer.
type Server struct {
	cfg       Config
	size      int64
	clients   []*client // by index; nil is free
	requests  []request
	freeReq   []uint32
	pending   int     // pieces given to the engine and not completed
	held      int     // clients held back
	first     *client // waits for buffers; the others start nothing before it, so that a large request gets its turn
	turn      int     // who is resumed first, so that nobody starves
	accepting bool
	listening bool
	stopping  bool
	slowClients
}

// request is one NBD request in progress. It becomes pieces of at most block.MaxTransfer.
type request struct {
	client  *client
	cookie  uint64
	kind    block.Kind
	fua     bool
	unmap   bool
	code    block.Code // of the first piece that failed
	off     int64
	size    int64
	left    int // pieces not completed
	sent    int // pieces of a read's answer already given to a send
	bufs    []loop.Buf
	written int64 // payload bytes of a write received so far
}

// pieces is the number of engine requests r becomes.
func (r *request) pieces() int {
	if r.kind == block.Read || r.kind == block.Write {
		return int((r.size + block.MaxTransfer - 1) / block.MaxTransfer)
	}
	return 1
}

// pieceLen is the size of piece i of a read or write.
func (r *request) pieceLen(i int) int64 {
	return min(block.MaxTransfer, r.size-int64(i)*block.MaxTransfer)
}

// New returns a server, or an error when the configuration makes no sense.
func New(cfg Config) (*Server, error) {
	if cfg.MaxClients == 0 {
		cfg.MaxClients = defaultClients
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = defaultInFlight
	}
	switch {
	case cfg.Arena == nil || cfg.Listener < 0:
		return nil, fmt.Errorf("nbd export %q: needs an arena and a listening socket", cfg.Export)
	case cfg.Size <= 0 || cfg.Size%block.SectorSize != 0:
		return nil, fmt.Errorf("nbd export %q: size %d is not a positive multiple of %d", cfg.Export, cfg.Size,
			block.SectorSize)
	case cfg.Arena.Part(loop.Requests)+cfg.Arena.Part(loop.Clients) < MaxRequest+cfg.MaxClients*clientMemory:
		return nil, fmt.Errorf("nbd export %q: an arena of %d bytes cannot hold %d clients and one request of %d",
			cfg.Export, cfg.Arena.Budget(),
			cfg.MaxClients, MaxRequest)
	case len(cfg.Export) > maxExportName:
		return nil, fmt.Errorf("nbd export name of %d bytes: at most %d", len(cfg.Export), maxExportName)
	case cfg.MaxClients < 1 || cfg.MaxClients > 1<<12 || cfg.MaxInFlight < 1:
		return nil, fmt.Errorf("nbd export %q: %d clients and %d requests in flight are out of range", cfg.Export,
			cfg.MaxClients, cfg.MaxInFlight)
	}
	cfg.Arena.SetAside(loop.Clients, cfg.MaxClients*clientMemory)
	return &Server{cfg: cfg, size: cfg.Size, clients: make([]*client, cfg.MaxClients), listening: true,
		slowClients: slowClients{clock.Never}}, nil
}

// What an operation of the server was for; part of its tag.
const (
	tagAccept = iota + 1
	tagRecv
	tagSend
	tagClose
	tagTurnAway
	tagListener
)

func (s *Server) tag(what int, client int, seq uint32) uint64 {
	return loop.Tag(s.cfg.Owner, uint64(what)<<48|uint64(client)<<32|uint64(seq))
}

// Start implements frontend.Frontend.
func (s *Server) Start(out *[]loop.Op) {
	s.accept(out)
}

func (s *Server) accept(out *[]loop.Op) {
	if s.accepting || s.stopping {
		return
	}
	s.accepting = true
	*out = append(*out, loop.Op{Kind: loop.Accept, Handle: s.cfg.Listener, Tag: s.tag(tagAccept, 0, 0)})
}

// Handle implements frontend.Frontend.
func (s *Server) Handle(_ clock.Ticks, d *loop.Done, reqs *[]frontend.Request, out *[]loop.Op) {
	value := loop.ValueOf(d.Tag)
	var c *client
	switch what := value >> 48; what {
	case tagAccept:
		s.accepted(d, out)
	case tagTurnAway:
		s.accept(out)
	case tagListener:
		s.listening = false
	default:
		c = s.clients[value>>32&0xffff]
		switch what {
		case tagRecv:
			c.received(d, reqs, out)
		case tagSend:
			c.sendDone(d, out)
		case tagClose:
			c.closed()
			s.accept(out)
		}
	}
	s.Resume(reqs, out)
}

// accepted greets a new client, or turns it away when there is no room for it.
func (s *Server) accepted(d *loop.Done, out *[]loop.Op) {
	s.accepting = false
	if d.Errno != 0 {
		return // the listener is closed or broken; the loop itself retries what passes
	}
	index := slices.Index(s.clients, nil)
	var c *client
	if index >= 0 && !s.stopping {
		c = s.admit(d.New, index)
	}
	if c == nil {
		*out = append(*out, loop.Op{Kind: loop.Close, Handle: d.New, Tag: s.tag(tagTurnAway, 0, 0)})
		return
	}
	c.greet(out)
	s.accept(out)
}

// admit makes a client of a connection, nil without memory.
func (s *Server) admit(conn loop.Handle, index int) *client {
	rx, ok := s.cfg.Arena.GetFor(loop.Clients, rxSize)
	if !ok {
		return nil
	}
	tx, ok := s.cfg.Arena.GetFor(loop.Clients, txSize)
	if !ok {
		s.cfg.Arena.Release(rx)
		return nil
	}
	c := &client{s: s, index: index, conn: conn, rx: rx, tx: tx}
	s.clients[index] = c
	return c
}

// Resume implements frontend.Resumer.
func (s *Server) Resume(reqs *[]frontend.Request, out *[]loop.Op) {
	if s.held == 0 {
		return
	}
	for i := range s.clients {
		if c := s.clients[(s.turn+i)%len(s.clients)]; c != nil && c.held {
			c.advance(reqs, out)
		}
	}
	s.turn++
}

// Complete implements frontend.Frontend.
func (s *Server) Complete(id uint64, code block.Code, out *[]loop.Op) {
	slot, piece := uint32(id>>8), int(id&0xff)
	r := &s.requests[slot]
	s.pending--
	r.left--
	if r.code == block.OK {
		r.code = code
	}
	c := r.client
	if len(r.bufs) > 0 && (r.kind == block.Write || c.gone) {
		s.drop(r, piece)
	}
	switch {
	case r.left > 0:
	case c.gone:
		s.free(slot)
	default:
		c.replies = append(c.replies, slot)
		c.send(out)
	}
}

// SetSize implements frontend.Frontend. Clients connected already keep the size they were told; the
// protocol has no way to tell them.
func (s *Server) SetSize(size int64, _ *[]loop.Op) { s.size = size }

// Stop implements frontend.Frontend.
func (s *Server) Stop(out *[]loop.Op) {
	if s.stopping {
		return
	}
	s.stopping = true
	*out = append(*out, loop.Op{Kind: loop.Close, Handle: s.cfg.Listener, Tag: s.tag(tagListener, 0, 0)})
	for _, c := range s.clients {
		if c != nil {
			c.disconnect(out)
		}
	}
}

// Stopped implements frontend.Frontend.
func (s *Server) Stopped() bool {
	if !s.stopping || s.listening || s.pending > 0 {
		return false
	}
	for _, c := range s.clients {
		if c != nil {
			return false
		}
	}
	return true
}

// Clients returns the number of connections.
func (s *Server) Clients() int {
	n := 0
	for _, c := range s.clients {
		if c != nil {
			n++
		}
	}
	return n
}

// slot returns a request with the buffers of its pieces, or false when the arena cannot give all of
// them: a request that holds some and waits for more could wait for another that does the same.
func (s *Server) slot(kind block.Kind, size int64) (uint32, bool) {
	if len(s.freeReq) == 0 {
		s.freeReq = append(s.freeReq, uint32(len(s.requests)))
		s.requests = append(s.requests, request{})
	}
	i := s.freeReq[len(s.freeReq)-1]
	r := &s.requests[i]
	*r = request{kind: kind, size: size, bufs: r.bufs[:0]}
	if kind == block.Read || kind == block.Write {
		for p := range r.pieces() {
			b, ok := s.cfg.Arena.Get(int(r.pieceLen(p)))
			if !ok {
				s.dropAll(r)
				return 0, false
			}
			r.bufs = append(r.bufs, b)
		}
	}
	s.freeReq = s.freeReq[:len(s.freeReq)-1]
	return i, true
}

func (s *Server) drop(r *request, piece int) {
	if b := r.bufs[piece]; b != 0 {
		s.cfg.Arena.Release(b)
		r.bufs[piece] = 0
	}
}

func (s *Server) dropAll(r *request) {
	for i := range r.bufs {
		s.drop(r, i)
	}
	r.bufs = r.bufs[:0]
}

func (s *Server) free(slot uint32) {
	r := &s.requests[slot]
	s.dropAll(r)
	r.client.inFlight--
	r.client = nil
	s.freeReq = append(s.freeReq, slot)
}
