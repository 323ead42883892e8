package access

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Caller is who sends a request.
type Caller struct {
	// User is the name that Kubernetes knows the caller by; empty if Anonymous.
	User   string              `json:"user,omitempty"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
	// Anonymous callers have shown nothing.
	Anonymous bool `json:"anonymous,omitempty"`
	// Session says that a browser showed a cookie, so that its pages matter.
	Session bool `json:"session,omitempty"`
}

// Nobody is the caller who has shown nothing.
var Nobody = Caller{Anonymous: true}

// String names the caller in messages and logs.
func (c Caller) String() string {
	if c.Anonymous {
		return "anonymous caller"
	}
	return fmt.Sprintf("user %q", c.User)
}

// Header is the caller as one manager tells it another one.
func (c Caller) Header() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // texts and lists of texts always have a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// ParseHeader is the reverse of Header. A caller that is neither somebody nor anonymous is an
// error.
func ParseHeader(text string) (Caller, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return Caller{}, fmt.Errorf("caller of a forwarded request: %w", err)
	}
	var c Caller
	if err := json.Unmarshal(raw, &c); err != nil {
		return Caller{}, fmt.Errorf("caller of a forwarded request: %w", err)
	}
	if (c.User == "") != c.Anonymous {
		return Caller{}, errors.New("caller of a forwarded request: neither a user nor anonymous")
	}
	return c, nil
}

// Need is the right that a request needs: a verb on objects of a kind. The zero Need is that of
// requests which everybody may send who is let in at all.
type Need struct {
	// Verb is one of Kubernetes: get, list, watch, create, update, delete.
	Verb string
	// Group and Resource are the kind's, e.g. "longhorn.io" and "volumes".
	Group, Resource string
	// Name is the object's; empty means all of them.
	Name string
	// Everywhere: the right is needed in the whole cluster, for kinds that have no namespace or whose
	// objects may be in any.
	Everywhere bool
}

// reading are the verbs that change nothing.
var reading = []string{"", "get", "list", "watch"}

// Reads tells whether nothing changes.
func (n Need) Reads() bool { return slices.Contains(reading, n.Verb) }

// String describes the need in messages.
func (n Need) String() string {
	if n.Verb == "" {
		return "use the API"
	}
	kind := n.Resource
	if n.Group != "" {
		kind += "." + n.Group
	}
	if n.Name != "" {
		return fmt.Sprintf("%s %s %q", n.Verb, kind, n.Name)
	}
	return n.Verb + " " + kind
}

// Mode is what callers may do who show nothing.
type Mode string

// Modes, as setting api-anonymous-access has them.
const (
	ModeNone     Mode = "none"
	ModeReadOnly Mode = "read-only"
	ModeAll      Mode = "all"
)

// Allows tells whether a caller who shows nothing may do what needs n. An unknown mode allows
// nothing.
func (m Mode) Allows(n Need) bool { return m == ModeAll || m == ModeReadOnly && n.Reads() }
