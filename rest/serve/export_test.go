package serve

import (
	"context"
	"net/http"

	"github.com/gorilla/websocket"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// Tests of the whole server are outside of this package, since they use the API that is served.
// This is what they see of the inside.
const (
	MaxStreamsEach        = maxStreamsEach
	HeaderCaller          = headerCaller
	HeaderSchemas         = headerSchemas
	IdleTimeout           = idleTimeout
	ReadHeaderTimeout     = readHeaderTimeout
	MaxAddressConnections = maxAddressConnections
)

// Encode and ListingOf are how answers and lists are written.
var (
	Encode    = encode
	ListingOf = listingOf
)

// NewRequest is a request whose URLs begin with base.
func NewRequest(ctx context.Context, s *Server, base, self string) *Request {
	return &Request{Request: (&http.Request{}).WithContext(ctx), Objects: &s.objects, server: s, base: base, Self: self}
}

// Equal, AppendTo, Size and Keyed are those of streams.
func (l *Listing) Equal(o *Listing) bool { return l.equal(o) }

func (l *Listing) AppendTo(to []byte) []byte { return l.appendTo(to) }

func (l *Listing) Size() int { return l.size() }

func (l *Listing) Keyed() bool { return l.keyed() }

// Alive tells whether a stream goes on that began with some informers.
func Alive(s *Server, r *http.Request, informers cache.Informers, conn *websocket.Conn) bool {
	f := &follower{server: s, q: &Request{Request: r, server: s}, informers: informers, conn: conn}
	return f.alive()
}

// Looker makes the messages of a stream that nothing tells of changes, without a connection.
type Looker struct{ f *follower }

func NewLooker(s *Server, q *Request, which Stream, deltas bool) *Looker {
	return &Looker{&follower{server: s, q: q, which: which, deltas: deltas, news: newNews()}}
}

// Tell tells of a member that may have changed.
func (l *Looker) Tell(name string) { l.f.news.add(name) }

func (l *Looker) Look() (*Listing, error) { return l.f.look() }

// Sent says which list the client has, SetSent gives it one.
func (l *Looker) Sent() *Listing { return l.f.sent }

func (l *Looker) SetSent(list *Listing) { l.f.sent = list }

func (l *Looker) Message(to []byte, list *Listing) ([]byte, error) { return l.f.message(to, list) }
