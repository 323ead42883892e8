package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"ankole.storage/rest/resource"
)

const (
	// silence is how long a stream may say nothing, pings included, before it counts as dead: two
	// pings of 15 s.
	silence = 40 * time.Second
	// reconnectPause is the pause before a lost stream is opened again.
	reconnectPause = 500 * time.Millisecond
	handshake      = 10 * time.Second
)

// ErrStop ends a watch without an error when the callback returns it.
var ErrStop = errors.New("stop watching")

// deltas asks a server for what has changed instead of whole lists. Older ones do not know it and
// send whole lists.
var deltas = url.Values{"deltas": {"true"}}

// apply makes the list of volumes that a message of their stream leads to: a whole list, which has
// the same fields, or, after one, changes. nil is the one before the first message. What was given
// to callers before is left as it is.
func apply(m *resource.Changes[resource.Volume], before []resource.Volume) ([]resource.Volume, error) {
	switch {
	case m.Type != resource.ChangesType && m.Data == nil:
		return []resource.Volume{}, nil
	case m.Type != resource.ChangesType:
		return m.Data, nil
	case before == nil:
		return nil, errors.New("changes of a list that was not sent")
	}
	after := slices.Clone(before)
	place := func(id string) (int, bool) {
		return slices.BinarySearchFunc(after, id, func(v resource.Volume, id string) int {
			return strings.Compare(v.ID, id)
		})
	}
	for _, id := range m.Removed {
		if i, have := place(id); have {
			after = slices.Delete(after, i, i+1)
		}
	}
	for _, v := range m.Data {
		if i, have := place(v.ID); have {
			after[i] = v
		} else {
			after = slices.Insert(after, i, v)
		}
	}
	return after, nil
}

// WatchVolumes calls each with the full list of volumes at once and after every change, until the
// context ends or each returns an error. A lost connection is opened again for as long as lost
// (which may be nil) agrees.
func (c *Client) WatchVolumes(ctx context.Context, lost func(error) error, each func([]resource.Volume) error) error {
	for {
		var all []resource.Volume
		err := c.stream(ctx, "volumes", deltas, func(text []byte) error {
			var got resource.Changes[resource.Volume]
			err := json.Unmarshal(text, &got)
			if err == nil {
				all, err = apply(&got, all)
			}
			if err != nil {
				return fmt.Errorf("stream of volumes: %w", err)
			}
			if err := each(all); err != nil {
				return &callbackError{err}
			}
			return nil
		})
		var stopped *callbackError
		if errors.As(err, &stopped) {
			if errors.Is(stopped.err, ErrStop) {
				return nil
			}
			return stopped.err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if isFinal(err) {
			return err
		}
		if lost != nil {
			if err := lost(err); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconnectPause):
		}
	}
}

// callbackError tells what the callback said from what happened to the connection.
type callbackError struct{ err error }

func (e *callbackError) Error() string { return e.err.Error() }

// stream reads a websocket until it ends.
func (c *Client) stream(ctx context.Context, name string, query url.Values, each func([]byte) error) error {
	u := *c.url("ws", name)
	u.RawQuery = query.Encode()
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	dialer := websocket.Dialer{HandshakeTimeout: handshake, Proxy: http.ProxyFromEnvironment,
		TLSClientConfig: c.options.TLS, EnableCompression: true}
	if c.options.Dial != nil {
		dialer.NetDialContext, dialer.Proxy = c.options.Dial, nil
	}
	header, err := c.header(ctx)
	if err != nil {
		return err
	}
	conn, resp, err := dialer.DialContext(ctx, u.String(), header)
	if err != nil {
		if resp != nil {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
			resp.Body.Close()
			return refusal(resp.StatusCode, u.Path, text)
		}
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer conn.Close()
	// Reading does not look at the context: closing the connection ends it.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	conn.SetReadLimit(maxAnswer)
	alive := func() { _ = conn.SetReadDeadline(time.Now().Add(silence)) }
	answer := conn.PingHandler()
	conn.SetPingHandler(func(data string) error {
		alive()
		return answer(data)
	})
	for {
		alive()
		kind, message, err := conn.NextReader()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		if kind != websocket.TextMessage {
			continue
		}
		// The limit of the connection is one of compressed bytes.
		text, err := io.ReadAll(io.LimitReader(message, maxAnswer+1))
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		case len(text) > maxAnswer:
			return fmt.Errorf("a message of stream %s is longer than %d bytes", name, maxAnswer)
		}
		if err := each(text); err != nil {
			return err
		}
	}
}

// WaitVolume follows one volume until done answers true or an error. done gets nil when the volume
// does not exist. The context's deadline is the timeout.
func (c *Client) WaitVolume(ctx context.Context, name string, done func(*resource.Volume) (bool, error)) error {
	return c.WatchVolumes(ctx, nil, func(all []resource.Volume) error {
		var found *resource.Volume
		for i := range all {
			if all[i].Name == name {
				found = &all[i]
			}
		}
		ok, err := done(found)
		if err != nil {
			return err
		}
		if ok {
			return ErrStop
		}
		return nil
	})
}
