package mtls_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"ankole.storage/instancemanager/mtls"
	"ankole.storage/instancemanager/server"
)

var quiet = slog.New(slog.DiscardHandler)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{}
	a.cert, a.key = a.issue(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "ca"}})
	return a
}

func (a *authority) issue(t *testing.T, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.n++
	c.SerialNumber = big.NewInt(a.n)
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// write puts the three files of a certificate into dir.
func (a *authority) write(t *testing.T, dir string, template *x509.Certificate) {
	t.Helper()
	cert, key := a.issue(t, template)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.writeRoot(t, dir)
	put(t, dir, "tls.crt", "CERTIFICATE", cert.Raw)
	put(t, dir, "tls.key", "EC PRIVATE KEY", der)
}

// writeRoot says in dir whom to trust.
func (a *authority) writeRoot(t *testing.T, dir string) {
	put(t, dir, "ca.crt", "CERTIFICATE", a.cert.Raw)
}

func put(t *testing.T, dir, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func named(dns, common string) *x509.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: common}}
	if dns != "" {
		c.DNSNames = []string{dns}
	}
	return c
}

// serve serves health with the certificates of dir and returns the address.
func serve(t *testing.T, dir string) string {
	t.Helper()
	config, err := mtls.Server(dir, quiet)
	if err != nil || config == nil {
		t.Fatal(config, err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(config)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-ended
	})
	return l.Addr().String()
}

// check makes one connection and one call.
func check(t *testing.T, addr string, c credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

func clientCredentials(t *testing.T, dir string) credentials.TransportCredentials {
	t.Helper()
	config, err := mtls.Client(dir, quiet)
	if err != nil || config == nil {
		t.Fatal(config, err)
	}
	return credentials.NewTLS(config)
}

// TestPeers is the table of who may talk to whom; each row is tried in both directions.
func TestPeers(t *testing.T) {
	ours, foreign := newAuthority(t), newAuthority(t)
	good := t.TempDir()
	ours.write(t, good, named(mtls.PeerName, ""))
	expired := named(mtls.PeerName, "")
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	for _, row := range []struct {
		name string
		by   *authority
		ca   *authority // in ca.crt; nil: by
		cert *x509.Certificate
		ok   bool
	}{
		{"DNS name", ours, nil, named(mtls.PeerName, ""), true},
		{"common name", ours, nil, named("", mtls.PeerName), true},
		{"another name", ours, nil, named("example.com", "example.com"), false},
		{"another authority", foreign, nil, named(mtls.PeerName, ""), false},
		{"signed by another authority", foreign, ours, named(mtls.PeerName, ""), false},
		{"expired", ours, nil, expired, false},
	} {
		dir := t.TempDir()
		row.by.write(t, dir, row.cert)
		if row.ca != nil {
			row.ca.writeRoot(t, dir)
		}
		if err := check(t, serve(t, good), clientCredentials(t, dir)); (err == nil) != row.ok {
			t.Errorf("%s as a client: %v", row.name, err)
		}
		if err := check(t, serve(t, dir), clientCredentials(t, good)); (err == nil) != row.ok {
			t.Errorf("%s as a server: %v", row.name, err)
		}
	}
	if err := check(t, serve(t, good), insecure.NewCredentials()); err == nil {
		t.Error("plaintext was served")
	}
	if err := check(t, serve(t, good), credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})); err == nil {
		t.Error("a client without a certificate was served")
	}
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
	if err := check(t, serve(t, good), credentials.NewTLS(old)); err == nil {
		t.Error("TLS 1.2 was served")
	}
}

// TestRenewal: a running server takes up new files, and keeps the old ones while the new ones are unusable.
func TestRenewal(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	dir, old, renewed := t.TempDir(), t.TempDir(), t.TempDir()
	first.write(t, dir, named(mtls.PeerName, ""))
	first.write(t, old, named(mtls.PeerName, ""))
	second.write(t, renewed, named(mtls.PeerName, ""))
	addr := serve(t, dir)
	if err := check(t, addr, clientCredentials(t, old)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(t, addr, clientCredentials(t, old)); err != nil {
		t.Errorf("with half renewed files: %v", err)
	}
	second.write(t, dir, named(mtls.PeerName, ""))
	if err := check(t, addr, clientCredentials(t, renewed)); err != nil {
		t.Errorf("renewed: %v", err)
	}
	if err := check(t, addr, clientCredentials(t, old)); err == nil {
		t.Error("the old authority is still trusted")
	}
}

func TestFiles(t *testing.T) {
	empty, broken := t.TempDir(), t.TempDir()
	newAuthority(t).write(t, broken, named(mtls.PeerName, ""))
	if err := os.WriteFile(filepath.Join(broken, "ca.crt"), []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", empty, filepath.Join(empty, "missing")} {
		if s, err := mtls.Server(dir, quiet); s != nil || err != nil {
			t.Errorf("%q: %v %v", dir, s, err)
		}
		if c, err := mtls.Client(dir, quiet); c != nil || err != nil {
			t.Errorf("%q: %v %v", dir, c, err)
		}
	}
	if s, err := mtls.Server(broken, quiet); s != nil || err == nil || !strings.Contains(err.Error(), "ca.crt holds no certificate") {
		t.Errorf("%v %v", s, err)
	}
}
