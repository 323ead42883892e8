// Package mtls loads the certificates which managers and instance managers show each other.
//
// Both sides hold the same secret: ca.crt, tls.crt and tls.key in one directory. TLS is mutual, version 1.3, and each
// side expects the peer's certificate to be signed by that CA and to carry PeerName, as a DNS name or as the common
// name. A certificate that is renewed in place is taken up at the next connection; nothing has to be restarted.
package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// PeerName is what every certificate of the system names, whichever Pod shows it.
const PeerName = "longhorn-backend.longhorn-system"

// Files of the directory.
const (
	caFile   = "ca.crt"
	certFile = "tls.crt"
	keyFile  = "tls.key"
)

// Server returns the TLS configuration of a server, or nil, meaning plaintext, if dir is empty or holds none of the
// files. Files that are there but cannot be used are an error.
func Server(dir string, log *slog.Logger) (*tls.Config, error) {
	s, err := open(dir, log)
	if s == nil || err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m := s.current()
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				NextProtos:   []string{"h2"},
				Certificates: []tls.Certificate{m.cert},
				// Verified by verifyPeer, which knows the common name rule.
				ClientAuth:       tls.RequireAnyClientCert,
				VerifyConnection: m.verifyPeer,
			}, nil
		},
	}
	return config, nil
}

// Client returns the TLS configuration of a client; nil as in Server.
func Client(dir string, log *slog.Logger) (*tls.Config, error) {
	s, err := open(dir, log)
	if s == nil || err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: PeerName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &s.current().cert, nil
		},
		// The standard check knows no common names; verifyPeer checks chain and name instead.
		InsecureSkipVerify: true,
		VerifyConnection:   func(state tls.ConnectionState) error { return s.current().verifyPeer(state) },
	}, nil
}

// material is what the files held at one time.
type material struct {
	cert  tls.Certificate
	roots *x509.CertPool
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

// source reads the directory again when a file has changed.
type source struct {
	dir string
	log *slog.Logger

	mu     sync.Mutex
	stamps [3]time.Time
	held   *material
}

// open returns nil without an error if there are no files.
func open(dir string, log *slog.Logger) (*source, error) {
	if dir == "" {
		return nil, nil
	}
	s := &source{dir: dir, log: log}
	stamps, err := s.stat()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		s.stamps = stamps
		s.held, err = s.load()
	}
	if err != nil {
		return nil, fmt.Errorf("mtls: %s: %w", dir, err)
	}
	return s, nil
}

func (s *source) stat() (stamps [3]time.Time, err error) {
	for i, name := range []string{caFile, certFile, keyFile} {
		info, err := os.Stat(filepath.Join(s.dir, name))
		if err != nil {
			return stamps, err
		}
		stamps[i] = info.ModTime()
	}
	return stamps, nil
}

func (s *source) load() (*material, error) {
	pem, err := os.ReadFile(filepath.Join(s.dir, caFile))
	if err != nil {
		return nil, err
	}
	m := &material{roots: x509.NewCertPool()}
	if !m.roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", caFile)
	}
	m.cert, err = tls.LoadX509KeyPair(filepath.Join(s.dir, certFile), filepath.Join(s.dir, keyFile))
	return m, err
}

// current returns the newest usable material. Files caught in the middle of a renewal are tried again next time.
func (s *source) current() *material {
	s.mu.Lock()
	defer s.mu.Unlock()
	stamps, err := s.stat()
	if err == nil && stamps == s.stamps {
		return s.held
	}
	var m *material
	if err == nil {
		m, err = s.load()
	}
	if err != nil {
		s.log.Warn("renewed certificate is not usable, the one before stays in use", "dir", s.dir, "err", err)
		return s.held
	}
	s.log.Info("certificate renewed", "dir", s.dir)
	s.stamps, s.held = stamps, m
	return m
}
