package rest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"ankole.storage/rest/resource"
)

// handler answers one request with an object to encode, or nil for an empty answer.
type handler func(q *request) (any, error)

// route is one path with what can be done there. A segment in braces matches any one segment and
// becomes a parameter.
type route struct {
	path    string
	methods map[string]handler
	// actions are what POST with ?action= can do.
	actions map[string]handler
	// open routes need no authorisation.
	open bool
	// raw routes write their answer themselves.
	raw http.HandlerFunc
}

// request is what a handler knows about the request it serves.
type request struct {
	*http.Request
	server *Server
	// base is scheme, host and prefix in front of /v1, see baseURL.
	base string
	// self is the URL of the request itself as the client sees it, without the query.
	self   string
	params map[string]string
	writer http.ResponseWriter
}

// table lists every route.
func (s *Server) table() []route {
	get := func(h handler) map[string]handler { return map[string]handler{http.MethodGet: h} }
	return []route{
		{path: "/", methods: get(listVersions), open: true},
		{path: "/v1", methods: get(getVersion)},
		{path: "/v1/apiversions", methods: get(listVersions)},
		{path: "/v1/apiversions/v1", methods: get(getVersion)},
		{path: "/v1/schemas", methods: get(listSchemas)},
		{path: "/v1/schemas/{name}", methods: get(getSchema)},
		{path: "/metrics", raw: s.serveMetrics, open: true},
		{path: "/v1/healthz", methods: get(healthz), open: true},

		{path: "/v1/volumes", methods: map[string]handler{http.MethodGet: listVolumes, http.MethodPost: createVolume}},
		{path: "/v1/volumes/{name}",
			methods: map[string]handler{http.MethodGet: getVolume, http.MethodDelete: deleteVolume},
			actions: volumeHandlers},
		{path: "/v1/dataloss/{name}", methods: map[string]handler{http.MethodGet: getDataLoss,
			http.MethodPost: acceptDataLoss}},
		{path: "/v1/volumeattachments", methods: get(listAttachments)},
		{path: "/v1/volumeattachments/{name}", methods: get(getAttachment)},
		{path: "/v1/nodes", methods: get(listNodes)},
		{path: "/v1/nodes/{name}",
			methods: map[string]handler{http.MethodGet: getNode, http.MethodPut: updateNode, http.MethodDelete: deleteNode},
			actions: map[string]handler{resource.ActionDiskUpdate: updateDisks}},
		{path: "/v1/disktags", methods: get(listDiskTags)},
		{path: "/v1/nodetags", methods: get(listNodeTags)},
		{path: "/v1/settings", methods: get(listSettings)},
		{path: "/v1/settings/{name}", methods: map[string]handler{http.MethodGet: getSetting, http.MethodPut: updateSetting}},
		{path: "/v1/engineimages", methods: map[string]handler{http.MethodGet: listEngineImages,
			http.MethodPost: createEngineImage}},
		{path: "/v1/engineimages/{name}", methods: map[string]handler{http.MethodGet: getEngineImage,
			http.MethodDelete: deleteEngineImage}},
		{path: "/v1/instancemanagers", methods: get(listInstanceManagers)},
		{path: "/v1/instancemanagers/{name}", methods: get(getInstanceManager)},
		{path: "/v1/orphans", methods: get(listOrphans)},
		{path: "/v1/orphans/{name}", methods: map[string]handler{http.MethodGet: getOrphan, http.MethodDelete: deleteOrphan}},
		{path: "/v1/instancelogs/{name}", raw: s.serveLog},
		{path: "/v1/events", methods: get(listEvents)},
		{path: "/v1/ws/{stream}", raw: s.serveStream},
		{path: "/v1/ws/{period}/{stream}", raw: s.serveStream},
	}
}

// volumeHandlers are the actions of volumes that are built.
var volumeHandlers = map[string]handler{
	resource.ActionAttach:               attachVolume,
	resource.ActionDetach:               detachVolume,
	resource.ActionSalvage:              salvageVolume,
	resource.ActionReplicaRemove:        removeReplica,
	resource.ActionExpand:               expandVolume,
	resource.ActionCancelExpansion:      cancelExpansion,
	resource.ActionEngineUpgrade:        upgradeEngine,
	resource.ActionUpdateReplicaCount:   updateReplicaCount,
	"updateDataLocality":                updateDataLocality,
	"updateReplicaAutoBalance":          updateAutoBalance,
	"updateReplicaSoftAntiAffinity":     updateNodeAffinity,
	"updateReplicaZoneSoftAntiAffinity": updateZoneAffinity,
	"updateReplicaDiskSoftAntiAffinity": updateDiskAffinity,
	"updateSnapshotMaxCount":            updateSnapshotMaxCount,
	"updateSnapshotMaxSize":             updateSnapshotMaxSize,
	resource.ActionSnapshotCreate:       createSnapshot,
	resource.ActionSnapshotList:         listSnapshots,
	resource.ActionSnapshotGet:          getSnapshot,
	resource.ActionSnapshotDelete:       removeSnapshot,
	resource.ActionSnapshotRevert:       revertSnapshot,
	resource.ActionSnapshotPurge:        purgeSnapshots,
	resource.ActionSnapshotCRCreate:     orderSnapshot,
	resource.ActionSnapshotCRList:       listSnapshotObjects,
	resource.ActionSnapshotCRGet:        getSnapshotObject,
	resource.ActionSnapshotCRDelete:     deleteSnapshotObject,
}

