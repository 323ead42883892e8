package serve

import (
	"log/slog"
	"maps"
	"net/http"
	"time"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/access"
	"ankole.storage/rest/resource"
	"ankole.storage/ui"
)

// Handler answers one request with an object to encode, or nil for an empty answer.
type Handler func(q *Request) (any, error)

// Route is one path, a pattern of http.ServeMux, with what can be done there. A segment in braces
// becomes a parameter.
type Route struct {
	Path    string
	Methods map[string]Handler
	// Actions are what POST with ?action= can do.
	Actions map[string]Handler
	// Raw routes write their answer to GET themselves. An error is for one that has not begun.
	Raw func(w http.ResponseWriter, q *Request) error
	// Stream: the answer goes on as long as the client takes it, within bounds of its own.
	Stream bool
	// Limits are the times of actions that do not answer at once.
	Limits map[string]time.Duration
	// Open routes answer everybody.
	Open bool
	// Local routes are answered by every manager itself.
	Local bool
}

// Get is the methods of a route that can only be read.
func Get(h Handler) map[string]Handler { return map[string]Handler{http.MethodGet: h} }

// Table is what a server serves besides its own routes, which are those of no object.
type Table struct {
	Routes []Route
	// Streams are the lists that clients can follow, by name.
	Streams map[string]Stream
	// Rights are what callers need: for each method of a route ("GET /v1/volumes"), each action
	// ("attach /v1/volumes/{name}") and each stream ("stream volumes"). Those of a server's own routes
	// are here, too.
	Rights map[string][]access.Need
	// Later are operations that the schema document declares and that nobody serves yet, by "METHOD
	// path" or "action path", with what they need.
	Later map[string]string
}

// Add adds the routes and streams of another table.
func (t *Table) Add(routes []Route, streams map[string]Stream) {
	t.Routes = append(t.Routes, routes...)
	if t.Streams == nil {
		t.Streams = map[string]Stream{}
	}
	maps.Copy(t.Streams, streams)
}

// Request is what a handler knows about the request it serves.
type Request struct {
	*http.Request
	// Objects are what is read and changed.
	Objects *Objects
	// Self is the URL of the request itself as the client sees it, without the query.
	Self string
	// Params are the values of the path's parameters; none of them is a path itself.
	Params map[string]string
	server *Server
	// base is scheme, host and prefix in front of /v1, see baseURL.
	base   string
	writer http.ResponseWriter
	// caller is who asks.
	caller access.Caller
	// limit is the time that the request has.
	limit time.Duration
}

// WithoutBase is a request for views whose links begin with the path: the base of each caller is
// added to them, see NewText.
func (q *Request) WithoutBase() *Request { return &Request{server: q.server, Objects: q.Objects} }

// Logger takes what is worth a line.
func (q *Request) Logger() *slog.Logger { return q.server.cfg.Logger }

// Stranger tells whether the caller has shown nothing to a server that asks.
func (q *Request) Stranger() bool { return !q.server.cfg.Open && q.caller.Anonymous }

// healthPath is asked by the kubelet.
const healthPath = naming.HealthPath

// own are the routes of a server itself.
func (s *Server) own() []Route {
	metrics := func(w http.ResponseWriter, q *Request) error {
		s.cfg.Metrics.ServeHTTP(w, q.Request)
		return nil
	}
	return []Route{
		{Path: "/{$}", Methods: Get(getRoot), Open: true},
		{Path: "/" + ui.Folder + "/{file}", Methods: Get(getUIFile), Open: true},
		{Path: "/v1", Methods: Get(getVersion)}, {Path: "/v1/apiversions", Methods: Get(listVersions)},
		{Path: "/v1/apiversions/v1", Methods: Get(getVersion)},
		{Path: "/v1/schemas", Methods: Get(listSchemas)},
		{Path: "/v1/schemas/{name}", Methods: Get(getSchema)},
		{Path: "/metrics", Raw: metrics, Open: true},
		{Path: healthPath, Methods: Get(healthz), Open: true},
		{Path: "/v1/session", Open: true, Local: true, Methods: map[string]Handler{http.MethodGet: getSession,
			http.MethodPost: beginSession, http.MethodDelete: endSession}},
		{Path: "/v1/ws/{stream}", Raw: s.serveStream, Stream: true},
		{Path: "/v1/ws/{period}/{stream}", Raw: s.serveStream, Stream: true},
	}
}

// served returns the handlers of a type's actions; only such actions are offered.
func (s *Server) served(typeID string) map[string]Handler {
	if t := s.routes[objectPath(typeID)]; t != nil {
		return t.Actions
	}
	return nil
}

// objectPath is the path of the objects of a type.
func objectPath(typeID string) string { return "/v1/" + resource.Path(typeID) + "/{name}" }

// handlerOf picks the handler for the method, and for POST the action, of a request, and says what
// the rights call it.
func (t *Route) handlerOf(r *http.Request) (h Handler, operation string, status int) {
	action := r.URL.Query().Get("action")
	switch {
	case t.Raw != nil && r.Method == http.MethodGet:
		return nil, t.rawOperation(r), http.StatusOK
	case r.Method == http.MethodPost && t.Actions != nil:
		if h := t.Actions[action]; h != nil {
			return h, action + " " + t.Path, http.StatusOK
		}
		return nil, "", http.StatusNotFound
	}
	if h := t.Methods[r.Method]; h != nil {
		return h, r.Method + " " + t.Path, http.StatusOK
	}
	return nil, "", http.StatusMethodNotAllowed
}

// limitOf is the time that a request for the route has.
func (t *Route) limitOf(r *http.Request) time.Duration {
	if d, ok := t.Limits[r.URL.Query().Get("action")]; ok && r.Method == http.MethodPost {
		return d
	}
	return requestTimeout
}

// rawOperation is what the rights call a raw route: each stream has its own right.
func (t *Route) rawOperation(r *http.Request) string {
	if stream := r.PathValue("stream"); stream != "" {
		return streamOperation + stream
	}
	return http.MethodGet + " " + t.Path
}

// healthz answers health checks: a manager that is not ready gets no requests of Services.
func healthz(r *Request) (any, error) {
	if ready := r.server.cfg.Ready; ready != nil {
		if err := ready(); err != nil {
			return nil, Refuse(http.StatusServiceUnavailable, err)
		}
	}
	return nil, nil
}
