package daemon

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// secured is a listener whose connections show who they are before anything else is said.
type secured struct {
	net.Listener
	secure credentials.TransportCredentials
}

// Accept implements net.Listener. The handshake is done by who uses the connection first: one that
// says nothing holds nobody else up.
func (s *secured) Accept() (net.Conn, error) {
	raw, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &handshaking{Conn: raw, secure: s.secure}, nil
}

type handshaking struct {
	net.Conn
	secure credentials.TransportCredentials
	once   sync.Once
	// What the handshake has led to.
	inner net.Conn
	who   credentials.AuthInfo
	err   error
	// readBy is what the server has set before the handshake was over.
	mu     sync.Mutex
	shaken bool
	readBy time.Time
}

type connectionKey struct{}

// withConnection has the requests of a connection know it.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// withPeer has a handler know who asks. Requests come after the handshake.
func withPeer(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if h, ok := q.Context().Value(connectionKey{}).(*handshaking); ok {
			q = q.WithContext(peer.NewContext(q.Context(), &peer.Peer{Addr: h.RemoteAddr(), AuthInfo: h.who}))
		}
		handler.ServeHTTP(w, q)
	})
}

// SetReadDeadline implements net.Conn. During the handshake that of the handshake holds.
func (h *handshaking) SetReadDeadline(t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.shaken {
		h.readBy = t
		return nil
	}
	return h.Conn.SetReadDeadline(t)
}

func (h *handshaking) begin() error {
	h.once.Do(func() {
		_ = h.Conn.SetDeadline(time.Now().Add(handshakeTime))
		h.inner, h.who, h.err = h.secure.ServerHandshake(h.Conn)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.shaken = true
		_ = h.Conn.SetDeadline(time.Time{})
		_ = h.Conn.SetReadDeadline(h.readBy)
	})
	return h.err
}

// Read implements net.Conn.
func (h *handshaking) Read(p []byte) (int, error) {
	if err := h.begin(); err != nil {
		return 0, err
	}
	return h.inner.Read(p)
}

// Write implements net.Conn.
func (h *handshaking) Write(p []byte) (int, error) {
	if err := h.begin(); err != nil {
		return 0, err
	}
	return h.inner.Write(p)
}

// Close implements net.Conn. It ends a handshake that is under way. A connection in plaintext is
// known to the certificates until it is closed.
func (h *handshaking) Close() error {
	h.mu.Lock()
	shaken := h.shaken
	h.mu.Unlock()
	var err error
	if !shaken {
		err = h.Conn.Close()
	}
	h.once.Do(func() { h.err = net.ErrClosed })
	if h.inner != nil {
		return h.inner.Close()
	}
	if shaken {
		err = h.Conn.Close()
	}
	return err
}
