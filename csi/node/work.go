package node

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// work does the work of a call of the node service, for which its caller waits no longer than
// n.patience: while the engine of a volume is away the kernel waits for it, in every program that
// touches the volume. The lock of the volume is held until the work has ended, so that there is one
// at a time, however often the caller comes again.
func (n *Server) work(ctx context.Context, about, call string, do func() error) error {
	release, err := n.locks.Take(about, call)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.patience)
	defer cancel()
	ended, panicked := make(chan error, 1), make(chan any, 1)
	go func() {
		var err error
		defer func() {
			p := recover()
			release() // before the caller is told, who may come again at once
			if p != nil {
				panicked <- p
				return
			}
			ended <- err
		}()
		err = do()
	}()
	select {
	case err := <-ended:
		return err
	case p := <-panicked:
		panic(p) // where it is seen
	case <-ctx.Done():
		return status.Errorf(codes.DeadlineExceeded, "%s of %s: the volume or a program that works on it does not answer yet; "+
			"it goes on, retry", call, about)
	}
}
