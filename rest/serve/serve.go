package serve

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/access"
)

// ServeHTTP answers a request of a client.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	clean := strings.TrimRight(r.URL.Path, "/")
	switch {
	case r.URL.Path == "/":
	case !strings.HasPrefix(r.URL.Path, "/") || path.Clean(r.URL.Path) != clean:
		// Doubled slashes and dots are no path of ours, and nobody is led to what they may mean.
		pageNotFound(w)
		return
	case clean != r.URL.Path && !strings.HasSuffix(r.URL.EscapedPath(), "/"):
		pageNotFound(w) // the slash is a part of a name, which no name has
		return
	case clean != r.URL.Path:
		s.redirect(w, r, clean)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// register gives the table to the router of the standard library. Methods are not part of the
// patterns: an action is one by its query, and clients know the reference's answers for a method
// that is none.
func (s *Server) register() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { pageNotFound(w) })
	for i := range s.table.Routes {
		t := &s.table.Routes[i]
		s.routes[t.Path] = t
		mux.HandleFunc(t.Path, func(w http.ResponseWriter, r *http.Request) { s.route(w, r, t) })
	}
	return mux
}

func pageNotFound(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) }

// parameters returns the values of the parameters in a pattern; ok is false if one of them would be
// a path, which no name is.
func parameters(pattern string, r *http.Request) (params map[string]string, ok bool) {
	params = map[string]string{}
	for segment := range strings.SplitSeq(pattern, "/") {
		name, isParameter := strings.CutPrefix(segment, "{")
		if name = strings.TrimSuffix(name, "}"); !isParameter || name == "$" {
			continue
		}
		value := r.PathValue(name)
		if value == "" || value == "." || value == ".." || strings.ContainsFunc(value, func(c rune) bool {
			return c == '/' || c == '\\' || c == '%' || c < ' ' || c == 0x7f
		}) {
			return nil, false
		}
		if name == "name" && strings.HasPrefix(pattern, "/v1/volumes/{name}") && len(value) > naming.MaxNameLength {
			value = naming.CorrectName(value) // what such a name became when the volume was created
		}
		params[name] = value
	}
	return params, true
}

// route answers a request for a route: it lets the caller in, and has the leader answer or answers
// itself.
func (s *Server) route(w http.ResponseWriter, r *http.Request, t *Route) {
	params, ok := parameters(t.Path, r)
	if !ok {
		pageNotFound(w)
		return
	}
	q := &Request{Request: r, Objects: &s.objects, server: s, Params: params, writer: w}
	q.base, q.Self = s.baseURL(r)
	q.setDeadlines(t.Stream)
	if err := s.mayTravel(r, t); err != nil {
		q.fail(err)
		return
	}
	caller, forwarded := r.Context().Value(callerKey{}).(access.Caller)
	if forwarded {
		q.caller = caller // the manager that forwards has let it in
	} else if err := s.identify(q, t); err != nil {
		q.fail(err)
		return
	}
	h, operation, status := t.handlerOf(r)
	if status != http.StatusOK {
		if feature := s.missing(r, t); feature != "" {
			q.refuseLater(feature)
			return
		}
	}
	switch status {
	case http.StatusNotFound:
		pageNotFound(w)
		return
	case http.StatusMethodNotAllowed:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if !forwarded && !t.Open {
		if err := s.authorize(q, operation); err != nil {
			q.fail(err)
			return
		}
	}
	if t.Stream && !forwarded {
		ctx, end := s.whileAllowed(q, t, operation)
		defer end()
		q.Request = q.WithContext(ctx)
	}
	q.limit = t.limitOf(r)
	if q.limit > requestTimeout { // whoever asks for it may do it
		control, end := http.NewResponseController(w), time.Now().Add(q.limit+answerTimeout)
		_ = control.SetWriteDeadline(end)
		_ = control.SetReadDeadline(end) // a bound of the body would end the request, which outlasts it
	}
	if target := s.leader(r, t, forwarded); target != nil {
		s.forward(q, target, func() { s.serve(q, t, h) })
		return
	}
	s.serve(q, t, h)
}

// setDeadlines bounds how long a client may take to send the request and to take the answer.
// Streams have bounds of their own.
func (q *Request) setDeadlines(stream bool) {
	// A writer without deadlines is one of a test.
	control := http.NewResponseController(q.writer)
	now := time.Now()
	_ = control.SetWriteDeadline(time.Time{})
	if q.ContentLength != 0 {
		_ = control.SetReadDeadline(now.Add(q.server.cfg.Limits.Body))
	}
	if !stream {
		_ = control.SetWriteDeadline(now.Add(requestTimeout + answerTimeout))
	}
}

// serve answers a request here.
func (s *Server) serve(q *Request, t *Route, h Handler) {
	r := q.Request
	if t.Raw != nil {
		err := errBody
		if r.ContentLength == 0 {
			err = t.Raw(q.writer, q)
		}
		if err != nil {
			q.fail(err)
		}
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), q.limit)
	defer cancel()
	q.Request = r.WithContext(ctx)
	answer, err := h(q)
	if err != nil {
		q.fail(err)
		return
	}
	if r.Method != http.MethodGet {
		s.cfg.Logger.Info("request done", "method", r.Method, "path", r.URL.Path, "action", r.URL.Query().Get("action"),
			"caller", q.caller.String())
	}
	q.answer(answer)
}

// redirect answers with the path without its trailing slash. Only the path is given, so that the
// host is the one the client used; a path of slashes alone becomes the root, never "//host".
func (s *Server) redirect(w http.ResponseWriter, r *http.Request, path string) {
	to := url.URL{Path: "/" + strings.TrimLeft(path, "/"), RawQuery: r.URL.RawQuery}
	http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
}
