package serve

import (
	"context"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// follower is one open stream. There is one message at a time: the next one is made when the client
// has taken the last, of what is there by then.
type follower struct {
	server *Server
	q      *Request
	conn   *websocket.Conn
	which  Stream
	// period is how long after the beginning of a message the next one may begin.
	period time.Duration
	// deltas: the client takes changes.
	deltas bool
	// informers tell the news; nil: it is told once a second.
	informers cache.Informers
	news      *news
	// sent is the list that the client has; nil at first.
	sent *Listing
}

// messages are buffers for messages, which may have several megabytes.
var messages = sync.Pool{New: func() any { return new([]byte) }}

// look makes the list as it is now, of what was made before as far as possible.
func (f *follower) look() (*Listing, error) {
	names, whole := f.news.take()
	if f.sent != nil && f.which.Since != nil && !whole {
		if list, err := f.which.Since(f.q, f.sent, names); err == nil {
			return list, nil
		}
		// The reader has no indexes, as while nobody leads, or it fails: then the list does, too.
	}
	answer, err := f.which.List(f.q)
	if err != nil {
		return nil, err
	}
	return listingOf(answer)
}

// send sends the list if the client has another one, and reports whether the stream goes on.
func (f *follower) send() bool {
	list, err := f.look()
	if err == nil && f.sent != nil && list.equal(f.sent) {
		return true
	}
	buffer := messages.Get().(*[]byte)
	defer messages.Put(buffer)
	if err == nil {
		*buffer, err = f.message((*buffer)[:0], list)
	}
	if err != nil {
		f.server.cfg.Logger.Info("stream ended", "path", f.q.URL.Path, "err", err)
		return false
	}
	f.sent = list
	f.conn.EnableWriteCompression(len(*buffer) >= minCompressed)
	_ = f.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	return f.conn.WriteMessage(websocket.TextMessage, *buffer) == nil
}

// message adds what makes the client's list this one.
func (f *follower) message(to []byte, list *Listing) ([]byte, error) {
	if f.deltas && f.sent != nil && list.keyed() && f.sent.keyed() {
		return list.appendChanges(to, f.sent)
	}
	return list.appendTo(to), nil
}

// nextMessage says when the next message may begin after one that began and ended.
func nextMessage(began, ended time.Time, period time.Duration) time.Time {
	next, rested := began.Add(period), ended.Add(paceFactor*ended.Sub(began))
	if rested.After(next) {
		return rested
	}
	return next
}

// follow sends the list until the context ends or the client is gone.
func (f *follower) follow(ctx context.Context) {
	var next time.Time
	send := func() bool {
		began := time.Now()
		ok := f.send()
		next = nextMessage(began, time.Now(), f.period)
		return ok
	}
	if !send() {
		return
	}
	ping := time.NewTicker(pingPeriod)
	defer ping.Stop()
	// due is armed when there is news.
	due := time.NewTimer(0)
	if !due.Stop() {
		<-due.C
	}
	armed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ping.C:
			if !f.alive() || len(f.which.Kinds) == 0 && !send() {
				return
			}
		case <-f.news.told:
			if !armed {
				armed = true
				due.Reset(time.Until(next))
			}
		case <-due.C:
			armed = false
			if !send() {
				return
			}
		}
	}
}

// alive pings the client and reports whether the stream should go on. It should not when others
// tell of changes than at its start, since the informers of a manager that has lost the leadership
// tell nothing any more, nor when it began while nobody led and another manager leads: the client
// comes back and is served by whoever leads.
func (f *follower) alive() bool {
	elsewhere := f.informers == nil && f.server.cfg.Leader != nil && f.server.cfg.Leader(f.q.Request) != nil
	if elsewhere || f.server.informers() != f.informers {
		f.server.cfg.Logger.Info("stream ended: another manager leads", "path", f.q.URL.Path)
		return false
	}
	return f.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)) == nil
}
