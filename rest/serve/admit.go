package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gorilla/websocket"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/host/listener"
	"ankole.storage/rest/access"
)

// statuses are those of refusals by package access.
var statuses = []struct {
	err    error
	status int
}{
	{access.ErrUnauthenticated, http.StatusUnauthorized}, {access.ErrForbidden, http.StatusForbidden},
	{access.ErrBusy, http.StatusTooManyRequests}, {access.ErrUnavailable, http.StatusServiceUnavailable},
}

// refuse gives a refusal its status.
func refuse(err error) error {
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return Refuse(s.status, err)
		}
	}
	return err
}

// mayTravel refuses requests in plaintext that might have credentials in them: those that are meant
// for this server, and a token that was sent already is known to whoever was on the way.
func (s *Server) mayTravel(r *http.Request, t *Route) error {
	switch {
	case r.TLS != nil || s.cfg.TLS == nil || s.cfg.Plaintext, t.Open && !t.Local:
		return nil
	}
	if ip := net.ParseIP(listener.Host(r.RemoteAddr)); ip != nil && ip.IsLoopback() {
		return nil
	}
	return Refuse(http.StatusForbidden, errors.New("this server takes requests by https:// alone, so that tokens are not "+
		"read on the way; its authority is in ConfigMap "+naming.ConfigMapAuthority+" (value restPlaintext of the chart has "+
		"it take others; a token that was sent in plaintext should be replaced)"))
}

var errBody = errors.New("this request has no body; send none")

// identify finds out who sends a request, and refuses what a page of another site makes a browser
// send. That is judged first: without a proof of the page it needs nobody's answer.
func (s *Server) identify(q *Request, t *Route) error {
	if err := s.sameSite(q); err != nil {
		return err
	}
	if s.cfg.Open {
		q.caller = access.Nobody
		return nil
	}
	if t.Open && !t.Local {
		q.caller = access.Nobody
		if t.Path == healthPath {
			return nil
		}
		return s.knownHost(q)
	}
	caller, err := s.callerOf(q)
	if err != nil {
		if t.Local && errors.Is(err, access.ErrUnauthenticated) {
			q.caller = access.Nobody // who logs in, or out, may show what is no good any more
			return s.knownHost(q)
		}
		return refuse(err)
	}
	if q.caller = caller; caller.Anonymous {
		return s.knownHost(q)
	}
	if caller.Session {
		return s.ownPage(q.Request)
	}
	return nil
}

// callerOf reads the credentials of a request: a bearer token, else the cookie of a session, else
// none. Basic credentials are ignored, as old clients always send some.
func (s *Server) callerOf(q *Request) (access.Caller, error) {
	from := listener.Host(q.RemoteAddr)
	header := strings.TrimSpace(q.Header.Get("Authorization"))
	scheme, rest, _ := strings.Cut(header, " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		return s.callerBy(q.Context(), from, strings.TrimSpace(rest))
	case header != "" && !strings.EqualFold(scheme, "Basic"):
		return access.Caller{}, fmt.Errorf("%w: credentials of scheme %q; send a Kubernetes token as \"Authorization: "+
			"Bearer …\"", access.ErrUnauthenticated, Shorten(scheme))
	}
	if q.session() == "" {
		return access.Nobody, nil
	}
	token, _, err := s.cfg.Sessions.Token(q.Context(), q.session())
	if err != nil {
		return access.Caller{}, err
	}
	caller, err := s.callerBy(q.Context(), from, token)
	caller.Session = true
	return caller, err
}

// callerBy asks who shows a token, if it is one that may be shown here.
func (s *Server) callerBy(ctx context.Context, from, token string) (access.Caller, error) {
	if !access.Aimed(token) {
		audience, err := s.objects.Setting(ctx, setting.APITokenAudience)
		if err != nil {
			return access.Caller{}, fmt.Errorf("%w: %w", access.ErrUnavailable, err)
		}
		if audience != setting.AudienceAny {
			return access.Caller{}, fmt.Errorf("%w: setting %s wants tokens for audience %s; make one with: kubectl -n %s create token "+
				"ACCOUNT --audience %s", access.ErrUnauthenticated, setting.APITokenAudience, audience, s.cfg.Namespace, audience)
		}
	}
	return s.cfg.Judge.Token(ctx, from, token)
}