// served reports whether an action of a type has a handler; only such actions are offered.
func (s *Server) served(typeID, action string) bool {
	for _, r := range s.routes {
		if r.path == "/v1/"+resource.Path(typeID)+"/{name}" {
			return r.actions[action] != nil
		}
	}
	return false
}

// match finds the route of a path.
func (s *Server) match(path string) (*route, map[string]string) {
	have := strings.Split(path, "/")
next:
	for i := range s.routes {
		want := strings.Split(s.routes[i].path, "/")
		if len(want) != len(have) {
			continue
		}
		params := map[string]string{}
		for j := range want {
			switch {
			case strings.HasPrefix(want[j], "{"):
				if have[j] == "" {
					continue next
				}
				params[strings.Trim(want[j], "{}")] = have[j]
			case want[j] != have[j]:
				continue next
			}
		}
		return &s.routes[i], params
	}
	return nil, nil
}

// ServeHTTP routes one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if len(path) > 1 && strings.HasSuffix(path, "/") {
		s.redirect(w, r, strings.TrimRight(path, "/"))
		return
	}
	found, params := s.match(path)
	if found == nil {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	q := &request{Request: r, server: s, params: params, writer: w}
	q.base, q.self = s.baseURL(r)
	if !found.open {
		if err := errors.Join(s.sameSite(r), s.cfg.Authorizer.Authorize(r)); err != nil {
			q.fail(err)
			return
		}
		if target := s.leader(r); target != nil {
			s.forward(w, r, target, func() { s.serve(q, found) })
			return
		}
	}
	s.serve(q, found)
}

// serve answers a request here.
func (s *Server) serve(q *request, found *route) {
	w, r := q.writer, q.Request
	if found.raw != nil {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		found.raw(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, q)))
		return
	}
	h, status := found.handlerOf(r)
	switch status {
	case http.StatusNotFound:
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	case http.StatusMethodNotAllowed:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	q.Request = r.WithContext(ctx)
	answer, err := h(q)
	if err != nil {
		q.fail(err)
		return
	}
	q.answer(answer)
}

// sameSite refuses changes that a page of another site makes a browser send. A server on loopback
// is open to everything on its machine, a browser that shows pages of others too. Programs send no
// Origin and are not concerned.
func (s *Server) sameSite(r *http.Request) error {
	asked := *r
	// A script cannot set this header on a cross-site request without asking first, which is never
	// granted.
	if host := first(r.Header, headerHost); host != "" {
		asked.Host = host
	}
	if err := s.crossOrigin.Check(&asked); err != nil {
		return Refuse(http.StatusForbidden, fmt.Errorf("changes may not be requested by a page of another site: %w", err))
	}
	return nil
}

// requestKey carries the request to raw handlers.
type requestKey struct{}

// handlerOf picks the handler for the method, and for POST the action, of a request.
func (t *route) handlerOf(r *http.Request) (handler, int) {
	if r.Method == http.MethodPost && t.actions != nil {
		if h := t.actions[r.URL.Query().Get("action")]; h != nil {
			return h, http.StatusOK
		}
		return nil, http.StatusNotFound
	}
	if h := t.methods[r.Method]; h != nil {
		return h, http.StatusOK
	}
	return nil, http.StatusMethodNotAllowed
}

// redirect answers with the path without its trailing slash. Only the path is given, so that the
// host is the one the client used; a path of slashes alone becomes the root, never "//host".
func (s *Server) redirect(w http.ResponseWriter, r *http.Request, path string) {
	to := url.URL{Path: "/" + strings.TrimLeft(path, "/"), RawQuery: r.URL.RawQuery}
	http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
}

// headerForwarded marks a request that a manager has relayed. It is served where it arrives: two
// managers that take each other for the leader, while the leadership moves, must not forward it in
// a loop.
const headerForwarded = "X-Ankole-Forwarded"

// leader returns the manager that should serve the request, nil for this one.
func (s *Server) leader(r *http.Request) *Target {
	if s.cfg.Leader == nil || r.Header.Get(headerForwarded) != "" {
		return nil
	}
	return s.cfg.Leader(r)
}

// forward relays the request, the caller's identity included, to another manager. If that one
// cannot be reached, a request without a body is served here; one with a body cannot be sent twice
// and is refused.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, target *Target, here func()) {
	proxy := httputil.ReverseProxy{
		Transport: s.transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: target.Host})
			p.Out.Host = r.Host
			p.Out.Header.Set(headerForwarded, "yes")
			for _, name := range forwardedHeaders {
				if v, ok := p.In.Header[http.CanonicalHeaderKey(name)]; ok {
					p.Out.Header[http.CanonicalHeaderKey(name)] = v
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			var op *net.OpError
			unsent := errors.As(err, &op) && op.Op == "dial"
			if unsent && (r.Method == http.MethodGet || r.Method == http.MethodDelete) {
				here()
				return
			}
			q := &request{Request: r, server: s, writer: w}
			q.base, q.self = s.baseURL(r)
			q.fail(fmt.Errorf("the leading manager does not answer, retry in a few seconds: %w", err))
		},
	}
	proxy.ServeHTTP(w, r)
}

func healthz(*request) (any, error) { return nil, nil }
