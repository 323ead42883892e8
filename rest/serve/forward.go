package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/access"
)

// ForwardPath is where a manager takes requests that other managers forward, at a port where it
// answers nobody else.
const ForwardPath = naming.ManagerPath + "rest"

// headerCaller names the caller of a forwarded request. It counts at ForwardPath only, where the
// sender has proved to be a manager; elsewhere it is not looked at.
const headerCaller = "X-Ankole-Caller"

// callerKey carries the caller that another manager has let in.
type callerKey struct{}

// Forwarded serves what other managers forward, below ForwardPath. Whoever serves it admits nobody
// but managers: the callers it names have all been let in. A request is answered where it arrives:
// two managers that take each other for the leader, while the leadership moves, must not forward it
// in a loop.
func (s *Server) Forwarded() http.Handler {
	return http.StripPrefix(ForwardPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := access.ParseHeader(r.Header.Get(headerCaller))
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		s.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	}))
}

// leader returns the manager that should serve the request, nil for this one.
func (s *Server) leader(r *http.Request, t *Route, forwarded bool) *Target {
	if s.cfg.Leader == nil || t.Open || t.Local || forwarded {
		return nil
	}
	return s.cfg.Leader(r)
}

// forward has another manager answer a request. The caller's name goes along, its credentials do
// not. If that manager cannot be reached, a request that reads is served here, and one that is
// certain not to have arrived and has no body; others cannot be sent twice and are refused.
func (s *Server) forward(q *Request, target *Target, here func()) {
	proxy := httputil.ReverseProxy{
		Transport: s.cfg.Relay,
		ErrorLog:  quiet(s.cfg.Logger),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "https", Host: target.Host, Path: ForwardPath})
			p.Out.Host = q.Host
			for _, name := range forwardedHeaders {
				if v, ok := p.In.Header[http.CanonicalHeaderKey(name)]; ok {
					p.Out.Header[http.CanonicalHeaderKey(name)] = v
				}
			}
			p.Out.Header.Del("Authorization")
			p.Out.Header.Del("Cookie")
			p.Out.Header.Set(headerCaller, q.caller.Header())
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			var op *net.OpError
			unsent := errors.As(err, &op) && op.Op == "dial"
			if r.Method == http.MethodGet || unsent && r.Method == http.MethodDelete {
				here()
				return
			}
			// A status that no refusal has: nobody knows whether the leader has worked on it.
			q.fail(Refuse(http.StatusBadGateway,
				fmt.Errorf("the leading manager does not answer, retry in a few seconds: %w", err)))
		},
	}
	proxy.ServeHTTP(q.writer, q.Request)
}

// noRelay is the way to other managers where none was configured.
type noRelay struct{}

// RoundTrip refuses.
func (noRelay) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("no way to other managers is configured, so %s cannot be asked",
		strings.TrimSpace(r.URL.Host))
}
