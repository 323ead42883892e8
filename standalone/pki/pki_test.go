package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func server(t *testing.T, s *Store, hosts ...string) (Pair, []byte) {
	t.Helper()
	p, err := s.Server("srv", hosts...)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(p.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	return p, data
}

// TestReuse: certificates stay as long as they serve, and are made again when they do not.
func TestReuse(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, first := server(t, s, "127.0.0.1", "localhost")
	_, again := server(t, open(t, dir), "127.0.0.1")
	if string(first) != string(again) {
		t.Error("a usable certificate was made again")
	}
	_, more := server(t, s, "127.0.0.1", "127.0.0.9")
	if string(first) == string(more) {
		t.Error("a certificate without an address asked for was kept")
	}
	_, foreign := server(t, open(t, t.TempDir()), "127.0.0.1")
	pair, _ := server(t, s, "127.0.0.1")
	if err := os.WriteFile(pair.CertFile, foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	_, healed := server(t, s, "127.0.0.1")
	if string(healed) == string(foreign) {
		t.Error("a certificate of another authority was kept")
	}
}

func TestVerifies(t *testing.T) {
	s := open(t, t.TempDir())
	pair, err := s.Client("me", "someone", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	leaf := cert.Leaf
	if leaf.Subject.CommonName != "someone" || len(leaf.Subject.Organization) != 1 ||
		leaf.Subject.Organization[0] != "system:masters" {
		t.Errorf("subject %v", leaf.Subject)
	}
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(s.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(ca)
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: usage}); err != nil {
		t.Error(err)
	}
	fi, err := os.Stat(pair.KeyFile)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("key file mode %v, %v", fi.Mode(), err)
	}
}

// TestBrokenAuthority is refused: making a new one silently would cut off every client.
func TestBrokenAuthority(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := os.WriteFile(s.CAFile(), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a broken authority was accepted")
	}
}
