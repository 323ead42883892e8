package serve

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"ankole.storage/host/listener"
	"ankole.storage/rest/access"
	"ankole.storage/rest/resource"
)

// sessionCookie holds the session of a browser. Behind TLS its name has a prefix by which browsers
// take it from this host alone, with Secure and for all paths (RFC 6265bis, 4.1.3.2).
const (
	sessionCookie = "ankole-session"
	hostPrefix    = "__Host-"
)

// cookieName is that of the cookie in answers to a request. One that was set under another scheme
// counts for nothing.
func (q *Request) cookieName() string {
	if strings.HasPrefix(q.base, "https://") {
		return hostPrefix + sessionCookie
	}
	return sessionCookie
}

// getSession tells a page who its user is, and what is possible without one.
func getSession(q *Request) (any, error) {
	out := resource.Session{Type: resource.TypeSession, AnonymousAccess: string(access.ModeAll)}
	var err error
	if out.Operations, err = q.changes(); err != nil || q.server.cfg.Open {
		return out, err
	}
	mode, err := q.server.anonymousAccess(q.Context())
	if err != nil {
		return nil, refuse(err)
	}
	out.AnonymousAccess, out.User, out.Groups = string(mode), q.caller.User, q.caller.Groups
	if q.caller.Session {
		if _, end, err := q.server.cfg.Sessions.Token(q.Context(), q.session()); err == nil {
			out.Expires = end.UTC().Format(time.RFC3339)
		}
	}
	if out.StreamProof, err = q.server.cfg.Sessions.Page(q.Context(), q.session()); err != nil {
		return nil, refuse(err)
	}
	return out, nil
}

// session is the value of the cookie of a request, empty without one.
func (q *Request) session() string {
	cookie, err := q.Cookie(q.cookieName())
	if err != nil {
		return ""
	}
	return cookie.Value
}

// beginSession exchanges a token for a cookie, which scripts cannot read and browsers send to this
// server's own pages only.
func beginSession(q *Request) (any, error) {
	var in resource.SessionInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	if q.server.cfg.Open {
		return nil, errors.New("this server knows no users, and answers everybody")
	}
	token := strings.TrimSpace(in.Token)
	caller, err := q.server.callerBy(q.Context(), listener.Host(q.RemoteAddr), token)
	if err != nil {
		return nil, refuse(fmt.Errorf("cannot log in: %w", err))
	}
	value, end, err := q.server.cfg.Sessions.Begin(q.Context(), token)
	if err != nil {
		return nil, refuse(fmt.Errorf("cannot log in: %w", err))
	}
	q.setSession(value, end)
	mode, err := q.server.anonymousAccess(q.Context())
	if err != nil {
		return nil, refuse(err)
	}
	q.caller = caller
	operations, err := q.changes()
	if err != nil {
		return nil, err
	}
	proof, err := q.server.cfg.Sessions.Page(q.Context(), value)
	if err != nil {
		return nil, refuse(err)
	}
	return resource.Session{Type: resource.TypeSession, User: caller.User, Groups: caller.Groups,
		Expires: end.UTC().Format(time.RFC3339), AnonymousAccess: string(mode), Operations: operations,
		StreamProof: proof}, nil
}

// changes are the operations that change something and that the caller may do, whatever the object:
// what a page offers. It asks for each right once, and answers are remembered.
func (q *Request) changes() ([]string, error) {
	may := []string{}
	for _, operation := range slices.Sorted(maps.Keys(q.server.table.Rights)) {
		if q.server.table.Rights[operation][0].Reads() {
			continue
		}
		switch err := q.server.authorize(q, operation); {
		case err == nil:
			may = append(may, operation)
		case !refusesCaller(err):
			return nil, err
		}
	}
	return may, nil
}

// endSession ends a session everywhere, not only in the browser.
func endSession(q *Request) (any, error) {
	q.setSession("", time.Unix(1, 0))
	if q.session() == "" || q.server.cfg.Open {
		return nil, nil
	}
	if err := q.server.cfg.Sessions.End(q.Context(), q.session()); err != nil {
		return nil, refuse(fmt.Errorf("cannot log out everywhere: %w", err))
	}
	return nil, nil
}

func (q *Request) setSession(value string, end time.Time) {
	http.SetCookie(q.writer, &http.Cookie{
		Name: q.cookieName(), Value: value, Path: "/", Expires: end,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: strings.HasPrefix(q.base, "https://"),
	})
}
