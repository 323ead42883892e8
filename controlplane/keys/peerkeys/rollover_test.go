package peerkeys

import (
	"bytes"
	"crypto/x509"
	"errors"
	"slices"
	"testing"
	"time"

	"ankole.storage/controlplane/keys/certificate"
	"ankole.storage/host/mtls"
	"ankole.storage/test/seeded"
)

var began = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// accepts tells why a process that has seen one state would refuse a certificate of another.
func accepts(seen, shown state, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(seen.trusted())
	var all error
	for _, pair := range []certificate.Pair{shown.peer, shown.control} {
		cert, err := pair.Certificate()
		if err == nil {
			_, err = cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: mtls.PeerName, CurrentTime: now,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		}
		all = errors.Join(all, err)
	}
	return all
}

func advance(t interface{ Fatal(...any) }, s state, now time.Time) state {
	next, err := s.advance(now)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// history is what was there within the last spread.
type history struct {
	recent []moment
	// trusted and shown count what was trusted, and which certificates were shown.
	trusted, shown int
}

// moment is a state and when it was there last.
type moment struct {
	state
	last time.Time
}

// add tells of the state at a time, and checks that processes which have seen that and any that was
// there less than a spread ago accept each other.
func (h *history) add(t interface{ Fatalf(string, ...any) }, s state, now time.Time) {
	if n := len(h.recent) - 1; n >= 0 {
		old := &h.recent[n]
		old.last = now // it was there until a moment ago
		trusted, shown := bytes.Equal(old.trusted(), s.trusted()), bytes.Equal(old.peer.Cert, s.peer.Cert)
		if trusted && shown {
			if err := accepts(s, s, now); err != nil {
				t.Fatalf("%s: %v", now, err)
			}
			return
		}
		h.count(!trusted, !shown)
	} else {
		h.count(true, true)
	}
	for len(h.recent) > 0 && !h.recent[0].last.After(now.Add(-spread)) {
		h.recent = h.recent[1:]
	}
	h.recent = append(h.recent, moment{s, now})
	for _, old := range h.recent {
		if err := accepts(old.state, s, now); err != nil {
			t.Fatalf("%s: what was there until %s does not accept what is there: %v", now, old.last, err)
		}
		if err := accepts(s, old.state, now); err != nil {
			t.Fatalf("%s: what is there does not accept what was until %s: %v", now, old.last, err)
		}
	}
}

func (h *history) count(trusted, shown bool) {
	if trusted {
		h.trusted++
	}
	if shown {
		h.shown++
	}
}

// TestNobodyLosesContact: for decades, whenever it is looked, processes that have seen what was
// there at any two moments less than a spread apart accept each other.
func TestNobodyLosesContact(t *testing.T) {
	src := seeded.New(t, "processes accept each other whatever they have seen of the last day")
	for range src.Seeds(5) {
		random := src.Rand(0)
		var s state
		var h history
		for now := began; now.Before(began.Add(25 * certificate.Life)); {
			s = advance(t, s, now)
			h.add(t, s, now)
			now = now.Add(time.Duration([]int64{1, 7, 24, 25, 24 * 30}[random.IntN(5)]) * time.Hour)
		}
		if h.trusted != 10 || h.shown < 25 { // an authority, and three changes for each of three further ones
			t.Errorf("%d kinds of trust and %d certificates in 25 years", h.trusted, h.shown)
		}
	}
}

// TestAuthorityIsLost: with its key gone, what it signed is trusted until everybody trusts another.
func TestAuthorityIsLost(t *testing.T) {
	before := advance(t, state{}, began)
	lost := before
	lost.authority.Key = nil
	now := began.Add(time.Hour)
	s := advance(t, lost, now)
	if !bytes.Equal(s.peer.Cert, before.peer.Cert) || accepts(s, before, now) != nil || len(s.next.Key) == 0 {
		t.Errorf("at once: another certificate, or no next authority")
	}
	now = now.Add(spread)
	after := advance(t, s, now)
	if bytes.Equal(after.peer.Cert, before.peer.Cert) || accepts(s, after, now) != nil || accepts(after, s, now) != nil {
		t.Error("later: the same certificate, or one that is not accepted")
	}
}

// TestLongAway: a cluster that comes back when nothing of its certificates is valid any more begins
// anew at once.
func TestLongAway(t *testing.T) {
	before := advance(t, state{}, began)
	now := began.Add(certificate.AuthorityLife + time.Hour)
	if s := advance(t, before, now); accepts(s, s, now) != nil || bytes.Equal(s.authority.Cert, before.authority.Cert) {
		t.Error("the certificate is not accepted")
	}
	now = began.Add(certificate.Life + time.Hour)
	if s := advance(t, before, now); accepts(s, s, now) != nil || !bytes.Equal(s.authority.Cert, before.authority.Cert) {
		t.Error("with a valid authority the certificate is not accepted")
	}
}

// TestAuthorityCannotBeShown: what is trusted to sign does not pass for a peer.
func TestAuthorityCannotBeShown(t *testing.T) {
	s := advance(t, state{}, began)
	if err := accepts(s, state{peer: certificate.Pair{Cert: s.authority.Cert}, control: s.control}, began); err == nil {
		t.Error("an authority's certificate is accepted as a peer's")
	}
}

// TestRoles: nodes and controllers have a certificate each, and one that names no role, or another
// one, is replaced.
func TestRoles(t *testing.T) {
	s := advance(t, state{}, began)
	names := func(p certificate.Pair) []string {
		cert, err := p.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		return cert.DNSNames
	}
	told := func(s state) {
		t.Helper()
		if got := names(s.peer); !slices.Equal(got, []string{mtls.PeerName, mtls.NodeName}) {
			t.Errorf("nodes show %q", got)
		}
		if got := names(s.control); !slices.Equal(got, []string{mtls.PeerName, mtls.ControllerName}) {
			t.Errorf("controllers show %q", got)
		}
	}
	told(s)
	swapped := s
	swapped.peer, swapped.control = s.control, s.peer
	told(advance(t, swapped, began))
}
