package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"ankole.storage/rest/resource"
)

// LogOptions say which part of a log is wanted, and from where.
type LogOptions struct {
	// Follow goes on with lines as they come, until the process has ended.
	Follow bool
	// Tail begins with the last so many lines; 0 begins with the first that is kept.
	Tail int64
	// Node is where the process ran; empty: where the engine or replica of that name is.
	Node string
}

// InstanceLog copies the log of an engine or replica process to w. It has no time limit but that of
// the context.
func (c *Client) InstanceLog(ctx context.Context, name string, o LogOptions, w io.Writer) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	u := c.url("instancelogs", name)
	query := url.Values{}
	if o.Follow {
		query.Set("follow", "true")
	}
	if o.Tail != 0 {
		query.Set("tail", strconv.FormatInt(o.Tail, 10))
	}
	if o.Node != "" {
		query.Set("node", o.Node)
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	if req.Header, err = c.header(ctx); err != nil {
		return err
	}
	resp, err := c.patient().http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		if err != nil {
			return fmt.Errorf("reading the answer of %s: %w", u.Path, err)
		}
		return refusal(resp.StatusCode, u.Path, text)
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("the log of %s broke off: %w", name, err)
	}
	if why := resp.Trailer.Get(resource.HeaderLogError); why != "" {
		return fmt.Errorf("the log of %s broke off: %s", name, why)
	}
	return nil
}
