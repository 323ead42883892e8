package client

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
)

const (
	// headerWait is how long an instance manager gets to confirm a watch. Ours does so at once;
	// others may send nothing before the first event, and are listed again then.
	headerWait = time.Second
	// firstPause and maxPause bound the wait before a lost watch is renewed; it doubles in between.
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// Update is what Watch delivers: exactly one of the three.
type Update struct {
	// List holds all processes by name. It comes first, and again after each loss; what is not in
	// it does not exist.
	List map[string]*imrpc.ProcessResponse
	// Changed is one process that changed after the list, or left it (Deleted).
	Changed *imrpc.ProcessResponse
	// Lost says that the instance manager cannot be watched at present. Nothing is known until the
	// next List.
	Lost error
}

// Watch calls deliver, one call at a time, with a full list, then with each change; when the stream
// is lost, with the reason, and from the beginning as soon as the instance manager answers again.
// It returns when ctx ends.
func (c *Client) Watch(ctx context.Context, deliver func(Update)) {
	pause := firstPause
	for ctx.Err() == nil {
		listed, err := c.watchOnce(ctx, deliver)
		if ctx.Err() != nil {
			return
		}
		deliver(Update{Lost: c.wrap("ProcessWatch", "", err)})
		if listed {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// watchOnce follows one stream to its end.
func (c *Client) watchOnce(ctx context.Context, deliver func(Update)) (listed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.ProcessWatch(ctx, &emptypb.Empty{})
	if err != nil {
		return false, err
	}
	header := make(chan error, 1)
	go func() { // ends with the stream
		_, err := stream.Header()
		header <- err
	}()
	confirmed := false
	select {
	case err := <-header:
		if err != nil {
			return false, err
		}
		confirmed = true
	case <-time.After(headerWait):
	}
	revision, err := c.list(ctx, deliver)
	if err != nil {
		return false, err
	}
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = errors.New("the instance manager ended the stream")
		}
		if err != nil {
			return true, err
		}
		if !confirmed {
			// Changes between list and subscription may be missing.
			if revision, err = c.list(ctx, deliver); err != nil {
				return true, err
			}
			confirmed = true
		}
		// Events that were on their way when the list was made show the past.
		if event.GetRevision() == 0 || event.GetRevision() > revision {
			deliver(Update{Changed: event})
		}
	}
}

func (c *Client) list(ctx context.Context, deliver func(Update)) (revision int64, err error) {
	list, err := c.rpc.ProcessList(ctx, &imrpc.ProcessListRequest{})
	if err != nil {
		return 0, err
	}
	processes := list.GetProcesses()
	if processes == nil {
		processes = map[string]*imrpc.ProcessResponse{}
	}
	deliver(Update{List: processes})
	return list.GetRevision(), nil
}
