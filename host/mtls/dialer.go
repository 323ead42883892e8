package mtls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

const (
	// dialTimeout and handshakeTimeout bound the two halves of a new connection.
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	// podsTimeout bounds each question to Pods: one request to an API server.
	podsTimeout = 5 * time.Second
)

// ErrPlaintext: a peer that had shown a certificate wants plaintext, or we have lost ours.
var ErrPlaintext = errors.New("mtls: plaintext refused")

// Pod is an instance manager's.
type Pod struct {
	Name, UID string
	// Secured: it has shown a certificate, to whomever.
	Secured bool
}

// Pods knows of Pods what outlives every process, and is the same for all of them.
type Pods interface {
	// At returns the Pod that has an IP address; that there is none is an error.
	At(ctx context.Context, ip string) (Pod, error)
	// NoteSecured notes that the Pod has shown a certificate. When it returns without an error,
	// every later At says so, of that UID.
	NoteSecured(ctx context.Context, p Pod) error
}

// Dialer makes connections to instance managers: TLS first, plaintext where the peer speaks nothing
// else and never did. It remembers nothing itself, so that any number of them, and later ones, keep
// to the same rule. It is safe for concurrent use; nil always speaks plaintext.
type Dialer struct {
	source *Source
	pods   Pods
	log    *slog.Logger
}

// NewDialer returns a dialer with the certificate of source.
func NewDialer(source *Source, pods Pods, log *slog.Logger) *Dialer {
	return &Dialer{source: source, pods: pods, log: log}
}

// Dial connects to "ip:port". A peer that must not be spoken to in plaintext gives ErrPlaintext,
// one with the wrong certificate an error that says what is wrong with it. A connection that cannot
// be judged, or a first certificate that cannot be noted, is an error too: what nobody remembers
// would not bind the next one who dials.
func (d *Dialer) Dial(ctx context.Context, address string) (net.Conn, error) {
	if d == nil {
		return connect(ctx, address)
	}
	// Before there is a connection: if another Pod gets the address meanwhile, it has another UID,
	// and nothing is noted of it.
	pod, err := d.at(ctx, address)
	if err != nil {
		return nil, err
	}
	m, err := d.material(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := connect(ctx, address)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return plaintext(raw, address, pod, "there is no certificate here any more")
	}
	conn, err := handshake(ctx, raw, m)
	var stranger tls.RecordHeaderError
	switch {
	case err == nil:
		return d.secured(ctx, conn, pod)
	case !errors.As(err, &stranger):
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	}
	// The connection has got what the peer does not understand; another one begins anew.
	if raw, err = connect(ctx, address); err != nil {
		return nil, err
	}
	d.log.Warn("an instance manager has no certificate, plaintext is all it speaks", "address", address, "pod", pod.Name)
	return plaintext(raw, address, pod, "it does not speak TLS now")
}

func connect(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
}

// handshake closes raw if there is no TLS.
func handshake(ctx context.Context, raw net.Conn, m *material) (net.Conn, error) {
	conn := tls.Client(raw, m.client())
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // nothing was said on it
		return nil, err
	}
	return conn, nil
}

func (d *Dialer) at(ctx context.Context, address string) (Pod, error) {
	ip, _, err := net.SplitHostPort(address)
	if err != nil {
		return Pod{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	pod, err := d.pods.At(ctx, ip)
	if err != nil {
		return Pod{}, fmt.Errorf("which Pod has %s: %w", address, err)
	}
	return pod, nil
}

// material is what this process shows, nil where there is nothing.
func (d *Dialer) material(ctx context.Context) (*material, error) {
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	m, err := d.source.fetchCurrent(ctx)
	if err != nil {
		return nil, fmt.Errorf("is there a certificate? %w", err)
	}
	return m, nil
}

// secured gives conn out when it is noted that the Pod has shown a certificate.
func (d *Dialer) secured(ctx context.Context, conn net.Conn, pod Pod) (net.Conn, error) {
	if pod.Secured {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	if err := d.pods.NoteSecured(ctx, pod); err != nil {
		_ = conn.Close() // nothing was said on it
		return nil, fmt.Errorf("note that Pod %s has shown a certificate: %w", pod.Name, err)
	}
	return conn, nil
}

// plaintext gives raw out unless the peer is known to do better.
func plaintext(raw net.Conn, address string, pod Pod, why string) (net.Conn, error) {
	if pod.Secured {
		_ = raw.Close() // nothing was said on it
		return nil, fmt.Errorf("%w: %s: Pod %s (%s) has shown a certificate before, and %s", ErrPlaintext, address,
			pod.Name, pod.UID, why)
	}
	return raw, nil
}
