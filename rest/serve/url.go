package serve

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"

	"ankole.storage/controlplane/setting"
	"ankole.storage/rest/resource"
)

// Headers by which a proxy tells what the client asked for.
const (
	headerRequestURL = "X-API-request-url"
	headerProto      = "X-Forwarded-Proto"
	headerHost       = "X-Forwarded-Host"
	headerPort       = "X-Forwarded-Port"
)

var forwardedHeaders = []string{headerRequestURL, headerProto, headerHost, headerPort, "X-Forwarded-For"}

// forwarded is what the proxy headers, or setting manager-url instead of them, say.
type forwarded struct{ requestURL, proto, host, port string }

// first returns the first of a header's comma-separated values.
func first(h http.Header, name string) string {
	v, _, _ := strings.Cut(h.Get(name), ",")
	return strings.TrimSpace(v)
}

// baseURL returns what stands before the request's path in the URL the client used, and that whole
// URL without its query.
func (s *Server) baseURL(r *http.Request) (base, self string) {
	f := forwarded{first(r.Header, headerRequestURL), first(r.Header, headerProto), first(r.Header, headerHost),
		first(r.Header, headerPort)}
	if f.proto == "" && r.TLS != nil {
		f.proto = "https"
	}
	if u, err := url.Parse(s.managerURL(r.Context())); err == nil && u.Host != "" {
		f = forwarded{requestURL: f.requestURL, proto: u.Scheme, host: u.Hostname(), port: u.Port()}
	}
	self = requestURL(f, r.Host, r.URL.EscapedPath())
	path := r.URL.EscapedPath()
	if base, ok := strings.CutSuffix(self, path); ok {
		return strings.TrimRight(base, "/"), self
	}
	// A proxy that rewrote the path: everything in front of the API's own part is prefix.
	if i := strings.LastIndex(self, "/v1"); i >= 0 {
		return self[:i], self
	}
	return strings.TrimRight(self, "/"), self
}

// requestURL builds the client's URL: the header that holds it wins, then the forwarded parts, then
// the request.
func requestURL(f forwarded, host, path string) string {
	if f.requestURL != "" {
		u, _, _ := strings.Cut(f.requestURL, "?")
		return u
	}
	if f.host != "" {
		host = f.host
	}
	if f.proto == "" {
		return "http://" + host + path
	}
	if f.port != "" {
		if bare, _, err := net.SplitHostPort(host); err == nil {
			host = bare
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
		}
		if f.port != "80" && f.port != "443" {
			host += ":" + f.port
		}
	}
	return f.proto + "://" + host + path
}

// managerURL returns setting manager-url, or nothing when it cannot be read: links must not fail a
// request.
func (s *Server) managerURL(ctx context.Context) string {
	v, err := s.objects.Setting(ctx, setting.ManagerURL)
	if err != nil {
		return ""
	}
	return v
}

// CollectionURL returns the URL of a type's collection.
func (q *Request) CollectionURL(typeID string) string {
	return q.base + "/v1/" + resource.Path(typeID)
}

// Envelope fills the envelope of a top-level resource. offered limits the actions to those for the
// object's state; only actions that are built are listed.
func (q *Request) Envelope(typeID, id string, state resource.When) resource.Resource {
	self := q.CollectionURL(typeID) + "/" + url.PathEscape(id)
	e := resource.Resource{ID: id, Type: typeID, Links: map[string]string{"self": self}, Actions: map[string]string{}}
	t, _ := resource.Lookup(typeID)
	served := q.server.served(typeID)
	for _, a := range t.Actions {
		if a.When&state != 0 && served[a.Name] != nil {
			e.Actions[a.Name] = self + "?action=" + a.Name
		}
	}
	return e
}

// Collection wraps a list.
func Collection[T any](q *Request, typeID string, data []T) *resource.Collection[T] {
	if data == nil {
		data = []T{}
	}
	return &resource.Collection[T]{Type: resource.CollectionType, ResourceType: typeID,
		Links: map[string]string{"self": q.Self}, Data: data}
}
