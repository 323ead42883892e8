// Package client talks to the /v1 API from Go: the CLI, the demonstration and the tests use it.
//
// It works with the typed objects of package resource, builds its URLs itself (the links in answers
// may name hosts that only the cluster knows), bounds every answer and every wait, and turns error
// objects into *Error. It imports nothing of Kubernetes.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"ankole.storage/rest/resource"
)

const (
	// DefaultServer is where a standalone cluster listens.
	DefaultServer = "http://127.0.0.1:9500"
	// DefaultTimeout bounds one request; the server itself gives up after 30 s.
	DefaultTimeout = 40 * time.Second
	// maxAnswer bounds what is read of one answer: thousands of volumes with all their parts.
	maxAnswer = 256 << 20
	// maxRefusal bounds what is read of a refusal.
	maxRefusal = 64 << 10
	// maxErrorText bounds what is shown of an answer that is not an error object.
	maxErrorText = 512
)

// ErrUnreachable marks errors of a server that does not answer at all.
var ErrUnreachable = errors.New("server is not reachable")

// Error is a refusal by the server.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Message is the server's text; it may be empty for something that does not exist.
	Message string
	// Path is what was asked for.
	Path string
}

// Error gives the server's message.
func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("%s: %s", e.Path, strings.ToLower(http.StatusText(e.Status)))
	}
	return e.Message
}

// IsNotFound reports whether the error says that something does not exist.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// IsConflict reports whether the error says that something has changed since it was read.
func IsConflict(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusConflict
}

// IsUnauthenticated reports whether the server does not know who asks.
func IsUnauthenticated(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusUnauthorized
}

// tokenError is why there is no token to send.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }

// IsForbidden reports whether the caller lacks the right.
func IsForbidden(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusForbidden
}

// isFinal reports whether asking again gives the same answer: the caller lacks a token or a right.
func isFinal(err error) bool {
	var e *Error
	var missing *tokenError
	return errors.As(err, &missing) ||
		errors.As(err, &e) && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden)
}

// Client is a client of one server. It is safe for concurrent use.
type Client struct {
	base *url.URL
	http *http.Client
	// tokens gives the bearer token of each request; nil: none is sent.
	tokens Tokens
	// options are how the server is reached; the streams need them too.
	options Options
}

// Options say how a server is reached, beyond its address. The zero value is a plain connection
// without a token.
type Options struct {
	// Tokens gives the bearer token of each request; nil: none is sent.
	Tokens Tokens
	// TLS is for servers with https://; nil means the authorities of this machine.
	TLS *tls.Config
	// Dial makes the connections; nil is the usual way. Proxies of the environment are not used
	// with it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DryRun, if it is set, is told of every request that would change something, and that request
	// is not sent: the call fails with ErrDryRun.
	DryRun func(method, path string, body []byte)
}

// ErrDryRun marks the answer to a request that was only shown.
var ErrDryRun = errors.New("not sent: this is a dry run")

// Tokens gives the bearer token for a request; an empty one is not sent. It is asked for each,
// since tokens in Pods are renewed.
type Tokens func(context.Context) (string, error)

// Token is always the same one; an empty one is not sent.
func Token(token string) Tokens {
	if token == "" {
		return nil
	}
	return func(context.Context) (string, error) { return token, nil }
}

// TokenFile reads the token from a file each time: the kubelet renews the tokens of Pods.
func TokenFile(path string) Tokens {
	return func(context.Context) (string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("bearer token: %w", err)
		}
		token := strings.TrimSpace(string(text))
		if token == "" {
			return "", fmt.Errorf("bearer token: %s is empty", path)
		}
		return token, nil
	}
}

// AuthorityFile has servers with https:// be known by the certificates in a file, which is read for
// each connection: the kubelet renews it.
func AuthorityFile(path string) *tls.Config {
	return Authority(path, func() ([]byte, error) { return os.ReadFile(path) })
}

// Authority has servers with https:// be known by the certificates, PEM, that read returns for each
// connection; from is where they are, for messages.
func Authority(from string, read func() ([]byte, error)) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // verified below, by the authority as it is
		VerifyConnection: func(s tls.ConnectionState) error {
			text, err := read()
			if err != nil {
				return fmt.Errorf("authority of the managers: %w", err)
			}
			o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), DNSName: s.ServerName}
			if !o.Roots.AppendCertsFromPEM(text) {
				return fmt.Errorf("authority of the managers: %s has no certificate", from)
			}
			return verify(s, o)
		},
	}
}

func verify(s tls.ConnectionState, o x509.VerifyOptions) error {
	for _, c := range s.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(o)
	return err
}

// New returns a client of a server, given as URL (a "/v1" at its end is taken off) or as host:port.
// No connection is made yet.
func New(server, token string) (*Client, error) { return NewWith(server, Token(token)) }

// NewWith is New with tokens that may change; nil: none is sent.
func NewWith(server string, tokens Tokens) (*Client, error) {
	return NewOptions(server, Options{Tokens: tokens})
}

