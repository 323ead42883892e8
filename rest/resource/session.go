package resource

// TypeSession is the type of Session. It is no schema: clients of the reference know no users.
const TypeSession = "session"

// SessionInput begins a session.
type SessionInput struct {
	// Token is a Kubernetes bearer token.
	Token string `json:"token"`
}

// Session is who asks, and what is possible without a token.
type Session struct {
	Type string `json:"type"`
	// User is empty for a caller who shows nothing.
	User   string   `json:"user"`
	Groups []string `json:"groups"`
	// Expires is when the session of a browser ends, as RFC 3339 has it; empty without one.
	Expires string `json:"expires"`
	// AnonymousAccess is setting api-anonymous-access: none, read-only or all.
	AnonymousAccess string `json:"anonymousAccess"`
	// Operations are those that change something and that the caller may do on every object, as the
	// table of rights names them: "POST /v1/volumes", "attach /v1/volumes/{name}". Never null.
	Operations []string `json:"operations"`
	// StreamProof is what a page shows as websocket subprotocol "ankole.page.…", beside "ankole", to
	// open streams where a proxy has changed the host that it asked for. Empty where all are let in.
	StreamProof string `json:"streamProof"`
}
