package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ankole.storage/rest/resource"
)

// Limits of request bodies.
const (
	// maxBodyBytes bounds a decoded body. The largest real one is a node's disks or a whole volume
	// sent back.
	maxBodyBytes = 1 << 20
	// maxDrainBytes is how much of a body that is too long is read and thrown away, so that a
	// client which writes before it reads still sees the answer. Longer ones find the connection
	// closed.
	maxDrainBytes = 256 << 20
	// drainTimeout bounds the time spent on that.
	drainTimeout = 20 * time.Second
)

// retryAfter is what a client is told to wait, in seconds.
const retryAfter = "5"

// headerSchemas tells clients where the schema document is; they refuse to work without it.
const headerSchemas = "X-API-Schemas"

// statusError is a refusal with a status other than the usual 500.
type statusError struct {
	status int
	// empty asks for no body.
	empty bool
	err   error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// Refuse gives an error a status of its own.
func Refuse(status int, err error) error { return &statusError{status: status, err: err} }

// NotFoundEmpty is the answer for a volume that does not exist: clients expect 404 with nothing in
// it.
func NotFoundEmpty(err error) error {
	return &statusError{status: http.StatusNotFound, empty: true, err: err}
}

// Warn adds a warning to the answer, as the API server gives them.
func (q *Request) Warn(text string) { q.writer.Header().Set("Warning", fmt.Sprintf("299 - %q", text)) }

// answer sends a successful result.
func (q *Request) answer(object any) {
	if object == nil {
		q.writer.WriteHeader(http.StatusOK)
		return
	}
	if page, ok := object.(http.Handler); ok {
		page.ServeHTTP(q.writer, q.Request)
		return
	}
	body, err := encode(object)
	if err != nil {
		q.fail(fmt.Errorf("encoding the answer: %w", err))
		return
	}
	h := q.writer.Header()
	h.Set(headerSchemas, q.base+"/v1/schemas")
	if wantsHTML(q.Request) {
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", explorerPolicy)
		_ = writeExplorer(q.writer, q.Self, body)
		return
	}
	h.Set("Content-Type", "application/json")
	_, _ = q.writer.Write(body)
}

// encode writes JSON without HTML escaping, as clients compare texts.
func encode(object any) ([]byte, error) {
	if l, ok := object.(*Listing); ok {
		return l.appendTo(nil), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(object); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// fail sends a refusal. The content type is plain text, though the body is JSON: clients know.
func (q *Request) fail(err error) {
	status := http.StatusInternalServerError
	var refused *statusError
	switch {
	case errors.As(err, &refused):
		status = refused.status
	case apierrors.IsNotFound(err):
		status = http.StatusNotFound
	}
	q.server.cfg.Logger.Info("request refused", "method", q.Method, "path", q.URL.Path,
		"action", q.URL.Query().Get("action"), "status", status, "err", err, "caller", q.caller.String())
	if refused != nil && refused.empty {
		q.writer.WriteHeader(status)
		return
	}
	e := resource.Error{Status: status, Code: http.StatusText(status), Message: err.Error()}
	e.Type = resource.TypeError
	e.Links, e.Actions = map[string]string{"self": q.Self}, map[string]string{}
	body, encodeErr := encode(e)
	if encodeErr != nil {
		body = []byte(`{"type":"error"}`)
	}
	h := q.writer.Header()
	h.Del(headerSchemas)
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="ankole"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway:
		h.Set("Retry-After", retryAfter)
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	q.writer.WriteHeader(status)
	_, _ = q.writer.Write(body)
}

// Decode reads the body as JSON into a pointer. Keys match whatever their case, unknown ones are
// ignored and the content type does not matter. The memory used is bounded by maxBodyBytes.
func (q *Request) Decode(into any) error {
	body, err := q.ReadBody()
	if err != nil {
		return err
	}
	return resource.Decode(body, into)
}

// ReadBody reads the request body; one that is too long is an error.
func (q *Request) ReadBody() ([]byte, error) {
	if q.ContentLength > maxBodyBytes {
		return nil, q.tooLong()
	}
	body, err := io.ReadAll(io.LimitReader(q.Body, maxBodyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the request body: %w", err)
	}
	if len(body) > maxBodyBytes {
		return nil, q.tooLong()
	}
	return body, nil
}

// tooLong drains the body as far as is reasonable and returns the refusal.
func (q *Request) tooLong() error {
	_ = http.NewResponseController(q.writer).SetReadDeadline(time.Now().Add(drainTimeout))
	if !strings.EqualFold(q.Header.Get("Expect"), "100-continue") {
		_, _ = io.CopyN(io.Discard, q.Body, maxDrainBytes)
	}
	return fmt.Errorf(
		"the request body is longer than %d bytes, which no request of this API needs; send a JSON object", maxBodyBytes)
}
