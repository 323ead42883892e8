package peerkeys

import (
	"bytes"
	"time"

	"ankole.storage/controlplane/keys/certificate"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/host/mtls"
)

// spread is how long every process is given to see a change. Kubelets bring a changed Secret into
// running Pods within two minutes; the rest is for nodes that are out of reach.
const spread = 24 * time.Hour

const authorityName = "longhorn-grpc-ca"

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
		s.authority, err = certificate.NewAuthority(authorityName, now)
	case !s.authority.Lasts(now, certificate.ReplaceBefore) && len(s.next.Cert) == 0 && len(s.former) == 0:
		s.next, err = certificate.NewAuthority(authorityName, now)
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
	names := []string{mtls.PeerName, role}
	if pair.Serves(names, s.authority, now) {
		return nil
	}
	fresh, err := s.authority.Issue(names, now)
	if err != nil {
		return err
	}
	*pair = fresh
	return nil
}

// trustworthy tells whether an authority's time is not over.
func trustworthy(p certificate.Pair, now time.Time) bool {
	cert, err := p.Certificate()
	return err == nil && now.Before(cert.NotAfter)
}
