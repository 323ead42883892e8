// Package client talks to the /v1 API from Go: the CLI, the demonstration and the tests use it.
//
// It works with the typed objects of package resource, builds its URLs itself (the links in answers
// may name hosts that only the cluster knows), bounds every answer and every wait, and turns error
// objects into *Error. It imports nothing of Kubernetes.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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

// Client is a client of one server. It is safe for concurrent use.
type Client struct {
	base *url.URL
	http *http.Client
	// Token is a bearer token sent with every request, if not empty.
	token string
}

// New returns a client of a server, given as URL (a "/v1" at its end is taken off) or as host:port.
// No connection is made yet.
func New(server, token string) (*Client, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(strings.TrimSuffix(strings.TrimRight(server, "/"), "/v1"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the address of a server; write it like %s", server, DefaultServer)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return &Client{base: u, token: token, http: &http.Client{Timeout: DefaultTimeout}}, nil
}

// Server returns the server's URL without /v1.
func (c *Client) Server() string { return c.base.String() }

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
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return err
	}
	req.Header = c.header()
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
		return fmt.Errorf("reading the answer of %s %s: %w", method, u.Path, err)
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

func (c *Client) header() http.Header {
	h := http.Header{"Accept": {"application/json"}}
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	return h
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