// authorize refuses an operation that the caller has no right to. What callers may do who show
// nothing, all may do.
func (s *Server) authorize(q *Request, operation string) error {
	if s.cfg.Open {
		return nil
	}
	needs, ok := s.table.Needs(operation, q.Params["name"])
	if !ok { // TestEveryOperationNeedsARight: this is none that is served
		return Refuse(http.StatusForbidden, fmt.Errorf("%s needs a right that is not declared", operation))
	}
	mode, err := s.anonymousAccess(q.Context())
	for _, need := range needs {
		switch {
		case err == nil && mode.Allows(need):
		case !q.caller.Anonymous:
			if err := s.cfg.Judge.Allowed(q.Context(), q.caller, need); err != nil {
				return refuse(err)
			}
		case err != nil:
			return refuse(err)
		default:
			return Refuse(http.StatusUnauthorized, fmt.Errorf("to %s a Kubernetes token is needed: send \"Authorization: "+
				"Bearer …\", or log in. Setting %s allows callers without one: %s", need, setting.APIAnonymousAccess,
				describe(mode)))
		}
	}
	return nil
}

// describe says in a message what a mode allows.
func describe(m access.Mode) string {
	if m == access.ModeReadOnly {
		return "reading only"
	}
	return "nothing"
}

// anonymousAccess is what callers may do who show nothing.
func (s *Server) anonymousAccess(ctx context.Context) (access.Mode, error) {
	value, err := s.objects.Setting(ctx, setting.APIAnonymousAccess)
	if err != nil {
		return access.ModeNone, fmt.Errorf("%w: %w", access.ErrUnavailable, err)
	}
	return access.Mode(value), nil
}

// knownHost refuses a request without credentials for a host that this server does not know itself
// as, see access.KnownHost. Requests with credentials need no such check: a foreign page has none.
func (s *Server) knownHost(q *Request) error {
	hosts := []string{q.Host}
	if forwarded := first(q.Header, headerHost); forwarded != "" {
		hosts = append(hosts, forwarded)
	}
	unknown := func(host string) bool { return !access.KnownHost(host, s.cfg.Namespace, nil) }
	if !slices.ContainsFunc(hosts, unknown) {
		return nil
	}
	names := s.hostNames(q.Context())
	for _, host := range hosts {
		if !access.KnownHost(host, s.cfg.Namespace, names) {
			return Refuse(http.StatusForbidden, fmt.Errorf("this server is not known as %q, and who shows no token must "+
				"ask for it by an address or a known name, since a page of another site could ask by its own; add the name "+
				"to setting %s or to the URL in %s", Shorten(host), setting.APIHostNames, setting.ManagerURL))
		}
	}
	return nil
}

// hostNames are those that settings give this server. What cannot be read gives none.
func (s *Server) hostNames(ctx context.Context) []string {
	value, err := s.objects.Setting(ctx, setting.APIHostNames)
	if err != nil {
		return nil
	}
	names := setting.ParseHostNames(value)
	if u, err := url.Parse(s.managerURL(ctx)); err == nil && u.Host != "" {
		names = append(names, u.Hostname())
	}
	return names
}

// sameSite refuses changes, and streams, that a page of another site makes a browser ask for. A
// server on loopback is open to everything on its machine, a browser that shows pages of others
// too. Programs send no Origin and are not concerned. On websockets browsers send Origin alone,
// which says nothing behind a proxy that asks for another host: a page of this server shows a
// proof.
func (s *Server) sameSite(q *Request) error {
	r := q.Request
	asked := *r
	// A script cannot set this header on a cross-site request without asking first, which is never
	// granted.
	if host := first(r.Header, headerHost); host != "" {
		asked.Host = host
	}
	if websocket.IsWebSocketUpgrade(r) {
		if s.showsProof(q) {
			return nil
		}
		asked.Method = http.MethodPost // a page of another site can read streams, as it cannot read answers
	}
	if err := s.crossOrigin.Check(&asked); err != nil {
		return Refuse(http.StatusForbidden, fmt.Errorf("changes and streams may not be requested by a page of another "+
			"site: %w", err))
	}
	return nil
}

// showsProof tells whether a websocket is asked for by one who has read an answer to the same
// cookie. A key of sessions that cannot be read proves nothing.
func (s *Server) showsProof(q *Request) bool {
	if s.cfg.Open {
		return false
	}
	for _, protocol := range websocket.Subprotocols(q.Request) {
		if proof, ok := strings.CutPrefix(protocol, proofPrefix); ok {
			is, err := s.cfg.Sessions.IsPage(q.Context(), q.session(), proof)
			return err == nil && is
		}
	}
	return false
}

// ownPage refuses changes and streams by cookie that do not say which page asks for them: every
// browser that sends cookies says so.
func (s *Server) ownPage(r *http.Request) error {
	if r.Method == http.MethodGet && !websocket.IsWebSocketUpgrade(r) {
		return nil
	}
	if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return Refuse(http.StatusForbidden, errors.New("a session is for pages of this server, and this request does not "+
			"say which page sends it; programs send a bearer token"))
	}
	return nil
}
