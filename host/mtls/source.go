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

// Fetch reads the secret elsewhere: its authorities, certificate and key. Nothing and no error says
// that there is none.
type Fetch func(ctx context.Context) (authorities, cert, key []byte, err error)

// Source is the directory with the secret. It is safe for concurrent use.
type Source struct {
	dir string
	log *slog.Logger

	mu      sync.Mutex
	stamps  [3]stamp
	held    *material // nil: plaintext
	problem error
	// fetch is asked while there are no files, nil if nobody is; fetched says that what is held came
	// from there.
	fetch   Fetch
	fetched bool
	plain   map[*plainConn]struct{} // served before there was a certificate
	changed chan struct{}           // has at most one notice that problem has come or gone
	// required: without a certificate nobody is served or dialled; waiting: that has been said.
	required, waiting bool
}

// ErrNoCertificate: there is no certificate yet, and without one nobody is served or dialled.
var ErrNoCertificate = errors.New("mtls: no certificate yet, and plaintext is not allowed")

// stamp tells one content of a file from the next.
type stamp struct {
	at   time.Time
	size int64
}

// Open returns the source in dir; "" is one that never has anything.
func Open(dir string, log *slog.Logger) *Source {
	s := &Source{dir: dir, log: log, plain: map[*plainConn]struct{}{}, changed: make(chan struct{}, 1)}
	s.current()
	return s
}

// Require has s serve and dial nobody before there is a certificate.
func (s *Source) Require() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.required = true
}

// lacking refuses what is not to be plaintext; it says so once. The caller holds the lock.
func (s *Source) lacking() error {
	if !s.required {
		return nil
	}
	if !s.waiting {
		s.log.Warn("there is no certificate yet: nobody is answered before there is one", "dir", s.dir)
	}
	s.waiting = true
	return fmt.Errorf("%w (%s)", ErrNoCertificate, s.dir)
}

// FetchWith has a client of s ask fetch before it speaks plaintext. Files come later to some Pods
// than to others, and a server that has them speaks nothing but TLS.
func (s *Source) FetchWith(fetch Fetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetch = fetch
}

// OfNode says whether s has the certificate of a node, which tells nodes from controllers.
func (s *Source) OfNode() bool {
	if s == nil {
		return false
	}
	m := s.current()
	return m != nil && m.ofNode()
}

// Problem returns why the files that are there cannot be used, nil if they can or there are none.
func (s *Source) Problem() error {
	s.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Changed has a notice when Problem has become another one than nil, or nil. It is for one reader.
func (s *Source) Changed() <-chan struct{} { return s.changed }

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
	defer s.tell(s.problem)
	stamps, err := s.stat()
	switch {
	case errors.Is(err, fs.ErrNotExist) && (s.held == nil || s.fetched):
		s.problem = nil // no secret, or not all of it yet
		return s.held
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
	s.held, s.problem, s.fetched = m, nil, false
	for c := range s.plain {
		_ = c.Conn.Close() // its client comes back, with TLS
	}
	return m
}

// tell gives notice of a problem that is another one than before. The caller holds the lock.
func (s *Source) tell(before error) {
	if (before == nil) != (s.problem == nil) {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// fetchCurrent is current for a client: without files it asks elsewhere.
func (s *Source) fetchCurrent(ctx context.Context) (*material, error) {
	m := s.current()
	s.mu.Lock()
	fetch := s.fetch
	s.mu.Unlock()
	if m != nil || fetch == nil {
		return m, nil
	}
	authorities, cert, key, err := fetch(ctx)
	if err != nil || len(cert) == 0 {
		return nil, err
	}
	if m, err = parse(authorities, cert, key); err != nil {
		return nil, nil // as with the same files, which tell of it
	}
	s.log.Info("certificate fetched; its files are not here yet", "dir", s.dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held, s.fetched = m, true
	}
	return s.held, nil
}

// refuse notes files that cannot be used.
func (s *Source) refuse(err error) {
	if s.problem == nil || s.problem.Error() != err.Error() {
		now := "plaintext goes on"
		switch {
		case s.held != nil:
			now = "the certificate before stays in use"
		case s.required:
			now = "nobody is answered"
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
	var files [3][]byte
	for i, name := range []string{caFile, certFile, keyFile} {
		var err error
		if files[i], err = os.ReadFile(filepath.Join(s.dir, name)); err != nil {
			return nil, err
		}
	}
	return parse(files[0], files[1], files[2])
}

func parse(authorities, cert, key []byte) (*material, error) {
	m := &material{roots: x509.NewCertPool()}
	if !m.roots.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s holds no certificate", caFile)
	}
	var err error
	if m.cert, err = tls.X509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("%s with %s: %w", certFile, keyFile, err)
	}
	return m, nil
}
