// Package certificate makes the certificates that the system gives itself: those of its webhooks
// and of the connections between managers and instance managers.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	year = 365 * 24 * time.Hour
	// AuthorityLife and Life are how long an authority's certificate is valid, and one that it signs.
	AuthorityLife, Life = 10 * year, year
	// ReplaceBefore is the rest of its life at which an authority is replaced: longer than what it
	// signs lives.
	ReplaceBefore = 2 * year
	// RenewBefore is the rest of its life at which another certificate is renewed: whoever looks after
	// it may be away for weeks.
	RenewBefore = 60 * 24 * time.Hour
	// Skew lets a certificate be valid where the clock is behind that of the manager which made it. It
	// is as long as a wrong clock is likely to be wrong: one fast manager must not lock all others out
	// until its time comes.
	Skew = year
)

// Pair is a certificate with its key, both PEM. Of several certificates in one text the first one
// counts.
type Pair struct{ Cert, Key []byte }

// Certificate parses the certificate.
func (p Pair) Certificate() (*x509.Certificate, error) {
	block, _ := pem.Decode(p.Cert)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// PrivateKey parses the key.
func (p Pair) PrivateKey() (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(p.Key)
	if block == nil {
		return nil, errors.New("no PEM key")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse key: %w", err)
	}
	return key, nil
}

// NewAuthority makes an authority.
func NewAuthority(name string, now time.Time) (Pair, error) {
	return sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-Skew),
		NotAfter:              now.Add(AuthorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, nil)
}

// Issue makes a certificate for names (DNS names and IP addresses), by which servers and clients
// show who they are. The first name is its common name.
func (p Pair) Issue(names []string, now time.Time) (Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: names[0]},
		NotBefore:   now.Add(-Skew),
		NotAfter:    now.Add(Life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return sign(template, &p)
}

// Lasts tells whether the pair is an authority that can sign for so long yet.
func (p Pair) Lasts(now time.Time, rest time.Duration) bool {
	cert, err := p.Certificate()
	return err == nil && cert.IsCA && during(cert, now, rest) && p.hasKey(cert)
}

// Serves tells whether the pair is the authority's, covers all names and is valid for some time
// yet.
func (p Pair) Serves(names []string, authority Pair, now time.Time) bool {
	cert, err := p.Certificate()
	if err != nil || !during(cert, now, RenewBefore) {
		return false
	}
	parent, err := authority.Certificate()
	if err != nil || cert.CheckSignatureFrom(parent) != nil {
		return false
	}
	for _, name := range names {
		if cert.VerifyHostname(name) != nil {
			return false
		}
	}
	return p.hasKey(cert)
}

// Names lists what the certificate is for, sorted; none if it cannot be read.
func (p Pair) Names() []string {
	cert, err := p.Certificate()
	if err != nil {
		return nil
	}
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	return names
}

// during tells whether a certificate's time has begun and goes on for so long yet.
func during(cert *x509.Certificate, now time.Time, rest time.Duration) bool {
	return !now.Before(cert.NotBefore) && now.Add(rest).Before(cert.NotAfter)
}

// hasKey tells whether the key is that of the certificate.
func (p Pair) hasKey(cert *x509.Certificate) bool {
	key, err := p.PrivateKey()
	return err == nil && key.PublicKey.Equal(cert.PublicKey)
}

// sign makes a key and a certificate for template, signed by authority; by itself where authority
// is nil.
func sign(template *x509.Certificate, authority *Pair) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return Pair{}, fmt.Errorf("serial number: %w", err)
	}
	parent, signer := template, key
	if authority != nil {
		if parent, err = authority.Certificate(); err != nil {
			return Pair{}, fmt.Errorf("certificate authority: %w", err)
		}
		if signer, err = authority.PrivateKey(); err != nil {
			return Pair{}, fmt.Errorf("certificate authority: %w", err)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate: %w", err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}, nil
}
