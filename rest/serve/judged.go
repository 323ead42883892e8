package serve

import (
	"context"
	"errors"
	"net/http"
	"time"
)

const (
	// judgedAgain is how often the caller of a stream or log is judged again.
	judgedAgain = 30 * time.Second
	// maxUnjudged ends a stream or log whose caller nobody can judge, as while the API server is away.
	maxUnjudged = 15 * time.Minute
)

// whileAllowed has a request go on for as long as its caller may make it. end is called after it.
func (s *Server) whileAllowed(q *Request, t *Route, operation string) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancel(q.Context())
	again := *q // the request itself is its handler's
	again.Request = q.WithContext(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(s.cfg.Limits.Judged)
		defer tick.Stop()
		for judged := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := s.identify(&again, t)
			if err == nil {
				err = s.authorize(&again, operation)
			}
			switch {
			case err == nil:
				judged = time.Now()
			case refusesCaller(err) || time.Since(judged) > maxUnjudged:
				s.cfg.Logger.Info("stream ended", "path", q.URL.Path, "err", err, "caller", q.caller.String())
				cancel()
				return
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

// refusesCaller tells whether an error says that the caller may not, and not that nobody knows.
func refusesCaller(err error) bool {
	var refused *statusError
	return errors.As(err, &refused) &&
		(refused.status == http.StatusUnauthorized || refused.status == http.StatusForbidden)
}
