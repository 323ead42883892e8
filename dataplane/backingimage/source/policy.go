package source

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// Policy says whether a connection to an address may be made; an error says why not.
type Policy func(netip.Addr) error

// nat64 is the prefix under which IPv6 networks reach IPv4 addresses (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Outside is the policy for what users name: whoever may create a backing image must not reach by
// it what only this Pod or this node reaches.
func Outside(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	this := a.Is4() && a.As4()[0] == 0 // "this network", which Linux takes for the machine itself
	if a.IsLoopback() || a.IsUnspecified() || this || a.IsLinkLocalUnicast() || a.IsMulticast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return fmt.Errorf("%w: %s is an address of the node itself or of its link; give the address of a server on the network",
			ErrRefused, a)
	}
	return nil
}

// checkURL says what is wrong with a URL before anything is asked.
func checkURL(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%w: scheme %.20q; http and https are possible", ErrRefused, u.Scheme)
	}
	if u.Hostname() == "" {
		return fmt.Errorf("%w: the URL names no server", ErrRefused)
	}
	return nil
}

const (
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 15 * time.Second
	// headerTimeout is how long a server may think: some assemble an image first.
	headerTimeout = time.Minute
	maxHeaders    = 64 << 10
)

// outward sends requests: directly, where every connection is checked against the policy when its
// address is known, or by a proxy. The proxy is chosen by who runs the cluster, so it may be
// anywhere; it resolves names by itself, so what is asked of it is checked as far as it can be
// here.
type outward struct {
	policy          Policy
	proxy           func(*http.Request) (*url.URL, error)
	direct, byProxy *http.Transport
	lookup          func(ctx context.Context, host string) ([]netip.Addr, error)
}

func newOutward(policy Policy, proxy func(*http.Request) (*url.URL, error)) *outward {
	o := &outward{policy: policy, proxy: proxy}
	o.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}
	o.direct = transport(&net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return policy(at.Addr())
	}})
	o.byProxy = transport(&net.Dialer{Timeout: dialTimeout})
	o.byProxy.Proxy = proxy
	return o
}

func transport(d *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext:           d.DialContext,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   handshakeTimeout,
		ResponseHeaderTimeout: headerTimeout,
		// What is stored is told from its content; a body must come as the server has it.
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaders,
	}
}

// RoundTrip implements http.RoundTripper, for each request of a chain of redirects anew.
func (o *outward) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := checkURL(r.URL); err != nil {
		return nil, err
	}
	by, err := o.proxy(r)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	if by == nil {
		return o.direct.RoundTrip(r)
	}
	if err := o.checkName(r.Context(), r.URL.Hostname()); err != nil {
		return nil, err
	}
	return o.byProxy.RoundTrip(r)
}

// checkName checks what a name stands for here. One that is unknown here may be known to the proxy.
func (o *outward) checkName(ctx context.Context, host string) error {
	if a, err := netip.ParseAddr(host); err == nil {
		return o.policy(a)
	}
	all, err := o.lookup(ctx, host)
	if err != nil {
		return nil
	}
	for _, a := range all {
		if err := o.policy(a); err != nil {
			return err
		}
	}
	return nil
}

func (o *outward) close() {
	o.direct.CloseIdleConnections()
	o.byProxy.CloseIdleConnections()
}
