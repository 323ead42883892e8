package daemon_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"ankole.storage/host/mtls"
	"ankole.storage/host/mtls/mtlstest"
	"ankole.storage/instancemanager/client"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/wait"
)

var services = map[string]string{"process": ":8500", "proxy": ":8501", "instance": ":8503"}

func askBy(t *testing.T, address, dir string) error {
	t.Helper()
	return mtlstest.CallBy(t, address, mtlstest.Dialer(dir))
}

// next is the next thing a watch tells.
func next(t *testing.T, updates <-chan client.Update) client.Update {
	t.Helper()
	return wait.Receive(t, "what the watch tells", updates)
}

// TestC9 is the table of who is served, at each of the three services, with the secret and without.
// A server's reason for refusing a certificate may be lost with the connection; it is in its log.
func TestC9(t *testing.T) {
	t.Parallel()
	ours, foreign, dir := mtlstest.NewAuthority(t), mtlstest.NewAuthority(t), t.TempDir()
	ours.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	secured := launchSecured(t, mtlstest.Dialer(dir), []string{"--logs-dir", t.TempDir()}, "TLS_DIR="+dir)
	plain := launch(t)
	for _, row := range []struct {
		name string
		by   *mtlstest.Authority
		cert *x509.Certificate
		ok   bool
	}{
		{"the secret", ours, mtlstest.Named(mtls.PeerName, ""), true},
		{"the name as common name", ours, mtlstest.Named("", mtls.PeerName), true},
		{"another name", ours, mtlstest.Named("longhorn-backend.other", ""), false},
		{"an expired certificate", ours, mtlstest.Expired(mtls.PeerName), false},
		{"another authority's", foreign, mtlstest.Named(mtls.PeerName, ""), false},
	} {
		mine := t.TempDir()
		row.by.Write(t, mine, row.cert)
		ours.Trust(t, mine)
		for service, port := range services {
			if err := askBy(t, secured.ip+port, mine); (err == nil) != row.ok {
				t.Errorf("%s service, %s: %v", service, row.name, err)
			}
		}
	}
	stranger, nothing := t.TempDir(), t.TempDir()
	foreign.Write(t, stranger, mtlstest.Named(mtls.PeerName, ""))
	for service, port := range services {
		if err := askBy(t, secured.ip+port, stranger); err == nil ||
			!strings.Contains(err.Error(), "certificate of the peer") {
			t.Errorf("%s service, a client that trusts another authority: %v", service, err)
		}
		if err := mtlstest.Call(t, secured.ip+port, insecure.NewCredentials()); err == nil {
			t.Errorf("%s service serves plaintext", service)
		}
		if err := mtlstest.Call(t, secured.ip+port, credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})); err == nil {
			t.Errorf("%s service serves a client without a certificate", service)
		}
		for name, dir := range map[string]string{"with the secret": dir, "without": nothing} {
			if err := askBy(t, plain.ip+port, dir); err != nil {
				t.Errorf("%s service without the secret, a client %s: %v", service, name, err)
			}
		}
	}
}

// TestRoles: where certificates tell controllers from nodes, none of the three services takes
// orders from a node, be it another one or this one.
func TestRoles(t *testing.T) {
	t.Parallel()
	authority, dir := mtlstest.NewAuthority(t), t.TempDir()
	of := func(roles ...string) *x509.Certificate {
		return &x509.Certificate{DNSNames: append([]string{mtls.PeerName}, roles...)}
	}
	authority.Write(t, dir, of(mtls.NodeName))
	control := t.TempDir()
	authority.Write(t, control, of(mtls.ControllerName))
	node := launchSecured(t, mtlstest.Dialer(control), []string{"--logs-dir", t.TempDir()}, "TLS_DIR="+dir)
	for _, row := range []struct {
		name  string
		shown *x509.Certificate
		ok    bool
	}{
		{"a controller", of(mtls.ControllerName), true},
		{"a node", of(mtls.NodeName), false},
		{"a certificate without a role", of(), false},
		{"a controller of another kind", &x509.Certificate{DNSNames: []string{mtls.ControllerName}}, false},
		{"a role that is only claimed", mtlstest.Named(mtls.PeerName, mtls.ControllerName), false},
	} {
		mine := t.TempDir()
		authority.Write(t, mine, row.shown)
		for service, port := range services {
			if err := askBy(t, node.ip+port, mine); (err == nil) != row.ok {
				t.Errorf("%s service, %s: %v", service, row.name, err)
			}
		}
	}
}

