package client

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
)

const (
	// headerWait is how long an instance manager gets to confirm a watch before it is listed. Ours
	// does so at once; when it comes later, the list is made again, since what changed in between
	// would not be heard of.
	headerWait = time.Second
	// listAgain is how often one is listed that has not confirmed a watch: others than ours may send
	// nothing before the first event.
	listAgain = 5 * time.Second
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
	select {
	case err := <-header:
		if err != nil {
			return false, err
		}
		header = nil
	case <-time.After(headerWait):
	}
	revision, err := c.list(ctx, deliver)
	if err != nil {
		return false, err
	}
	return true, c.follow(ctx, received(ctx, stream), header, revision, deliver)
}

// follow delivers what a stream brings after a list of a revision, until it ends. Changes between
// list and subscription may be missing as long as the subscription is not confirmed, by header (nil
// when it was before the list) or by an event.
func (c *Client) follow(ctx context.Context, events <-chan arrival, header <-chan error, revision int64,
	deliver func(Update)) error {
	again := time.NewTicker(listAgain)
	defer again.Stop()
	for confirmed := header == nil; ; {
		var a arrival
		list := !confirmed
		select {
		case a = <-events:
			confirmed = true
		case a.err = <-header:
			header, confirmed = nil, true
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if a.err != nil {
			return a.err
		}
		if confirmed {
			again.Stop()
		}
		if list {
			var err error
			if revision, err = c.list(ctx, deliver); err != nil {
				return err
			}
		}
		// Events that were on their way when the list was made show the past.
		if a.event != nil && (a.event.GetRevision() == 0 || a.event.GetRevision() > revision) {
			deliver(Update{Changed: a.event})
		}
	}
}

// arrival is what a stream brings: an event, or the reason of its end.
type arrival struct {
	event *imrpc.ProcessResponse
	err   error
}

// received reads a stream until it or ctx ends.
func received(ctx context.Context, stream grpc.ServerStreamingClient[imrpc.ProcessResponse]) <-chan arrival {
	events := make(chan arrival)
	go func() {
		for {
			event, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				err = errors.New("the instance manager ended the stream")
			}
			select {
			case events <- arrival{event, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return events
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
