package demo

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// open opens what the volume is offered as. What the API says of it may be from before a restart of
// the cluster for a moment: then it is not there yet.
func (r *run) open(ctx context.Context, endpoint string) error {
	for began := time.Now(); ; {
		var err error
		if r.store, err = openStore(ctx, endpoint); !notThere(err) || time.Since(began) > readyTimeout {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
		}
		v, err := r.until(ctx, "attached", readyTimeout, isAttached)
		if err != nil {
			return err
		}
		endpoint = endpointOf(v)
	}
}

// notThere tells an endpoint that nobody serves: no node, a node without a device, no socket, or
// one at which nobody listens.
func notThere(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ECONNREFUSED)
}
