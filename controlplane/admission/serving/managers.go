package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"ankole.storage/controlplane/object/naming"
)

// Managers know each other by the webhooks' keys: nobody but a manager can read the Secrets, and
// the authority signs nothing but what managers serve with.

// identity is the certificate of a manager, and the authority whose certificates it accepts.
type identity struct {
	certificate tls.Certificate
	authority   *x509.CertPool
}

func newIdentity(keys Keys) (*identity, error) {
	certificate, err := tls.X509KeyPair(keys.CertificatePEM, keys.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("webhook certificate from Secret %s: %w", naming.SecretWebhookTLS, err)
	}
	i := &identity{certificate: certificate, authority: x509.NewCertPool()}
	if !i.authority.AppendCertsFromPEM(keys.AuthorityPEM) {
		return nil, fmt.Errorf("authority of managers: Secret %s holds no certificate", naming.SecretWebhookCA)
	}
	return i, nil
}

// verify returns an error unless the peer is a manager. The handshake has proved that it holds the
// certificate's key.
func (i *identity) verify(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("no certificate shown; this is for managers only")
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: i.authority, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return fmt.Errorf("not the certificate of a manager: %w", err)
	}
	return nil
}

// verify judges a peer by the present keys. A certificate of another authority may be that of a
// manager which has new keys already: Mistrusts tells.
func (s *Server) verify(chain []*x509.Certificate) error {
	err := s.identity.Load().verify(chain)
	if err != nil && len(chain) > 0 {
		select {
		case s.mistrusts <- struct{}{}:
		default:
		}
	}
	return err
}

// Mistrusts receives when a peer showed a certificate that the present keys do not prove to be a
// manager's.
func (s *Server) Mistrusts() <-chan struct{} { return s.mistrusts }

// onlyManagers refuses everybody else. Unlike reviews, which are short, what managers ask for may
// take hours: it ends with the server's context.
func (s *Server) onlyManagers(server context.Context, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.verify(r.TLS.PeerCertificates); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(server, cancel)()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

const (
	// managerIdle closes connections to managers that nobody uses; managerDial and managerHandshake
	// bound the beginning of one: its node may have died without a word.
	managerIdle      = 5 * time.Minute
	managerDial      = 2 * time.Second
	managerHandshake = 10 * time.Second
	// managerConnections are kept open to each.
	managerConnections = 16
)

// ManagerTransport reaches other managers' servers, by whatever address. It shows the certificate
// that s has at the time, and accepts servers with one of the same authority. It speaks HTTP/1.1
// only: a connection can become a websocket.
func (s *Server) ManagerTransport() *http.Transport {
	return &http.Transport{
		DialContext:     (&net.Dialer{Timeout: managerDial}).DialContext,
		IdleConnTimeout: managerIdle, TLSHandshakeTimeout: managerHandshake, MaxIdleConnsPerHost: managerConnections,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &s.identity.Load().certificate, nil
			},
			// Managers are asked by the addresses of their Pods, which no certificate names: verify
			// replaces the standard check.
			InsecureSkipVerify: true,
			VerifyConnection:   func(c tls.ConnectionState) error { return s.verify(c.PeerCertificates) },
		},
	}
}
