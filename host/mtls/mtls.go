// Package mtls secures the connections between managers and instance managers.
//
// Both sides hold the same secret: ca.crt, tls.crt and tls.key in one directory. TLS is mutual,
// version 1.3, and each side expects the peer's certificate to be signed by that CA and to carry
// PeerName, as a DNS name or as the common name. The secret is optional, and may come, change and
// go while programs run:
//
//   - Source reads the directory at every connection, so that what was renewed is used by the next
//     one. What it once had it keeps: a secret that is taken away, or half written, changes
//     nothing.
//   - A server (Source.Server) takes nothing but TLS from the moment it has a certificate, and ends
//     the connections that were made before. Without one it serves nobody if one is required
//     (Source.Require), else plaintext.
//   - A client (Dialer) speaks TLS first. It goes on in plaintext only with a peer that does not
//     speak TLS, as old instance managers without the secret, and never with a Pod that has once
//     shown a certificate, to it or to any other. That is noted where all clients look (Pods),
//     before the first such connection is used.
package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

const (
	// PeerName is what every certificate of the system names, whichever Pod shows it.
	PeerName = "longhorn-backend.longhorn-system"
	// NodeName is what those of nodes name besides, where the system makes them. A user's Secret has
	// one certificate for all, which names no role.
	NodeName = "longhorn-node.longhorn-system"
	// ControllerName is what those of controllers name.
	ControllerName = "longhorn-controller.longhorn-system"
)

// material is what the files held at one time.
type material struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

// server is the configuration for one connection. orders: who connects may give orders to a node.
func (m *material) server(orders bool) *tls.Config {
	verify := m.verifyPeer
	if orders && m.ofNode() {
		verify = m.verifyController
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{"h2"},
		Certificates: []tls.Certificate{m.cert},
		// Verified by verifyPeer, which knows the common name rule.
		ClientAuth:       tls.RequireAnyClientCert,
		VerifyConnection: verify,
	}
}

func (m *material) ofNode() bool { return slices.Contains(m.cert.Leaf.DNSNames, NodeName) }

// client is the configuration for one connection.
func (m *material) client() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: PeerName,
		NextProtos: []string{"h2"},
		// Not Certificates: the server's hint whom it trusts must not keep the certificate back,
		// but have it refused.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &m.cert, nil },
		// The standard check knows no common names; verifyPeer checks chain and name instead.
		InsecureSkipVerify: true,
		VerifyConnection:   m.verifyPeer,
	}
}

func (m *material) verifyPeer(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("mtls: the peer showed no certificate")
	}
	leaf := state.PeerCertificates[0]
	intermediates := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots:         m.roots,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return fmt.Errorf("mtls: certificate of the peer: %w", err)
	}
	if leaf.Subject.CommonName != PeerName && !slices.Contains(leaf.DNSNames, PeerName) {
		return fmt.Errorf("mtls: certificate of the peer is for %q %q, not for %s",
			leaf.Subject.CommonName, leaf.DNSNames, PeerName)
	}
	return nil
}

// verifyController refuses the certificate of another node: a node gives no orders.
func (m *material) verifyController(state tls.ConnectionState) error {
	if err := m.verifyPeer(state); err != nil {
		return err
	}
	return ofController(state)
}

// ofController refuses a peer that is no controller.
func ofController(state tls.ConnectionState) error {
	var names []string
	if len(state.PeerCertificates) > 0 {
		names = state.PeerCertificates[0].DNSNames
	}
	if !slices.Contains(names, ControllerName) {
		return fmt.Errorf("mtls: certificate of the peer is for %q; orders are taken from %s alone", names, ControllerName)
	}
	return nil
}
