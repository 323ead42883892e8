package process

import "errors"

// Kinds of refusal. The text of an error that wraps one says which object is meant and what to do.
var (
	// ErrInvalid marks a request that can never succeed as it is.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound marks an unknown name, or a UUID that belongs to an earlier process of that name.
	ErrNotFound = errors.New("no such process")
	// ErrExists marks a name that is in use, or a process that changed during a replacement.
	ErrExists = errors.New("process exists")
	// ErrNoPorts marks an exhausted port range.
	ErrNoPorts = errors.New("no free ports")
	// ErrClosed marks a request to a Manager that is stopping.
	ErrClosed = errors.New("the instance manager is stopping")
	// ErrRefused marks a request to start a process in an instance manager that is about to be
	// removed (Manager.CloseIdle).
	ErrRefused = errors.New("the instance manager is about to be removed")
	// ErrTooMany marks a request beyond a bound on processes or on clients.
	ErrTooMany = errors.New("too many")
	// ErrNotReady marks a replacement that did not get to state running.
	ErrNotReady = errors.New("replacement process failed")
)
