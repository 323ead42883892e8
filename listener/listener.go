// Package listener accepts connections whatever the system is short of at the moment. A server that
// ends because one connection could not be accepted takes everything with it that its process does;
// whoever connects can wait, or comes again.
package listener

import (
	"errors"
	"net"
	"time"
)

// Pauses between two attempts: the first one, and the longest.
const (
	firstPause = 5 * time.Millisecond
	maxPause   = 200 * time.Millisecond
)

// Accept calls accept, a method of a listener, until there is a connection or the listener is
// closed. Whatever else fails (no descriptors, no memory in the kernel, a connection that was gone
// again) passes.
func Accept[C any](accept func() (C, error)) (C, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		c, err := accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		time.Sleep(pause)
	}
}

// Steady returns l with such an Accept.
func Steady(l net.Listener) net.Listener { return steady{l} }

type steady struct{ net.Listener }

// Accept implements net.Listener.
func (l steady) Accept() (net.Conn, error) { return Accept(l.Listener.Accept) }
