package serve

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/host/listener"
)

const (
	// maxStreamPeriod is the longest rate limit a client may ask for; it equals the ping period.
	maxStreamPeriod = 15 * time.Second
	// pingPeriod keeps proxies from closing a quiet connection.
	pingPeriod = 15 * time.Second
	// writeTimeout ends a stream whose client does not read.
	writeTimeout = 10 * time.Second
	// pollPeriod is how often a stream looks for changes when nothing tells it of them.
	pollPeriod = time.Second
	// maxStreams bounds the open streams and logs of one manager, maxStreamsEach those of one caller;
	// a browser page has about eight.
	maxStreams     = 512
	maxStreamsEach = 128
	// maxClientFrame bounds what a client may send; it has nothing to say.
	maxClientFrame = 4 << 10
	// paceFactor is how many times as long as its last message took, from the look at the objects to
	// the last byte that the client's connection took, a stream does nothing: it never uses more than
	// a fifth of a processor, or of a slow client's connection, whatever changes.
	paceFactor = 4
	// minCompressed is the length from which a message is worth compressing.
	minCompressed = 1 << 10
	// frameBytes is the length of the frames of a compressed message.
	frameBytes = 32 << 10
)

// deltasParameter is the query parameter by which a client asks for changes instead of whole lists.
const deltasParameter = "deltas"

// Stream is a list that clients can follow.
type Stream struct {
	List Handler
	// Kinds are the objects whose changes can change the list. A list without kinds is looked at on
	// every ping.
	Kinds []client.Object
	// Of names the member that an object of the kinds is seen in, and Since makes the list from the
	// one before and the names of members that may have changed. Nil: the list is made whole.
	Of    func(client.Object) string
	Since func(q *Request, before *Listing, names []string) (*Listing, error)
}

// A page names subprotocol, which is all that streams speak, and shows its proof as another.
const (
	subprotocol = "ankole"
	proofPrefix = "ankole.page."
)

var upgrader = websocket.Upgrader{
	HandshakeTimeout: readHeaderTimeout,
	Subprotocols:     []string{subprotocol},
	// Who may connect, and from which page, was judged before: see identify.
	CheckOrigin: func(*http.Request) bool { return true },
	// Of a list of volumes nine tenths are saved, for less than 2 ms per MB (docs/benchmarks.md).
	EnableCompression: true,
	WriteBufferSize:   frameBytes,
	WriteBufferPool:   &sync.Pool{},
}

// streams counts the open streams and logs, all and by caller, so that no caller takes the places
// of others and the server can wait for them.
type streams struct {
	mu   sync.Mutex
	open int
	of   map[string]int
	wg   sync.WaitGroup
}

// KeepOpen counts a request as a stream or log of its caller until done is called, or refuses it.
func (q *Request) KeepOpen() (done func(), err error) { return q.server.streams.add(q) }

// add opens a stream of a caller, which done ends, or refuses it.
func (s *streams) add(q *Request) (done func(), err error) {
	who := q.caller.String()
	if q.caller.Anonymous {
		who += " at " + listener.Host(q.RemoteAddr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[who] >= maxStreamsEach {
		return nil, Refuse(http.StatusTooManyRequests,
			fmt.Errorf("%s has %d streams open already, which is the limit; close some", who, maxStreamsEach))
	}
	if s.open >= maxStreams {
		return nil, Refuse(http.StatusServiceUnavailable,
			fmt.Errorf("%d streams are open already, which is the limit", maxStreams))
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.open++
	s.of[who]++
	s.wg.Add(1)
	return func() { s.done(who) }, nil
}

func (s *streams) done(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.of[who]--; s.of[who] == 0 {
		delete(s.of, who)
	}
	s.wg.Done()
}

func (s *streams) wait() { s.wg.Wait() }

// serveStream sends a list over a websocket: at once, and again whenever it changed, at most once a
// period; whole, or what has changed of it where the client asks for that.
func (s *Server) serveStream(w http.ResponseWriter, q *Request) error {
	r := q.Request
	which, ok := s.table.Streams[q.Params["stream"]]
	if !ok {
		pageNotFound(w)
		return nil
	}
	if !websocket.IsWebSocketUpgrade(r) {
		return fmt.Errorf("/v1/ws/%s is a websocket; a plain list is at /v1/%[1]s", q.Params["stream"])
	}
	done, err := q.KeepOpen()
	if err != nil {
		return err
	}
	defer done()
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil // The upgrader has answered.
	}
	defer conn.Close()
	conn.SetReadLimit(maxClientFrame)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	q.Request = r.WithContext(ctx)
	f := &follower{server: s, q: q, conn: conn, which: which, period: streamPeriod(q.Params["period"]),
		deltas: r.URL.Query().Get(deltasParameter) == "true", informers: s.informers()}
	f.news = s.watch(ctx, which, f.informers)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel()
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	})
	f.follow(ctx)
	conn.Close()
	reading.Wait()
	return nil
}

// streamPeriod reads the rate limit in the path. Text that is no duration means no limit.
func streamPeriod(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return min(max(d, 0), maxStreamPeriod)
}
