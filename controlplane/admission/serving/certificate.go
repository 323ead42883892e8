package serving

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"slices"
	"time"

	"ankole.storage/controlplane/keys/certificate"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	serverLife    = 365 * 24 * time.Hour
	// renewBefore is the rest of life at which a certificate is replaced; managers restart or look
	// again well within.
	renewBefore = 30 * 24 * time.Hour
	// clockSkew lets a certificate be valid where the clock is behind that of the manager which made
	// it. It is as long as a wrong clock is likely to be wrong: one fast manager must not lock the
	// API server, and with it the cluster, out of the webhooks until its time comes.
	clockSkew = 365 * 24 * time.Hour
)

// pair is a certificate with its key.
type pair struct {
	certificate.Pair
	// former is the certificate that an authority took the place of; managers that have not seen the
	// change yet serve with what it signed.
	former []byte
}

// newAuthority makes a certificate authority.
func newAuthority(now time.Time) (pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "longhorn-webhook-ca"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	made, err := certificate.Sign(template, nil)
	return pair{Pair: made}, err
}

// issue makes a server certificate for names (DNS names and IP addresses).
func (authority pair) issue(names []string, now time.Time) (pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: names[0]},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(serverLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	made, err := certificate.Sign(template, &authority.Pair)
	return pair{Pair: made}, err
}

// usable tells whether the pair can serve as an authority for some time yet.
func (authority pair) usable(now time.Time) bool {
	cert, err := authority.Certificate()
	if err != nil || !cert.IsCA {
		return false
	}
	_, err = authority.PrivateKey()
	return err == nil && valid(cert, now)
}

// valid tells whether a certificate's time has begun and goes on for some time yet.
func valid(cert *x509.Certificate, now time.Time) bool {
	return !now.Before(cert.NotBefore) && now.Add(renewBefore).Before(cert.NotAfter)
}

// trusted is what is to be believed: the authority's certificate and the former one.
func (authority pair) trusted() []byte { return slices.Concat(authority.Cert, authority.former) }

// serves tells whether the pair is signed by authority, covers all names and is valid for some time
// yet.
func (p pair) serves(names []string, authority pair, now time.Time) bool {
	cert, err := p.Certificate()
	if err != nil || !valid(cert, now) {
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
	_, err = p.PrivateKey()
	return err == nil
}

// names lists what the certificate is for, sorted; none if it cannot be read.
func (p pair) names() []string {
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
