package peerkeys

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"time"

	"ankole.storage/controlplane/keys/certificate"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/host/mtls"
)

const (
	year          = 365 * 24 * time.Hour
	authorityLife = 10 * year
	peerLife      = year
	// renewBefore is the rest of its life at which the peers' certificate is replaced: whoever looks
	// after it may be away for weeks.
	renewBefore = 60 * 24 * time.Hour
	// replaceBefore is the rest of life at which an authority is replaced: longer than what it signs
	// lives.
	replaceBefore = 2 * year
	// spread is how long every process is given to see a change. Kubelets bring a changed Secret into
	// running Pods within two minutes; the rest is for nodes that are out of reach.
	spread = 24 * time.Hour
	// clockSkew lets a certificate be valid where the clock is behind that of the manager which made
	// it.
	clockSkew = 24 * time.Hour
)

// state is all that the Secrets hold.
type state struct {
	// authority signs the other certificates.
	authority certificate.Pair // its key may be missing: then it signs nothing more
	// next takes the place of the authority when everybody trusts it; former is one whose place was
	// taken, and that is trusted until nobody shows what it signed. One of them is set at most.
	next   certificate.Pair
	former []byte
	// since is when next or former was set, by the clock of whoever did it; seen, since when this
	// process has seen it.
	since, seen time.Time
	// peer is what instance managers, engines and replicas show, control what controllers show.
	peer, control certificate.Pair
}

// trusted is what peers are told to trust.
func (s state) trusted() []byte {
	return bytes.Join([][]byte{s.authority.Cert, s.next.Cert, s.former}, nil)
}

// advance returns what the state should be at a time. Two processes that have seen the states of
// any two moments less than spread apart trust each other; after a change of an authority nothing
// else changes for that long.
func (s state) advance(now time.Time) (state, error) {
	var err error
	switch {
	case !s.since.IsZero() && firstseen.Left(now, s.since, s.seen, spread) > 0:
		// the last change of authorities may not have arrived everywhere
	case len(s.next.Cert) > 0:
		s.former, s.authority, s.next, s.since = s.authority.Cert, s.next, certificate.Pair{}, now
	case len(s.former) > 0:
		s.former, s.since = nil, time.Time{}
	}
	switch {
	case !trustworthy(s.authority, now):
		s = state{} // nobody trusts anything
		s.authority, err = newAuthority(now)
	case !lasts(s.authority, now, replaceBefore) && len(s.next.Cert) == 0 && len(s.former) == 0:
		s.next, err = newAuthority(now)
		s.since = now
	}
	if err != nil {
		return state{}, err
	}
	if len(s.authority.Key) == 0 {
		return s, nil
	}
	if err := s.renew(&s.peer, mtls.NodeName, now); err != nil {
		return state{}, err
	}
	if err := s.renew(&s.control, mtls.ControllerName, now); err != nil {
		return state{}, err
	}
	return s, nil
}

// renew issues a certificate of a role anew where it does not serve.
func (s *state) renew(pair *certificate.Pair, role string, now time.Time) error {
	if serves(*pair, s.authority, role, now) {
		return nil
	}
	fresh, err := issue(s.authority, role, now)
	if err != nil {
		return err
	}
	*pair = fresh
	return nil
}

// lasts tells whether a pair can sign for so long yet.
func lasts(p certificate.Pair, now time.Time, rest time.Duration) bool {
	cert, err := p.Certificate()
	if err != nil || !cert.IsCA || now.Before(cert.NotBefore) || !now.Add(rest).Before(cert.NotAfter) {
		return false
	}
	_, err = p.PrivateKey()
	return err == nil
}

// trustworthy tells whether an authority's time is not over.
func trustworthy(p certificate.Pair, now time.Time) bool {
	cert, err := p.Certificate()
	return err == nil && now.Before(cert.NotAfter)
}

// serves tells whether a pair is one of the authority's for a role, and valid for some time yet.
func serves(p, authority certificate.Pair, role string, now time.Time) bool {
	cert, err := p.Certificate()
	if err != nil || now.Before(cert.NotBefore) || !now.Add(renewBefore).Before(cert.NotAfter) ||
		!slices.Contains(cert.DNSNames, role) {
		return false
	}
	parent, err := authority.Certificate()
	if err != nil || cert.CheckSignatureFrom(parent) != nil {
		return false
	}
	key, err := p.PrivateKey()
	return err == nil && key.PublicKey.Equal(cert.PublicKey)
}

func newAuthority(now time.Time) (certificate.Pair, error) {
	return certificate.Sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "longhorn-grpc-ca"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, nil)
}

// issue makes the certificate of a role.
func issue(authority certificate.Pair, role string, now time.Time) (certificate.Pair, error) {
	return certificate.Sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: mtls.PeerName},
		DNSNames:    []string{mtls.PeerName, role},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(peerLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, &authority)
}
