package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Files of the directory.
const (
	caFile   = "ca.crt"
	certFile = "tls.crt"
	keyFile  = "tls.key"
)

// lookEvery is how often Keep looks for a secret that has appeared. New connections look for
// themselves.
const lookEvery = 5 * time.Second

// Source is the directory with the secret. It is safe for concurrent use.
type Source struct {
	dir string
	log *slog.Logger

	mu      sync.Mutex
	stamps  [3]stamp
	held    *material // nil: plaintext
	problem error
	plain   map[*plainConn]struct{} // served before there was a certificate
}

// stamp tells one content of a file from the next.
type stamp struct {
	at   time.Time
	size int64
}

// Open returns the source in dir; "" is one that never has anything.
func Open(dir string, log *slog.Logger) *Source {
	s := &Source{dir: dir, log: log, plain: map[*plainConn]struct{}{}}
	s.current()
	return s
}

// Problem returns why the files that are there cannot be used, nil if they can or there are none.
func (s *Source) Problem() error {
	s.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Keep looks for a secret that has appeared, so that connections made before end soon, until ctx
// ends.
func (s *Source) Keep(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.current()
		}
	}
}

// current returns the newest usable material, nil while there never was any.
func (s *Source) current() *material {
	if s.dir == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stamps, err := s.stat()
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.held == nil:
		s.problem = nil // no secret, or not all of it yet
		return nil
	case err == nil && stamps == s.stamps:
		return s.held
	}
	var m *material
	s.stamps = [3]stamp{} // what could not be read is read again
	if err == nil {
		m, err = s.load()
		if unread := (*fs.PathError)(nil); !errors.As(err, &unread) {
			s.stamps = stamps // the same bad files are not
		}
	}
	if err != nil {
		s.refuse(fmt.Errorf("mtls: %s: %w", s.dir, err)) // also where it was taken away: what was secured stays so
		return s.held
	}
	s.log.Info("certificate loaded", "dir", s.dir, "renewed", s.held != nil)
	s.held, s.problem = m, nil
	for c := range s.plain {
		_ = c.Conn.Close() // its client comes back, with TLS
	}
	return m
}

// refuse notes files that cannot be used.
func (s *Source) refuse(err error) {
	if s.problem == nil || s.problem.Error() != err.Error() {
		now := "plaintext goes on"
		if s.held != nil {
			now = "the certificate before stays in use"
		}
		s.log.Error("certificate is not usable; "+now, "dir", s.dir, "err", err)
	}
	s.problem = err
}

func (s *Source) stat() (stamps [3]stamp, err error) {
	for i, name := range []string{caFile, certFile, keyFile} {
		info, err := os.Stat(filepath.Join(s.dir, name))
		if err != nil {
			return stamps, err
		}
		stamps[i] = stamp{info.ModTime(), info.Size()}
	}
	return stamps, nil
}

func (s *Source) load() (*material, error) {
	pem, err := os.ReadFile(filepath.Join(s.dir, caFile))
	if err != nil {
		return nil, err
	}
	m := &material{roots: x509.NewCertPool()}
	if !m.roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", caFile)
	}
	if m.cert, err = tls.LoadX509KeyPair(filepath.Join(s.dir, certFile), filepath.Join(s.dir, keyFile)); err != nil {
		return nil, fmt.Errorf("%s with %s: %w", certFile, keyFile, err)
	}
	return m, nil
}