// NewOptions is New with everything that can be said about the connection.
func NewOptions(server string, o Options) (*Client, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(strings.TrimSuffix(strings.TrimRight(server, "/"), "/v1"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the address of a server; write it like %s", server, DefaultServer)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	c := &Client{base: u, tokens: o.Tokens, options: o, http: &http.Client{Timeout: DefaultTimeout}}
	if o.TLS != nil || o.Dial != nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = o.TLS
		if o.Dial != nil {
			t.DialContext, t.Proxy = o.Dial, nil
		}
		c.http.Transport = t
	}
	return c, nil
}

// Server returns the server's URL without /v1.
func (c *Client) Server() string { return c.base.String() }

// patient is the client for what has no bound but its context.
func (c *Client) patient() *Client {
	patient, unbounded := *c, *c.http
	unbounded.Timeout = 0
	patient.http = &unbounded
	return &patient
}

// url returns the URL of a path below /v1. Elements are taken literally, whatever is in them.
func (c *Client) url(path ...string) *url.URL {
	u := *c.base
	for _, p := range append([]string{"v1"}, path...) {
		u.RawPath = u.EscapedPath() + "/" + url.PathEscape(p)
		u.Path += "/" + p
	}
	return &u
}

// object returns the URL of one object. A name that is empty would mean the whole collection.
func (c *Client) object(typeID, name string) (*url.URL, error) {
	if name == "" {
		return nil, errors.New("the name is empty")
	}
	return c.url(resource.Path(typeID), name), nil
}

// call sends a request and decodes the answer into a pointer; nil ignores it.
func (c *Client) call(ctx context.Context, method string, u *url.URL, in, into any) error {
	var body io.Reader
	var sent []byte
	if in != nil {
		var err error
		if sent, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		body = bytes.NewReader(sent)
	}
	if c.options.DryRun != nil && changes(method, u) {
		c.options.DryRun(method, u.RequestURI(), sent)
		return ErrDryRun
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return err
	}
	if req.Header, err = c.header(ctx); err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: reading the answer of %s %s: %w", ErrUnreachable, method, u.Path, err)
	}
	if len(text) > maxAnswer {
		return fmt.Errorf("the answer of %s %s is longer than %d bytes", method, u.Path, maxAnswer)
	}
	if resp.StatusCode != http.StatusOK {
		return refusal(resp.StatusCode, u.Path, text)
	}
	if into == nil || len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s does not answer like an Ankole server: %w", u, err)
	}
	return nil
}

// looks are the actions that only show something: they are POSTs that change nothing.
var looks = []string{resource.ActionSnapshotList, resource.ActionSnapshotGet, resource.ActionSnapshotCRList,
	resource.ActionSnapshotCRGet, resource.ActionRecurringJobList, resource.ActionBackupList,
	resource.ActionBackupListByVolume, resource.ActionBackupGet}

// changes reports whether a request may change something.
func changes(method string, u *url.URL) bool {
	return method != http.MethodGet && !slices.Contains(looks, u.Query().Get("action"))
}

// remove orders the deletion of an object.
func (c *Client) remove(ctx context.Context, typeID, name string) error {
	u, err := c.object(typeID, name)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, u, nil, nil)
}

func (c *Client) header(ctx context.Context) (http.Header, error) {
	h := http.Header{"Accept": {"application/json"}}
	if c.tokens != nil {
		token, err := c.tokens(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, &tokenError{err}
		}
		if token != "" {
			h.Set("Authorization", "Bearer "+token)
		}
	}
	return h, nil
}

// refusal reads an error object, or shows the beginning of whatever else came.
func refusal(status int, path string, text []byte) error {
	var e resource.Error
	if json.Unmarshal(text, &e) == nil && e.Message != "" {
		return &Error{Status: status, Message: e.Message, Path: path}
	}
	shown := strings.TrimSpace(string(text[:min(len(text), maxErrorText)]))
	if shown != "" {
		shown = fmt.Sprintf("%s answers %d: %s", path, status, shown)
	}
	return &Error{Status: status, Message: shown, Path: path}
}

// list reads a collection.
func list[T any](ctx context.Context, c *Client, typeID string) ([]T, error) {
	var out resource.Collection[T]
	err := c.call(ctx, http.MethodGet, c.url(resource.Path(typeID)), nil, &out)
	return out.Data, err
}

// one reads, or changes and reads, one object.
func one[T any](ctx context.Context, c *Client, method, typeID, name string, in any) (*T, error) {
	u, err := c.object(typeID, name)
	if err != nil {
		return nil, err
	}
	var out T
	if err := c.call(ctx, method, u, in, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// action posts an action to an object.
func action[T any](ctx context.Context, c *Client, typeID, name, which string, in any) (*T, error) {
	u, err := c.object(typeID, name)
	if err != nil {
		return nil, err
	}
	u.RawQuery = url.Values{"action": {which}}.Encode()
	var out T
	if err := c.call(ctx, http.MethodPost, u, in, &out); err != nil {
		return nil, err
	}
	return &out, nil
}
