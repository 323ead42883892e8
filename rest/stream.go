package rest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
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
	// maxStreams bounds the open streams of one manager; a browser page has about eight.
	maxStreams = 512
	// maxClientFrame bounds what a client may send; it has nothing to say.
	maxClientFrame = 4 << 10
)

// stream is a list that clients can follow.
type stream struct {
	list handler
	// kinds are the objects whose changes can change the list. A list without kinds is looked at on
	// every ping.
	kinds []client.Object
}

// streamTable gives the streams by name.
var streamTable = map[string]stream{
	"volumes":           {listVolumes, []client.Object{&lh.Volume{}, &lh.Engine{}, &lh.Replica{}, &lh.VolumeAttachment{}}},
	"volumeattachments": {listAttachments, []client.Object{&lh.VolumeAttachment{}}},
	"nodes":             {listNodes, []client.Object{&lh.Node{}}},
	"settings":          {listSettings, []client.Object{&lh.Setting{}}},
	"engineimages":      {listEngineImages, []client.Object{&lh.EngineImage{}}},
	"orphans":           {listOrphans, []client.Object{&lh.Orphan{}}},
	"events":            {listEvents, nil},
}

var upgrader = websocket.Upgrader{
	HandshakeTimeout: readHeaderTimeout,
	// Any origin may look, as the reference has it; who may connect at all is the Authorizer's
	// matter.
	CheckOrigin: func(*http.Request) bool { return true },
}

// streams counts the open streams so that the server can wait for them.
type streams struct {
	mu   sync.Mutex
	open int
	wg   sync.WaitGroup
}

func (s *streams) add() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= maxStreams {
		return false
	}
	s.open++
	s.wg.Add(1)
	return true
}

func (s *streams) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.wg.Done()
}

func (s *streams) wait() { s.wg.Wait() }

// serveStream sends a list over a websocket: at once, and whole again whenever it changed, at most
// once a period.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request) {
	q := r.Context().Value(requestKey{}).(*request)
	q.Request = r
	which, ok := streamTable[q.params["stream"]]
	if !ok {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	if !websocket.IsWebSocketUpgrade(r) {
		q.fail(fmt.Errorf("/v1/ws/%s is a websocket; a plain list is at /v1/%[1]s", q.params["stream"]))
		return
	}
	if !s.streams.add() {
		q.fail(Refuse(http.StatusServiceUnavailable,
			fmt.Errorf("%d streams are open already, which is the limit", maxStreams)))
		return
	}
	defer s.streams.done()
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // The upgrader has answered.
	}
	defer conn.Close()
	conn.SetReadLimit(maxClientFrame)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	q.Request = r.WithContext(ctx)
	changed := s.watch(ctx, which.kinds)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel()
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	})
	s.follow(ctx, q, conn, which, streamPeriod(q.params["period"]), changed)
	conn.Close()
	reading.Wait()
}

// streamPeriod reads the rate limit in the path. Text that is no duration means no limit.
func streamPeriod(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return min(max(d, 0), maxStreamPeriod)
}

// follow sends the list until the context ends or the client is gone.
func (s *Server) follow(ctx context.Context, q *request, conn *websocket.Conn, which stream, period time.Duration,
	changed <-chan struct{}) {
	var sent []byte
	send := func() bool {
		list, err := which.list(q)
		if err != nil {
			s.cfg.Logger.Info("stream ended", "path", q.URL.Path, "err", err)
			return false
		}
		body, err := encode(list)
		if err != nil || bytes.Equal(body, sent) {
			return err == nil
		}
		sent = body
		_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		return conn.WriteMessage(websocket.TextMessage, body) == nil
	}
	if !send() {
		return
	}
	last := time.Now()
	ping := time.NewTicker(pingPeriod)
	defer ping.Stop()
	// due is armed when something changed before the period was over.
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
			if conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)) != nil {
				return
			}
			if len(which.kinds) == 0 && !send() {
				return
			}
		case <-changed:
			if !armed {
				armed = true
				due.Reset(time.Until(last.Add(period)))
			}
		case <-due.C:
			armed = false
			last = time.Now()
			if !send() {
				return
			}
		}
	}
}

// watch returns a channel that gets a value after any change of the kinds. Several changes may give
// one value.
func (s *Server) watch(ctx context.Context, kinds []client.Object) <-chan struct{} {
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	if len(kinds) == 0 {
		return changed
	}
	var informers cache.Informers
	if s.cfg.Informers != nil {
		informers = s.cfg.Informers()
	}
	if informers == nil || !s.subscribe(ctx, informers, kinds, notify) {
		s.streams.wg.Go(func() { notifyEvery(ctx, pollPeriod, notify) })
	}
	return changed
}

// subscribe has notify called on every change of the kinds until the context ends. It reports
// whether it could.
func (s *Server) subscribe(ctx context.Context, informers cache.Informers, kinds []client.Object, notify func()) bool {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		UpdateFunc: func(any, any) { notify() },
		DeleteFunc: func(any) { notify() },
	}
	for _, kind := range kinds {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		var registration toolscache.ResourceEventHandlerRegistration
		if err == nil {
			registration, err = informer.AddEventHandler(handler)
		}
		if err != nil {
			s.cfg.Logger.Warn("no change notices for a stream, looking once a second instead", "kind",
				fmt.Sprintf("%T", kind), "err", err)
			return false
		}
		context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registration) })
	}
	return true
}

// notifyEvery calls notify again and again until the context ends.
func notifyEvery(ctx context.Context, period time.Duration, notify func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			notify()
		}
	}
}
