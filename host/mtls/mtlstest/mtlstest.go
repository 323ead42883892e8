// Package mtlstest makes certificates for tests of secured connections.
package mtlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

// NewAuthority returns one that nobody trusts yet.
func NewAuthority(t testing.TB) *Authority {
	a := &Authority{}
	a.cert, a.key = a.issue(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "ca"}})
	return a
}

func (a *Authority) issue(t testing.TB, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
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

// Files are the contents of the secret for a new certificate, by file name.
func (a *Authority) Files(t testing.TB, template *x509.Certificate) map[string][]byte {
	t.Helper()
	cert, key := a.issue(t, template)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return map[string][]byte{
		"ca.crt": text("CERTIFICATE", a.cert.Raw), "tls.crt": text("CERTIFICATE", cert.Raw),
		"tls.key": text("EC PRIVATE KEY", der),
	}
}

// Write puts the files of a new certificate into dir.
func (a *Authority) Write(t testing.TB, dir string, template *x509.Certificate) {
	t.Helper()
	for name, text := range a.Files(t, template) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Trust says in dir whom to trust.
func (a *Authority) Trust(t testing.TB, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), a.Files(t, Named("", ""))["ca.crt"], 0o600); err != nil {
		t.Fatal(err)
	}
}

// Named is a certificate for a DNS name, or a common name, or both.
func Named(dns, common string) *x509.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: common}}
	if dns != "" {
		c.DNSNames = []string{dns}
	}
	return c
}

// Expired is a certificate for a DNS name that ended an hour ago.
func Expired(dns string) *x509.Certificate {
	c := Named(dns, "")
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	return c
}
