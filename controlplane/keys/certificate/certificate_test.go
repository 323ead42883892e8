package certificate_test

import (
	"testing"
	"time"

	"ankole.storage/controlplane/keys/certificate"
)

func TestServesOnlyWhatItIsFor(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ca, err := certificate.NewAuthority("ca", now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := certificate.NewAuthority("ca", now)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a.ns.svc", "127.0.1.1"}
	p, err := ca.Issue(names, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		names []string
		ca    certificate.Pair
		at    time.Time
		want  bool
	}{
		{"its names", names, ca, now, true},
		{"one of its names", names[1:], ca, now, true},
		{"another address", []string{"127.0.1.2"}, ca, now, false},
		{"another name", []string{"b.ns.svc"}, ca, now, false},
		{"another authority", names, other, now, false},
		{"shortly before its end", names, ca, now.Add(certificate.Life - certificate.RenewBefore + time.Minute), false},
		{"long before its end", names, ca, now.Add(certificate.Life - certificate.RenewBefore - time.Minute), true},
		{"before its time", names, ca, now.Add(-certificate.Skew - time.Minute), false},
		{"on a clock that is months behind", names, ca, now.Add(-certificate.Skew + time.Minute), true},
		{"garbage as authority", names, certificate.Pair{Cert: []byte("x")}, now, false},
	} {
		if got := p.Serves(tt.names, tt.ca, tt.at); got != tt.want {
			t.Errorf("%s: Serves = %v, want %v", tt.name, got, tt.want)
		}
	}
	if (certificate.Pair{}).Serves(names, ca, now) {
		t.Error("an empty pair serves")
	}
	stranger := certificate.Pair{Cert: p.Cert, Key: other.Key}
	if stranger.Serves(names, ca, now) {
		t.Error("a pair whose key is another one's serves")
	}
	if ca.Lasts(now.Add(-certificate.Skew-time.Minute), 0) {
		t.Error("an authority is usable before its time")
	}
	if !ca.Lasts(now, certificate.ReplaceBefore) || ca.Lasts(now.Add(certificate.AuthorityLife), 0) || p.Lasts(now, 0) ||
		(certificate.Pair{}).Lasts(now, 0) {
		t.Error("only an authority with some life left lasts")
	}
}
