package nbd

import (
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
)

// clientTimeout is how long a client may hold memory that another one waits for, with a write of
// which it does not send the rest or answers that it does not take: much longer than a client that
// is well takes for either, and shorter than users wait for I/O before they give up.
const clientTimeout = 30 * time.Second

// maxPieces bounds the pieces of data in one send, of block.MaxTransfer at most: a client that
// takes that much within clientTimeout goes on. Every piece is a part of an operation's vector.
const maxPieces = 8

// slowClients is the part of a Server that ends clients who keep others waiting. shortSince is when
// somebody began to wait for memory, as far as Expire has seen; Never while nobody does.
type slowClients struct{ shortSince clock.Ticks }

// owing is the part of a client that is about what it owes.
type owing struct {
	begun int         // counts sends and writes that have been begun
	seen  int         // begun, when Expire looked last
	since clock.Ticks // when the present one was seen first
}

// Expire implements frontend.Expirer. Memory that the engine has comes back by itself; memory that
// waits for a client does if the client goes on. One that has stopped, with memory, is disconnected
// when somebody else has waited for it long enough.
func (s *Server) Expire(now clock.Ticks, out *[]loop.Op) clock.Ticks {
	next := clock.Never
	if s.first == nil {
		s.shortSince = clock.Never
		return next
	}
	if s.shortSince == clock.Never {
		s.shortSince = now
	}
	for _, c := range s.clients {
		if c == nil || !c.owes() || !s.waitsBeside(c) {
			continue
		}
		if c.owing.seen != c.owing.begun {
			c.owing.seen, c.owing.since = c.owing.begun, now
		}
		due := max(s.shortSince, c.owing.since).Add(clientTimeout)
		if now >= due {
			c.disconnect(out)
			continue
		}
		next = clock.Min(next, due)
	}
	return next
}

// owes reports that the client has memory until it sends the rest of a write, or takes answers.
func (c *client) owes() bool {
	return !c.closing && (c.current != 0 && c.receiving || c.sendBusy && len(c.sending)+len(c.replies) > 0)
}

// waitsBeside reports that somebody other than c is held back.
func (s *Server) waitsBeside(c *client) bool {
	return s.held > 1 || s.held == 1 && !c.held
}
