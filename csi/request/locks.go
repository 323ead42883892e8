package request

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Locks are held per volume while a call works on it. Nobody waits for one: a caller that does not
// get it is told to come again, since its call may have been overtaken by then.
type Locks struct {
	mu   sync.Mutex
	held map[string]string // what works on it
}

// Take returns what releases the lock, or ABORTED if it is held.
func (l *Locks) Take(name, call string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if by, ok := l.held[name]; ok {
		return nil, status.Errorf(codes.Aborted, "%s of %s: %s of it is under way; retry when that has ended", call, name, by)
	}
	if l.held == nil {
		l.held = map[string]string{}
	}
	l.held[name] = call
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, name)
	}, nil
}