// TestRotation: the secret is replaced, its authority too, under a running watch. The watch goes
// on; new connections are by the new secret alone.
func TestRotation(t *testing.T) {
	t.Parallel()
	first, second := mtlstest.NewAuthority(t), mtlstest.NewAuthority(t)
	dir, old := t.TempDir(), t.TempDir()
	first.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	first.Write(t, old, mtlstest.Named(mtls.PeerName, ""))
	p := launchSecured(t, mtlstest.Dialer(dir), []string{"--logs-dir", t.TempDir(), "--port-range", "11000-11099"},
		"TLS_DIR="+dir)
	ctx, cancel := context.WithCancel(t.Context())
	updates, ended := make(chan client.Update, 100), make(chan struct{})
	go func() {
		defer close(ended)
		p.client.Watch(ctx, func(u client.Update) { updates <- u })
	}()
	defer func() { cancel(); <-ended }()
	if u := next(t, updates); u.List == nil {
		t.Fatalf("%+v", u)
	}
	second.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	for service, port := range services {
		if err := askBy(t, p.ip+port, dir); err != nil {
			t.Errorf("%s service, with the new secret: %v", service, err)
		}
		if err := askBy(t, p.ip+port, old); err == nil {
			t.Errorf("%s service still takes the old secret", service)
		}
	}
	p.create(t, "demo-r-1", instancetest.Serve)
	for {
		u := next(t, updates)
		if u.Lost != nil || u.List != nil {
			t.Fatalf("the watch broke: %+v", u)
		}
		if u.Changed.GetSpec().GetName() == "demo-r-1" && u.Changed.GetStatus().GetState() == "running" {
			break
		}
	}
}

// TestSecretAppears: an instance manager that began without the secret takes it up by itself,
// and ends what is plaintext.
func TestSecretAppears(t *testing.T) {
	t.Parallel()
	a, dir := mtlstest.NewAuthority(t), t.TempDir()
	d := mtlstest.Dialer(dir)
	p := launchSecured(t, d, []string{"--logs-dir", t.TempDir(), "--port-range", "11100-11199"}, "TLS_DIR="+dir)
	ctx, cancel := context.WithCancel(t.Context())
	updates, ended := make(chan client.Update, 100), make(chan struct{})
	go func() {
		defer close(ended)
		p.client.Watch(ctx, func(u client.Update) { updates <- u })
	}()
	defer func() { cancel(); <-ended }()
	if u := next(t, updates); u.List == nil {
		t.Fatalf("%+v", u)
	}
	a.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	if u := next(t, updates); u.Lost == nil {
		t.Fatalf("the connection of before was not ended: %+v", u)
	}
	for u := (client.Update{}); u.List == nil; u = next(t, updates) {
		if u.Changed != nil {
			t.Fatalf("%+v", u)
		}
	}
	for service, port := range services {
		if err := mtlstest.Call(t, p.ip+port, insecure.NewCredentials()); err == nil {
			t.Errorf("%s service serves plaintext", service)
		}
		if err := askBy(t, p.ip+port, dir); err != nil {
			t.Errorf("%s service: %v", service, err)
		}
	}
}

// TestNobodyIsAnsweredBeforeThereIsACertificate: an instance manager that may not speak plaintext
// serves nobody, neither in plaintext nor by any certificate, until it has its own; what it starts
// then speaks no plaintext either.
func TestNobodyIsAnsweredBeforeThereIsACertificate(t *testing.T) {
	t.Parallel()
	ours, stranger, dir := mtlstest.NewAuthority(t), t.TempDir(), t.TempDir()
	mtlstest.NewAuthority(t).Write(t, stranger, mtlstest.Named(mtls.PeerName, ""))
	p := begin(t, nil, instancetest.Host(), []string{"--logs-dir", t.TempDir(), "--port-range", "11200-11299"},
		"TLS_DIR="+dir)
	wait.For(t, "somebody listens", func() error { return touch(t, p.ip+":8503") })
	for service, port := range services {
		if err := mtlstest.Call(t, p.ip+port, insecure.NewCredentials()); err == nil {
			t.Errorf("%s service serves plaintext", service)
		}
		for name, dir := range map[string]string{"without a certificate": dir, "with one of his own": stranger} {
			if err := askBy(t, p.ip+port, dir); err == nil {
				t.Errorf("%s service serves a client %s", service, name)
			}
		}
	}
	ours.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	p.dial(t, mtlstest.Dialer(dir))
	for service, port := range services {
		if err := askBy(t, p.ip+port, dir); err != nil {
			t.Errorf("%s service: %v", service, err)
		}
	}
	if _, err := p.client.ProcessCreate(t.Context(), p.spec(t, "demo-e-0", instancetest.Env, "", 0)); err != nil {
		t.Fatal(err)
	}
	p.awaitLine(t, "demo-e-0", "ANKOLE_TLS=required")
}

// touch connects and says nothing, as a liveness probe does.
func touch(t *testing.T, address string) error {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err == nil {
		_ = c.Close()
	}
	return err
}
