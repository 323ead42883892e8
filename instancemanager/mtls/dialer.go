package mtls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// dialTimeout and handshakeTimeout bound the two halves of a new connection.
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
)

// ErrPlaintext: a peer that had shown a certificate wants plaintext, or we have lost ours.
var ErrPlaintext = errors.New("mtls: plaintext refused")

// Dialer makes connections to instance managers: TLS first, plaintext where the peer speaks nothing else and is not known to.
// It is safe for concurrent use; nil always speaks plaintext.
type Dialer struct {
	source *Source
	log    *slog.Logger

	mu    sync.Mutex
	peers map[string]*peer // by IP
}

// peer is what is known of the Pod at an address.
type peer struct {
	uid    string // empty until Pod names it
	secure bool   // has shown a certificate
	plain  bool   // was told to speak plaintext, which is logged once
}

// NewDialer returns a dialer with the certificate of source.
func NewDialer(source *Source, log *slog.Logger) *Dialer {
	return &Dialer{source: source, log: log, peers: map[string]*peer{}}
}

// Pod says which Pod has an address now. What was known of another one there is forgotten: Pods may share a node's address.
func (d *Dialer) Pod(ip, uid string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.peer(ip)
	if p.uid != "" && p.uid != uid {
		*p = peer{}
	}
	p.uid = uid
}

// maxPeers bounds what is remembered: far more than a cluster has instance managers. Beyond it the memory of Pods that are gone
// is what must go, and as nobody knows which those are, all goes.
const maxPeers = 20_000

// peer is called with the lock.
func (d *Dialer) peer(ip string) *peer {
	p := d.peers[ip]
	if p == nil {
		if len(d.peers) >= maxPeers {
			clear(d.peers)
		}
		p = &peer{}
		d.peers[ip] = p
	}
	return p
}

// Dial connects to "ip:port". A peer that must not be spoken to in plaintext gives ErrPlaintext, one with the wrong certificate an
// error that says what is wrong with it.
func (d *Dialer) Dial(ctx context.Context, address string) (net.Conn, error) {
	raw, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil || d == nil {
		return raw, err
	}
	m := d.source.current()
	if m == nil {
		return d.plaintext(raw, address, "there is no certificate here any more")
	}
	conn := tls.Client(raw, m.client())
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	err = conn.HandshakeContext(ctx)
	var stranger tls.RecordHeaderError
	switch {
	case err == nil:
		d.note(address, func(p *peer) { p.secure = true })
		return conn, nil
	case !errors.As(err, &stranger):
		_ = raw.Close() // nothing was said on it
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	}
	_ = raw.Close() // it has got what it does not understand; another one begins anew
	if raw, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address); err != nil {
		return nil, err
	}
	return d.plaintext(raw, address, "it has shown a certificate before and does not speak TLS now")
}

// plaintext gives raw out unless the peer is known to do better.
func (d *Dialer) plaintext(raw net.Conn, address, why string) (net.Conn, error) {
	secure, first := false, false
	d.note(address, func(p *peer) {
		secure = p.secure
		first, p.plain = !p.plain && !secure, true
	})
	if secure {
		_ = raw.Close() // nothing was said on it
		return nil, fmt.Errorf("%w: %s: %s", ErrPlaintext, address, why)
	}
	if first && d.source.dir != "" {
		d.log.Info("plaintext with an instance manager", "address", address)
	}
	return raw, nil
}

// note edits what is known of the peer.
func (d *Dialer) note(address string, edit func(*peer)) {
	ip, _, err := net.SplitHostPort(address)
	if err != nil {
		ip = address // it was dialled, so this cannot be
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	edit(d.peer(ip))
}
