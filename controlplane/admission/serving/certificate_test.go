package serving

import (
	"testing"
	"time"

	"ankole.storage/controlplane/keys/certificate"
)

func TestServerCertificateIsAcceptedOnlyForWhatItIsFor(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ca, err := newAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a.ns.svc", "127.0.1.1"}
	p, err := ca.issue(names, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		names []string
		ca    pair
		at    time.Time
		want  bool
	}{
		{"its names", names, ca, now, true},
		{"one of its names", names[1:], ca, now, true},
		{"another address", []string{"127.0.1.2"}, ca, now, false},
		{"another name", []string{"b.ns.svc"}, ca, now, false},
		{"another authority", names, other, now, false},
		{"shortly before its end", names, ca, now.Add(serverLife - renewBefore + time.Minute), false},
		{"long before its end", names, ca, now.Add(serverLife - renewBefore - time.Minute), true},
		{"before its time", names, ca, now.Add(-clockSkew - time.Minute), false},
		{"on a clock that is months behind", names, ca, now.Add(-clockSkew + time.Minute), true},
		{"garbage as authority", names, pair{Pair: certificate.Pair{Cert: []byte("x")}}, now, false},
	} {
		if got := p.serves(tt.names, tt.ca, tt.at); got != tt.want {
			t.Errorf("%s: serves = %v, want %v", tt.name, got, tt.want)
		}
	}
	if (pair{}).serves(names, ca, now) {
		t.Error("an empty pair serves")
	}
	if ca.usable(now.Add(-clockSkew - time.Minute)) {
		t.Error("an authority is usable before its time")
	}
	if !ca.usable(now) || ca.usable(now.Add(authorityLife)) || p.usable(now) || (pair{}).usable(now) {
		t.Error("usable: only an authority with some life left is")
	}
}
