package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// WatchVolumes calls each with the full list of volumes at once and after every change, until the
// context ends or each returns an error. A lost connection is opened again for as long as lost
// (which may be nil) agrees.
func (c *Client) WatchVolumes(ctx context.Context, lost func(error) error, each func([]resource.Volume) error) error {
	for {
		err := c.stream(ctx, "volumes", func(text []byte) error {
			var got resource.Collection[resource.Volume]
			if err := json.Unmarshal(text, &got); err != nil {
				return fmt.Errorf("stream of volumes: %w", err)
			}
			if err := each(got.Data); err != nil {
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
func (c *Client) stream(ctx context.Context, name string, each func([]byte) error) error {
	u := *c.url("ws", name)
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	dialer := websocket.Dialer{HandshakeTimeout: handshake, Proxy: http.ProxyFromEnvironment}
	conn, resp, err := dialer.DialContext(ctx, u.String(), c.header())
	if err != nil {
		if resp != nil {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorText))
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
		kind, text, err := conn.ReadMessage()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		if kind != websocket.TextMessage {
			continue
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
